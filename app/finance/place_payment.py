"""Assign a payment to an order, withdraw a decision, or dismiss a payment.

1 look     find the payment, its present order, and the orders that fit
2 refuse   a payment with a newer decision, or with an unproved amount
3 propose  the act, if one person may not act alone
4 write    the record and the audit entry, in one transaction

One finance person may assign a payment to the only fitting order, within the limits for accepting
breaks. A dismissal, and any act on an order that was once fulfillable, need two people.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from app.access import operator_store
from app.access.operators import MAY, Action, note_in_trail, permitted
from app.access.proposal import Proposal
from app.access.proposals import Agree, Agreed, ProposalKind, check_reason, propose, shown_in
from app.context.context import AppContext
from app.core.errors import NotFoundError, UsageError
from app.core.ids import new_id
from app.core.phone_key import is_of_a_number
from app.core.references import composed, fault_of
from app.database.engine import Connection
from app.database.locks import LINKING, take_lock
from app.database.statements import run
from app.finance.limits import allowance_of
from app.finance.statement_store import statement_lines_of
from app.orders.history_store import gather
from app.orders.holds import author_of
from app.orders.ledger_store import times_released
from app.orders.read_orders import spoken_of
from app.orders.record_store import add_records
from app.orders.search_store import records_of_amount
from app.orders.unallocated import Unallocated, due_of, found_payment
from app.orders.unallocated_store import acts_on
from app.receiving.phone_store import notes_of, orders_by_phone
from reconcile.instants import DAY, TICK, Duration, Instant, format_instant
from reconcile.ledger.fold import fold
from reconcile.ledger.records import DISMISSED_AS, NO_ORDER, WITHDRAWN, DismissedAs, Record
from reconcile.money import Money, to_json

ACCOUNT_MAX: Final = 120

ActKind = Literal["assign", "withdraw", "dismiss"]

ACTIONS: Final[Mapping[ActKind, Action]] = {
    "assign": "payment_assigned",
    "withdraw": "payment_withdrawn",
    "dismiss": "payment_dismissed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Placing:
    """Request to assign a payment, withdraw its assignment, or dismiss the payment. `replaces` is
    the last record that the person saw."""

    kind: ActKind
    payment: str
    reason: str
    by: str | None
    order: str = NO_ORDER
    dismiss: DismissedAs | None = None
    to: str = ""
    replaces: str | None = None


# --- orders that a payment may be for -------------------------------------------------------------

Reason = Literal["amount", "number", "time"]

REASON_WORDS: Final[Mapping[Reason, str]] = {
    "amount": "this amount is what is still due",
    "number": "its customer has the payer's phone number",
    "time": "it was placed within a day before the payment",
}

NEAR: Final[Duration] = DAY
"""Maximum time between a suggested order and the payment."""

LOOKED_AT: Final = 200

SUGGESTED: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """Order that a payment can be for, with the reasons."""

    order: str
    due: Money | None
    reasons: tuple[Reason, ...]

    @property
    def fits(self) -> bool:
        """Check if amount and phone number are those of the order."""
        return {"amount", "number"} <= set(self.reasons)

    def document(self) -> dict[str, Any]:
        return {
            "order": self.order,
            "due": None if self.due is None else to_json(self.due),
            "fits": self.fits,
            "reasons": [{"reason": each, "words": REASON_WORDS[each]} for each in self.reasons],
        }


async def suggested_orders(context: AppContext, payment: Unallocated) -> list[Suggestion]:
    """Return the orders that can fit a payment, best first."""
    async with context.database.reading() as connection:
        return await _suggestions(context, connection, payment)


async def _suggestions(
    context: AppContext, connection: Connection, payment: Unallocated
) -> list[Suggestion]:
    notes = await notes_of(connection, payment.deliveries)
    digests = {note[0] for note in notes if is_of_a_number(note[0])}
    of_number = {
        order
        for digest in digests
        for order in await orders_by_phone(connection, digest, limit=LOOKED_AT)
    }
    held = None if payment.amount_unclear else payment.held
    asked = [] if held is None else [held.minor]
    of_amount = {
        order
        for order, money in await records_of_amount(connection, asked, limit=LOOKED_AT)
        if money == held
    }
    found = []
    histories = await gather(connection, sorted((of_number | of_amount) - {NO_ORDER}))
    for order, history in histories.items():
        as_of = history.instant_at(context.clock.now())
        ledger = fold(history, policy=context.policy, as_of=as_of)
        due = due_of(ledger)
        placed = ledger.case.filed.placed
        reasons: list[Reason] = []
        if held is not None and held.minor and due == held:
            reasons.append("amount")
        if order in of_number:
            reasons.append("number")
        if placed is not None and 0 <= payment.occurred_at - placed.at <= NEAR:
            reasons.append("time")
        if reasons and reasons != ["time"] and due is not None and due.minor > 0:
            found.append(Suggestion(order=order, due=due, reasons=tuple(reasons)))
    found.sort(key=lambda each: (not each.fits, -len(each.reasons), each.order))
    return found[:SUGGESTED]


def only_fit(suggestions: list[Suggestion]) -> str | None:
    """Return the only order that fits a payment, or None."""
    fitting = [each.order for each in suggestions if each.fits]
    return fitting[0] if len(fitting) == 1 else None


# --- acts on a payment ----------------------------------------------------------------------------


async def place_payment(context: AppContext, asked: Placing) -> Proposal | None:
    """Act on a payment, or return a proposal. Raise UsageError for an impossible or forbidden
    act."""
    check_reason(asked.reason, of="a payment", countries=context.countries)
    asked = replace(asked, order=composed(asked.order))
    async with context.database.writing() as connection:
        await _alone(connection)
        who = await permitted(connection, by=asked.by, action="payment_proposed")
        seen = await _seen(context, connection, asked)
        because = await _why_not_alone(context, connection, seen, asked, who)
        if because is None:
            await _write(context, connection, seen, asked, who)
            proposal = None
        else:
            proposal = await propose(
                connection,
                placing_kinds(context)[asked.kind],
                who=who,
                now=context.clock.now(),
                because=because,
                subject=seen.payment.id,
                sentence=_sentence(seen, asked),
                given={
                    "order": asked.order,
                    "as": asked.dismiss or "",
                    "to": asked.to,
                    "replaces": seen.payment.last_act or "",
                },
                reason=asked.reason,
            )
    context.signals.evidence_arrived.set()
    return proposal


async def why_not_alone(context: AppContext, asked: Placing) -> str | None:
    """Return why one person may not act on a payment alone, or None."""
    asked = replace(asked, order=composed(asked.order))
    async with context.database.reading() as connection:
        who = await permitted(connection, by=asked.by, action="payment_proposed")
        seen = await _seen(context, connection, asked)
        return await _why_not_alone(context, connection, seen, asked, who)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    payment: Unallocated
    money: Money | None
    proved: bool
    taken: tuple[str, ...]


async def _alone(connection: Connection) -> None:
    """Lock decisions about payments, and the linking of payments to orders, until the transaction
    ends."""
    await operator_store.acting_alone(connection)
    await run(connection, take_lock, LINKING)


async def _seen(context: AppContext, connection: Connection, asked: Placing) -> _Seen:
    now = context.clock.now()
    payment = await run(connection, found_payment, context.policy, now, asked.payment)
    holders = (payment.assigned_to,) if payment.assigned_to else payment.named
    if asked.replaces is not None and asked.replaces != (payment.last_act or ""):
        raise UsageError(
            f"{await _last_word(connection, payment)} since you looked, so nothing was done: look "
            "at the payment again, then decide"
        )
    if asked.kind == "withdraw":
        if payment.assigned_to is None and payment.dismissed is None:
            raise UsageError(f"{payment.id} is neither assigned nor dismissed")
    elif asked.replaces is None and (payment.assigned_to or payment.dismissed):
        raise UsageError(
            f"{await _last_word(connection, payment)}: withdraw that decision first, with "
            "`tallyhook unallocated withdraw`"
        )
    if asked.kind == "dismiss":
        _check_dismissal(payment, asked)
    money, proved = payment.held, False
    if asked.kind == "assign":
        await _check_order(connection, payment, asked.order)
        if payment.standing == "answered":
            money, proved = await _proved(connection, payment, now), True
    return _Seen(
        payment=payment,
        money=money,
        proved=proved,
        taken=tuple(each for each in holders if each != asked.order),
    )


async def _last_word(connection: Connection, payment: Unallocated) -> str:
    acts = (await run(connection, acts_on, {payment.key})).get(payment.key, ())
    if not acts:
        return f"nobody assigned or dismissed {payment.id}"
    last = acts[-1]
    done = (
        "dismissed it"
        if last.kind == "payment_dismissed"
        else "withdrew its assignment"
        if last.reason == WITHDRAWN
        else f"assigned it to order {last.order}"
    )
    return f"{last.author} {done} at {format_instant(last.recorded_at)}"


def _check_dismissal(payment: Unallocated, asked: Placing) -> None:
    if payment.named:
        raise UsageError(
            f"{payment.id} belongs to order {', '.join(payment.named)}: only a payment without an "
            "order can be dismissed"
        )
    if asked.dismiss == "other_business" and not asked.to.strip():
        raise UsageError(
            "name the account to post the money to, because it belongs to other business"
        )
    if asked.dismiss == "to_refund" and asked.to:
        raise UsageError(
            "do not name an account: money that is to be refunded is always booked as a liability"
        )
    if len(asked.to) > ACCOUNT_MAX or not asked.to.isprintable():
        raise UsageError(f"an account's name has at most {ACCOUNT_MAX} printable characters")


async def _check_order(connection: Connection, payment: Unallocated, order: str) -> None:
    fault = fault_of(order)
    if fault is not None:
        raise UsageError(f"the order's reference {fault}")
    if payment.payment is None and payment.session is None:
        raise UsageError(
            f"{payment.id} names neither a payment nor a session, so it cannot be assigned: name "
            "the member with the payment reference in the source's profile, then run `tallyhook "
            "reindex`"
        )
    if payment.assigned_to == order or (not payment.assigned_to and order in payment.named):
        raise UsageError(f"{payment.id} belongs to order {order} already")
    if not spoken_of((await gather(connection, [order]))[order]):
        raise NotFoundError(
            f"nothing is known of order {order!r}: let the shop state it, or import its order book"
        )


async def _proved(connection: Connection, payment: Unallocated, now: Instant) -> Money:
    names = [name for name in (payment.payment, payment.session) if name is not None]
    lines = await statement_lines_of(connection, [], payments=names, as_of=now)
    amounts = {
        Money(minor=each.gross, currency=each.currency)
        for each in lines
        if each.source in (None, "", payment.source) and each.gross > 0
    }
    if len(amounts) != 1:
        have = "statement lines state different amounts" if amounts else "no statement line does"
        raise UsageError(
            f"the provider has not stated the amount of {payment.id}, and {have}: import the "
            "statement with this payment, then assign the payment"
        )
    return amounts.pop()


async def _why_not_alone(
    context: AppContext,
    connection: Connection,
    seen: _Seen,
    asked: Placing,
    who: operator_store.Operator,
) -> str | None:
    if who.role != "account" and who.role not in MAY[ACTIONS[asked.kind]]:
        return "support proposes this, and finance decides"
    if asked.kind == "dismiss":
        return "dismissing a payment needs two people"
    for order in seen.taken:
        if await times_released(connection, order):
            return (
                f"order {order}, which has the payment now, was published as fulfillable, so its "
                "goods may have been shipped"
            )
    if seen.money is None:
        return "its amount is not clear, and one person may decide only up to a limit"
    allowance = await allowance_of(context, connection, who.name)
    if seen.money.currency not in allowance.rules.alone_max:
        return (
            f"no rule says how much {seen.money.currency} one person may decide about "
            "(accept_alone_max)"
        )
    above = allowance.why_not(seen.money)
    if above is not None:
        return above
    if asked.kind == "withdraw":
        return None
    fitting = only_fit(await _suggestions(context, connection, seen.payment))
    if fitting != asked.order:
        return (
            f"order {asked.order} is not the only one that owes exactly this and has the payer's "
            "phone number"
        )
    return None


async def _write(
    context: AppContext,
    connection: Connection,
    seen: _Seen,
    asked: Placing,
    who: operator_store.Operator,
    *,
    agreed: Agreed | None = None,
) -> None:
    payment, now = seen.payment, context.clock.now()
    acts = (await run(connection, acts_on, {payment.key})).get(payment.key, ())
    at = max([now, *(Instant(each.recorded_at + TICK) for each in acts)])
    dismissed = payment.dismissed is not None
    order = payment.assigned_to if asked.kind == "withdraw" and not dismissed else asked.order
    record = Record(
        record_id=new_id("rec_", now),
        recorded_at=at,
        kind="payment_dismissed" if asked.kind == "dismiss" else "payment_assigned",
        order=order or NO_ORDER,
        at=at,
        money=seen.money if seen.proved else None,
        source=payment.source,
        payment=payment.payment or (None if payment.session else payment.reference),
        session=None if payment.payment else payment.session,
        key=asked.to.strip() or None,
        reason=asked.dismiss or (WITHDRAWN if asked.kind == "withdraw" else None),
        author=author_of(who),
        replaces=payment.last_act,
    )
    await add_records(connection, [record])
    facts: dict[str, str | int] = {"record": record.record_id}
    if seen.money is not None:
        facts |= {"amount": to_json(seen.money)["amount"], "currency": seen.money.currency}
    given = {"order": order, "as": asked.dismiss, "to": asked.to.strip()}
    facts |= {name: value for name, value in given.items() if value}
    await note_in_trail(
        connection,
        who,
        action=ACTIONS[asked.kind],
        subject=payment.id,
        at=now,
        reason=asked.reason,
        facts=facts if agreed is None else facts | agreed.facts,
    )


def _sentence(seen: _Seen, asked: Placing) -> str:
    payment = seen.payment
    money = "an amount that is not clear" if seen.money is None else str(seen.money)
    what = f"{payment.id} ({money}, received {format_instant(payment.received_at)})"
    taken = f" It is taken from order {', '.join(seen.taken)}." if seen.taken else ""
    if asked.kind == "assign":
        return f"Assign payment {what} to order {asked.order}.{taken}"
    if asked.kind == "withdraw":
        return f"Withdraw the decision about payment {what}.{taken}"
    if asked.dismiss == "to_refund":
        return f"Dismiss payment {what}: it belongs to no order and is to be refunded."
    return f"Dismiss payment {what}: it is other business and goes to the account {asked.to}."


# --- proposals -----------------------------------------------------------------------------------

_NAMES: Final[Mapping[ActKind, tuple[str, str]]] = {
    "assign": ("assign_payment", "Assign a payment to an order"),
    "withdraw": ("withdraw_assignment", "Withdraw a decision about a payment"),
    "dismiss": ("dismiss_payment", "Dismiss a payment that belongs to no order"),
}


def placing_kinds(context: AppContext) -> dict[ActKind, ProposalKind]:
    """Return the kind of proposal for each act."""
    return {kind: _kind(context, kind) for kind in _NAMES}


def _kind(context: AppContext, kind: ActKind) -> ProposalKind:
    def asked(proposal: Proposal, by: str) -> Placing:
        given = proposal.given
        return Placing(
            kind=kind,
            payment=proposal.subject,
            reason=proposal.reason,
            by=by,
            order=given["order"],
            dismiss=next((each for each in DISMISSED_AS if each == given["as"]), None),
            to=given["to"],
            replaces=given["replaces"],
        )

    async def perform(proposal: Proposal, agree: Agree) -> None:
        async with context.database.writing() as connection:
            await _alone(connection)
            agreed = await agree(connection)
            doing = asked(proposal, agreed.who.name)
            seen = await _seen(context, connection, doing)
            await _write(context, connection, seen, doing, agreed.who, agreed=agreed)
        context.signals.evidence_arrived.set()

    async def state(connection: Connection, subject: str, given: Mapping[str, str]) -> str:
        now = context.clock.now()
        found = await run(connection, found_payment, context.policy, now, subject)
        holders = [found.assigned_to, *found.named]
        return json.dumps([found.last_act, found.state, str(found.held), holders])

    name, title = _NAMES[kind]
    return ProposalKind(
        name=name,
        title=title,
        action=ACTIONS[kind],
        proposing="payment_proposed",
        subject_state=state,
        perform=perform,
        where=shown_in("unallocated"),
    )
