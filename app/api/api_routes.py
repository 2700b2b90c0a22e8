"""All routes of the API and of the published log."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.access.proposals import Proposals
from app.api.evidence_routes import CaseRoutes, EvidenceRoutes
from app.api.finance_routes import FinanceRoutes
from app.api.log_routes import LogRoutes
from app.api.openapi import OPERATIONS, written_document
from app.api.operations import routes_of
from app.api.proposal_routes import ProposalRoutes
from app.api.published_log import PublishedLog
from app.api.report_routes import ReportRoutes
from app.api.request_body import only_parameters
from app.api.routes import Api, Checkouts
from app.api.unallocated_routes import UnallocatedRoutes
from app.checkout.client import CheckoutClient
from app.context.context import AppContext, Elsewhere


class _Whole(Convertor[str]):
    regex = r"(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("path", _Whole())


def api_routes(
    context: AppContext,
    *,
    checkout: CheckoutClient | None,
    alarms: Callable[[], list[str]],
    proposals: Callable[[], Proposals],
    elsewhere: Elsewhere,
) -> list[Route]:
    """Return all routes of the API and of the published log."""
    api, settings = Api(context, alarms=alarms), context.settings
    deciding = _once(proposals)
    owners = (
        api,
        Checkouts(context, checkout),
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

    return [
        *(PublishedLog(context).routes() if settings.evidence.publish else ()),
        Route("/api/v1/openapi.json", openapi),
        *routes_of(api, served),
    ]


Loaded = TypeVar("Loaded")


def _once(load: Callable[[], Loaded]) -> Callable[[], Awaitable[Loaded]]:
    loaded: list[Loaded] = []

    async def loading() -> Loaded:
        if not loaded:
            loaded.append(await asyncio.to_thread(load))
        return loaded[0]

    return loading
