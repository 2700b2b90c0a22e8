"""Define the console's routes: pages in each format, actions, signing in, live updates and static
files."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Final
from urllib.parse import parse_qsl, urlencode

from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from app.access.company_account import BACK
from app.access.operators import Action, Reading
from app.access.passkeys import passkey_origin
from app.access.sessions import first_use
from app.console.locales import locale_of, shown_in
from app.console.orders_pages import SUGGESTED, find_document
from app.console.page_list import ACTS, PAGES
from app.console.pages import FOLDER, Pages, TypingError, as_csv, as_json, file_part
from app.console.security import SecurityMiddleware
from app.console.signing_in import SigningIn, address_of, form_fields
from app.console.uploads import ReceivedFile
from app.console.view import (
    FORMATS,
    ROLES_OF,
    Act,
    ActionResult,
    Console,
    Document,
    Form,
    Page,
    View,
)
from app.console.words import address, spoken
from app.core import errors
from app.core.ids import new_token
from app.core.masking import looks_like_a_phone
from app.orders.customers import checked_reason
from app.orders.find_orders import orders_beginning
from app.receiving.caught_up import behind_s

# --- the routes -----------------------------------------------------------------------------------

STATIC: Final = {
    "console.css": "text/css",
    "console.js": "text/javascript",
    "passkeys.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}

STATUSES: Final = {errors.NotFoundError: 404, errors.UsageError: 400, errors.UnreachableError: 503}

LISTED_ON: Final = {
    "/cases": "/orders",
    "/match": "/breaks",
    "/previews": "/rules",
    "/rows": "/runs",
    "/trail": "/bank",
}
NOT_CONFIRMED: Final = (
    "that is not your password, or it was tried too often: wait a minute, then try again"
)

NOT_PROVED: Final = (
    "nothing was done, because you proved who you are more than five minutes ago: prove it "
    "again, then send the form"
)

NOT_AS_SHOWN: Final = "nothing was done: what the form was about has changed since it was opened"

NOT_ALLOWED: Final = (
    "Your role, {}, may neither see nor do this; {} may. Ask one of them, or an admin for that "
    "role."
)

ENDED: Final = "ended"
"""Query parameter of the sign-in page after an ended session."""
KEPT: Final = "kept"


class _Subject(Convertor[str]):
    regex = r"(?s:.+)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("subject", _Subject())


def split_format(subject: str) -> tuple[str, str]:
    """Split an address's last part into name and format, by default `html`."""
    name, dot, ending = subject.rpartition(".")
    return (name, ending) if dot and name and ending in FORMATS else (subject, "html")


class Application:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._pages = Pages(console, PAGES, {act.name: act for act in ACTS})
        self._signing = SigningIn(console, self._pages)

    def asgi(self) -> SecurityMiddleware:
        """Build the console as an ASGI application."""
        signing, both = self._signing, ("GET", "POST")
        application = Starlette(
            routes=[
                Route("/sign-in", signing.sign_in, methods=both),
                Route("/sign-in/company", signing.to_company),
                Route(BACK, signing.from_company),
                Route("/sign-out", signing.sign_out, methods=["POST"]),
                Route("/enter", signing.enter, methods=both),
                Route("/invite", signing.invite, methods=both),
                Route("/live", self._news),
                *(_static(name, kind) for name, kind in STATIC.items()),
                self._route("/find", "orders", self._find, methods=["POST"]),
                self._route(
                    "/find/beginning", "orders", _suggest, format_="json", methods=["POST"]
                ),
                *(
                    self._route(
                        f"/do/{act.name}",
                        act.permission,
                        partial(self._act, act),
                        methods=both,
                        keep=act.kept and not act.file,
                    )
                    for act in ACTS
                ),
                *(route for page in PAGES for route in self._page_routes(page)),
            ],
            exception_handlers={
                HTTPException: self._on_http,
                errors.TallyhookError: self._on_error,
                Exception: self._on_fault,
            },
            lifespan=self._lifespan,
        )
        application.router.redirect_slashes = False
        return SecurityMiddleware(application, self._console)

    @asynccontextmanager
    async def _lifespan(self, application: Starlette) -> AsyncIterator[None]:
        yield
        await self._console.live.close()
        await self._console.jobs.close()
        self._console.uploads.close()

    def _page_routes(self, page: Page) -> list[Route]:
        show = partial(self._page, page)
        if page.path.endswith("/{subject}"):
            path = page.path.replace("{subject}", "{subject:subject}")
            return [self._route(path, page.reads, show)]
        base = "/now" if page.path == "/" else page.path
        paths = {"html": page.path, "json": f"{base}.json", "csv": f"{base}.csv"}
        return [self._route(paths[each], page.reads, show, format_=each) for each in FORMATS]

    def _route(
        self,
        path: str,
        permission: Action | Reading,
        show: Callable[[View], Awaitable[Response]],
        *,
        format_: str | None = None,
        methods: Collection[str] = ("GET",),
        keep: bool = False,
    ) -> Route:
        async def answer(request: Request) -> Response:
            subject, wanted = split_format(request.path_params.get("subject", ""))
            wanted = format_ or wanted
            person = await self._signing.person(request)
            if person is None:
                sent = keep and request.method == "POST"
                kept = sent and await self._signing.keep_unsent(request)
                return _to_sign_in(request, wanted, kept=kept)
            view = View(
                console=self._console,
                person=person,
                request=request,
                subject=subject,
                format=wanted,
            )
            try:
                view = replace(view, behind_s=await behind_s(view.context, patience="none"))
                if "\0" in subject or any("\0" in each for each in request.query_params.values()):
                    raise errors.UsageError("there is a zero byte (%00) in the address")
                if person.may(permission):
                    with shown_in(locale_of(request.headers.get("accept-language", ""))):
                        return _saying(view.behind_s, await show(view))
                roles = " and ".join(sorted(ROLES_OF[permission]))
                status, sentence = 403, NOT_ALLOWED.format(person.role, roles)
            except (errors.NotFoundError, errors.UsageError, errors.UnreachableError) as error:
                status = next(code for kind, code in STATUSES.items() if isinstance(error, kind))
                sentence = str(error)
                if wanted == "html":
                    return _saying(view.behind_s, self._problem(view, status, spoken(sentence)))
            if wanted == "html":
                return self._pages.problem(status, sentence, view=view)
            return _saying(view.behind_s, JSONResponse({"problem": sentence}, status_code=status))

        async def with_session(request: Request) -> Response:
            return self._signing.with_session(request, await answer(request))

        return Route(path, with_session, methods=methods)

    # --- pages -----------------------------------------------------------------------------------

    async def _page(self, page: Page, view: View) -> Response:
        if view.format == "csv":  # beginning with the first page
            view = view.at(**dict.fromkeys(page.following.values()))
        try:
            document = await page.load(view)
        except errors.UsageError as error:
            if view.format != "html" or not _typed(view, page):
                raise
            return await self._form_again(view, page, error)
        if isinstance(document, Response):
            return document
        if view.format == "json":
            return as_json(document | ({"behind_s": view.behind_s} if view.behind_s else {}))
        if view.format == "csv":
            zone = view.context.calendar_zone
            following = partial(_following, page, view)
            rows = as_csv(document, page.rows_name, following=following, zone=zone)
            if view.behind_s:  # the header is not stored in the file
                name = f"{file_part(page.title.lower())}-not-all-read.csv"
                rows.headers["Content-Disposition"] = f'attachment; filename="{name}"'
            return rows
        return self._pages.html(view, page, document)

    def _problem(self, view: View, status: int, sentence: str) -> Response:
        path = "/" + view.request.url.path.split("/")[1].partition(".")[0]
        path = LISTED_ON.get(path, path)
        listed = next((each for each in PAGES if each.path == path), None)
        if listed is None or path == "/" or not view.person.may(listed.reads):
            return self._pages.problem(status, sentence, view=view)
        button = f"To the page {listed.title}"
        return self._pages.problem(status, sentence, view=view, back=path, button=button)

    async def _form_again(self, view: View, of: Page | Act, error: errors.UsageError) -> Response:
        own = of if isinstance(of, Page) else None
        page = next((each for each in PAGES if each.path == of.form_on), own)
        assert page is not None
        params = view.request.query_params
        query = parse_qsl(params.get("list", "")) if own is None else params.multi_items()
        kept = [(name, value) for name, value in query if name not in of.typed]
        path = of.form_on or view.request.url.path
        scope = {**view.request.scope, "path": path, "query_string": urlencode(kept).encode()}
        there = replace(view, request=Request(scope), subject="" if of.form_on else view.subject)
        document = await page.load(there)
        assert isinstance(document, dict)
        mistake = TypingError(sentence=str(error), typed=_typed(view, of))
        return self._pages.html(there, page, document, mistake=mistake)

    async def _find(self, view: View) -> Response:
        status = 200
        try:
            text = (await form_fields(view.request)).get("text", "")
            document = await find_document(view, text)
        except errors.UsageError as error:
            document = {
                "problem": str(error), "looked_for": [], "orders": [], "notes": [], "more": False,
                "money": [], "more_money": False, "searched_to": None, "go_on_with": "",
            }  # fmt: skip
            status = 400
        others = document.get("unallocated") or document["searched_to"]
        alone = not (document["more"] or others)
        if len(document["orders"]) == 1 and alone:
            only = document["orders"][0]["order"]
            return RedirectResponse(address("orders", only), status_code=303)
        values = {"doc": document}
        return self._pages.of_person(
            view, "found.html", title="Found", values=values, status=status
        )

    # --- actions ---------------------------------------------------------------------------------

    async def _act(self, act: Act, view: View) -> Response:
        if view.request.method != "POST":
            try:
                return await self._ask(view, act)
            except errors.UsageError as error:
                if not _typed(view, act):
                    raise
                return await self._form_again(view, act, error)
        self._signing.forget_unsent(view.request)
        files: list[ReceivedFile] = []
        try:
            if act.file:
                given, files = await self._console.uploads.receive(view.request)
            else:
                given = await form_fields(view.request)
            return await self._do(replace(view, given=given, files=files), act)
        except errors.UsageError as error:
            if not act.file or files:
                raise
            return await self._ask(view, act, str(error))
        finally:
            for file in files:
                if not self._console.uploads.holds(file):
                    file.drop()

    async def _ask(
        self, view: View, act: Act, problem: str | None = None, *, form: Form | None = None
    ) -> Response:
        typed = {} if view.request.method == "POST" else self._signing.unsent(view.request)
        values = {
            "act": act,
            "asked": await act.ask(view) if form is None else form,
            "again": bool(typed),
            "form": new_token(""),
            "problem": problem,
            "query": view.request.url.query,
            "proof": self._signing.proof_of(view.person),
            "origin": passkey_origin(self._console.origin),
            "given": {
                name: value
                for name, value in {**view.given, **typed}.items()
                if name not in ("reason", "orders")
                or not looks_like_a_phone(value, view.context.countries)
            },
        }
        status = 200 if problem is None else 400
        return self._pages.of_person(
            view, "act.html", title=act.title, values=values, status=status
        )

    async def _do(self, view: View, act: Act) -> Response:
        form, reason = await act.ask(view), ""
        first = partial(first_use, self._console.context, view.given.get("form", ""))
        if form.preview:
            return await self._ask(view, act, form=form)
        if not form.ready:
            if await first():
                return await self._ask(view, act, NOT_AS_SHOWN, form=form)
            return self._sent_before(view, form)
        if form.password and not await self._signing.confirms(
            view.request, view.person, view.given.get("password", "")
        ):
            by_company = view.person.way == "company"
            if by_company and act.kept and not act.file:
                self._signing.keep_typed(view.request, view.person, view.given)
            problem = NOT_PROVED if by_company else NOT_CONFIRMED
            return await self._ask(view, act, problem, form=form)
        try:
            if form.reason:
                reason = checked_reason(view.context, view.given.get("reason", ""))
            if not act.download and not await first():
                return self._sent_before(view, form)
            done = await act.do(view, reason)
        except errors.UsageError as error:
            return await self._ask(view, act, str(error), form=form)
        if isinstance(done, Response):
            return done
        if isinstance(done, ActionResult):
            values = {"result": done}
            return self._pages.of_person(view, "result.html", title=done.title, values=values)
        sign = "&" if "?" in done else "?"
        return RedirectResponse(f"{done}{sign}{urlencode({'done': act.name})}", status_code=303)

    def _sent_before(self, view: View, form: Form) -> Response:
        return self._pages.problem(
            409,
            "This form was sent before, and nothing was done a second time. Look at the result "
            "before you begin again.",
            view=view,
            back=form.back,
            button="Look at the result",
        )

    # --- live news and errors --------------------------------------------------------------------

    async def _news(self, request: Request) -> Response:
        async def signed_in() -> bool:
            return await self._signing.person(request, used=False) is not None

        if not await signed_in():
            return JSONResponse({"problem": "sign in first"}, status_code=401)
        if self._console.live.full:
            return JSONResponse({"problem": "too many pages are open"}, status_code=503)
        news = self._console.live.stream(signed_in)
        return StreamingResponse(news, media_type="text/event-stream")

    async def _on_http(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        person = await self._signing.person(request)
        sentence = "There is no such page." if status == 404 else "That cannot be done here."
        if person is None:  # the menu is only for people who are signed in
            return self._pages.problem(status, sentence)
        view = View(console=self._console, person=person, request=request)
        sentence += " The menu lists all pages."
        return self._pages.problem(status, sentence, view=view)

    async def _on_fault(self, request: Request, error: Exception) -> Response:
        return self._pages.problem(
            500, "This page failed. The log shows where. Everything else still works."
        )

    async def _on_error(self, request: Request, error: Exception) -> Response:
        status = 400 if isinstance(error, errors.UsageError) else 503
        assert not isinstance(error, errors.ConfigurationError)
        return self._pages.problem(status, spoken(str(error)))


async def _following(page: Page, view: View, document: Document) -> Document | None:
    for member, parameter in page.following.items():
        if (place := document.get(member)) is not None:
            others = dict.fromkeys(page.following.values())
            found = await page.load(view.at(**others | {parameter: str(place)}))
            return found if isinstance(found, dict) else None
    return None


def _saying(behind_s: int, answer: Response) -> Response:
    if behind_s:
        answer.headers["Tallyhook-Behind"] = str(behind_s)
    return answer


def _static(name: str, kind: str) -> Route:
    content = (FOLDER / "static" / name).read_bytes()
    mark = f'"{sha256(content).hexdigest()[:16]}"'
    headers = {"ETag": mark, "Cache-Control": "no-cache"}

    async def answer(request: Request) -> Response:
        if request.headers.get("if-none-match") == mark:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=kind, headers=headers)

    return Route(f"/static/{name}", answer)


def _to_sign_in(request: Request, wanted: str, *, kept: bool) -> Response:
    if wanted != "html":
        return JSONResponse({"problem": "sign in first"}, status_code=401)
    here = address_of(request)
    words = {"next": here} if here != "/" else {}
    if request.method != "GET":  # a form has its own address; the list has the search
        words = {"next": here if here.startswith("/do/") else "/orders"}
        words[ENDED] = KEPT if kept else "1"
    query = f"?{urlencode(words)}" if words else ""
    return RedirectResponse(f"/sign-in{query}", status_code=303)


async def _suggest(view: View) -> Response:
    text = (await form_fields(view.request)).get("text", "")
    found = await orders_beginning(view.context, text, limit=SUGGESTED)
    return JSONResponse({"orders": found})


def _typed(view: View, of: Page | Act) -> dict[str, str]:
    given = dict(view.request.query_params)
    return given if any(name in given for name in of.typed) else {}


def build_console(console: Console) -> SecurityMiddleware:
    """Build the console's ASGI application. The caller opens and closes the resources in
    `console`."""
    return Application(console).asgi()
