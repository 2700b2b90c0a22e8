"""The API with which operators list, assign and dismiss unallocated payments."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final, NotRequired, TypedDict

from app.access.proposals import ProposalDocument, Proposals
from app.access.tokens import Holder
from app.api.operations import Accepted, Operation, PageAsked
from app.api.proposal_routes import Loaded, ReasonText
from app.context.context import AppContext
from app.finance.place_payment import Placing, place_payment
from app.orders import unallocated
from reconcile.documents import OrderReference
from reconcile.ledger.records import DismissedAs

Placed = unallocated.UnallocatedDocument | Accepted[ProposalDocument]
Replaces = Annotated[
    str,
    "The `last_act` that you last read. The request is refused if somebody has decided in "
    "the meantime.",
]


class AssigningDocument(TypedDict):
    order: OrderReference
    reason: ReasonText
    replaces: NotRequired[Replaces]


class DismissingDocument(
    TypedDict(
        "_As",
        {
            "as": DismissedAs,
            "to": Annotated[
                NotRequired[str], "For other business: the account to post the money to."
            ],
        },
    )
):
    reason: ReasonText
    replaces: NotRequired[Replaces]


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentsAsked(PageAsked):
    source: Annotated[str | None, "Only payments of this source."] = None
    all: Annotated[bool, "Include dismissed payments and payments without money."] = False
    not_ours: Annotated[bool, "List payments of other shops instead of this shop's payments."] = (
        False
    )


class UnallocatedRoutes:
    """Endpoints of unallocated payments, which are verified but belong to no order."""

    def __init__(self, context: AppContext, proposals: Loaded) -> None:
        self._context = context
        self._proposals = proposals

    async def list_unallocated(self, asked: PaymentsAsked) -> unallocated.UnallocatedPageDocument:
        """List verified payments that belong to no order, earliest arrival first."""
        request = unallocated.UnallocatedRequest(
            source=asked.source,
            after=asked.after,
            limit=asked.limit,
            everything=asked.all,
            not_ours=asked.not_ours,
        )
        page = await unallocated.list_unallocated(self._context, request)
        now = self._context.clock.now()
        return {"payments": [each.document(now=now) for each in page.payments], "next": page.next}

    async def assign_payment(self, payment: str, who: Holder, body: AssigningDocument) -> Placed:
        """Assign an unallocated payment to an order, or propose this if a second person is
        needed."""
        return await self._place(
            Placing(
                kind="assign",
                payment=payment,
                order=body["order"],
                reason=body["reason"],
                by=who.name,
                replaces=body.get("replaces"),
            )
        )

    async def dismiss_payment(self, payment: str, who: Holder, body: DismissingDocument) -> Placed:
        """Propose to dismiss a payment that belongs to no order. A second person must approve
        this."""
        return await self._place(
            Placing(
                kind="dismiss",
                payment=payment,
                dismiss=body["as"],
                to=body.get("to", ""),
                reason=body["reason"],
                by=who.name,
                replaces=body.get("replaces"),
            )
        )

    async def _place(self, asked: Placing) -> Placed:
        proposal = await place_payment(self._context, asked)
        if proposal is not None:
            proposals: Proposals = await self._proposals()
            return Accepted(proposals.document(proposal))
        found = await unallocated.read_unallocated(self._context, asked.payment)
        return found.document(now=self._context.clock.now())


_PLACED: Final = {
    200: "The payment in its current state",
    202: "This needs a second person: the proposal, which waits for approval",
    404: "There is no such payment, or the order is unknown",
    409: "The action was refused, for example because somebody else has decided in the meantime",
    422: "The body matches none of the possible actions",
}

_place = partial(
    Operation,
    "POST",
    scope="operator",
    may="payment_proposed",
    answers=_PLACED,
    unknown=("not_found", ""),
    refused=(409, "placing_refused"),
)

OPERATIONS: Final = (
    Operation(
        "GET",
        "/api/v1/unallocated",
        UnallocatedRoutes.list_unallocated,
        "operator",
        may="unallocated",
        refused=(422, "parameter_invalid"),
    ),
    _place("/api/v1/unallocated/{payment:path}/assign", UnallocatedRoutes.assign_payment),
    _place("/api/v1/unallocated/{payment:path}/dismiss", UnallocatedRoutes.dismiss_payment),
)
