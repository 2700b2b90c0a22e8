"""A small month with something of everything, and reports of any size."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from reconcile.instants import DAY, HOUR, MINUTE, SECOND, TICK, Duration, Instant, parse_instant
from reconcile.ledger.ledger import EntryKind, Outcome
from reconcile.matching.books import StatementLine, match_key
from reconcile.matching.breaks import Break
from reconcile.matching.causes import BREAK_CAUSES
from reconcile.matching.ledger_lines import LedgerLine, Taken
from reconcile.matching.rules import Coverage
from reconcile.money import Money
from reconcile.reporting.inputs import BreakSeen, ChangeSeen, OrderSeen
from reconcile.reporting.report import Basis, MatchingRow, PeriodReport, Scope
from reconcile.reporting.tally import PeriodTally
from tests.reconcile.books_truth import covered

START = parse_instant("2026-10-01T00:00:00Z")
END = parse_instant("2026-11-01T00:00:00Z")
AS_OF = parse_instant("2026-11-12T09:00:00Z")
REASONS: dict[Outcome, str] = {
    "succeeded": "paid_in_full",
    "refunded": "refunded_in_full",
    "partially_refunded": "refunded_in_part",
    "charged_back": "charged_back",
    "failed": "last_word_event_says_declined",
    "timed_out": "last_word_no_final_event_by_deadline",
    "pending": "still_open",
    "disputed": "dispute_open",
    "unresolved": "amount_differs",
    "not_attempted": "nothing_attempted",
}


def scope(basis: Basis = "captured", **changes: Any) -> Scope:
    """October 2026 as known in the middle of November."""
    given = {"start": START, "end": END, "as_of": AS_OF, "basis": basis, "environment": "sandbox"}
    return Scope(**{**given, **changes})


def taken(
    minor: int,
    at: Instant,
    *,
    order: str = "ORD-1",
    currency: str = "KES",
    delay: Duration = SECOND,
) -> Taken:
    """One movement: captured, or refunded where negative."""
    kind: EntryKind = "captured" if minor > 0 else "refunded"
    cite = f"evt_{order}_{kind}_{minor}"
    return Taken(
        kind=kind,
        source="shop",
        payment=f"pay_{order}",
        minor=minor,
        currency=currency,
        at=at,
        received_at=at + delay,
        cites=(cite,),
    )


def taking(
    order: str,
    opened: Instant,
    *moved: Taken,
    outcome: Outcome = "succeeded",
    price: Money | None = None,
    closed: Instant | None = None,
    **changes: Any,
) -> LedgerLine:
    """One order; it costs what was captured first, and closed with that, unless said otherwise."""
    captured = [each for each in moved if each.minor > 0]
    if price is None and captured:
        price = Money(minor=captured[0].minor, currency=captured[0].currency)
    given = {
        "key": match_key(order),
        "order": order,
        "as_of": AS_OF,
        "outcome": outcome,
        "fulfillable": outcome == "succeeded",
        "expected": price,
        "opened_at": opened,
        "taken": moved,
        "payments": (("shop", f"pay_{order}"),),
        "findings": (),
        "reason": REASONS[outcome],
        "closed_at": captured[0].at if captured and closed is None else closed,
    }
    return LedgerLine(**{**given, **changes})


def line(
    each: Taken, settled_at: Instant | None, *, fee: int = 0, gross: int | None = None
) -> StatementLine:
    """Build the statement's line of a movement."""
    gross = each.minor if gross is None else gross
    return StatementLine(
        line_id=f"stm_{each.payment}_{gross}",
        payment=each.payment,
        order=None,
        kind="payment" if each.kind == "captured" else "refund",
        currency=each.currency,
        gross=gross,
        fee=fee,
        net=gross - fee,
        settled_at=settled_at,
        payout="po_1",
    )


CURRENCIES = ("KES", "JPY", "KWD")


def orders(count: int) -> Iterator[OrderSeen]:
    """Yield a month of orders: of ten, six are paid and settled, one is paid and not settled, one
    refunded, one declined, one timed out."""
    for number in range(count):
        order = f"ORD-{number:05d}"
        opened = START + number * (30 * DAY) // count
        currency, price = CURRENCIES[number % 3], 1_000 + number
        paid = taken(
            price, opened + MINUTE, order=order, currency=currency, delay=SECOND * (number % 400)
        )
        place = number % 10
        if place < 6:
            odd: dict[str, Any] = {"findings": ("redelivered",)} if place == 1 else {}
            yield OrderSeen(
                taking=taking(order, opened, paid, **odd),
                lines=(line(paid, opened + 2 * DAY, fee=price // 50),),
            )
        elif place == 6:
            yield OrderSeen(taking=taking(order, opened, paid))
        elif place == 7:
            back = taken(-price, opened + HOUR, order=order, currency=currency)
            yield OrderSeen(
                taking=taking(order, opened, paid, back, outcome="refunded"),
                lines=(line(paid, opened + DAY, fee=5), line(back, opened + 3 * DAY)),
            )
        else:
            outcome: Outcome = "failed" if place == 8 else "timed_out"
            yield OrderSeen(
                taking=taking(
                    order,
                    opened,
                    outcome=outcome,
                    price=Money(minor=price, currency=currency),
                    closed=opened + HOUR,
                    payments=(("shop", "a"), ("shop", "b")),
                )
            )


def breaks(count: int) -> Iterator[BreakSeen]:
    """Yield breaks of every cause and age."""
    for number in range(count):
        found = Break(
            cause=BREAK_CAUSES[number % len(BREAK_CAUSES)],
            order=f"ORD-{number:05d}",
            payment=f"pay_{number:05d}",
            subject=None,
            money=Money(minor=150_000 + number, currency=CURRENCIES[number % 3]),
            since=END - TICK - number % 100 * DAY,
            cites=(f"evt_{number:05d}", f"book_{number:05d}"),
        )
        if found.cause == "not_settled":
            found = replace(found, left=(found.money,))
        if found.cause == "settled_never_notified":
            found = replace(found, cites=(f"stm_{number:05d}",), left=(found.money,))
        yield BreakSeen(
            found=found,
            state="open" if number % 5 else "assigned",
            sentence=f"The book says paid, and no payment of ORD-{number:05d} is known.",
            next_step="Ask the provider for this payment, then import its statement.",
        )


def not_notified(found: Break) -> Iterator[StatementLine]:
    """Return the refund that a break is about, which no webhook stated."""
    if found.cause == "settled_never_notified":
        took = -found.money.minor
        yield StatementLine(
            line_id=found.cites[0],
            payment=found.payment,
            order=found.order,
            kind="refund",
            currency=found.money.currency,
            gross=took,
            fee=0,
            net=took,
            settled_at=END - DAY,
        )


def matching() -> tuple[MatchingRow, ...]:
    """Totals of a run."""
    given = (
        ("by_reference", "matched"),
        ("awaiting_settlement", "waiting"),
        ("paid_twice", "break"),
    )
    return tuple(
        MatchingRow(side="book", currency=currency, family=family, bucket=bucket, count=9,
                    sum=90_000, fee=0, net=0)
        for currency in CURRENCIES
        for bucket, family in given
    )  # fmt: skip


WHOLE = Coverage(
    statements=(covered("shop", START, END),),
    bank=(covered("main", START, END),),
    books=(covered("shopify", START, END),),
)
"""Files that cover the whole period."""


def sample(
    count: int = 60, *, broken: int = 30, basis: Basis = "captured", break_lines: int = 100_000
) -> PeriodReport:
    tally = PeriodTally(scope(basis), break_lines=break_lines)
    for each in breaks(broken):
        tally.found(each)
        tally.order(OrderSeen(taking=None, lines=tuple(not_notified(each.found))))
    for seen in orders(count):
        tally.order(seen)
    late = taken(70_000, START - DAY, order="ORD-S", delay=3 * DAY)
    tally.order(OrderSeen(taking=taking("ORD-S", START - 2 * DAY, late)))
    waiting = Money(minor=5, currency="JPY")
    tally.order(OrderSeen(taking=taking("ORD-W", END - HOUR, outcome="pending", price=waiting)))
    tally.changed(
        ChangeSeen(
            order="ORD-S",
            at=START + 2 * DAY,
            before="timed_out",
            after="succeeded",
            because=("Paid in full: KES 700.00 captured of KES 700.00 due [evt_S].",),
        )
    )
    return tally.report(matching=matching(), coverage=WHOLE)
