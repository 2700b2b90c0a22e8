"""Unallocated payments: verified money that belongs to no order until a person acts on it.

    1 look     stored events without an order, by payment (`unallocated_store`)
    2 fold     each payment like an order's attempt, and apply people's last decisions about it
    3 answer   a page, one payment, or counts and sums

Unsigned and unconfirmed messages never make an unallocated payment.
"""

from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal, TypedDict, get_args

from app.context.context import AppContext
from app.core.document_of import document_of
from app.core.errors import NotFoundError, UsageError
from app.core.masking import masked_phone
from app.database.engine import Connection
from app.database.statements import PlainConnection, run
from app.orders import unallocated_store as store
from app.receiving.delivery_log_store import raw_delivery
from app.receiving.header_codec import phones_in
from app.receiving.restrictions import restricted_deliveries
from reconcile.documents import Count, InstantText, Keywords, MoneyDocument, NextText
from reconcile.instants import Instant, format_instant
from reconcile.ledger.correlate import AttemptEvidence
from reconcile.ledger.events import FOLLOWS_SUCCESS, UNCONFIRMED, Delivery, Standing
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.ledger import AttemptOutcome, Entry, Ledger, Movement
from reconcile.ledger.movements import entries_of
from reconcile.ledger.policy import Policy
from reconcile.ledger.records import DISMISSED_AS, NO_ORDER, WITHDRAWN, Record
from reconcile.ledger.shops import Aside, judge_shops
from reconcile.money import Money

Why = Literal[
    "names_no_order",
    "may_not_link",
    "order_not_made",
    "renewal",
    "assignment_withdrawn",
    "whose_shop_unknown",
    "other_shop",
]

WHY: Final[Mapping[Why, str]] = {
    "names_no_order": "It names no order, and nobody has said which one it is for.",
    "may_not_link": "Its order is only suggested: the shop has not named this payment or its "
    "session.",
    "order_not_made": "It is a standalone refund: its order must first be placed, or be named by "
    "other evidence.",
    "renewal": "It renews an agreement: only the agreement's first payment is for the named order.",
    "assignment_withdrawn": "It was assigned to an order, and the assignment was withdrawn.",
    "whose_shop_unknown": "Several shops use this provider account, and nothing says yet whose "
    "payment it is.",
    "other_shop": "It belongs to another shop or seller on the same provider account.",
}

State = Literal["open", "dismissed", "assigned", "named", "not_ours"]
STATES: Final[tuple[State, ...]] = get_args(State)
"""States of a payment that is or was unallocated.

A `named` payment has its order from its events or the shop; a `not_ours` one is another shop's.
"""

Signed = Literal["signed", "fetched", "answered"]
SIGNED: Final[Mapping[Standing, Signed]] = {
    "said": "signed",
    "fetched": "fetched",
    "answered": "answered",
}


class UnallocatedReasonDocument(TypedDict):
    code: Why
    sentence: str


DismissedReason = Annotated[str | None, Keywords(enum=DISMISSED_AS)]
DismissalDocument = TypedDict(
    "DismissalDocument", {"as": DismissedReason, "to": str | None, "at": InstantText}
)


class UnallocatedDocument(TypedDict):
    id: Annotated[str, Keywords(examples=["shop:QK12AB34CD"])]
    source: str
    payment: str | None
    session: str | None
    outcome: AttemptOutcome
    captured: MoneyDocument | None
    refunded: MoneyDocument | None
    held: Annotated[MoneyDocument | None, "The part still held; `null` if that is unclear."]
    amount_unclear: bool
    disputed: bool
    occurred_at: InstantText
    received_at: InstantText
    age_s: Count
    phone: Annotated[str | None, "The payer's number, masked."]
    standing: Signed
    why: UnallocatedReasonDocument
    state: State
    assigned_to: str | None
    suggested: Annotated[list[str], "Orders that its events name but that may not link it."]
    named: Annotated[list[str], "Orders that its events, or the shop, name."]
    last_act: Annotated[str | None, "The latest decision about it, for `replaces`."]
    dismissed: DismissalDocument | None
    deliveries: list[str]
    events: list[str]


class UnallocatedPageDocument(TypedDict):
    payments: list[UnallocatedDocument]
    next: NextText


MONEYLESS: Final[frozenset[AttemptOutcome]] = frozenset(
    ("declined", "canceled", "expired", "timed_out")
)

AT_ONCE: Final = 500
"""Maximum number of payments that are computed from their events at a time."""

MOST_COUNTED: Final = 20_000
"""Maximum number of payments that a count reads, which takes about two seconds."""

GREATEST: Final = 2**63 - 1

READ_FOR_PHONE: Final = 3
"""Maximum number of a payment's deliveries in which the customer's phone number is searched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unallocated:
    """Payment that belongs to no order, or that a person assigned or dismissed.

    payment, session
                 the references that the payment's events name
    captured, refunded
                 amounts in the currency of the first movement; None if no money moved
    amount_unclear
                 whether events disagree on an amount, or state none
    """

    id: str
    """`source:reference`, permanent."""
    source: str
    reference: str
    """Reference of the payment, else of its session, else the id of its event."""
    payment: str | None
    session: str | None
    outcome: AttemptOutcome
    """Outcome of the customer's attempt to pay."""
    captured: Money | None
    refunded: Money | None
    held: Money | None
    """Amount that is left. None if unclear."""
    amount_unclear: bool
    disputed: bool
    """True if a dispute is open."""
    standalone: bool
    """True if there is only a refund, whose payment is unknown."""
    went_back: bool
    """True if some of the money went back, or a dispute is open."""
    entries: tuple[Entry, ...]
    """Each movement of known amount, by date."""
    occurred_at: Instant
    """The first date that the provider gives."""
    received_at: Instant
    """The first arrival."""
    changed_at: Instant
    """The last arrival, or the last decision of a person."""
    standing: Signed
    """`signed`, `fetched` or `answered`."""
    why: Why
    """Reason why the payment belongs to no order."""
    dismissed: Record | None
    """Record of a person's valid dismissal of the payment."""
    assigned_to: str | None
    """The order to which a person assigned the payment."""
    suggested: tuple[str, ...]
    """Orders that the payment's events name, without a link."""
    named: tuple[str, ...]
    """Orders that the events or the shop name. Empty for an unallocated payment."""
    aside: Aside | None
    """`other` for another shop's payment, `unknown` for an unknown shop's, else None."""
    last_act: str | None
    """Id of the last record by which a person assigned or dismissed the payment."""
    deliveries: tuple[str, ...]
    """Ids of the events' deliveries, in order of arrival."""
    events: tuple[str, ...]
    """Ids of the payment's events."""
    phone: str | None = None

    @property
    def key(self) -> store.PaymentKey:
        """Return the source and the reference that identify the payment."""
        return store.PaymentKey(self.source, self.reference)

    @property
    def state(self) -> State:
        """Return the payment's state: `open`, or a word for the order, shop or decision that
        settles it."""
        if self.assigned_to is not None:
            return "assigned"
        if self.named:
            return "named"
        if self.aside == "other":
            return "not_ours"
        return "open" if self.dismissed is None else "dismissed"

    @property
    def waits(self) -> bool:
        """Return whether a person must still decide about the payment. The payment may then have
        moved money, and nobody has decided yet."""
        moved = bool(self.entries) or self.amount_unclear or self.disputed
        if self.standalone:
            return False  # it is listed as returned money
        return self.state == "open" and moved and (self.held is None or self.held.minor != 0)

    @property
    def went_back_of_unknown(self) -> bool:
        """Return whether money of the open payment went back, and nobody knows to which shop the
        payment belongs."""
        return self.state == "open" and self.why == "whose_shop_unknown" and self.went_back

    def document(self, *, now: Instant) -> UnallocatedDocument:
        """Return the payment as JSON values. Its age is in whole seconds since its arrival."""
        dismissed = self.dismissed
        return document_of(
            UnallocatedDocument,
            self,
            age_s=max(now - self.received_at, 0) // 1_000_000,
            why={"code": self.why, "sentence": WHY[self.why]},
            dismissed=None
            if dismissed is None
            else {
                "as": dismissed.reason,
                "to": dismissed.key,
                "at": format_instant(dismissed.recorded_at),
            },
        )


# --- (2) fold ------------------------------------------------------------------------------------


def folded(
    deliveries: Collection[Delivery],
    acts: Mapping[store.PaymentKey, Sequence[Record]],
    *,
    policy: Policy,
    as_of: Instant,
) -> list[Unallocated]:
    """Return the payments to which these events belong, computed like an order's payment attempts.

    deliveries  events of one payment, and of payments that share a session with it
    acts        people's decisions about each payment, the earliest first
    """
    aside = judge_shops([each.event for each in deliveries if each.received_at <= as_of]).aside
    # The order that an event names, and its shop, do not change the state of its payment.
    known = [
        replace(each, event=replace(each.event, order=None, shop=None, agreement=None))
        for each in deliveries
        if each.received_at <= as_of
    ]
    orders = {each.event.key: each.event.order for each in deliveries if each.event.order}
    # A payment that is not known to be ours is not linked by the order that it names.
    orders = {key: order for key, order in orders.items() if key not in aside}
    if all(each.event.standing == UNCONFIRMED for each in known):
        return []
    # An event that names neither payment nor session is an attempt named like its order.
    name = min(each.event.event_id for each in known)
    ledger = fold(
        History(order=name, deliveries=frozenset(known)),
        policy=policy,
        as_of=as_of,
    )
    judged = {(each.source, each.reference): each.outcome for each in ledger.attempts}
    disputes = {cite for f in ledger.findings if f.code == "dispute_open" for cite in f.cites}
    return [
        _unallocated(
            evidence,
            judged[evidence.source, evidence.reference],
            [m for m in ledger.movements if m.attempt is evidence],
            [
                each
                for each in acts.get(store.PaymentKey(evidence.source, evidence.reference), ())
                if each.recorded_at <= as_of
            ],
            known=known,
            orders=orders,
            aside=aside,
            disputes=disputes,
        )
        for evidence in ledger.case.attempts
        if evidence.heard and any(h.event.claim != "unrecognized" for h in evidence.heard)
    ]


def _present(
    now: Instant,
    deliveries: Collection[Delivery],
    acts: Mapping[store.PaymentKey, Sequence[Record]],
) -> Instant:
    """Return the present instant. If a fast clock dated the latest delivery or decision later than
    now, return this later date."""
    heard = [each.received_at for each in deliveries]
    return max([now, *heard, *(each.recorded_at for some in acts.values() for each in some)])


def _unallocated(
    evidence: AttemptEvidence,
    outcome: AttemptOutcome,
    movements: list[Movement],
    acts: Sequence[Record],
    *,
    known: Collection[Delivery],
    orders: Mapping[tuple[str, str, str], str],
    aside: Mapping[tuple[str, str, str], Aside],
    disputes: Collection[str],
) -> Unallocated:
    heard = sorted([*evidence.heard, *evidence.unconfirmed], key=lambda each: each.first)
    said = [each.event for each in evidence.heard]
    captured, refunded, held = _sums(movements)
    disputed = any(event.event_id in disputes for event in said)
    last = acts[-1] if acts else None
    assigned = last is not None and last.kind == "payment_assigned" and last.reason != WITHDRAWN
    keys = {each.event.key for each in heard}
    brought = sorted((d.received_at, d.delivery_id) for d in known if d.event.key in keys)
    standings = {event.standing for event in said}
    suggested = {event.suggested for event in said if event.suggested is not None}
    standalone = all(event.standalone for event in said)
    why: Why = "names_no_order"
    if suggested:
        why = "order_not_made" if standalone else "may_not_link"
    if any(each.reason == WITHDRAWN and each.order != NO_ORDER for each in acts):
        why = "assignment_withdrawn"
    judged = next((aside[event.key] for event in said if event.key in aside), None)
    if judged is not None:
        why = "other_shop" if judged == "other" else "whose_shop_unknown"
    return Unallocated(
        id=f"{evidence.source}:{evidence.reference}",
        source=evidence.source,
        reference=evidence.reference,
        payment=next((event.payment for event in said if event.payment is not None), None),
        session=evidence.session,
        outcome=outcome,
        captured=captured,
        refunded=refunded,
        held=held,
        amount_unclear=any(movement.money is None for movement in movements),
        disputed=disputed,
        standalone=standalone,
        went_back=disputed or any(movement.kind != "captured" for movement in movements),
        entries=entries_of(movements),
        occurred_at=min(each.at for each in evidence.heard),
        received_at=heard[0].first,
        changed_at=max([heard[-1].first, *(each.recorded_at for each in acts)], key=int),
        standing=next(word for standing, word in SIGNED.items() if standing in standings),
        why=why,
        dismissed=None if last is None else _standing_dismissal(last, evidence),
        assigned_to=last.order if last is not None and assigned else None,
        suggested=tuple(sorted(suggested)),
        named=tuple(sorted({orders[event.key] for event in said if event.key in orders})),
        aside=judged,
        last_act=None if last is None else last.record_id,
        deliveries=tuple(delivery_id for _, delivery_id in brought),
        events=tuple(dict.fromkeys(each.event.event_id for each in heard)),
    )


def _as_renewal(payment: Unallocated, renewals: Collection[tuple[str, str]]) -> Unallocated:
    if tuple(payment.key) not in renewals:
        return payment
    why: Why = payment.why if payment.why == "assignment_withdrawn" else "renewal"
    return replace(payment, why=why, named=(), suggested=payment.named)


def _sums(movements: Sequence[Movement]) -> tuple[Money | None, Money | None, Money | None]:
    stated = [(m.kind, m.money) for m in movements if m.money is not None]
    if not stated:
        return None, None, None
    currency = stated[0][1].currency
    own = [(kind, money.minor) for kind, money in stated if money.currency == currency]
    came = sum(minor for kind, minor in own if kind == "captured")
    back = sum(minor for kind, minor in own if kind != "captured")
    captured, refunded = (Money(minor=each, currency=currency) for each in (came, back))
    if any(movement.money is None for movement in movements) or back > came:
        return captured, refunded, None
    return captured, refunded, Money(minor=came - back, currency=currency)


def _standing_dismissal(last: Record, evidence: AttemptEvidence) -> Record | None:
    """Return the record of a valid dismissal, or None.

    Money that went back ends it, unless it asked for that refund.
    """
    if last.kind != "payment_dismissed":
        return None
    awaited = {"refunded", "refund_pending"} if last.reason == "to_refund" else set[str]()
    since = {each.event.claim for each in evidence.heard if each.first > last.recorded_at}
    return None if (since & FOLLOWS_SUCCESS) - awaited else last


# --- (3) answer ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class UnallocatedRequest:
    """Filters of a list of unallocated payments."""

    source: str | None = None
    after: str = ""
    """`next` of the previous page."""
    limit: int = 100
    everything: bool = False
    """True if dismissed payments, and those that ended without money, are included."""
    not_ours: bool = False
    """True if only payments of other shops on the account are listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnallocatedPage:
    """Page of unallocated payments, the first known first."""

    payments: list[Unallocated]
    next: str | None
    """Value of `after` for the next page, if there is one."""


async def list_unallocated(context: AppContext, request: UnallocatedRequest) -> UnallocatedPage:
    """Return a page of unallocated payments. Raise UsageError if `after` is no position in this
    list."""
    if request.after and not (request.after.isascii() and request.after.isdecimal()):
        raise UsageError(
            "`after` is not a position in this list: leave it out to begin at the start"
        )
    found: list[tuple[Unallocated, int]] = []
    async with context.database.reading() as connection:
        after = min(int(request.after or 0), GREATEST)
        async for some in _batches(
            context, connection, source=request.source, after=after, not_ours=request.not_ours
        ):
            found += [
                (each, number)
                for each, number in some
                if request.everything
                or request.not_ours
                or (each.state == "open" and (each.waits or each.outcome not in MONEYLESS))
            ]
            if len(found) > request.limit:
                break
        shown = found[: request.limit]
        payments = [await _with_phone(context, connection, each) for each, _ in shown]
    more = len(found) > request.limit
    return UnallocatedPage(payments=payments, next=str(shown[-1][1]) if more else None)


async def read_unallocated(context: AppContext, payment: str) -> Unallocated:
    """Return an unallocated, assigned or dismissed payment by its id or reference.

    Raises NotFoundError for an unknown one, and UsageError for an ambiguous reference.
    """
    async with context.database.reading() as connection:
        found = await run(connection, found_payment, context.policy, context.clock.now(), payment)
        if found.state == "named":
            raise NotFoundError(
                f"{payment} is no unallocated payment: it belongs to order {', '.join(found.named)}"
            )
        return await _with_phone(context, connection, found)


def due_of(ledger: Ledger) -> Money | None:
    """Return the amount that is still to be paid for an order, if known.

    None without a price, after cancellation, or with money in another currency.
    """
    price, held = ledger.expected, ledger.held_for_price
    if price is None or ledger.case.filed.canceled is not None:
        return None
    if held is None:
        return price
    if held.currency != price.currency:
        return None
    return Money(minor=max(price.minor - held.minor, 0), currency=price.currency)


def fitting_payments(
    connection: PlainConnection, history: History, ledger: Ledger
) -> list[Unallocated]:
    """Return the payments without an order that can be for this order, by name, or by amount and
    phone number."""
    suggesting = store.keys_suggesting(connection, history.order)
    due = due_of(ledger)
    keys = list(suggesting)
    if due is not None and due.minor:
        things = [history.order, *(each.delivery_id for each in history.deliveries)]
        keys += store.keys_of_numbers(connection, things)
    evidence, acts = store.evidence_of(connection, keys), store.acts_on(connection, keys)
    found = {
        each.id: each
        for deliveries in evidence.values()
        for each in folded(deliveries, acts, policy=ledger.case.policy, as_of=ledger.as_of)
        if each.waits and (each.held == due or history.order in each.suggested)
    }
    return [found[name] for name in sorted(found)]


def waiting_among(
    connection: PlainConnection, policy: Policy, now: Instant, deliveries: Sequence[str]
) -> dict[str, Unallocated]:
    """Return, for each of these deliveries, the payment in it that needs a person's decision. Other
    deliveries are left out."""
    keys = store.keys_brought(connection, deliveries)
    evidence, acts = store.evidence_of(connection, keys), store.acts_on(connection, keys)
    return {
        delivery: each
        for heard in dict.fromkeys(evidence.values())
        for each in folded(heard, acts, policy=policy, as_of=_present(now, heard, acts))
        if each.waits
        for delivery in each.deliveries
        if delivery in deliveries
    }


def found_payment(
    connection: PlainConnection, policy: Policy, now: Instant, payment: str
) -> Unallocated:
    """Return the payment with this id or reference, without the customer's number.

    Raises NotFoundError for an unknown payment, and UsageError for an ambiguous text.
    """
    source, _, reference = payment.partition(":")
    keys = [store.PaymentKey(source, reference)] if reference else []
    found: list[Unallocated] = []
    for asked in (keys, store.keys_named(connection, payment)):
        evidence, acts = store.evidence_of(connection, asked), store.acts_on(connection, asked)
        for key, deliveries in evidence.items():
            as_of = _present(now, deliveries, acts)
            renewals = store.renewals_among(
                connection, deliveries, policy=policy, as_of=as_of, cases={}
            )
            found += [
                _as_renewal(each, renewals)
                for each in folded(deliveries, acts, policy=policy, as_of=as_of)
                if key in (each.key, store.PaymentKey(each.source, each.session or ""))
            ]
        if found:
            break
    if len(found) == 1:
        [only] = found
        among = store.orders_linked_to(connection, {only.key, only.key._replace(reference=payment)})
        among |= {each.order for each in store.acts_on(connection, {only.key}).get(only.key, ())}
        shop = store.orders_naming(connection, only.key, only.session, among - {NO_ORDER})
        return replace(only, named=tuple(sorted({*only.named, *shop})))
    if found:
        names = ", ".join(each.id for each in found[:5])
        raise UsageError(f"{payment} may be any of {names}: give the id of the right one")
    raise NotFoundError(
        f"there is no unallocated payment {payment[:80]!r}; `tallyhook unallocated list` lists "
        "them, and `tallyhook orders find REFERENCE` finds the order of a payment that has one"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnallocatedTotals:
    """Totals of the unallocated payments that need a person's decision."""

    count: int = 0
    """Number of payments with money that nobody has decided about."""
    held: tuple[Money, ...] = ()
    """Amount that is left of these payments, by currency."""
    unclear: int = 0
    """Number of these payments whose amount is not clear."""
    oldest_at: Instant | None = None
    """Arrival of the oldest of these payments, if any."""
    more: bool = False
    """True if there are more payments than were counted."""
    not_ours: int = 0
    """Number of payments of other shops on the same accounts. No decision is needed."""
    back_of_unknown: tuple[str, ...] = ()
    """Ids of payments of unknown shops whose money went back."""


async def unallocated_totals(context: AppContext) -> UnallocatedTotals:
    """Return the totals of the unallocated payments that need a person's decision. Only about the
    first 20,000 payments are read."""
    sums: Counter[str] = Counter()
    waiting: list[Unallocated] = []
    back: list[str] = []
    seen = 0
    async with context.database.reading() as connection:
        async for some in _batches(context, connection):
            seen += len(some)
            waiting += [each for each, _ in some if each.waits]
            back += [each.id for each, _ in some if each.went_back_of_unknown]
            if seen >= MOST_COUNTED:
                break
        not_ours = await run(connection, store.count_of_other_shops, most=MOST_COUNTED)
    for each in waiting:
        if each.held is not None:
            sums[each.held.currency] += each.held.minor
    return UnallocatedTotals(
        count=len(waiting),
        held=tuple(Money(minor=minor, currency=code) for code, minor in sorted(sums.items())),
        unclear=sum(each.held is None for each in waiting),
        oldest_at=min((each.received_at for each in waiting), default=None),
        more=seen >= MOST_COUNTED,
        not_ours=not_ours,
        back_of_unknown=tuple(back),
    )


async def _batches(
    context: AppContext,
    connection: Connection,
    *,
    source: str | None = None,
    after: int = 0,
    not_ours: bool = False,
) -> AsyncIterator[list[tuple[Unallocated, int]]]:
    """Yield all unallocated payments with their positions in the list, in large batches."""
    now = context.clock.now()
    keys, most = (
        (store.other_shops_keys, AT_ONCE) if not_ours else (store.unplaced_keys, MOST_COUNTED)
    )
    while True:
        numbered = await run(connection, keys, source=source, after=after, limit=most)
        for start in range(0, len(numbered), AT_ONCE):
            some = dict(numbered[start : start + AT_ONCE])
            yield await run(connection, _batch, context.policy, now, some, not_ours)
        if len(numbered) < most:
            return
        after = numbered[-1][1]


def _batch(
    connection: PlainConnection,
    policy: Policy,
    now: Instant,
    numbered: Mapping[store.PaymentKey, int],
    not_ours: bool,
) -> list[tuple[Unallocated, int]]:
    evidence, acts = store.evidence_of(connection, numbered), store.acts_on(connection, numbered)
    found: list[tuple[Unallocated, int]] = []
    cases: dict[str, frozenset[tuple[str, str]]] = {}
    for deliveries in dict.fromkeys(evidence.values()):
        as_of = _present(now, deliveries, acts)
        renewals = store.renewals_among(
            connection, deliveries, policy=policy, as_of=as_of, cases=cases
        )
        found += [
            (_as_renewal(each, renewals), numbered[each.key])
            for each in folded(deliveries, acts, policy=policy, as_of=as_of)
            if each.key in numbered
        ]
    found = [
        (each, number)
        for each, number in found
        if each.state != "named"
        and (each.state == "not_ours") == not_ours
        and not _of_shop(connection, each, acts)
    ]
    return sorted(found, key=lambda one: one[1])


def _of_shop(
    connection: PlainConnection,
    payment: Unallocated,
    acts: Mapping[store.PaymentKey, Sequence[Record]],
) -> bool:
    """Return whether the payment's order is one from which a person has withdrawn it."""
    past = {each.order for each in acts.get(payment.key, ())} - {NO_ORDER}
    if payment.aside is not None:
        past |= store.orders_linked_to(connection, {payment.key})
    if not past:
        return False
    return bool(
        payment.named or store.orders_naming(connection, payment.key, payment.session, past)
    )


async def _with_phone(
    context: AppContext, connection: Connection, payment: Unallocated
) -> Unallocated:
    if await run(connection, restricted_deliveries, payment.deliveries):
        return payment
    for delivery_id in payment.deliveries[:READ_FOR_PHONE]:
        delivery = await raw_delivery(connection, delivery_id)
        phones = [] if delivery is None else phones_in(delivery, context.sources)
        if phones and delivery is not None and delivery.whole is None:
            return replace(payment, phone=", ".join(map(masked_phone, phones)))
    return payment
