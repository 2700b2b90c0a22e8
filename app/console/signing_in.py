"""Signing in and out: the only routes that nobody needs a session for.

Links carry their token behind `#`, which browsers send to nobody: a script posts it, and without
script a field takes it. Every try is counted, by name and by network, and all failures have the
same words. A stranger's tries leave a person theirs: each network has its own for a name, and
one from which that person signed in is not held back by what all others tried.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from time import monotonic
from typing import Any, Final
from urllib.parse import parse_qsl

import structlog
from markupsafe import Markup
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from app.access import credentials, operators, sessions
from app.console.pages import Pages
from app.console.security import RateLimiter, network_of
from app.console.view import Console, Person
from app.core.errors import UsageError
from app.core.masking import looks_like_a_phone
from reconcile.instants import DAY, SECOND

log = structlog.get_logger()

NAME_TRIES: Final = 5
"""In a minute with one name, from one network."""
NAME_TRIES_IN_ALL: Final = 20
"""The same from all networks from which nobody of that name signed in since the console began."""
NETWORK_TRIES: Final = 20
NOTED_FOR_S: Final = 3600.0
"""Seconds for which one failure of a network, or of a session's person from it, stands for all: the
trail is kept for ever, and must not be filled by who guesses."""
MAX_FORM_BYTES: Final = 16 * 1024
MAX_FIELDS: Final = 50
FORM_WITHIN_S: Final = 30.0
BY_ITSELF: Final = "Tallyhook-By-Itself"
"""The header of what a page's script asks for without a person: it is no use of the session."""


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form. Raises UsageError for what is none, not whole, too long or too slow."""
    body = bytearray()
    try:
        async with asyncio.timeout(FORM_WITHIN_S):
            async for part in request.stream():
                body += part
                if len(body) > MAX_FORM_BYTES:
                    raise UsageError("the form is too long")
    except TimeoutError:
        raise UsageError("the form did not come in time: send it again") from None
    except ClientDisconnect:  # any stranger's, who would fill the log with faults of ours
        raise UsageError("the form did not come whole: send it again") from None
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, strict_parsing=bool(body),
            max_num_fields=MAX_FIELDS, errors="strict",
        )  # fmt: skip
    except ValueError:
        raise UsageError("this is no form of this console") from None
    if any("\0" in value for _, value in pairs):  # PostgreSQL has none in a text
        raise UsageError("this is no form of this console")
    return dict(pairs)


def local(address: str) -> str:
    """An address of this console's own; the first page in place of any other."""
    plain = address.isprintable() and "\\" not in address
    return address if plain and address.startswith("/") and not address.startswith("//") else "/"


def address_of(request: Request) -> str:
    """A request's path and query."""
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


def _network(request: Request) -> str:
    return network_of(request.client.host if request.client else "")


def qr_code(text: str) -> Markup:
    """A picture of a text, as SVG within a page: dark on light, for cameras, in any theme."""
    import segno  # one page needs it

    made = segno.make(text, micro=False, error="m")
    svg = made.svg_inline(border=4, omitsize=True, light="#fff", svgclass=None, lineclass=None)
    return Markup(svg)  # noqa: S704  # its paths, and nothing of the text


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsentForm:
    """What was typed in a form that came after its session had ended.

    name   whose session it was
    where  the form's address
    until  seconds of this process's clock
    """

    name: str
    where: str
    fields: Mapping[str, str] = field(repr=False)
    until: float


class UnsentForms:
    """Forms that came after their session had ended, until the same person has signed in again in
    the same browser: one for each session, under the hash of its cookie, in memory alone."""

    MOST: Final = 200
    KEPT_S: Final = 3600.0

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[str, UnsentForm] = OrderedDict()

    def put(self, cookie: str, *, name: str, where: str, fields: Mapping[str, str]) -> None:
        """Keep one in the place of that session's last, and of the oldest where there are too
        many. Left out are a password, what may be a phone number, and the id by which a form is
        sent once."""
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
        """To the session that begins where an ended one's cookie is; dropped where the person is
        another."""
        kept = self._kept.pop(_hashed(cookie), None)
        if kept is not None and kept.name == name:
            self._kept[_hashed(new)] = kept

    def at(self, cookie: str, where: str) -> Mapping[str, str]:
        """What was typed in the form at an address; nothing where nothing is kept."""
        kept = self._kept.get(_hashed(cookie))
        return kept.fields if kept and kept.where == where and kept.until > self._clock() else {}

    def drop(self, cookie: str) -> None:
        """It was sent, or its person has left."""
        self._kept.pop(_hashed(cookie), None)


NOT_TYPED: Final = frozenset({"form", "password", "username"})
"""Fields of a form that are not kept over a sign-in."""


def _hashed(cookie: str) -> str:
    return sha256(cookie.encode(errors="replace")).hexdigest()


class SigningIn:
    """The routes, and who is signed in."""

    def __init__(self, console: Console, pages: Pages) -> None:
        self._console = console
        self._pages = pages
        self._by_name = RateLimiter(NAME_TRIES)
        self._by_name_in_all = RateLimiter(NAME_TRIES_IN_ALL)
        self._by_network = RateLimiter(NETWORK_TRIES)
        self._unsent = UnsentForms()
        self._signed_in: set[tuple[str, str]] = set()
        """Names, and networks from which they proved who they are: only operators add to it."""
        self._noted = RateLimiter(1, within_s=NOTED_FOR_S)

    async def person(self, request: Request, *, used: bool = True) -> Person | None:
        """Who asks; None where nobody is signed in. used: False where the page asks by itself."""
        token = request.cookies.get(self._console.cookie, "")
        if not token:
            return None
        used = used and BY_ITSELF not in request.headers
        found = await sessions.session_of(self._console.context, token, used=used)
        return None if found is None else Person(name=operators.Proven(found.name), role=found.role)

    def _may_try(self, request: Request, name: str | None = None, *, known: bool = False) -> bool:
        """Within the tries. known: whether a session says who it is: then those of strangers do
        not count."""
        network = _network(request)
        if not self._by_network.take(network):
            return False
        if name is None:
            return True
        known = known or (name, network) in self._signed_in
        own = self._by_name.take(f"{network} {name}")
        return own and (known or self._by_name_in_all.take(name))

    async def keep_unsent(self, request: Request) -> bool:
        """Keep a form that came after its session had ended; whether it is kept. A cookie that was
        never a session's keeps nothing: no stranger fills the memory."""
        cookie = request.cookies.get(self._console.cookie, "")
        name = await sessions.name_of_session(self._console.context, cookie) if cookie else None
        if name is None:
            return False
        try:
            fields = await read_form(request)
        except UsageError:
            return False
        self._unsent.put(cookie, name=name, where=address_of(request), fields=fields)
        return True

    def unsent(self, request: Request) -> Mapping[str, str]:
        """What its person had typed in this form before they had to sign in again."""
        cookie = request.cookies.get(self._console.cookie, "")
        return self._unsent.at(cookie, address_of(request))

    def forget_unsent(self, request: Request) -> None:
        """This form was sent."""
        if self.unsent(request):
            self._unsent.drop(request.cookies[self._console.cookie])

    def _begun(self, request: Request, token: str, where: str, *, name: str) -> Response:
        self._unsent.hand_over(request.cookies.get(self._console.cookie, ""), token, name=name)
        answer = RedirectResponse(where, status_code=303)
        answer.set_cookie(
            self._console.cookie,
            token,
            # A day longer than any session: by it a form that comes too late is known as whose.
            max_age=(sessions.LONGEST + DAY) // SECOND,
            path="/",
            secure=self._console.secure,
            httponly=True,
            samesite="lax",
        )
        log.info("an operator signed in")
        return answer

    def _form(self, template: str, *, title: str, status: int = 200, **values: Any) -> Response:
        shown: dict[str, Any] = {"problem": None, **values}
        return self._pages.plain(template, title=title, status=status, values=shown)

    async def confirms(self, request: Request, person: Person, password: str) -> bool:
        """Whether who is signed in has given their password once more, within the tries."""
        fits = self._may_try(request, person.name, known=True) and await sessions.confirmed(
            self._console.context, name=person.name, password=password
        )
        if fits:
            self._signed_in.add((person.name, _network(request)))
        else:
            await self._note_failure(request, person.name)
        return fits

    async def _note_failure(self, request: Request, name: str | None = None) -> None:
        """In the trail, once in a while. name: whose session it is; None: nobody's."""
        network = _network(request)
        if self._noted.take(network if name is None else f"{network} {name}"):
            await sessions.note_failure(self._console.context, name=name)

    async def sign_in(self, request: Request) -> Response:
        """GET and POST /sign-in"""
        where = local(request.query_params.get("next", "/"))
        if request.method != "POST":
            if await self.person(request) is not None:
                return RedirectResponse(where, status_code=303)
            ended = request.query_params.get("ended")
            return self._form("sign_in.html", title="Sign in", next=where, ended=ended, name="")
        form = await read_form(request)
        # Tries are remembered by it; none that is longer is anybody's.
        name = form.get("name", "").strip()[: operators.NAME_MAX + 1]
        try:
            if not self._may_try(request, name):
                raise sessions.SignInRefused
            token = await sessions.sign_in(
                self._console.context,
                name=name,
                password=form.get("password", ""),
                code=form.get("code", ""),
            )
        except sessions.SignInRefused as error:
            await self._note_failure(request)
            return self._form(
                "sign_in.html",
                title="Sign in",
                status=403,
                next=local(form.get("next", "/")),
                ended=None,
                name=name,
                problem=str(error),
            )
        self._signed_in.add((name, _network(request)))
        return self._begun(request, token, local(form.get("next", "/")), name=name)

    async def sign_out(self, request: Request) -> Response:
        """POST /sign-out"""
        cookie = request.cookies.get(self._console.cookie, "")
        self._unsent.drop(cookie)
        await sessions.sign_out(self._console.context, cookie)
        answer = RedirectResponse("/sign-in", status_code=303)
        answer.delete_cookie(
            self._console.cookie, path="/", secure=self._console.secure, httponly=True
        )
        return answer

    async def enter(self, request: Request) -> Response:
        """GET and POST /enter: the demo's way in, from this machine alone."""
        if not self._console.loopback:
            return self._pages.problem(404, "There is no such page.")
        if request.method != "POST":
            return self._form("link.html", title="Open the demo", to="/enter")
        token = (await read_form(request)).get("token", "").strip()
        try:
            if not self._may_try(request):
                raise sessions.LinkRefused
            begun = await sessions.enter_demo(self._console.context, token)
            return self._begun(request, begun, "/", name=sessions.DEMO)
        except sessions.LinkRefused as error:
            return self._form(
                "link.html", title="Open the demo", status=403, to="/enter", problem=str(error)
            )

    async def invite(self, request: Request) -> Response:
        """GET and POST /invite: first the link, then what the person sets."""
        if request.method != "POST":
            return self._form("link.html", title="Your invitation", to="/invite")
        form = await read_form(request)
        token = form.get("token", "").strip()
        try:
            if not self._may_try(request):
                raise sessions.LinkRefused
            link = await sessions.read_link(self._console.context, token, kind="invite")
            problem = None
            if "password" in form:
                if form["password"] != form.get("again"):
                    problem = "The two passwords are not the same."
                else:
                    try:
                        begun = await sessions.accept_invitation(
                            self._console.context,
                            token,
                            password=form["password"],
                            code=form.get("code", ""),
                        )
                        return self._begun(request, begun, "/", name=link.name)
                    except UsageError as error:
                        problem = str(error)
        except sessions.LinkRefused as error:
            return self._form(
                "link.html", title="Your invitation", status=403, to="/invite", problem=str(error)
            )
        return self._form(
            "invite.html",
            title="Your invitation",
            status=200 if problem is None else 400,
            problem=problem,
            name=link.name,
            token=token,
            totp=link.totp,
            totp_address=None
            if link.totp is None
            else credentials.totp_address(link.totp, link.name),
            qr_code=None
            if link.totp is None
            else qr_code(credentials.totp_address(link.totp, link.name)),
            least=credentials.PASSWORD_MIN,
        )
