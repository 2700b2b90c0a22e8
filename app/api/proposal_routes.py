"""The API of proposals, which wait for a second person's approval."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypedDict

from app.access.operators import Action
from app.access.proposal import Proposal
from app.access.proposals import (
    LAST,
    REASON_MAX,
    ProposalDocument,
    ProposalPageDocument,
    Proposals,
)
from app.access.tokens import Holder
from app.api.operations import Accepted, BeforeName, Limit, Operation, role_missing
from app.context.context import AppContext
from app.core.errors import NotFoundError, UsageError
from app.core.problems import ApiProblem
from app.orders.customers import NAME as UNMASK
from app.orders.customers import NumbersDocument, numbers_document, see_numbers
from reconcile.documents import Keywords

Loaded = Callable[[], Awaitable[Proposals]]


ReasonText = Annotated[
    str, Keywords(minLength=1, maxLength=REASON_MAX, examples=["Agreed with the customer"])
]


class BecauseDocument(TypedDict):
    reason: ReasonText


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalsAsked:
    before: BeforeName = None
    limit: Annotated[Limit, "Maximum number of past proposals in a page."] = 100


class ProposalRoutes:
    """Endpoints of proposals."""

    def __init__(self, context: AppContext, load: Loaded) -> None:
        self._context = context
        self._load = load

    async def list_proposals(self, who: Holder, asked: ProposalsAsked) -> ProposalPageDocument:
        """List proposals, newest first. Proposals that wait for a second person come first."""
        proposals = await self._load()
        kinds = proposals.shown_to(who.role)
        waiting = [] if asked.before else await proposals.waiting(kinds=kinds)
        past = await proposals.past(before=asked.before or LAST, limit=asked.limit, kinds=kinds)
        return {
            "proposals": [proposals.document(each) for each in (*waiting, *past)],
            "next": past[-1].id if len(past) == asked.limit else None,
        }

    async def get_proposal(self, proposal: str, who: Holder) -> ProposalDocument:
        """Return one proposal."""
        proposals = await self._load()
        return proposals.document(await _found(proposals, proposal, who))

    async def approve(self, proposal: str, who: Holder, body: BecauseDocument) -> ProposalDocument:
        """Approve a proposal. The proposed action is carried out at once."""
        proposals = await self._load()
        found = await _found(proposals, proposal, who)
        kind = proposals.kinds.get(found.kind)
        if kind is not None and kind.takes_long:
            raise ApiProblem(
                409,
                "proposal_refused",
                "The approval of this proposal takes minutes. Approve it in the console, or with "
                "`tallyhook proposals approve`.",
            )
        return await _decide(proposals, found, who, body, proposals.approve)

    async def reject(self, proposal: str, who: Holder, body: BecauseDocument) -> ProposalDocument:
        """Reject a proposal of another person."""
        proposals = await self._load()
        found = await _found(proposals, proposal, who)
        return await _decide(proposals, found, who, body, proposals.reject)

    async def withdraw(self, proposal: str, who: Holder, body: BecauseDocument) -> ProposalDocument:
        """Withdraw your own proposal."""
        proposals = await self._load()
        found = await _found(proposals, proposal, who)
        return await _decide(proposals, found, who, body, proposals.withdraw)

    async def reopen_period(
        self, period: str, who: Holder, body: BecauseDocument
    ) -> Accepted[ProposalDocument]:
        """Propose to reopen the last closed month. The closing's report and journal are kept."""
        from app.finance.close_period import reopen_period

        proposals = await self._load()
        made = await reopen_period(self._context, period, by=who.name, reason=body["reason"])
        return Accepted(proposals.document(made))

    async def see_numbers(self, proposal: str, who: Holder) -> NumbersDocument:
        """Show the phone numbers that your own approved proposal lets you see.

        The audit trail records each request for these numbers.
        """
        proposals = await self._load()
        found = await _found(proposals, proposal, who)
        kind = proposals.kinds[UNMASK]
        seen = await see_numbers(self._context, kind, found, by=who.name)
        return numbers_document(kind, found, seen)


async def _found(proposals: Proposals, name: str, operator: Holder) -> Proposal:
    try:
        found = await proposals.one(name)
    except NotFoundError as error:
        raise ApiProblem(404, "proposal_unknown", f"{error}.") from None
    kinds = proposals.shown_to(operator.role)
    if kinds is not None and found.kind not in kinds:
        raise role_missing(operator)
    return found


async def _decide(
    proposals: Proposals,
    proposal: Proposal,
    operator: Holder,
    body: BecauseDocument,
    decide: Callable[..., Awaitable[Proposal]],
) -> ProposalDocument:
    try:
        done = await decide(proposal.id, by=operator.name, reason=body["reason"])
    except (NotFoundError, UsageError) as error:  # also about its subject
        raise ApiProblem(409, "proposal_refused", f"{error}.") from None
    return proposals.document(done)


_NONE: Final = {404: "There is no such proposal"}


def _deciding(endpoint: Callable[..., Awaitable[Any]], may: Action) -> Operation:
    return Operation(
        "POST",
        f"/api/v1/proposals/{{proposal}}/{endpoint.__name__}",
        endpoint,
        "operator",
        may=may,
        answers={
            **_NONE,
            200: "The proposal in its current state",
            409: "The proposal cannot be decided: it has ended, has changed, or is your own",
        },
    )


OPERATIONS: Final = (
    Operation(
        "GET", "/api/v1/proposals", ProposalRoutes.list_proposals, "operator", may="proposals"
    ),
    Operation(
        "GET",
        "/api/v1/proposals/{proposal}",
        ProposalRoutes.get_proposal,
        "operator",
        may="proposals",
        answers=_NONE,
    ),
    _deciding(ProposalRoutes.approve, "proposal_approved"),
    _deciding(ProposalRoutes.reject, "proposal_rejected"),
    _deciding(ProposalRoutes.withdraw, "proposal_withdrawn"),
    Operation(
        "POST",
        "/api/v1/proposals/{proposal}/numbers",
        ProposalRoutes.see_numbers,
        "operator",
        may="unmasked",
        answers={
            **_NONE,
            200: "The customers' phone numbers, by order",
            409: "The proposal is another operator's, is not approved, or has expired",
        },
        refused=(409, "proposal_refused"),
    ),
    Operation(
        "POST",
        "/api/v1/periods/{period}/reopen",
        ProposalRoutes.reopen_period,
        "operator",
        tag="proposals",
        may="period_reopened",
        answers={
            202: "The proposal, which waits for a second person",
            409: "This is not the last closed month, or its reopening is proposed already",
        },
        refused=(409, "reopening_refused"),
    ),
)
