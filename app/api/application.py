"""The ASGI application. Most of the API is loaded when needed."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.probes import Probes
from app.core.errors import UnreachableError
from app.core.logs import Repeating, log
from app.core.problems import ApiProblem, on_api_problem, on_http_exception, problem
from app.receiving.endpoint import Webhooks
from app.receiving.receive import RETRY_AFTER_S

HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


class AnswerMiddleware:
    """Middleware that adds security headers to API answers and counts refusals. Answers to
    deliveries do not pass through this middleware."""

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
    direct: Sequence[tuple[Route, ASGIApp]] = ()
    """Routes that are tried before all others, with their applications."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        for route, application in self.direct if scope["type"] == "http" else ():
            if found := route.path_regex.match(scope["path"]):
                scope["path_params"] = found.groupdict()
                await application(scope, receive, send)
                return
        await super().__call__(scope, receive, send)


def build_application(
    *,
    webhooks: Webhooks,
    probes: Probes,
    api: Callable[[], Sequence[Route]],
    failed: Callable[[str], None],
    count_refused: Callable[[int], None],
) -> Starlette:
    """Return the ASGI application."""
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
        ],
        exception_handlers={
            ApiProblem: on_api_problem,
            HTTPException: on_http_exception,
            UnreachableError: _on_unreachable,
            Exception: _on_fault,
        },
        middleware=[Middleware(AnswerMiddleware, count_refused=count_refused)],
    )
    router, loading = application.router, list[asyncio.Task[None]]()
    # A provider must never be redirected: it would deliver elsewhere, or not at all.
    router.redirect_slashes = False
    application.direct = [
        (each, ServerErrorMiddleware(each.app, handler=_on_fault)) for each in deliveries
    ]

    async def load() -> None:
        try:
            router.routes += await asyncio.to_thread(api)
        except Exception as error:
            log.error("a part of the service failed", component="the API", exc_info=error)
            failed("the API cannot be loaded")
            raise
        router.default = router.not_found

    async def route_again(scope: Scope, receive: Receive, send: Send) -> None:
        if not loading:
            loading.append(asyncio.create_task(load()))
        await asyncio.shield(loading[0])
        await router.app(scope, receive, send)

    router.default = route_again
    return application


async def _on_unreachable(request: Request, error: Exception) -> Response:
    return problem(
        503,
        "store_unavailable",
        "The database cannot answer now. Send the request again.",
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
