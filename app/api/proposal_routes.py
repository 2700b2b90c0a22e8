"""The API of proposals: what waits for a second person, and deciding about it."""

from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.access.operators import MAY, MAY_READ, Action
from app.access.proposal import Proposal
from app.access.proposals import LAST, REASON_MAX, Proposals
from app.access.tokens import Holder
from app.api.request_body import capped_body, json_object, limit_parameter
from app.context.context import AppContext
from app.core.errors import NotFoundError, UsageError
from app.core.problems import ApiProblem
from app.orders.unmask_many import NAME as UNMASK
from app.orders.unmask_many import numbers_document, see_numbers

MAX_BYTES: Final = 16 * 1024
"""Of a body, which is a reason."""

Loaded = Callable[[], Awaitable[Proposals]]


class ProposalRoutes:
    """The endpoints. The code that carries out acts loads at the first request: most receivers need
    none of it."""

    def __init__(self, context: AppContext, load: Loaded) -> None:
        self._context = context
        self._load = load

    async def list(self, request: Request, operator: Holder) -> Response:
        """GET /api/v1/proposals?before=&limit=: waiting ones first, then the others, newest
        first."""
        _may_look(operator)
        proposals, before = await self._load(), request.query_params.get("before") or None
        limit = limit_parameter(request, most=self._context.settings.page_max)
        kinds = proposals.shown_to(operator.role)
        waiting = [] if before else await proposals.waiting(kinds=kinds)
        past = await proposals.past(before=before or LAST, limit=limit, kinds=kinds)
        return JSONResponse(
            {
                "proposals": [proposals.document(each) for each in (*waiting, *past)],
                "next": past[-1].id if len(past) == limit else None,
            }
        )

    async def one(self, request: Request, operator: Holder) -> Response:
        """GET /api/v1/proposals/{proposal}"""
        _may_look(operator)
        proposals = await self._load()
        return JSONResponse(proposals.document(await _found(proposals, request, operator)))

    async def approve(self, request: Request, operator: Holder) -> Response:
        """POST /api/v1/proposals/{proposal}/approve"""
        _may(operator, "proposal_approved")
        proposals = await self._load()
        proposal = await _found(proposals, request, operator)
        kind = proposals.kinds.get(proposal.kind)
        if kind is not None and kind.takes_long:
            raise ApiProblem(
                409,
                "proposal_refused",
                "This takes minutes, and is approved on the console or by command.",
            )
        return await _decide(proposals, request, operator, proposals.approve)

    async def reject(self, request: Request, operator: Holder) -> Response:
        """POST /api/v1/proposals/{proposal}/reject"""
        _may(operator, "proposal_rejected")
        proposals = await self._load()
        return await _decide(proposals, request, operator, proposals.reject)

    async def withdraw(self, request: Request, operator: Holder) -> Response:
        """POST /api/v1/proposals/{proposal}/withdraw"""
        _may(operator, "proposal_withdrawn")
        proposals = await self._load()
        return await _decide(proposals, request, operator, proposals.withdraw)

    async def reopen(self, request: Request, operator: Holder) -> Response:
        """POST /api/v1/periods/{period}/reopen: propose to reopen the last closed month."""
        from app.finance.close_period import reopen_period

        _may(operator, "period_reopened")
        proposals, reason = await self._load(), await asked_reason(request)
        name = request.path_params["period"]
        try:
            made = await reopen_period(self._context, name, by=operator.name, reason=reason)
        except UsageError as error:
            raise ApiProblem(409, "reopening_refused", f"{error}.") from None
        return JSONResponse(proposals.document(made), status_code=202)

    async def numbers(self, request: Request, operator: Holder) -> Response:
        """POST /api/v1/proposals/{proposal}/numbers: the approved phone numbers, for the proposer.
        A POST, because each look is an audit entry."""
        _may(operator, "unmasked")
        proposals = await self._load()
        proposal = await _found(proposals, request, operator)
        kind = proposals.kinds[UNMASK]
        try:
            seen = await see_numbers(self._context, kind, proposal, by=operator.name)
        except UsageError as error:
            raise ApiProblem(409, "proposal_refused", f"{error}.") from None
        return JSONResponse(numbers_document(kind, proposal, seen))


def _may_look(operator: Holder) -> None:
    if operator.role not in MAY_READ["proposals"]:
        raise role_missing(operator)


def _may(operator: Holder, action: Action) -> None:
    if operator.role not in MAY[action]:
        raise role_missing(operator)


def role_missing(operator: Holder) -> ApiProblem:
    """Return the refusal of a person whose role may not do this."""
    return ApiProblem(
        403, "role_missing", f"{operator.name} has the role {operator.role}, which may not do this."
    )


async def _found(proposals: Proposals, request: Request, operator: Holder) -> Proposal:
    """Return the requested proposal. Raise ApiProblem where it is unknown, or where this person's
    role may not read its kind."""
    try:
        found = await proposals.one(request.path_params["proposal"])
    except NotFoundError as error:
        raise ApiProblem(404, "proposal_unknown", f"{error}.") from None
    kinds = proposals.shown_to(operator.role)
    if kinds is not None and found.kind not in kinds:
        raise role_missing(operator)
    return found


async def _decide(
    proposals: Proposals,
    request: Request,
    operator: Holder,
    decide: Callable[..., Awaitable[Proposal]],
) -> Response:
    proposal = await _found(proposals, request, operator)
    reason = await asked_reason(request)
    try:
        done = await decide(proposal.id, by=operator.name, reason=reason)
    except (NotFoundError, UsageError) as error:  # also of what it is about
        raise ApiProblem(409, "proposal_refused", f"{error}.") from None
    return JSONResponse(proposals.document(done))


async def asked_reason(request: Request) -> str:
    """Return the reason in a body. Raise ApiProblem for any other body."""
    document = json_object(await capped_body(request, most=MAX_BYTES))
    reason = document.get("reason")
    if (
        set(document) != {"reason"}
        or not isinstance(reason, str)
        or not 0 < len(reason.strip()) <= REASON_MAX
    ):
        raise ApiProblem(
            422, "request_invalid", f'Send {{"reason": WHY}}, WHY in 1 to {REASON_MAX} characters.'
        )
    return reason
