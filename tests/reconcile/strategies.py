"""Generated histories: several attempts, sessions and sources, coarse events, refunds, disputes,
conflicting bodies, events of other orders, records, odd dates, redeliveries.

The alphabets are small on purpose, so that references, ids and amounts collide.
"""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from reconcile.instants import LATEST, SECOND, Instant
from reconcile.ledger.events import (
    CLAIM_KINDS,
    FOLLOWS_SUCCESS,
    STATE_WORDS,
    UNCLEAR_AMOUNT,
    UNKNOWN_METHOD,
    Delivery,
    Event,
    Part,
    PartKind,
    State,
)
from reconcile.ledger.history import History
from reconcile.ledger.records import HOLD_REASONS, NO_ORDER, RECORD_KINDS, WITHDRAWN, Record, Tender
from reconcile.money import Money
from tests.reconcile.build import ORDER, T, event, record, seconds
from tests.reconcile.laws import TAKES_AWAY


def _part(kind: PartKind, minor: int) -> Part:
    return Part(kind=kind, money=Money(minor=minor, currency="KES"))


OFFSETS = (0, 1, 5, 60, 299, 1_000, 1_801, 2_100, 2_101, 4_000, 90_000, 200_000)
AMOUNTS = (None, *(Money(minor=m, currency="KES") for m in (0, 5_000, 10_000, 15_000)))
PRICES = (None, None, Money(minor=15_000, currency="KES"), Money(minor=10_000, currency="KES"))
NEVER = (LATEST - T) // SECOND
ODD_DATES = (None, -seconds(0) // SECOND, NEVER, 40_000_000)


PARTS = (
    (_part("base", 10_000), _part("tip", 5_000)),
    (_part("base", 5_000),),
    (_part("fee", 5_000), _part("tax", 1_000)),
    (_part("shipping", 15_000),),
    (_part("discount", 5_000),),
    (_part("presented", 5_000), _part("shipping", 1_000)),
    (_part("discount", 1_000), _part("financed_discount", 5_000), _part("tip", 1_000)),
)


def _position(
    member: Any, minor: int, *, word: Any = "done", reference: str | None = None
) -> State:
    return State(
        member=member, word=word, money=Money(minor=minor, currency="KES"), reference=reference
    )


POSITIONS = (
    *[(_position("refunded", minor),) for minor in (0, 5_000, 15_000)],
    *[(_position("captured", minor),) for minor in (5_000, 15_000)],
    *[(_position("charged_back", minor),) for minor in (0, 5_000, 15_000)],
    *[(_position("refund", 5_000, word=word, reference="m_1"),) for word in STATE_WORDS],
    *[(_position("chargeback", 5_000, word=word, reference="m_2"),) for word in STATE_WORDS],
    (_position("refund", 5_000, word="undone", reference="m_1"), _position("refunded", 0)),
)
"""Positions that answers state."""


def _pick(*values: Any, often: Any = ()) -> st.SearchStrategy[Any]:
    return st.sampled_from([*values, *often])


def events() -> st.SearchStrategy[Event]:
    """Draw an event of this order, or rarely of another that shares references with it."""
    usual = ("succeeded", "succeeded", "succeeded", "pending", "declined", "refunded", "refunded")
    other_currency = Money(minor=15_000, currency="USD")
    return st.builds(
        event,
        _pick("evt_1", "evt_2", "evt_3", "evt_4", "evt_5", "evt_6", "evt_7", "evt_8"),
        _pick(*CLAIM_KINDS, often=usual),
        _pick(*OFFSETS, *OFFSETS, *ODD_DATES),
        source=_pick("shop", "shop", "shop", "till"),
        order=_pick(ORDER, ORDER, ORDER, ORDER, None, "ORD-2"),
        payment=_pick("pay_1", "pay_1", "pay_2", "pay_3", "cs_1", None, None),
        session=_pick("cs_1", "cs_1", "cs_2", None),
        movement=_pick(None, None, "m_1", "m_2"),
        capture=_pick(None, None, None, "c_1", "c_2"),
        kind=_pick("payment.event", "payment.event", "charge.refund_issued"),
        refunded_total=_pick(None, None, None, None, *AMOUNTS[2:], other_currency),
        money=_pick(*AMOUNTS, *AMOUNTS, *[AMOUNTS[-1]] * 5, other_currency),
        order_money=_pick(*PRICES),
        reason=_pick(None, "insufficient_funds"),
        standing=_pick("said", "said", "said", "unconfirmed", "fetched"),
        unclear=_pick(*[None] * 9, UNCLEAR_AMOUNT),
        method=_pick(None, None, None, "sepa_debit", UNKNOWN_METHOD),
        expected_by=_pick(None, *map(seconds, OFFSETS), seconds(300 * 86_400)),
        revocable_days=_pick(None, None, 56, 60),
        standalone=_pick(*[False] * 7, True),
        parts=_pick((), (), (), *PARTS),
    ).map(_believable)


def takings_away(*, payments: tuple[str, ...] = ("pay_1", "pay_2", "pay_3", "pay_9")) -> Any:
    """Draw a delivery of an event that takes money away, or says that it may go."""
    other_currency = Money(minor=5_000, currency="USD")
    made = st.builds(
        event,
        st.just("evt_taking"),
        _pick(*TAKES_AWAY),
        _pick(*OFFSETS, None),
        payment=_pick(*payments),
        movement=_pick(None, "m_1", "m_2"),
        capture=_pick(None, None, "c_1"),
        kind=st.just("charge.refund_issued"),
        refunded_total=_pick(None, None, *AMOUNTS[2:], other_currency),
        money=_pick(*AMOUNTS, other_currency),
    )
    return st.builds(
        Delivery,
        delivery_id=st.just("d_taking"),
        received_at=_pick(*map(seconds, OFFSETS)),
        event=made,
    )


@st.composite
def positions(draw: st.DrawFn) -> tuple[list[Delivery], Delivery]:
    """Draw answers about one payment, and one more that states no less gone back than any other."""
    sums, versions = _pick(0, 0, 5_000, 15_000), st.sampled_from(OFFSETS)
    member = draw(_pick("refunded", "charged_back"))

    def answered(number: int, minor: int) -> Delivery:
        said = event(
            f"a{number}", "succeeded", 0, payment="pay_1", money=AMOUNTS[-1], standing="fetched",
            states=(_position(member, minor),), stated_at=seconds(draw(versions)),
        )  # fmt: skip
        at = seconds(draw(st.sampled_from(OFFSETS)))
        return Delivery(delivery_id=f"a{number}", received_at=at, event=said)

    stated = draw(st.lists(sums, min_size=1, max_size=5))
    answers = [answered(number, minor) for number, minor in enumerate(stated)]
    return answers, answered(99, draw(_pick(max(stated), 15_000)))


@st.composite
def strangers(draw: st.DrawFn) -> list[Delivery]:
    """Draw a payment of its own on the order: its capture, and whatever else is said of it."""
    other_currency = Money(minor=5_000, currency="USD")
    amounts = _pick(*AMOUNTS[1:], Money(minor=1_500_000, currency="KES"), other_currency)
    said = [draw(st.builds(_strange, st.just("succeeded"), amounts, _pick(*OFFSETS)))]
    more = _pick(*[claim for claim in CLAIM_KINDS if claim != "expired"])
    dates = _pick(*OFFSETS, None)
    said += draw(st.lists(st.builds(_strange, more, _pick(None, *AMOUNTS), dates), max_size=4))
    return [
        Delivery(
            delivery_id=f"s{n}",
            received_at=seconds(0),
            event=replace(each, event_id=f"strange_{n}", digest=f"strange_{n}"),
        )
        for n, each in enumerate(said)
    ]


def _strange(claim: Any, money: Money | None, at: int | None) -> Event:
    parts = PARTS[(money.minor + (at or 0)) % len(PARTS)] if money is not None else ()
    return event(
        "e", claim, at, payment="pay_strange", money=money, kind="charge.refund_issued",
        movement="m_strange", parts=parts,
    )  # fmt: skip


def _believable(made: Event) -> Event:
    """Give unconfirmed events the claim `pending`, and let only money going back stand alone."""
    if made.standing == "unconfirmed":
        made = replace(made, claim="pending")
    return replace(made, standalone=made.standalone and made.claim in FOLLOWS_SUCCESS)


@st.composite
def deliveries(draw: st.DrawFn) -> frozenset[Delivery]:
    """Draw arrivals of a handful of events, some of them repeated."""
    said = draw(st.lists(events(), min_size=0, max_size=7))
    arrivals = [*said, *(draw(st.lists(st.sampled_from(said), max_size=3)) if said else [])]
    times = draw(st.lists(st.sampled_from(OFFSETS), min_size=len(arrivals), max_size=len(arrivals)))
    return frozenset(
        Delivery(delivery_id=f"d{n}", received_at=seconds(at), event=each)
        for n, (each, at) in enumerate(zip(arrivals, times, strict=True))
    )


@st.composite
def records(draw: st.DrawFn) -> frozenset[Record]:
    """Draw up to a few records with ids of their own."""
    made = draw(
        st.lists(
            st.tuples(
                st.sampled_from((*RECORD_KINDS, "payment_assigned", "payment_assigned")),
                st.sampled_from(OFFSETS),
                st.sampled_from(OFFSETS),
                st.sampled_from(("k1", "k1", "k2", None)),
                st.sampled_from(("cs_1", "cs_2", None)),
                st.sampled_from((None, None, 600, 50_000, NEVER)),
                st.sampled_from(PRICES),
                st.sampled_from(("shop", "shop", "till", None)),
                st.sampled_from(HOLD_REASONS),
            ),
            max_size=4,
        )
    )
    return frozenset(_record(n, *fields) for n, fields in enumerate(made))


def _record(n: int, kind: Any, at: int, known: int, key: Any, *more: Any) -> Record:
    session, expires, money, source, hold = more
    fields: dict[str, Any] = {"recorded_at": seconds(max(at, known)), "money": money}
    if kind == "order_placed" and key is None:
        fields |= {"money": AMOUNTS[1], "free": True}
    if kind == "order_placed" and key == "k2" and money is not None:
        card = Tender(kind="gift_card", money=Money(minor=5_000, currency="KES"))
        fields |= {"tenders": (card,), "dated": True}
    if kind.startswith("session"):
        fields |= {"key": key, "source": source}
    if kind in ("held", "released"):
        fields |= {"reason": hold}
    if kind == "reference_named":
        fields |= {"session": session, "source": source, "payment": None if session else "pay_1"}
    if kind == "payment_assigned":
        fields |= {"session": session, "source": source, "payment": None if session else "pay_1"}
        fields |= {"order": "ORD-2" if key == "k2" else ORDER, "money": None}
        fields |= {"reason": WITHDRAWN if key is None else None}
    if kind == "payment_dismissed":
        fields |= {"order": NO_ORDER, "source": source, "payment": "pay_1", "money": None}
    if kind == "session_opened":
        fields |= {"session": session, "expires_at": expires and seconds(expires)}
    return record(f"rec_{n}", kind, at, **fields)


def histories() -> st.SearchStrategy[History]:
    return st.builds(History, order=st.just(ORDER), deliveries=deliveries(), records=records())


@st.composite
def tied_histories(draw: st.DrawFn) -> History:
    """Draw a refund that names no payment, another event of it that does, and a second payment."""
    amounts = _pick(*AMOUNTS[1:])
    names = _pick("refund_pending", "refund_failed", "reversed", "refunded")
    dates = _pick(*OFFSETS[:6])
    said = [
        event("e_came", "succeeded", draw(dates), payment="pay_1", money=draw(amounts)),
        event(
            "e_ties", draw(names), draw(dates), payment="pay_2", movement="m_1", money=draw(amounts)
        ),
        event("e_back", "refunded", draw(dates), movement="m_1", money=draw(amounts)),
    ]
    arrived = frozenset(
        Delivery(delivery_id=f"d{n}", received_at=seconds(0), event=each)
        for n, each in enumerate(said)
    )
    priced = [record("rec_1", "order_placed", 0, money=draw(_pick(*PRICES[2:])))]
    return History(order=ORDER, deliveries=arrived, records=frozenset(draw(_pick([], priced))))


def moments() -> st.SearchStrategy[Instant]:
    """Draw an instant when something happens, just before or after, or much later."""
    edges = [seconds(o) + nudge for o in OFFSETS for nudge in (-1, 0, 1)]
    return st.sampled_from([*edges, *[seconds(10_000_000)] * 20])
