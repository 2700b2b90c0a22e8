"""All routes of the API and of the published log."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeVar

from anyio import CapacityLimiter
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from app.access.proposals import Proposals
from app.api.evidence_routes import CaseRoutes, EvidenceRoutes
from app.api.finance_routes import FinanceRoutes
from app.api.log_routes import LogRoutes
from app.api.openapi import OPERATIONS, written_document
from app.api.operations import routes_of
from app.api.proposal_routes import ProposalRoutes
from app.api.report_routes import ReportRoutes
from app.api.request_body import only_parameters
from app.api.routes import Api, Checkouts
from app.api.unallocated_routes import UnallocatedRoutes
from app.checkout.client import CheckoutClient
from app.context.context import AppContext, Elsewhere
from app.core.errors import NotFoundError, UsageError
from app.core.problems import problem
from app.evidence.keys import PublicKey, public_key_line
from app.evidence.prove_sealed import cosigned_checkpoint, prove_growth, shown_checkpoint
from app.evidence.seal import known_log, verifier_key
from app.evidence.witnesses import witnesses_of

# --- public answers about the log: keys, signed checkpoints, and proofs ---------------------------

PLACE: Final = "/.well-known/tallyhook"

AT_ONCE: Final = 2
"""Maximum number of requests that read the log at a time."""

MAX_DIGITS: Final = 18
"""Maximum digits of a log size in an address."""

_CACHE: Final = {"Cache-Control": "public, max-age=10"}


class PublishedLog:
    """Endpoints that publish the log's checkpoints and proofs to everyone."""

    def __init__(self, context: AppContext) -> None:
        self._context = context
        self._witnesses = witnesses_of(context.settings)
        self._limiter = CapacityLimiter(AT_ONCE)

    def routes(self) -> list[Route]:
        """Return the routes of the published log."""
        return [
            Route(f"{PLACE}/", self.overview),
            Route(f"{PLACE}/checkpoint", self.checkpoint),
            Route(f"{PLACE}/cosigned", self.cosigned),
            Route(f"{PLACE}/consistency/{{old}}/{{new}}", self.consistency),
        ]

    async def overview(self, request: Request) -> Response:
        """Return the log's name, the answers' addresses, and every key."""
        async with self._limiter:
            known = await known_log(self._context)
        if known is None:
            return problem(404, "not_found", "The log has no sealed entries yet.")
        found = [PublicKey(bytes.fromhex(each)) for each in known.keys]
        keys: list[dict[str, Any]] = [
            {
                "note": verifier_key(known.origin, public),
                "minisign": public_key_line(public),
                "ed25519": public.raw.hex(),
                "endorsement": endorsement,
            }
            for public, endorsement in zip(found, known.endorsements, strict=True)
        ]
        return JSONResponse(
            {
                "log": known.origin,
                "earlier": [{"log": each.origin, "leaves": each.size} for each in known.earlier],
                "keys": keys,
                "checkpoint": f"{PLACE}/checkpoint",
                "cosigned": f"{PLACE}/cosigned",
                "witnesses": [] if self._witnesses is None else self._witnesses.names,
                "consistency": f"{PLACE}/consistency/{{old}}/{{new}}",
            },
            headers=_CACHE,
        )

    async def checkpoint(self, request: Request) -> Response:
        """Return the newest signed checkpoint, in the format C2SP tlog-checkpoint."""
        try:
            async with self._limiter:
                found = await shown_checkpoint(self._context)
        except NotFoundError:
            return problem(404, "not_found", "The log has no sealed entries yet.")
        return PlainTextResponse(found.note, headers=_CACHE)

    async def cosigned(self, request: Request) -> Response:
        """Return the newest checkpoint that enough witnesses have signed."""
        try:
            async with self._limiter:
                note = await cosigned_checkpoint(self._context)
        except NotFoundError:
            return problem(
                404, "not_found", "No checkpoint has been cosigned by enough witnesses yet."
            )
        return PlainTextResponse(note, headers=_CACHE)

    async def consistency(self, request: Request) -> Response:
        """Return a proof that a longer log contains a shorter log unchanged. The path gives both
        sizes."""
        old, new = request.path_params["old"], request.path_params["new"]
        if not all(_is_number(each) for each in (old, new)):
            return problem(
                404, "not_found", "Give the sizes of two checkpoints, such as 100 and 200."
            )
        try:
            async with self._limiter:
                found = await prove_growth(self._context, old=int(old), new=int(new))
        except (NotFoundError, UsageError) as error:
            return problem(404, "not_found", f"{str(error)[:1].upper()}{str(error)[1:]}.")
        return JSONResponse(found, headers=_CACHE)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS


# --- all routes -----------------------------------------------------------------------------------


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
