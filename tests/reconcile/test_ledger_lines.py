"""A ledger line says of a ledger's money what the ledger says, and survives being written down."""

from typing import Any, get_args

import pytest
from hypothesis import given, settings

from reconcile.instants import DAY, Instant
from reconcile.ledger.events import ClaimKind, Event, Standing
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Balance, EntryKind, Facts
from reconcile.ledger.policy import Policy
from reconcile.matching.books import BookLine, match_key
from reconcile.matching.breaks import Break, Candidate, break_in, break_text
from reconcile.matching.ledger_lines import (
    Doubted,
    LedgerLine,
    Taken,
    ledger_line_in,
    ledger_line_of,
    ledger_line_text,
)
from reconcile.matching.match import Matching
from reconcile.matching.rows import ledger_line_row
from reconcile.matching.rules import Coverage, MatchRules
from reconcile.money import Money
from tests.reconcile.books_truth import book_row
from tests.reconcile.build import DUE, ORDER, T, delivery, event, history, record, seconds
from tests.reconcile.strategies import histories, moments
from tests.rows import for_each
from tests.searching import examples


def balances(taken: tuple[Taken, ...]) -> tuple[Balance, ...]:
    found = []
    for currency in sorted({each.currency for each in taken}):
        sums = {
            kind: sum(
                each.minor for each in taken if (each.currency, each.kind) == (currency, kind)
            )
            for kind in get_args(EntryKind)
        }
        found.append(
            Balance(
                currency=currency,
                captured=sums["captured"],
                refunded=-sums["refunded"],
                reversed=-sums["reversed"],
                lost=-sums["dispute_lost"],
            )
        )
    return tuple(found)


def check(found: LedgerLine, history: History, as_of: Instant) -> None:
    """Check what holds for every ledger line."""
    ledger = fold(history, policy=Policy(), as_of=as_of)
    assert balances(found.taken) == ledger.balances
    assert [(e.at, e.kind, e.money.minor, e.attempt, e.cites) for e in ledger.entries] == [
        (t.at, t.kind, t.minor, t.payment, t.cites) for t in found.taken
    ]
    assert {(each.source, each.payment) for each in found.taken} <= set(found.payments)
    known = history.known_at(as_of)
    arrived = [each.received_at for each in known.deliveries]
    assert all(each.received_at in arrived for each in found.taken)
    assert found.key == match_key(ORDER)


@pytest.mark.slow
@settings(max_examples=examples(150), derandomize=True, database=None, deadline=None)
@given(histories(), moments())
def test_a_taking_is_what_the_ledger_says_of_money(history: History, as_of: Instant) -> None:
    ledger = fold(history, policy=Policy(), as_of=as_of)
    found = ledger_line_of(ledger)
    if found is None:
        assert not ledger.case.heard
        assert not ledger.entries
        return
    check(found, history, as_of)
    assert ledger_line_in(ledger_line_text(found), as_of=as_of) == found


def test_an_order_of_which_nothing_had_arrived_has_no_taking() -> None:
    empty = History(order=ORDER)
    assert ledger_line_of(fold(empty, policy=Policy(), as_of=T)) is None


PAID = event("e1", "succeeded", payment="p", money=DUE)
LESS = Money(minor=100, currency="KES")
MORE = Money(minor=999_000, currency="KES")
YEN = Money(minor=7, currency="JPY")
OTHERS = event("o", "succeeded", order="ORD-2", payment="p", money=MORE)


def ledger_line(*events: Event, price: Money | None = None) -> LedgerLine:
    heard = [delivery(f"d{number}", number, each) for number, each in enumerate(events)]
    placed = () if price is None else (record("r", "order_placed", 0, money=price),)
    ledger = fold(history(*heard, *placed), policy=Policy(), as_of=seconds(99))
    found = ledger_line_of(ledger)
    assert found is not None
    assert found.doubted or ledger.outcome == "unresolved" or not found.in_doubt
    assert not (found.owed and ledger.outcome == "unresolved")
    assert ledger_line_in(ledger_line_text(found), as_of=seconds(99)) == found
    return found


def test_a_loss_is_known_since_its_own_event_came_not_since_its_dispute_was_opened() -> None:
    opened = delivery("d2", 10, event("e2", "disputed", 5, payment="p", money=DUE))
    lost = [delivery(f"d{at}", at, event("e3", "dispute_lost", 70, payment="p")) for at in (80, 90)]
    known = history(delivery("d1", 0, PAID), opened, *lost)
    found = ledger_line_of(fold(known, policy=Policy(), as_of=seconds(99)))
    assert found is not None
    (loss,) = [each for each in found.taken if each.kind == "dispute_lost"]
    assert (loss.at, loss.received_at, loss.cites) == (seconds(70), seconds(80), ("e2", "e3"))


@for_each(
    ("events", "price", "in_doubt"),
    [
        # one amount, or none taken: certain, whatever the order costs
        ([PAID], DUE, ()),
        ([PAID], MORE, ()),
        ([event("e1", "declined", payment="p", money=DUE)], DUE, ()),
        # two amounts for one payment, in one event's bodies or in two events: the greater
        ([PAID, event("e1", "succeeded", payment="p", money=LESS)], DUE, (DUE,)),
        ([PAID, event("e2", "succeeded", payment="p", money=MORE)], LESS, (MORE,)),
        ([PAID, event("e2", "succeeded", payment="p", money=YEN)], None, (YEN, DUE)),
        # no amount: the price; where events disagree on it, the greater
        ([event("e1", "succeeded", payment="p")], MORE, (MORE,)),
        ([event("e1", "succeeded", payment="p", order_money=LESS),
          event("e2", "pending", payment="p", order_money=MORE)], None, (MORE,)),
        ([event("e1", "succeeded", payment="p")], None, ()),
        # each payment by itself, beside what is certain
        ([PAID, event("e2", "succeeded", payment="q"),
          event("e3", "succeeded", payment="r", money=LESS),
          event("e4", "succeeded", payment="r", money=MORE)], MORE, (MORE, MORE)),
        # no movement of the order has an amount: the price
        ([event("e1", "pending", payment="p")], LESS, ()),
        ([event("e1", "disputed", payment="p"), event("e2", "dispute_won", payment="p")], DUE,
         (DUE,)),
        ([event("e1", "dispute_lost", payment="p")], DUE, (DUE,)),
        # what went back is certain
        ([event("e1", "refunded", payment="p", movement="m", money=MORE)], DUE, ()),
    ],
)  # fmt: skip
def test_what_an_unresolved_order_may_have_taken(
    events: list[Event], price: Money | None, in_doubt: tuple[Money, ...]
) -> None:
    assert ledger_line(*events, price=price).in_doubt == in_doubt


PAID_ONCE = event("e1", "succeeded", payment="p", money=DUE)
HALF = Money(minor=DUE.minor // 2, currency="KES")


def again(kind: ClaimKind = "succeeded", number: int = 2, **more: Any) -> Event:
    return event(f"e{number}", kind, payment="q", **more)


@for_each(
    ("events", "owed"),
    [
        ([], ()),
        # the surplus that is still held: of whole prices, or any other
        ([again(money=DUE)], (DUE,)),
        ([again(money=LESS)], (LESS,)),
        ([again(money=LESS), again("refunded", 3, movement="m", money=LESS)], ()),
        ([again(money=DUE), again("refunded", 3, movement="m", money=HALF)], (HALF,)),
        ([again(money=DUE), again("reversed", 3)], ()),
        # what an open dispute holds is not owed back yet, and what was lost never will be
        ([again(money=DUE), again("disputed", 3, money=DUE)], ()),
        ([again(money=DUE), again("dispute_lost", 3, money=HALF)], (HALF,)),
        # another currency, beside a surplus in the order's own
        ([again(money=YEN)], (YEN,)),
        ([again(money=YEN), event("e3", "succeeded", payment="r", money=LESS)], (YEN, LESS)),
        ([again(money=YEN), again("disputed", 3, money=YEN)], ()),
        # money in doubt is not known to be owed
        ([again(money=LESS), again(number=3, money=HALF)], ()),
        # too little is held, and another currency beside it all the same
        ([again(money=YEN), event("e3", "refunded", payment="p", movement="m", money=DUE)],
         (YEN,)),
    ],
)  # fmt: skip
def test_what_is_owed_back_is_reported_by_currency(
    events: list[Event], owed: tuple[Money, ...]
) -> None:
    assert ledger_line(PAID_ONCE, *events, price=DUE).owed == owed


def test_what_one_payment_brought_in_two_currencies_is_owed_in_the_other() -> None:
    found = ledger_line(
        event("e1", "succeeded", payment="p", capture="c1", money=DUE),
        event("e2", "succeeded", payment="p", capture="c2", money=YEN),
        price=DUE,
    )
    assert len({each.payment for each in found.taken}) == 1
    assert found.owed == (YEN,)


def test_a_payment_in_doubt_of_a_paid_order_neither_vanishes_nor_counts_as_sure() -> None:
    conflicting = ledger_line(PAID_ONCE, again(money=LESS), again(number=3, money=HALF), price=DUE)
    assert conflicting.outcome == "succeeded"
    assert conflicting.in_doubt == (HALF,)
    assert conflicting.doubted == (
        Doubted(source="shop", payment="q", unsure=("captured",), cites=("e2", "e3")),
    )
    canceled = ledger_line(PAID_ONCE, again(money=LESS), again("canceled", 3, at=None), price=DUE)
    assert canceled.outcome == "succeeded"
    assert canceled.in_doubt == canceled.owed == ()
    assert [(each.payment, each.unsure) for each in canceled.doubted] == [("q", ())]
    silent = ledger_line(PAID_ONCE, again(), price=DUE)
    assert (silent.in_doubt, silent.doubted[0].unsure) == ((DUE,), ("captured",))


@for_each(
    ("events", "expected"),
    [
        ([PAID_ONCE, again(money=LESS)], [("overpaid", LESS)]),
        ([PAID_ONCE, again(money=DUE)], [("paid_twice", DUE)]),
        ([PAID_ONCE, again(money=YEN)], [("overpaid", YEN)]),
        ([PAID_ONCE, again(money=LESS), again("refunded", 3, movement="m", money=LESS)], []),
        ([PAID_ONCE, again(money=DUE), again("disputed", 3, money=DUE)], []),
        ([PAID_ONCE, again(money=DUE), again("dispute_lost", 3, money=DUE)], []),
        ([PAID_ONCE, again(money=LESS), again(number=3, money=HALF)],
         [("payment_in_doubt", HALF)]),
        ([PAID_ONCE, again(money=LESS), again("canceled", 3, at=None)],
         [("payment_in_doubt", LESS)]),
        ([PAID_ONCE, again(money=LESS), again(number=3, money=HALF),
          again("refunded", 4, movement="m", money=LESS)], [("payment_in_doubt", HALF)]),
        ([PAID_ONCE, again(money=YEN), again("canceled", 3, at=None)], [("payment_in_doubt", YEN)]),
        ([event("e1", "succeeded", payment="p", money=Money(minor=DUE.minor + 7, currency="KES"))],
         [("overpaid", Money(minor=7, currency="KES"))]),
        ([PAID_ONCE, event("e2", "dispute_lost", payment="p", money=HALF)],
         [("refund_not_in_book", HALF)]),
        ([PAID_ONCE, event("e2", "reversed", payment="p")], [("refund_not_in_book", DUE)]),
    ],
)  # fmt: skip
def test_from_the_events_to_the_break(
    events: list[Event], expected: list[tuple[str, Money]]
) -> None:
    line = BookLine(line_id="bok_1.1", reference=ORDER, kind="order", money=DUE, status="paid")
    matching = Matching(rules=MatchRules(), as_of=seconds(99) + 60 * DAY, coverage=Coverage())
    rows = [ledger_line_row(ledger_line(*events, price=DUE))]
    found = list(matching.decide(takings=rows, book=[book_row(line)], statements=[]))
    breaks = [each for each in found if isinstance(each, Break)]
    assert [(each.cause, each.money) for each in breaks] == expected
    assert all(each.cites for each in breaks)
    assert matching.control().holds


def test_a_break_is_read_as_it_was_written() -> None:
    money = Money(minor=-5, currency="JPY")
    facts: Facts = (("money", money), ("name", "x"), ("none", None), ("at", T), ("yes", True))
    found = Break(
        cause="ambiguous",
        order=None,
        payment="p|é",
        subject="bok_1",
        money=Money(minor=7, currency="KES"),
        since=T,
        cites=("evt_1", "stm_2.1"),
        facts=facts,
        candidates=(
            Candidate(line="stm_2.1", reference="R", money=money, apart="amount", facts=facts),
        ),
    )
    assert break_in(break_text(found)) == found


@for_each(
    ("names", "standings", "called"),
    [
        (("pay_9",), ("answered",), "pay_9"),
        (("pay_9", "pay_9"), ("answered",), "pay_9"),
        (("pay_9", "pay_8"), ("answered",), "cs_1"),
        (("pay_9", None), ("answered",), "pay_9"),
        (("pay_9",), ("answered", "said"), "pay_9"),
        (("pay_9",), ("said", "answered"), "cs_1"),
    ],
)
def test_what_statements_call_a_payment_of_which_a_session_was_asked(
    names: tuple[str | None, ...], standings: tuple[Standing, ...], called: str
) -> None:
    stated = [
        event(f"u{n}", "succeeded", session="cs_1", payment=name, standing="unconfirmed")
        for n, name in enumerate(names)
    ]
    said = [
        event(f"e{n}", "succeeded", n, session="cs_1", money=DUE, standing=standing)
        for n, standing in enumerate(standings)
    ]
    heard = [delivery(f"d{n}", n, each) for n, each in enumerate((*stated, *said))]
    known = history(record("r1", "order_placed", 0, money=DUE), *heard)
    found = ledger_line_of(fold(known, policy=Policy(), as_of=seconds(99)))
    assert found is not None
    assert [(each.payment, each.minor) for each in found.taken] == [(called, DUE.minor)]
    assert {("shop", "cs_1"), ("shop", called)} == set(found.payments)
