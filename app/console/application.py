"""Puts the routes together: every page in its forms, every action, signing in, live news, files."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from hashlib import sha256
from typing import Final
from urllib.parse import parse_qsl, urlencode

from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from app.access.operators import Action, Reading
from app.access.sessions import first_use
from app.console.act_list import ACTS
from app.console.orders_pages import SUGGESTED, find_document
from app.console.page_list import PAGES
from app.console.pages import FOLDER, Mistake, Pages, as_csv, as_json
from app.console.security import SecurityMiddleware
from app.console.signing_in import SigningIn, address_of, read_form
from app.console.uploads import ReceivedUpload
from app.console.view import (
    FORMS,
    Act,
    ActionResult,
    Asked,
    Console,
    Page,
    Person,
    View,
    roles_of,
)
from app.console.words import address, spoken
from app.core.errors import (
    ConfigurationError,
    NotFoundError,
    TallyhookError,
    UnreachableError,
    UsageError,
)
from app.core.ids import new_token
from app.core.masking import looks_like_a_phone
from app.orders.customers import checked_reason
from app.orders.find_orders import orders_beginning

# --- the routes -----------------------------------------------------------------------------------

STATIC: Final = {
    "console.css": "text/css",
    "console.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}

STATUSES: Final = {NotFoundError: 404, UsageError: 400, UnreachableError: 503}

LISTED_ON: Final = {"/cases": "/orders", "/previews": "/runs"}
"""Where a page of one thing has no list of its own: the page that leads to it."""

NOT_CONFIRMED: Final = (
    "that is not your password, or it was tried too often: wait a minute and look again"
)

NOT_AS_SHOWN: Final = "nothing was done: what the form was about has changed since it was opened"

NOT_ALLOWED: Final = (
    "Your role, {}, may neither see nor do this; {} may. Ask one of them, or an admin for that "
    "role."
)

ENDED: Final = "ended"
"""What an address of the form to sign in says where a form was sent after its session had ended:
KEPT, where what was typed stands in the form again."""
KEPT: Final = "kept"


class _Subject(Convertor[str]):
    """All that is left of a path, line ends too: an order's reference may hold anything."""

    regex = r"(?s:.+)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("subject", _Subject())

Answer = Callable[[View], Awaitable[Response]]


def split_form(subject: str) -> tuple[str, str]:
    """What an address names, and the form that is asked for."""
    name, dot, form = subject.rpartition(".")
    return (name, form) if dot and name and form in FORMS else (subject, "html")


class Application:
    """The console's routes over one store."""

    def __init__(self, console: Console) -> None:
        menu = tuple(page for page in PAGES if page.menu is not None)
        self._console = console
        self._pages = Pages(console, menu, {act.name: act for act in ACTS})
        self._signing = SigningIn(console, self._pages)

    def asgi(self) -> SecurityMiddleware:
        """The ASGI application."""
        signing = self._signing
        application = Starlette(
            routes=[
                Route("/sign-in", signing.sign_in, methods=["GET", "POST"]),
                Route("/sign-out", signing.sign_out, methods=["POST"]),
                Route("/enter", signing.enter, methods=["GET", "POST"]),
                Route("/invite", signing.invite, methods=["GET", "POST"]),
                Route("/live", self._news),
                *(self._file(name, kind) for name, kind in STATIC.items()),
                Route("/find", self._find, methods=["POST"]),
                Route("/find/beginning", self._beginning, methods=["POST"]),
                *(route for act in ACTS for route in self._act_routes(act)),
                *(route for page in PAGES for route in self._page_routes(page)),
            ],
            exception_handlers={
                HTTPException: self._on_http,
                TallyhookError: self._on_error,
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

    # --- pages -----------------------------------------------------------------------------------

    def _page_routes(self, page: Page) -> list[Route]:
        if page.path.endswith("/{subject}"):
            path = page.path.replace("{subject}", "{subject:subject}")
            return [Route(path, self._page(page, None))]
        base = "/now" if page.path == "/" else page.path
        return [
            Route(page.path, self._page(page, "html")),
            *(Route(f"{base}.{form}", self._page(page, form)) for form in FORMS[1:]),
        ]

    def _page(self, page: Page, form: str | None) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            subject, wanted = split_form(request.path_params.get("subject", ""))
            wanted = form or wanted

            async def show(view: View) -> Response:
                if not view.person.may_read(page.reads):
                    return self._refuse(view, wanted, page.reads)
                try:
                    document = await page.load(view)
                except UsageError as error:
                    if wanted != "html" or not _typed(view, page):
                        raise
                    return await self._form_again(view, page, error)
                if isinstance(document, Response):
                    return document
                if wanted == "json":
                    return as_json(document)
                if wanted == "csv":
                    return as_csv(document, page.rows)
                return self._pages.html(view, page, document)

            return await self._signed_in(request, show, form=wanted, subject=subject)

        return answer

    async def _signed_in(
        self,
        request: Request,
        show: Answer,
        *,
        form: str = "html",
        subject: str = "",
        keep: bool = False,
    ) -> Response:
        """Call it for who is signed in; others are sent to sign in. Errors become pages. keep:
        whether a form that was sent is kept meanwhile."""
        person = await self._signing.person(request)
        if person is None:
            sent = keep and request.method == "POST"
            kept = sent and await self._signing.keep_unsent(request)
            return self._nobody(request, form, kept=kept)
        view = View(console=self._console, person=person, request=request, subject=subject)
        try:
            if "\0" in subject or any("\0" in each for each in request.query_params.values()):
                raise UsageError("there is a zero byte (%00) in the address")
            return await show(view)
        except (NotFoundError, UsageError, UnreachableError) as error:
            status = next(code for kind, code in STATUSES.items() if isinstance(error, kind))
            if form != "html":
                return JSONResponse({"problem": str(error)}, status_code=status)
            return self._problem(view, status, error)

    def _problem(self, view: View, status: int, error: Exception) -> Response:
        """What went wrong, with the way to the list that the page is of, where there is one."""
        path = "/" + view.request.url.path.split("/")[1].partition(".")[0]
        path = LISTED_ON.get(path, path)
        listed = next((each for each in PAGES if each.path == path and each.menu), None)
        if listed is None or path == "/" or not view.person.may_read(listed.reads):
            return self._pages.problem(status, _sentence(error), view=view)
        button = f"To the page {listed.menu}"
        return self._pages.problem(status, _sentence(error), view=view, back=path, button=button)

    async def _form_again(self, view: View, of: Page | Act, error: UsageError) -> Response:
        """The page with the form into which a mistake was typed. Raises UsageError where that page
        cannot be shown."""
        page = next(
            (each for each in PAGES if each.path == of.form_on),
            of if isinstance(of, Page) else None,
        )
        assert page is not None
        asked = view.request.query_params
        query = parse_qsl(asked.get("list", "")) if isinstance(of, Act) else asked.multi_items()
        kept = [(name, value) for name, value in query if name not in of.typed]
        path = of.form_on or view.request.url.path
        scope = {**view.request.scope, "path": path, "query_string": urlencode(kept).encode()}
        there = replace(view, request=Request(scope), subject="" if of.form_on else view.subject)
        document = await page.load(there)
        assert isinstance(document, dict)
        mistake = Mistake(sentence=str(error), typed=_typed(view, of))
        return self._pages.html(there, page, document, mistake=mistake)

    def _nobody(self, request: Request, form: str, *, kept: bool = False) -> Response:
        if form != "html":
            return JSONResponse({"problem": "sign in first"}, status_code=401)
        here = address_of(request)
        words = {"next": here} if here != "/" else {}
        if request.method != "GET":  # a form has its own address; the search stands on the list
            words = {"next": here if here.startswith("/do/") else "/orders"}
            words[ENDED] = KEPT if kept else "1"
        query = f"?{urlencode(words)}" if words else ""
        return RedirectResponse(f"/sign-in{query}", status_code=303)

    def _refuse(self, view: View, form: str, what: Action | Reading) -> Response:
        sentence = NOT_ALLOWED.format(view.person.role, " and ".join(sorted(roles_of(what))))
        if form != "html":
            return JSONResponse({"problem": sentence}, status_code=403)
        return self._pages.problem(403, sentence, view=view)

    async def _find(self, request: Request) -> Response:
        """POST /find"""

        async def show(view: View) -> Response:
            if not view.person.may_read("orders"):
                return self._refuse(view, "html", "orders")
            try:
                document = await find_document(view, (await read_form(request)).get("text", ""))
            except UsageError as error:
                document = {"problem": str(error), "looked_for": [], "orders": [], "notes": []}
                return self._pages.of_person(
                    view, "found.html", title="Found", values={"doc": document}, status=400
                )
            if len(document["orders"]) == 1 and not document["more"]:
                only = document["orders"][0]["order"]
                return RedirectResponse(address("orders", only), status_code=303)
            return self._pages.of_person(
                view, "found.html", title="Found", values={"doc": document}
            )

        return await self._signed_in(request, show)

    async def _beginning(self, request: Request) -> Response:
        """POST /find/beginning: for who is still typing."""

        async def show(view: View) -> Response:
            if not view.person.may_read("orders"):
                return self._refuse(view, "json", "orders")
            text = (await read_form(request)).get("text", "")
            found = await orders_beginning(view.context, text, limit=SUGGESTED)
            return JSONResponse({"orders": found})

        return await self._signed_in(request, show, form="json")

    # --- actions ---------------------------------------------------------------------------------

    def _act_routes(self, act: Act) -> list[Route]:
        async def answer(request: Request) -> Response:
            async def show(view: View) -> Response:
                if not view.person.may(act.permission):
                    return self._refuse(view, "html", act.permission)
                if request.method == "POST":
                    self._signing.forget_unsent(request)
                    return await self._done(view, act)
                try:
                    return await self._ask(view, act)
                except UsageError as error:
                    if not _typed(view, act):
                        raise
                    return await self._form_again(view, act, error)

            return await self._signed_in(request, show, keep=act.kept and not act.file)

        return [Route(f"/do/{act.name}", answer, methods=["GET", "POST"])]

    async def _ask(
        self, view: View, act: Act, problem: str | None = None, *, asked: Asked | None = None
    ) -> Response:
        typed = {} if view.request.method == "POST" else self._signing.unsent(view.request)
        values = {
            "act": act,
            "asked": await act.ask(view) if asked is None else asked,
            "again": bool(typed),
            "form": new_token(""),
            "problem": problem,
            "query": view.request.url.query,
            "given": _to_show({**view.given, **typed}),
        }
        status = 200 if problem is None else 400
        return self._pages.of_person(
            view, "act.html", title=act.title, values=values, status=status
        )

    async def _done(self, view: View, act: Act) -> Response:
        file: ReceivedUpload | None = None
        try:
            if act.file:
                form, file = await self._console.uploads.receive(view.request)
            else:
                form = await read_form(view.request)
            return await self._sent(replace(view, given=form, file=file), act)
        except UsageError as error:
            if not act.file or file is not None:
                raise
            return await self._ask(view, act, str(error))
        finally:
            if file is not None and not self._console.uploads.holds(file):
                file.drop()

    async def _sent(self, view: View, act: Act) -> Response:
        """Do what a form asks for."""
        asked, reason = await act.ask(view), ""
        if asked.preview:
            return await self._ask(view, act, asked=asked)
        if not asked.ready:
            if await first_use(self._console.context, view.given.get("form", "")):
                return await self._ask(view, act, NOT_AS_SHOWN, asked=asked)
            return self._sent_before(view, asked)
        if asked.password and not await self._signing.confirms(
            view.request, view.person, view.given.get("password", "")
        ):
            return await self._ask(view, act, NOT_CONFIRMED, asked=asked)
        if asked.reason:
            try:
                reason = checked_reason(view.given.get("reason", ""), [])
            except UsageError as error:
                return await self._ask(view, act, str(error), asked=asked)
        if not act.download and not await first_use(
            self._console.context, view.given.get("form", "")
        ):
            return self._sent_before(view, asked)
        try:
            done = await act.do(view, reason)
        except UsageError as error:
            return await self._ask(view, act, str(error), asked=asked)
        if isinstance(done, Response):
            return done
        if isinstance(done, ActionResult):
            return self._pages.of_person(
                view, "result.html", title=done.title, values={"result": done}
            )
        sign = "&" if "?" in done else "?"
        return RedirectResponse(f"{done}{sign}{urlencode({'done': act.name})}", status_code=303)

    def _sent_before(self, view: View, asked: Asked) -> Response:
        return self._pages.problem(
            409,
            "This form was sent before, and nothing was done a second time. Look at the result "
            "before you begin again.",
            view=view,
            back=asked.back,
            button="Look at the result",
        )

    # --- the rest --------------------------------------------------------------------------------

    async def _news(self, request: Request) -> Response:
        """GET /live"""
        person = await self._signing.person(request, used=False)
        if person is None:
            return JSONResponse({"problem": "sign in first"}, status_code=401)
        if self._console.live.full:
            return JSONResponse({"problem": "too many pages are open"}, status_code=503)

        async def still() -> bool:
            now: Person | None = await self._signing.person(request, used=False)
            return now is not None

        return StreamingResponse(self._console.live.stream(still), media_type="text/event-stream")

    def _file(self, name: str, kind: str) -> Route:
        content = (FOLDER / "static" / name).read_bytes()
        mark = f'"{sha256(content).hexdigest()[:16]}"'
        headers = {"ETag": mark, "Cache-Control": "no-cache"}

        async def answer(request: Request) -> Response:
            if request.headers.get("if-none-match") == mark:
                return Response(status_code=304, headers=headers)
            return Response(content, media_type=kind, headers=headers)

        return Route(f"/static/{name}", answer)

    async def _on_http(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        person = await self._signing.person(request)
        sentence = "There is no such page." if status == 404 else "That cannot be done here."
        if person is None:  # nobody is shown the menu before they are signed in
            return self._pages.problem(status, sentence)
        view = View(console=self._console, person=person, request=request)
        sentence += " The menu shows the pages that there are."
        return self._pages.problem(status, sentence, view=view)

    async def _on_fault(self, request: Request, error: Exception) -> Response:
        """A fault of ours, which the server logs without what it was about."""
        return self._pages.problem(
            500, "This page has a fault. The log names the place; everything else goes on."
        )

    async def _on_error(self, request: Request, error: Exception) -> Response:
        """What is not a person's mistake, and came before there was a person to show it to."""
        status = 400 if isinstance(error, UsageError) else 503
        assert not isinstance(error, ConfigurationError)
        return self._pages.problem(status, _sentence(error))


def _to_show(given: Mapping[str, str]) -> dict[str, str]:
    """What was sent, as the form shows it again: what was typed with a number in it is left out,
    whatever else the form was refused for."""
    typed = ("reason", "orders")
    return {
        name: value
        for name, value in given.items()
        if name not in typed or not looks_like_a_phone(value)
    }


def _typed(view: View, of: Page | Act) -> dict[str, str]:
    """What was typed and chosen in the form that leads there; nothing where none did."""
    given = dict(view.request.query_params)
    return given if any(name in given for name in of.typed) else {}


def _sentence(error: Exception) -> str:
    return spoken(str(error))


def build_console(console: Console) -> SecurityMiddleware:
    """The ASGI application; everything it uses has been opened by whoever calls this."""
    return Application(console).asgi()
