"""The customers' phone numbers of several orders, for one operator, with another's approval.

1 choose   orders by name, or the newest that match a list's filters; no more than MOST_ORDERS
2 propose  for a purpose and with a reason; no number has been read yet
3 agree    another operator approves or rejects it (`app.access.proposals`); still none is read
4 look     the proposer alone, until OPEN_FOR after the approval; each look is an entry of the audit
           trail for each order

Only step 4 returns numbers: they are not in the proposal, the trail or the log. They are read again
at each look, so that a customer who was erased meanwhile is not shown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Final, TypedDict

from app.access import proposals
from app.access.operator_store import audit_entries
from app.access.operators import AFTER_ALL, note_in_trail, permitted
from app.access.proposal import Proposal
from app.context.context import AppContext
from app.core.errors import NotFoundError, UsageError
from app.core.masking import masked_words
from app.core.references import fault_of
from app.core.text import counted
from app.database.engine import Connection
from app.database.statements import run
from app.orders.customers import checked_reason, phones_of
from app.orders.history_store import gather
from app.orders.ledger_store import latest_orders
from app.orders.read_orders import spoken_of
from app.orders.retention_store import pruned_among
from app.receiving.restrictions import restricted_orders
from reconcile.documents import InstantText, Keywords, OrderReference
from reconcile.instants import DAY, HOUR, Duration, format_instant
from reconcile.ledger.history import History

MOST_ORDERS: Final = 200
"""Most orders of one proposal. One person can call them in a day or two, another review them."""

OPEN_FOR: Final[Duration] = DAY
"""Time after the approval in which the numbers can be seen: one day's work."""

NAME: Final = "unmask"

PURPOSES: Final[Mapping[str, str]] = {
    "payment": "ask customers about their payment",
    "refund": "pay money back to customers",
    "delivery": "ask customers about what they got",
    "warning": "warn customers of something that went wrong",
    "authority": "answer a bank or an authority",
    "other": "do something else, which the reason names",
}
"""Purposes of seeing numbers. The list is closed, so that the trail can be counted by purpose."""

NOT_ALONE: Final = "numbers of several customers at once take two operators"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmaskRequest:
    """Request to see the numbers of orders, with purpose and reason."""

    orders: Sequence[str]
    purpose: str
    reason: str
    by: str | None


class CustomerNumbersDocument(TypedDict):
    order: OrderReference
    phones: Annotated[list[Annotated[str, Keywords(examples=["254700000001"])]], "As E.164 digits."]
    note: Annotated[str, "Why there is none, such as that it was erased."]


class NumbersDocument(TypedDict):
    proposal: str
    open_until: Annotated[InstantText, "Until when they may be asked for again."]
    orders: list[CustomerNumbersDocument]


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomerNumbers:
    """Numbers of an order as E.164 digits. `note` is a sentence on why there are none."""

    order: str
    phones: tuple[str, ...]
    note: str

    def document(self) -> CustomerNumbersDocument:
        """Return the numbers as JSON values, which are also a row of a table."""
        return {"order": self.order, "phones": list(self.phones), "note": self.note}


async def chosen_orders(
    context: AppContext, *, outcome: str | None = None, finding: str | None = None
) -> list[str]:
    """Return the orders that match a list's filters, the newest first.

    Raises UsageError for more than MOST_ORDERS, and for none.
    """
    async with context.database.reading() as connection:
        found = await latest_orders(
            connection, before=None, limit=MOST_ORDERS + 1, outcome=outcome, finding=finding
        )
    if len(found) > MOST_ORDERS:
        raise UsageError(
            f"more than {MOST_ORDERS} orders fit that: choose some of them, or a list that is "
            "shorter"
        )
    if not found:
        raise UsageError("no order fits that: there is nothing to see")
    return [each.order for each in found]


async def propose_unmasking(
    context: AppContext, kind: proposals.ProposalKind, asked: UnmaskRequest
) -> Proposal:
    """Propose that a person may see the numbers of these orders.

    Raises UsageError for a person without permission or who has not proved their identity, for no
    orders, too many orders, no purpose or reason, and where an equal proposal is pending. Raises
    NotFoundError for an unknown order.
    """
    orders = list(dict.fromkeys(asked.orders))
    if not 0 < len(orders) <= MOST_ORDERS:
        raise UsageError(f"name 1 to {MOST_ORDERS} orders")
    if asked.purpose not in PURPOSES:
        raise UsageError(f"the purpose is one of: {', '.join(PURPOSES)}")
    reason = checked_reason(context, asked.reason)
    async with context.database.writing() as connection:
        who = await permitted(connection, by=asked.by, action="unmasked")
        known = await gather(connection, [each for each in orders if fault_of(each) is None])
        for place, order in enumerate(orders, 1):
            if order not in known or not spoken_of(known[order]):
                # The typed text may be a phone number, so it is not repeated in full.
                raise NotFoundError(
                    f"there is no order {masked_words(order)[:80]!r}, which is number {place} of "
                    "those named: leave it out, or write it as the list of orders does"
                )
        count = counted(len(orders), "order")
        # Eight digits tell this proposal's subject from that of other orders.
        mark = sha256("\n".join(sorted(orders)).encode()).hexdigest()[:8]
        return await proposals.propose(
            connection,
            kind,
            who=who,
            now=context.clock.now(),
            because=NOT_ALONE,
            subject=f"{count} ({mark})",
            sentence=f"Show {who.name} the customers' phone numbers of {count}, for "
            f"{OPEN_FOR // HOUR} hours from the approval on, to {PURPOSES[asked.purpose]}.",
            given={"orders": "\n".join(orders), "purpose": PURPOSES[asked.purpose]},
            reason=reason,
        )


def unmasking_kind(context: AppContext) -> proposals.ProposalKind:
    """Return the kind of proposal to see the numbers of several orders.

    Approving shows nobody anything. It lets the proposer look, each time with entries in the trail.
    """

    return proposals.ProposalKind(
        name=NAME,
        title="See customers' numbers",
        action="unmasked",
        # Numbers are read when seen, without those erased meanwhile.
        subject_state=proposals.always_same,
        perform=proposals.only_agreed(context),
        particulars={"orders": "The orders", "purpose": "What for"},
        open_for=OPEN_FOR,
    )


async def see_numbers(
    context: AppContext, kind: proposals.ProposalKind, proposal: Proposal, *, by: str | None
) -> list[CustomerNumbers]:
    """Return the numbers of a proposal's orders to its proposer, and note each order in the trail.

    Raises UsageError for anybody else, where it was not approved, and where its time is over.
    """
    async with context.database.writing() as connection:
        who = await permitted(connection, by=by, action="unmasked")
        now = context.clock.now()
        proposals.must_be_open(kind, proposal, who=who, now=now)
        assert proposal.decided is not None
        orders, found = proposal.given["orders"].split("\n"), list[CustomerNumbers]()
        hidden = await run(connection, restricted_orders, orders)
        for order, history in (await gather(connection, orders)).items():
            if order in hidden:
                sentence = hidden[order].sentence
                found.append(CustomerNumbers(order=order, phones=(), note=sentence))
                continue
            phones = tuple(await phones_of(connection, order, sources=context.sources))
            note = "" if phones else await _why_none(connection, history)
            found.append(CustomerNumbers(order=order, phones=phones, note=note))
        for each in found:
            await note_in_trail(
                connection,
                who,
                action="unmasked",
                subject=each.order,
                at=now,
                reason=proposal.reason,
                facts={
                    "phones": len(each.phones),
                    "proposal": proposal.id,
                    "second": proposal.decided.who,
                },
            )
    return found


def numbers_document(
    kind: proposals.ProposalKind, proposal: Proposal, seen: Sequence[CustomerNumbers]
) -> NumbersDocument:
    """Return the seen numbers of an approved proposal as JSON values."""
    until = kind.open_until(proposal)
    assert until is not None
    return {
        "proposal": proposal.id,
        "open_until": format_instant(until),
        "orders": [each.document() for each in seen],
    }


async def check_open(
    context: AppContext, kind: proposals.ProposalKind, proposal: Proposal, *, by: str | None
) -> None:
    """Raise UsageError where this person may not look now. The message says what to do."""
    async with context.database.reading() as connection:
        who = await permitted(connection, by=by, action="unmasked")
    proposals.must_be_open(kind, proposal, who=who, now=context.clock.now())


async def _why_none(connection: Connection, history: History) -> str:
    erased = await audit_entries(
        connection, subject=history.order, action="erased", before=AFTER_ALL, limit=1
    )
    if erased:
        return (
            f"Erased at {format_instant(erased[0].at)}: the customer's personal data is gone, and "
            "stays so."
        )
    deliveries = [each.delivery_id for each in history.deliveries]
    pruned = await run(connection, pruned_among, deliveries)
    if pruned is not None:
        return f"Deleted by age, at {format_instant(pruned.last_at)} at the latest."
    return "No number came with it."
