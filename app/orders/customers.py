"""Customers' phone numbers, read from an order's stored deliveries when needed.

The numbers of several orders need a second person:

    1 choose   orders by name, or the newest that match a list's filters
    2 propose  to see the numbers, with a purpose and a reason
    3 agree    another operator approves or rejects (`app.access.proposals`)
    4 look     only the proposer, until OPEN_FOR after the approval; each order gets an audit entry

Numbers are never in the proposal, the audit trail or the log.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Final, TypedDict

from app.access import proposals
from app.access.operator_store import acting_alone, audit_entries
from app.access.operators import AFTER_ALL, note_in_trail, permitted, who_may
from app.access.proposal import Proposal
from app.context.context import AppContext
from app.core.errors import NotFoundError, UsageError
from app.core.masking import Masking, looks_like_a_phone, masked_words
from app.core.references import fault_of
from app.core.text import counted, is_human_text
from app.database.engine import Connection
from app.database.statements import run
from app.orders.history_store import gather
from app.orders.ledger_store import latest_orders
from app.orders.pending_session_store import pending_sessions_of
from app.orders.read_orders import explain_order, spoken_of
from app.orders.retention_store import pruned_among
from app.providers.source import Source
from app.receiving.delivery_log_store import RawDelivery, find_in_log, raw_delivery
from app.receiving.header_codec import phones_in
from app.receiving.kept_request import no_delivery, refuse_too_many
from app.receiving.refusal_store import find_rejection
from app.receiving.restrictions import refuse_restricted, restricted_orders
from reconcile.documents import InstantText, Keywords, OrderReference
from reconcile.instants import DAY, HOUR, Duration, format_instant
from reconcile.ledger.history import History

LOOKED_AT: Final = 50
"""Maximum number of an order's deliveries in which phone numbers are searched. Usually the first
delivery already names the customer."""

MAX_REASON: Final = 500
"""Maximum number of characters in a reason, which stays in the audit trail for ever."""


async def phones_of(
    connection: Connection, order: str, *, sources: Mapping[str, Source], most: int = LOOKED_AT
) -> list[str]:
    """Return the phone numbers of an order's customer as E.164 digits, from its deliveries.

    most  maximum number of deliveries that are read
    """
    found: dict[str, None] = {}
    history = (await gather(connection, [order]))[order]
    own = sorted(each.delivery_id for each in history.deliveries)
    for delivery_id in own[:most]:
        delivery = await raw_delivery(connection, delivery_id)
        if delivery is not None:
            found |= dict.fromkeys(own_phones(delivery, sources))
    for row in await pending_sessions_of(connection, [order]):
        phone = json.loads(row.request).get("customer", {}).get("phone")
        found |= {str(phone): None} if phone else {}
    return list(found)


def own_phones(delivery: RawDelivery, sources: Mapping[str, Source]) -> list[str]:
    """Return the phone numbers in a delivery's own event, not in others of its request."""
    phones = phones_in(delivery, sources)
    if delivery.whole is None or delivery.body is None:
        return phones
    text = delivery.body.decode("utf-8", "replace")
    return [each for each in phones if Masking([each]).touches(text)]


def checked_reason(context: AppContext, reason: str, *, phones: Iterable[str] = ()) -> str:
    """Return a reason for the audit trail, without surrounding blanks.

    phones  phone numbers and mail addresses that the reason must not contain

    Raises UsageError if it is empty, too long, not printable, or contains one of these or another
    phone number.
    """
    checked = reason.strip()
    if not (0 < len(checked) <= MAX_REASON) or not is_human_text(checked):
        raise UsageError(f"--reason must say why, in 1 to {MAX_REASON} printable characters")
    if Masking(phones).touches(checked) or looks_like_a_phone(checked, context.countries):
        raise UsageError(
            "remove the phone number or email address from --reason: the trail is kept permanently"
        )
    return checked


async def unmask(context: AppContext, order: str, *, reason: str, by: str | None) -> list[str]:
    """Return the full phone numbers of an order's customer, with an audit entry.

    Raises UsageError if the permission or the reason is missing, the data is restricted, or too
    many were seen, and NotFoundError for an unknown order.
    """
    await explain_order(context, order)
    async with context.database.writing() as connection:
        await acting_alone(connection)
        who = await permitted(connection, by=by, action="unmasked")
        await refuse_restricted(connection, order=order)
        found = await phones_of(connection, order, sources=context.sources)
        await refuse_too_many(context, connection, who, more=len(found))
        await note_in_trail(
            connection,
            who,
            action="unmasked",
            subject=order,
            at=context.clock.now(),
            reason=checked_reason(context, reason, phones=found),
            facts={"phones": len(found)},
        )
    return found


async def reveal_body(context: AppContext, delivery_id: str, *, reason: str, by: str) -> bytes:
    """Return a delivery's body to a permitted person, with an audit entry.

    Raises UsageError if the permission or the reason is missing, too many were seen, or the body is
    restricted or not stored, and NotFoundError for an unknown delivery.
    """
    async with context.database.writing() as connection:
        await acting_alone(connection)
        who = await permitted(connection, by=by, action="unmasked")
        await refuse_restricted(connection, delivery=delivery_id)
        body, phones = await _kept_body(connection, delivery_id, context.sources)
        await refuse_too_many(context, connection, who, more=1)
        await note_in_trail(
            connection,
            who,
            action="unmasked",
            subject=delivery_id,
            at=context.clock.now(),
            reason=checked_reason(context, reason, phones=phones),
            facts={"bytes": len(body)},
        )
    return body


async def _kept_body(
    connection: Connection, delivery_id: str, sources: Mapping[str, Source]
) -> tuple[bytes, list[str]]:
    """Return a delivery's whole body, and its phone numbers.

    Raise UsageError if it is not stored, and NotFoundError for an unknown delivery.
    """
    refused = await find_rejection(connection, delivery_id)
    if refused is not None:
        return refused.body, []
    delivery = await raw_delivery(connection, delivery_id)
    if delivery is None:
        if await find_in_log(connection, delivery_id) is None:
            raise no_delivery(delivery_id)
        raise UsageError(
            "the body is stored only with the first delivery of this event: open that delivery "
            "from the order's page"
        )
    body = delivery.body if delivery.whole is None else delivery.whole
    if body is None:
        raise UsageError("the delivery's body was deleted; its digest, dates and amounts are kept")
    return body, phones_in(delivery, sources)


# --- the numbers of several orders, by proposal ---------------------------------------------------

MOST_ORDERS: Final = 200
"""Maximum number of orders in one proposal. One person can review 200 orders, and can call the
customers in two days."""

OPEN_FOR: Final[Duration] = DAY
"""Time after the approval in which the proposer can see the numbers: enough for one day's work."""

NAME: Final = "unmask"

PURPOSES: Final[Mapping[str, str]] = {
    "payment": "ask customers about their payment",
    "refund": "pay money back to customers",
    "delivery": "ask customers about their delivery",
    "warning": "warn customers of a problem",
    "authority": "answer a bank or an authority",
    "other": "do something else, named in the reason",
}
"""Purposes for which numbers may be seen. The list is closed, so that audit entries can be counted
by purpose."""

NOT_ALONE: Final = "seeing the numbers of several customers needs two operators"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmaskRequest:
    """A person's request to see the phone numbers of several orders, with a purpose and a
    reason."""

    orders: Sequence[str]
    purpose: str
    reason: str
    by: str | None


class CustomerNumbersDocument(TypedDict):
    order: OrderReference
    phones: Annotated[list[Annotated[str, Keywords(examples=["254700000001"])]], "As E.164 digits."]
    note: Annotated[str, "Why there is no number, such as an erasure."]


class NumbersDocument(TypedDict):
    proposal: str
    open_until: Annotated[InstantText, "Until when the numbers may be requested again."]
    orders: list[CustomerNumbersDocument]


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomerNumbers:
    """Phone numbers of one order's customer."""

    order: str
    phones: tuple[str, ...]
    """The numbers as E.164 digits."""
    note: str
    """Reason why there are no numbers. Otherwise empty."""

    def document(self) -> CustomerNumbersDocument:
        """Return the numbers as JSON values, which also serve as a table's row."""
        return {"order": self.order, "phones": list(self.phones), "note": self.note}


async def chosen_orders(
    context: AppContext, *, outcome: str | None = None, finding: str | None = None
) -> list[str]:
    """Return the orders that match a list's filters, newest first.

    Raises UsageError if no order or too many orders match.
    """
    async with context.database.reading() as connection:
        found = await latest_orders(
            connection, before=None, limit=MOST_ORDERS + 1, outcome=outcome, finding=finding
        )
    if len(found) > MOST_ORDERS:
        raise UsageError(
            f"more than {MOST_ORDERS} orders match: choose some of them, or a shorter list"
        )
    if not found:
        raise UsageError("no order matches, so there is nothing to see")
    return [each.order for each in found]


async def propose_unmasking(
    context: AppContext, kind: proposals.ProposalKind, asked: UnmaskRequest
) -> Proposal:
    """Propose that an operator may see the phone numbers of these orders.

    Raises UsageError if permission, proof of identity, purpose or reason is missing, for a wrong
    number of orders, or if an equal proposal waits, and NotFoundError for an unknown order.
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
                    f"there is no order {masked_words(order)[:80]!r} (number {place} in your "
                    "list): remove it, or write it exactly as in the list of orders"
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
            sentence=f"Show {who.name} the phone numbers of the customers of {count}. The purpose "
            f"is to {PURPOSES[asked.purpose]}. The numbers can be seen for {OPEN_FOR // HOUR} "
            "hours from the approval.",
            given={"orders": "\n".join(orders), "purpose": PURPOSES[asked.purpose]},
            reason=reason,
        )


def unmasking_kind(context: AppContext) -> proposals.ProposalKind:
    """Return the kind of proposal by which an operator asks to see several orders' phone numbers.

    An approval lets the proposer see them; the audit trail records each look.
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
    """Return the customers' phone numbers of all orders in an approved proposal, with audit
    entries.

    Raises UsageError for another's, unapproved or expired proposal.
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
    """Return the numbers that an approved proposal shows, as JSON values."""
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
    """Raise UsageError if this person may not see the proposal's numbers now. The error says what
    to do."""
    who = await who_may(context, by=by, action="unmasked")
    proposals.must_be_open(kind, proposal, who=who, now=context.clock.now())


async def _why_none(connection: Connection, history: History) -> str:
    erased = await audit_entries(
        connection, subject=history.order, action="erased", before=AFTER_ALL, limit=1
    )
    if erased:
        return (
            f"Erased at {format_instant(erased[0].at)}: the customer's personal data is "
            "permanently gone."
        )
    deliveries = [each.delivery_id for each in history.deliveries]
    pruned = await run(connection, pruned_among, deliveries)
    if pruned is not None:
        return f"Deleted by age, at {format_instant(pruned.last_at)} at the latest."
    return "No phone number came with this order."
