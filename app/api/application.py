"""The ASGI application and its routes. A new endpoint is one line here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeVar

import structlog
from anyio import CapacityLimiter
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.access.proposals import Proposals
from app.access.tokens import Holder, TokenScope
from app.api.health import Health
from app.api.log_routes import LogRoutes
from app.api.openapi import query_parameters
from app.api.proposal_routes import ProposalRoutes
from app.api.published_log import PublishedLog
from app.api.request_body import only_parameters
from app.api.routes import OPERATOR, Api, Checkouts
from app.context.context import AppContext
from app.context.work import Elsewhere
from app.core.errors import NotAllRead, UnreachableError
from app.core.logs import Repeating
from app.core.problems import ApiProblem, on_api_problem, on_http_exception, problem
from app.receiving.endpoint import Webhooks
from app.receiving.receive import RETRY_AFTER_S

if TYPE_CHECKING:
    from app.api.case_routes import CaseRoutes
    from app.api.evidence_routes import EvidenceRoutes
    from app.api.finance_routes import FinanceRoutes
    from app.api.unallocated_routes import UnallocatedRoutes

log = structlog.get_logger()

Endpoint = Callable[[Request, str], Awaitable[Response]]
"""An endpoint for a request of the program with this name."""

PersonEndpoint = Callable[[Request, Holder], Awaitable[Response]]
"""An endpoint for a request of this operator."""


class ApiRoute(Route):
    """An address of the API. Each method's endpoint lies behind the scope that a token needs, or
    (`operator`) behind a person's own token.

    Every answer to a program or person that is admitted says `Tallyhook-Behind` where accepted
    deliveries are unread.
    """

    waits: ClassVar[bool] = False
    """True where endpoints wait for unread deliveries and set `Tallyhook-Behind` themselves."""

    def __init__(
        self,
        path: str,
        api: Api,
        **methods: tuple[TokenScope, Endpoint] | tuple[Literal["operator"], PersonEndpoint],
    ) -> None:
        if "GET" in methods:
            methods["HEAD"] = methods["GET"]
        self.scopes = {method: scope for method, (scope, _) in methods.items()}
        self._api = api
        self._endpoints: dict[str, Callable[[Request, Any], Awaitable[Response]]] = {
            method: endpoint for method, (_, endpoint) in methods.items()
        }
        self._takes = {method: query_parameters(path, method) for method in methods}
        super().__init__(path, self._admit, methods=list(methods))

    async def _admit(self, request: Request) -> Response:
        who = await self._api.admitted(request, self.scopes[request.method])
        behind = 0 if self.waits else await self._api.behind_s()
        try:
            only_parameters(request, self._takes[request.method])
            answer = await self._endpoints[request.method](request, who)
        except ApiProblem as error:
            error.headers = {**_saying(behind), **(error.headers or {})}
            raise
        except NotAllRead as error:
            sentence, behind = str(error), behind or await self._api.behind_s()
            raise ApiProblem(
                503,
                "deliveries_unread",
                f"{sentence[:1].upper()}{sentence[1:]}.",
                headers={"Retry-After": str(RETRY_AFTER_S), **_saying(behind)},
            ) from None
        for name, value in _saying(behind).items():
            answer.headers.setdefault(name, value)
        return answer


def _saying(behind: int) -> dict[str, str]:
    return {"Tallyhook-Behind": str(behind)} if behind else {}


class WaitingRoute(ApiRoute):
    """An address of the API about one order."""

    waits = True


HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
"""Headers of every answer; a route may say otherwise."""


class AnswerMiddleware:
    """ASGI middleware for all answers but those to deliveries: it sets HEADERS, counts 401 and 403
    of the API, and logs them at most once a minute."""

    def __init__(self, application: ASGIApp, *, count_refused: Callable[[int], None]) -> None:
        self._application = application
        self._count_refused = count_refused
        self._refused = Repeating()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the request on."""
        if scope["type"] != "http" or scope["path"].startswith("/webhooks/"):
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


class _Whole(Convertor[str]):
    """A path convertor that takes the whole rest of a path. Starlette's own stops before a line
    break, and would match order `A` for a reference that ends with one."""

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
    health: Health,
    alarms: Callable[[], list[str]],
    proposals: Callable[[], Proposals],
    elsewhere: Elsewhere,
    count_refused: Callable[[int], None],
) -> Starlette:
    """Return the ASGI application; the caller has opened everything it uses.

    alarms         sentences on what goes wrong that no outcome shows, such as silence
    proposals      loads them when they are first asked for
    elsewhere      for what is made in processes of their own
    count_refused  counts an answer 401 or 403 of the API
    """
    api, logs = Api(context, alarms=alarms), LogRoutes(context)
    finance = _once(partial(_finance_routes, context, elsewhere))
    deciding = _once(proposals)
    published = PublishedLog(context).routes() if context.settings.evidence.publish else ()
    application = Starlette(
        routes=[
            Route("/webhooks/{source}", webhooks),
            Route("/webhooks/{source}/", webhooks),  # as some people register it
            Route("/livez", health.livez),
            Route("/readyz", health.readyz),
            Route("/metrics", health.metrics),
            *published,
            Route("/api/v1/openapi.json", api.openapi),
            ApiRoute("/api/v1/outcomes", api, GET=("read", api.outcomes)),
            ApiRoute("/api/v1/orders", api, GET=("read", api.list_orders)),
            WaitingRoute("/api/v1/checkout/sessions", api, POST=("checkout", checkouts.start)),
            WaitingRoute(
                "/api/v1/orders/{reference:path}",
                api,
                GET=("read", api.get_order),
                PUT=("orders", api.put_order),
            ),
            *_loaded_late(api, "finance", finance, FINANCE),
            *_loaded_late(api, "finance", finance, FINANCE_ASKED, method="POST"),
            *_loaded_late(api, "evidence", _once(partial(_case_routes, context, elsewhere)), CASES),
            *_for_people(
                api,
                logs,
                ProposalRoutes(context, deciding),
                _once(partial(_evidence_routes, elsewhere)),
                _once(partial(_unallocated_routes, context, deciding)),
            ),
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
    return application


Loaded = TypeVar("Loaded")


def _once(load: Callable[[], Loaded]) -> Callable[[], Awaitable[Loaded]]:
    """Load something once, when it is first asked for, which few receivers are, and not on the loop
    that answers webhooks."""
    loaded: list[Loaded] = []

    async def loading() -> Loaded:
        if not loaded:
            loaded.append(await asyncio.to_thread(load))
        return loaded[0]

    return loading


def _finance_routes(context: AppContext, elsewhere: Elsewhere) -> FinanceRoutes:
    from app.api.finance_routes import FinanceRoutes

    return FinanceRoutes(context, elsewhere)


def _case_routes(context: AppContext, elsewhere: Elsewhere) -> CaseRoutes:
    from app.api.case_routes import CaseRoutes

    return CaseRoutes(context, elsewhere)


def _evidence_routes(elsewhere: Elsewhere) -> EvidenceRoutes:
    from app.api.evidence_routes import EvidenceRoutes

    return EvidenceRoutes(elsewhere)


def _unallocated_routes(
    context: AppContext, proposals: Callable[[], Awaitable[Proposals]]
) -> UnallocatedRoutes:
    from app.api.unallocated_routes import UnallocatedRoutes

    return UnallocatedRoutes(context, proposals)


FINANCE: Final = {
    "schedule": "schedule",
    "reports": "report",
    "journals": "journal",
    "records/lines": "book_lines",
    "records/imports": "book_imports",
    "statement/lines": "statement_lines",
    "statement/imports": "statement_imports",
    "bank/lines": "bank_lines",
    "bank/lines/{line}": "bank_line",
    "bank/imports": "bank_imports",
    "runs": "runs",
    "runs/{run}": "run",
    "rules": "rules",
    "breaks": "breaks",
    "breaks/{break}": "one_break",
    "late": "late",
    "periods": "periods",
    "periods/verification": "verification",
    "periods/{period}": "period",
    "periods/{period}/journal": "period_journal",
    "periods/{period}/verification": "verification",
}
"""Endpoints of `FinanceRoutes` by address."""

FINANCE_ASKED: Final = {"rules/preview": "rules_preview"}
"""The same for requests too long for an address: they read by POST."""

_MADE_ELSEWHERE: Final = frozenset({"report", "journal", "verification", "rules_preview", "letter"})

CASES: Final = {
    "cases/{reference:path}": "case",
    "letters/{reference:path}": "letter",
    "attachments/{reference:path}": "attachments",
}
"""Endpoints of `CaseRoutes` by address."""


def _loaded_late(
    api: Api,
    scope: TokenScope,
    loading: Callable[[], Awaitable[object]],
    addresses: Mapping[str, str],
    *,
    method: Literal["GET", "POST"] = "GET",
) -> Iterator[ApiRoute]:
    """Load routes at the first request: most receivers need none of them. One request is answered
    at a time, since long lists take seconds of a processor that acknowledges deliveries; requests
    that only wait for a child process run together."""
    limiter = CapacityLimiter(1)

    def endpoint(name: str) -> Endpoint:
        async def ask(request: Request, program: str) -> Response:
            async with nullcontext() if name in _MADE_ELSEWHERE else limiter:
                answer: Response = await getattr(await loading(), name)(request, program)
            return answer

        return ask

    for path, name in addresses.items():
        yield ApiRoute(f"/api/v1/{path}", api, **{method: (scope, endpoint(name))})


def _for_people(
    api: Api,
    logs: LogRoutes,
    proposals: ProposalRoutes,
    evidence: Callable[[], Awaitable[EvidenceRoutes]],
    unallocated: Callable[[], Awaitable[UnallocatedRoutes]],
) -> Iterator[ApiRoute]:
    def route(path: str, **methods: PersonEndpoint) -> ApiRoute:
        behind = {method: (OPERATOR, endpoint) for method, endpoint in methods.items()}
        return ApiRoute(f"/api/v1/{path}", api, **behind)

    async def bundle(request: Request, operator: Holder) -> Response:
        return await (await evidence()).bundle(request, operator)

    def payments(name: str) -> PersonEndpoint:
        async def ask(request: Request, operator: Holder) -> Response:
            answer: Response = await getattr(await unallocated(), name)(request, operator)
            return answer

        return ask

    yield route("evidence/{reference:path}", GET=bundle)
    yield route("deliveries", GET=logs.deliveries)
    yield route("deliveries/{delivery}", GET=logs.delivery)
    yield route("notifications", GET=logs.notifications)
    yield route("notifications/{notification}/redeliver", POST=logs.redeliver)
    yield route("orders/{reference:path}/release", POST=logs.release)
    yield route("log/witnesses", GET=logs.witnesses)
    yield route("unallocated", GET=payments("list"))
    yield route("unallocated/{payment:path}/assign", POST=payments("assign"))
    yield route("unallocated/{payment:path}/dismiss", POST=payments("dismiss"))
    yield route("periods/{period}/reopen", POST=proposals.reopen)
    yield route("proposals", GET=proposals.list)
    yield route("proposals/{proposal}", GET=proposals.one)
    yield route("proposals/{proposal}/approve", POST=proposals.approve)
    yield route("proposals/{proposal}/reject", POST=proposals.reject)
    yield route("proposals/{proposal}/withdraw", POST=proposals.withdraw)
    yield route("proposals/{proposal}/numbers", POST=proposals.numbers)


async def _on_unreachable(request: Request, error: Exception) -> Response:
    return problem(
        503,
        "store_unavailable",
        "The store cannot answer now; try again.",
        headers={"Retry-After": str(RETRY_AFTER_S)},
    )


async def _on_fault(request: Request, error: Exception) -> Response:
    """Answer an unexpected error; the server logs it."""
    return problem(
        500,
        "internal_error",
        "Tallyhook itself made a mistake, which its log explains; ask again, and report it if it "
        "stays.",
        headers=HEADERS,  # Starlette answers this outside of its middleware
    )
