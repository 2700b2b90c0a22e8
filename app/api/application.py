"""The ASGI application and its routes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.access.proposals import Proposals
from app.api.evidence_routes import CaseRoutes, EvidenceRoutes
from app.api.finance_routes import FinanceRoutes
from app.api.log_routes import LogRoutes
from app.api.openapi import OPERATIONS, written_document
from app.api.operations import routes_of
from app.api.probes import Probes
from app.api.proposal_routes import ProposalRoutes
from app.api.published_log import PublishedLog
from app.api.report_routes import ReportRoutes
from app.api.request_body import only_parameters
from app.api.routes import Api, Checkouts
from app.api.unallocated_routes import UnallocatedRoutes
from app.context.context import AppContext, Elsewhere
from app.core.errors import UnreachableError
from app.core.logs import Repeating, log
from app.core.problems import ApiProblem, on_api_problem, on_http_exception, problem
from app.receiving.endpoint import Webhooks
from app.receiving.receive import RETRY_AFTER_S

HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
"""Headers of every answer, unless its route sets its own."""


class AnswerMiddleware:
    """ASGI middleware for all answers except those to deliveries.

    Sets HEADERS, counts the API's answers 401 and 403, and logs them at most once a minute.
    """

    def __init__(self, application: ASGIApp, *, count_refused: Callable[[int], None]) -> None:
        self._application = application
        self._count_refused = count_refused
        self._refused = Repeating()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers, status = MutableHeaders(scope=message), message["status"]
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if status in (401, 403):
                    self._count_refused(status)
                    if times := self._refused.times("the API"):
                        log.warning("the API refused requests", status=status, count=times)
            await send(message)

        await self._application(scope, receive, answer)


class _Application(Starlette):
    """Starlette application that calls some routes directly.

    For a delivery, Starlette's middleware and router would take a fifth of the processor time.
    """

    direct: Sequence[tuple[Route, ASGIApp]] = ()
    """Routes that are tried first, with the application that each calls."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        for route, application in self.direct if scope["type"] == "http" else ():
            if found := route.path_regex.match(scope["path"]):
                scope["path_params"] = found.groupdict()
                await application(scope, receive, send)
                return
        await super().__call__(scope, receive, send)


class _Whole(Convertor[str]):
    """Path converter for the whole rest of a path. Starlette's own stops before a line break."""

    regex = r"(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("path", _Whole())


def build_application(
    context: AppContext,
    *,
    webhooks: Webhooks,
    checkouts: Checkouts,
    probes: Probes,
    alarms: Callable[[], list[str]],
    proposals: Callable[[], Proposals],
    elsewhere: Elsewhere,
    count_refused: Callable[[int], None],
) -> Starlette:
    """Return the ASGI application. The caller opens and closes everything passed in.

    alarms         function that returns sentences on problems that no outcome shows
    proposals      function that loads the proposals at the first request
    elsewhere      runner of long work in separate processes
    count_refused  function that counts the API's answers 401 and 403
    """
    api, settings = Api(context, alarms=alarms), context.settings
    deciding = _once(proposals)
    owners = (
        api,
        checkouts,
        CaseRoutes(context, elsewhere),
        EvidenceRoutes(elsewhere),
        FinanceRoutes(context),
        LogRoutes(context),
        ProposalRoutes(context, deciding),
        ReportRoutes(context, elsewhere),
        UnallocatedRoutes(context, deciding),
    )
    by_class = {type(each).__name__: each for each in owners}
    served = {each: by_class[each.endpoint.__qualname__.partition(".")[0]] for each in OPERATIONS}

    async def openapi(request: Request) -> Response:
        only_parameters(request, ())
        made = partial(
            written_document, page_max=settings.page_max, longpoll_max_s=settings.longpoll_max_s
        )
        return Response(await asyncio.to_thread(made), media_type=JSONResponse.media_type)

    deliveries = [
        Route("/webhooks/{source}", webhooks),
        Route("/webhooks/{source}/", webhooks),  # as some people register it
    ]
    application = _Application(
        routes=[
            *deliveries,
            Route("/livez", probes.livez),
            Route("/readyz", probes.readyz),
            Route("/metrics", probes.metrics),
            *(PublishedLog(context).routes() if settings.evidence.publish else ()),
            Route("/api/v1/openapi.json", openapi),
            *routes_of(api, served),
        ],
        exception_handlers={
            ApiProblem: on_api_problem,
            HTTPException: on_http_exception,
            UnreachableError: _on_unreachable,
            Exception: _on_fault,
        },
        middleware=[Middleware(AnswerMiddleware, count_refused=count_refused)],
    )
    # A provider must never be redirected: it would deliver elsewhere, or not at all.
    application.router.redirect_slashes = False
    application.direct = [
        (each, ServerErrorMiddleware(each.app, handler=_on_fault)) for each in deliveries
    ]
    return application


Loaded = TypeVar("Loaded")


def _once(load: Callable[[], Loaded]) -> Callable[[], Awaitable[Loaded]]:
    """Return a function that calls `load` once, in a thread, and then returns that result."""
    loaded: list[Loaded] = []

    async def loading() -> Loaded:
        if not loaded:
            loaded.append(await asyncio.to_thread(load))
        return loaded[0]

    return loading


async def _on_unreachable(request: Request, error: Exception) -> Response:
    return problem(
        503,
        "store_unavailable",
        "The store cannot answer now. Send the request again.",
        headers={"Retry-After": str(RETRY_AFTER_S)},
    )


async def _on_fault(request: Request, error: Exception) -> Response:
    return problem(
        500,
        "internal_error",
        "Tallyhook had an internal error, which its log explains. Send the request again, and "
        "report the error if it repeats.",
        headers=HEADERS,  # Starlette answers this outside of its middleware
    )
