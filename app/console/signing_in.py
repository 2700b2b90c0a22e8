"""Sign people in and out. Only these routes work without a session.

All failures give one message. Limits count tries by name and network.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from time import monotonic
from typing import Any, Final, Literal, get_args
from urllib.parse import parse_qsl, quote, unquote, urlencode

from markupsafe import Markup
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from app.access import challenges, credentials, names, operators, sessions
from app.access.company_account import LOCAL_OFF, CompanyRefused
from app.access.passkeys import PasskeyAnswer, passkey_origin, request_options
from app.access.proposals import newcomer_notice
from app.access.sessions import Way
from app.console.pages import Pages
from app.console.security import RateLimiter, network_block
from app.console.view import Console, Person
from app.console.words import spoken
from app.core.errors import UnreachableError, UsageError
from app.core.ids import new_token
from app.core.logs import log
from app.core.masking import looks_like_a_phone
from reconcile.instants import DAY, SECOND, Instant

NAME_TRIES: Final = 5
"""Maximum number of tries per minute with one name from one network."""
NAME_TRIES_IN_ALL: Final = 20
"""Maximum tries per minute with one name, over all networks new to the operator."""
NETWORK_TRIES: Final = 20
NOTED_FOR_S: Final = 3600.0
"""Seconds in which a network's further failures are not recorded."""
MAX_FORM_BYTES: Final = 16 * 1024
MAX_FIELDS: Final = 50
FORM_WITHIN_S: Final = 30.0
MAX_NEXT: Final = 2_000
"""Maximum length of the target address in a cookie."""

BEGUN: Final = "-begun"
"""Suffix of the cookie for the company's sign-in."""

BROWSER: Final = "-browser"
"""Suffix of the cookie for a browser's passkey challenge."""

Purpose = Literal["sign-in", "again", "link"]
"""Reason for a redirect to the company's sign-in."""

BY_ITSELF: Final = "Tallyhook-By-Itself"
"""Header of a script's requests, which extend no session."""


async def form_fields(request: Request) -> dict[str, str]:
    """Return the fields of a submitted form.

    Raises UsageError if the form is invalid, too long or too slow.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(FORM_WITHIN_S):
            async for part in request.stream():
                body += part
                if len(body) > MAX_FORM_BYTES:
                    raise UsageError("the form is too long")
    except TimeoutError:
        raise UsageError("the form took too long to arrive: send it again") from None
    except ClientDisconnect:  # otherwise a stranger could fill the error log
        raise UsageError("the form arrived incomplete: send it again") from None
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, strict_parsing=bool(body),
            max_num_fields=MAX_FIELDS, errors="strict",
        )  # fmt: skip
    except ValueError:
        raise UsageError("this form is not from this console: open the page again") from None
    if any("\0" in value for _, value in pairs):  # PostgreSQL's text type rejects NUL
        raise UsageError("this form is not from this console: open the page again")
    return dict(pairs)


def local(address: str) -> str:
    """Return a local path unchanged, or else the first page's."""
    plain = address.isprintable() and "\\" not in address
    return address if plain and address.startswith("/") and not address.startswith("//") else "/"


def address_of(request: Request) -> str:
    """Return a request's path and query."""
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


def _network(request: Request) -> str:
    return network_block(request.client.host if request.client else "")


def qr_code(text: str) -> Markup:
    """Return a QR code as SVG."""
    import segno  # only one page needs it

    made = segno.make(text, micro=False, error="m")
    svg = made.svg_inline(border=4, omitsize=True, light="#fff", svgclass=None, lineclass=None)
    return Markup(svg)  # noqa: S704  # its paths, and nothing of the text


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsentForm:
    """Text of a form submitted after its session's end."""

    name: str
    """Operator of the session."""
    where: str
    """Address of the form."""
    fields: Mapping[str, str] = field(repr=False)
    until: float
    """Expiry, in seconds of this process's clock."""


class UnsentForms:
    """Forms submitted after their session had ended, kept in memory until the next sign-in."""

    MOST: Final = 200
    KEPT_S: Final = 3600.0

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[str, UnsentForm] = OrderedDict()

    def put(self, cookie: str, *, name: str, where: str, fields: Mapping[str, str]) -> None:
        """Store the form of a session, without ids, passwords and possible phone numbers."""
        until = self._clock() + self.KEPT_S
        typed = {
            word: text
            for word, text in fields.items()
            if word not in NOT_TYPED and not looks_like_a_phone(text)
        }
        self._kept.pop(_hashed(cookie), None)
        self._kept[_hashed(cookie)] = UnsentForm(name=name, where=where, fields=typed, until=until)
        while len(self._kept) > self.MOST:
            self._kept.popitem(last=False)

    def hand_over(self, cookie: str, new: str, *, name: str) -> None:
        """Move the stored form to a new session of the operator.

        Another operator's form is dropped.
        """
        kept = self._kept.pop(_hashed(cookie), None)
        if kept is not None and kept.name == name:
            self._kept[_hashed(new)] = kept

    def at(self, cookie: str, where: str) -> Mapping[str, str]:
        """Return the stored text of the form at an address, or an empty mapping."""
        kept = self._kept.get(_hashed(cookie))
        return kept.fields if kept and kept.where == where and kept.until > self._clock() else {}

    def drop(self, cookie: str) -> None:
        """Drop the stored form of a session."""
        self._kept.pop(_hashed(cookie), None)


NOT_TYPED: Final = frozenset({"form", "password", "username"})
"""Form fields of the sign-in page that are never stored."""


def _hashed(cookie: str) -> str:
    return sha256(cookie.encode(errors="replace")).hexdigest()


def link_grant_of(cookie: str) -> str:
    """Return the text that binds a challenge to a session."""
    return f"link {_hashed(cookie)}"


class SigningIn:
    """Routes for signing in and out. The class also finds the operator who sent a request."""

    def __init__(self, console: Console, pages: Pages) -> None:
        self._console = console
        self._pages = pages
        self._by_name = RateLimiter(NAME_TRIES)
        self._by_name_in_all = RateLimiter(NAME_TRIES_IN_ALL)
        self._by_network = RateLimiter(NETWORK_TRIES)
        self._unsent = UnsentForms()
        self._signed_in: set[tuple[str, str]] = set()
        """(name, network) of everybody who proved their identity."""
        self._noted = RateLimiter(1, within_s=NOTED_FOR_S)

    async def person(self, request: Request, *, used: bool = True) -> Person | None:
        """Return the signed-in person who sent the request.

        If `used` is False, the request does not extend the session.
        """
        token = self._cookie(request)
        if not token:
            return None
        used = used and BY_ITSELF not in request.headers
        found = await sessions.session_of(self._console.context, token, used=used)
        if found is None or not self._open_to(found.way):
            return None
        return Person(
            name=operators.Proven(found.name),
            role=found.role,
            began_at=found.created_at,
            way=found.way,
            proved_at=found.proved_at,
        )

    def _open_to(self, way: Way) -> bool:
        if way == "company":
            return self._console.company is not None
        return way == "link" or self._console.context.settings.oidc.local_accounts == "on"

    def _cookie(self, request: Request) -> str:
        return request.cookies.get(self._console.cookie, "")

    def _may_try(self, request: Request, name: str | None = None, *, known: bool = False) -> bool:
        network = _network(request)
        if not self._by_network.take(network):
            return False
        if name is None:
            return True
        known = known or (name, network) in self._signed_in
        own = self._by_name.take(f"{network} {name}")
        return own and (known or self._by_name_in_all.take(name))

    async def keep_unsent(self, request: Request) -> bool:
        """Store a form of an ended session. Return whether the form was stored."""
        cookie = self._cookie(request)
        name = await sessions.name_of_session(self._console.context, cookie) if cookie else None
        if name is None:
            return False
        try:
            fields = await form_fields(request)
        except UsageError:
            return False
        self._unsent.put(cookie, name=name, where=address_of(request), fields=fields)
        return True

    def unsent(self, request: Request) -> Mapping[str, str]:
        """Return the text that the operator typed into this form before signing in again."""
        return self._unsent.at(self._cookie(request), address_of(request))

    def keep_typed(self, request: Request, person: Person, fields: Mapping[str, str]) -> None:
        """Store a form's text while its operator confirms their identity at the company's
        sign-in."""
        self._unsent.put(
            self._cookie(request), name=person.name, where=address_of(request), fields=fields
        )

    def forget_unsent(self, request: Request) -> None:
        """Drop the stored text of this form, because the form is being submitted."""
        if self.unsent(request):
            self._unsent.drop(self._cookie(request))

    def _begun(self, request: Request, token: str, where: str, *, name: str) -> Response:
        self._unsent.hand_over(self._cookie(request), token, name=name)
        answer = RedirectResponse(where, status_code=303)
        self._set_cookie(answer, token)
        log.info("an operator signed in")
        return answer

    def _set_cookie(self, answer: Response, token: str, *, also: str = "") -> None:
        # A day longer than any session, so that a late form still identifies its operator.
        lasts = challenges.VALID_FOR if also else sessions.LONGEST + DAY
        answer.set_cookie(
            self._console.cookie + also,
            token,
            max_age=lasts // SECOND,
            path="/",
            secure=self._console.secure,
            httponly=True,
            samesite="lax",
        )

    def _form(self, template: str, *, title: str, status: int = 200, **values: Any) -> Response:
        shown: dict[str, Any] = {"problem": None, **values}
        return self._pages.plain(template, title=title, status=status, values=shown)

    def _link_form(self, title: str, to: str, error: Exception | None = None) -> Response:
        if error is None:
            return self._form("link.html", title=title, to=to)
        return self._form("link.html", title=title, to=to, status=403, problem=str(error))

    def proof_of(self, person: Person) -> str:
        """Return the proof that an irreversible act needs: `password`, `company`, or "" for
        none."""
        if person.way == "link":
            return ""  # sessions by the owner's link last an hour, or are the demo's
        fresh = person.proved_within(self._console.context.clock.now())
        return "" if person.way == "company" and fresh else person.way

    async def confirms(self, request: Request, person: Person, password: str) -> bool:
        """Check that an operator proved their identity for an irreversible act.

        After too many tries, even the right password fails.
        """
        if person.way != "password":
            return not self.proof_of(person)
        fits = self._may_try(request, person.name, known=True) and await sessions.confirmed(
            self._console.context, name=person.name, password=password
        )
        if not fits:
            await self._note_failure(request, person.name)
            return False
        self._signed_in.add((person.name, _network(request)))
        old = self._cookie(request)
        renewed = await sessions.renew_session(self._console.context, old)
        if renewed is None:
            return False
        self._unsent.hand_over(old, renewed, name=person.name)
        request.state.renewed = renewed
        return True

    def with_session(self, request: Request, answer: Response) -> Response:
        """Return the answer, with the session's new cookie if the request renewed the session."""
        if (renewed := getattr(request.state, "renewed", None)) is not None:
            self._set_cookie(answer, renewed)
        return answer

    async def _note_failure(self, request: Request, name: str | None = None) -> None:
        network = _network(request)
        if self._noted.take(network if name is None else f"{network} {name}"):
            await sessions.note_failure(self._console.context, name=name)

    async def sign_in(self, request: Request) -> Response:
        where = local(request.query_params.get("next", "/"))
        if request.method != "POST":
            if await self.person(request) is not None:
                return RedirectResponse(where, status_code=303)
            ended = request.query_params.get("ended")
            return await self._sign_in_form(request, where=where, ended=ended)
        form = await form_fields(request)
        if not self._open_to("password"):
            return await self._sign_in_form(request, status=403, problem=LOCAL_OFF)
        # Cut, because tries are counted by it; no operator's name is longer.
        name = form.get("name", "").strip()[: names.NAME_MAX + 1]
        try:
            if not self._may_try(request, name):
                raise sessions.SignInRefused
            token = await sessions.sign_in(
                self._console.context,
                name=name,
                password=form.get("password", ""),
                code=form.get("code", ""),
                passkey=self._passkey_of(request, form),
                old=self._cookie(request),
            )
        except sessions.SignInRefused as error:
            await self._note_failure(request)
            where = local(form.get("next", "/"))
            return await self._sign_in_form(
                request, status=403, where=where, name=name, problem=str(error)
            )
        self._signed_in.add((name, _network(request)))
        return self._begun(request, token, local(form.get("next", "/")), name=name)

    def _passkey_of(self, request: Request, form: Mapping[str, str]) -> PasskeyAnswer | None:
        if not form.get("passkey"):
            return None
        console, challenge = self._console, form.get("challenge", "")
        to = f"passkey {request.cookies.get(console.cookie + BROWSER, '')}"
        now = console.context.clock.now()
        if challenges.begun_at(console.mark_key, challenge, to=to, now=now) is None:
            raise sessions.SignInRefused
        origin = passkey_origin(console.origin)
        return PasskeyAnswer(origin=origin, challenge=challenge, text=form["passkey"])

    async def _sign_in_form(
        self,
        request: Request,
        *,
        status: int = 200,
        where: str = "/",
        name: str = "",
        ended: str | None = None,
        problem: str | None = None,
    ) -> Response:
        company, leave = self._console.company, None
        # Other tabs of the browser have forms of the same secret.
        browser = request.cookies.get(self._console.cookie + BROWSER) or new_token("")
        now = self._console.context.clock.now()
        challenge = challenges.new_challenge(
            self._console.mark_key, to=f"passkey {browser}", now=now
        )
        if company is not None and "left" in request.query_params:
            with suppress(UnreachableError):
                leave = (await company.addresses()).end_session
        answer = self._form(
            "sign_in.html",
            title="Sign in",
            status=status,
            next=where,
            ended=ended,
            name=name,
            problem=problem,
            company=None if company is None else f"/sign-in/company?{urlencode({'next': where})}",
            leave=leave,
            passwords=self._open_to("password"),
            challenge=challenge,
            passkey=request_options(passkey_origin(self._console.origin), challenge),
        )
        self._set_cookie(answer, browser, also=BROWSER)
        return answer

    # --- the company's account --------------------------------------------------------------------

    async def to_company(self, request: Request) -> Response:
        """Redirect a browser to the company's sign-in."""
        company, asked = self._console.company, request.query_params
        purpose = next((each for each in get_args(Purpose) if each == asked.get("for")), "sign-in")
        where = local(asked.get("next", "/"))
        if company is None:
            return self._pages.problem(404, "There is no such page.")
        if purpose != "sign-in" and await self.person(request) is None:
            return RedirectResponse("/sign-in", status_code=303)
        if purpose == "link" and not self._granted(request, asked.get("grant", "")):
            return self._pages.problem(403, "Link the account on the page My account.", back="/me")
        if not self._may_try(request):
            return self._pages.problem(429, "Too many tries: wait a minute.", back=where)
        where = where if len(where) <= MAX_NEXT else "/"
        begun = f"{new_token('')}.{purpose}.{quote(where, safe='')}"
        key, now = self._console.mark_key, self._console.context.clock.now()
        state = challenges.new_challenge(key, to=begun, now=now)
        try:
            there = await company.address_to(
                state=state,
                nonce=challenges.derived(key, state, "nonce"),
                verifier=challenges.derived(key, state, "verifier"),
                again=purpose != "sign-in",
            )
        except UnreachableError as error:
            return self._pages.problem(503, spoken(str(error)), back=where)
        answer = RedirectResponse(there, status_code=303)
        self._set_cookie(answer, begun, also=BEGUN)
        return answer

    def _granted(self, request: Request, grant: str) -> bool:
        now = self._console.context.clock.now()
        to = link_grant_of(self._cookie(request))
        return challenges.begun_at(self._console.mark_key, grant, to=to, now=now) is not None

    async def from_company(self, request: Request) -> Response:
        """Complete a sign-in with the company's account. Each sign-in can be completed only
        once."""
        company, given = self._console.company, request.query_params
        if company is None:
            return self._pages.problem(404, "There is no such page.")
        begun = request.cookies.get(self._console.cookie + BEGUN, "")
        _, _, rest = begun.partition(".")
        purpose, _, place = rest.partition(".")
        where, state = local(unquote(place)), given.get("state", "")
        context, key = self._console.context, self._console.mark_key
        try:
            at = challenges.begun_at(key, state, to=begun, now=context.clock.now())
            if at is None:
                raise CompanyRefused(
                    "This sign-in was begun in another browser, or more than ten minutes ago. "
                    "Begin again."
                )
            if not await sessions.first_use(context, state):
                raise CompanyRefused("This sign-in was used already. Begin again.")
            account = await company.account(
                given,
                nonce=challenges.derived(key, state, "nonce"),
                verifier=challenges.derived(key, state, "verifier"),
                begun=at,
                again=purpose != "sign-in",
            )
            old = self._cookie(request)
            if purpose == "sign-in":
                token, name = await sessions.sign_in_by_company(context, account, old=old)
            else:
                person = await self.person(request)
                if person is None:
                    raise CompanyRefused("Your session has ended. Sign in again.")
                name = person.name
                change = sessions.link_company if purpose == "link" else sessions.prove_by_company
                token = await change(context, account, name=name, token=old)
        except (CompanyRefused, UnreachableError) as error:
            if isinstance(error, CompanyRefused):
                await self._note_failure(request)
            if purpose in ("again", "link"):
                answer = self._pages.problem(403, spoken(str(error)), back=where)
            else:
                answer = await self._sign_in_form(
                    request, status=403, where=where, problem=spoken(str(error))
                )
        else:
            answer = self._begun(request, token, where, name=name)
        answer.delete_cookie(
            self._console.cookie + BEGUN, path="/", secure=self._console.secure, httponly=True
        )
        return answer

    # --- leaving, and links -----------------------------------------------------------------------

    async def sign_out(self, request: Request) -> Response:
        cookie, person = self._cookie(request), await self.person(request)
        self._unsent.drop(cookie)
        await sessions.sign_out(self._console.context, cookie)
        left = person is not None and person.way == "company"
        answer = RedirectResponse("/sign-in?left=company" if left else "/sign-in", status_code=303)
        answer.delete_cookie(
            self._console.cookie, path="/", secure=self._console.secure, httponly=True
        )
        return answer

    async def enter(self, request: Request) -> Response:
        """Sign a person in through a link.

        The demo's link works only on this machine.
        """
        title = "Sign in with a link"
        if request.method != "POST":
            return self._link_form(title, "/enter")
        token = (await form_fields(request)).get("token", "").strip()
        try:
            if not self._may_try(request):
                raise sessions.LinkRefused
            old = self._cookie(request)
            demo = self._console.loopback
            begun, name = await sessions.enter(self._console.context, token, demo=demo, old=old)
            return self._begun(request, begun, "/", name=name)
        except sessions.LinkRefused as error:
            return self._link_form(title, "/enter", error)

    async def invite(self, request: Request) -> Response:
        """Show the form of an invitation, and store the chosen password."""
        if not self._open_to("password"):
            return await self._sign_in_form(request, status=403, problem=LOCAL_OFF)
        if request.method != "POST":
            return self._link_form("Your invitation", "/invite")
        form = await form_fields(request)
        token = form.get("token", "").strip()
        try:
            if not self._may_try(request):
                raise sessions.LinkRefused
            link = await sessions.read_link(self._console.context, token, kind="invite")
            problem = None
            if "password" in form:
                try:
                    if form["password"] != form.get("again"):
                        raise UsageError("The two passwords are not the same.")
                    begun = await sessions.accept_invitation(
                        self._console.context,
                        token,
                        password=form["password"],
                        code=form.get("code", ""),
                        merchant=self._console.context.settings.merchant,
                        old=self._cookie(request),
                    )
                    return self._begun(request, begun, "/", name=link.name)
                except UsageError as error:
                    problem = str(error)
        except sessions.LinkRefused as error:
            return self._link_form("Your invitation", "/invite", error)
        address = None if link.totp is None else credentials.totp_address(link.totp, link.name)
        return self._form(
            "invite.html",
            title="Your invitation",
            status=200 if problem is None else 400,
            problem=problem,
            name=link.name,
            notice=newcomer_notice(link.name, now=Instant(link.until - sessions.INVITED_FOR)),
            token=token,
            totp=link.totp,
            totp_address=address,
            qr_code=None if address is None else qr_code(address),
            least=credentials.PASSWORD_MIN,
        )
