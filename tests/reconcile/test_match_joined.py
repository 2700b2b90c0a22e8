"""Rows that a group, a decision or a payment joins: they belong to one period, and months add
up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reconcile.instants import DAY, HOUR, MINUTE, Instant
from reconcile.matching.books import BookStatus
from reconcile.matching.breaks import Break
from reconcile.matching.control import Control
from reconcile.matching.decide import Decision
from reconcile.matching.period import Period, joined_dates, within
from reconcile.matching.rows import BookRow, StatementRow, TakingRow
from reconcile.matching.rules import Coverage, HandMatch, MatchRules, Terms
from tests.reconcile.books_cases import causes
from tests.reconcile.books_strategies import World, worlds
from tests.reconcile.books_truth import AS_OF, COVERAGE, RULES, START, covered, in_key_order
from tests.rows import for_each

NOVEMBER = START + 10 * DAY
"""Instant at which one period ends and the next begins."""

LAST = NOVEMBER - MINUTE

REACH = covered("shop", START, NOVEMBER + DAY)
"""Coverage that ends before any capture of these cases must have its line."""

PERIODS = (Period(until=NOVEMBER), Period(since=NOVEMBER))


def matched(world: World, period: Period) -> tuple[list[Decision], Control, list[str]]:
    """Return the reports of one period, its totals, and the ids of its rows."""
    terms = Terms(rules=world.rules, as_of=AS_OF, coverage=world.coverage, hands=world.hands)
    joined = joined_dates(
        takings=world.takings,
        book=world.book,
        statements=world.lines,
        hands=world.hands,
        settles=terms.settles,
    )
    streams = within(
        period,
        takings=in_key_order(world.takings),
        book=in_key_order(world.book),
        statements=in_key_order(world.lines),
        joined=joined,
    )
    takings, book, statements = list(streams[0]), list(streams[1]), list(streams[2])
    matching = world.matching()
    decisions = list(matching.decide(takings=takings, book=book, statements=statements))
    return decisions, matching.control(), ids_of(takings, book, statements)


def ids_of(
    takings: Sequence[TakingRow], book: Sequence[BookRow], lines: Sequence[StatementRow]
) -> list[str]:
    found = [row.order for row in takings]
    return found + [row.line_id for row in book] + [row.line_id for row in lines]


# --- cases across one border ----------------------------------------------------------------------


@dataclass
class Rows:
    """The rows of one case: orders, invoices and statement lines at their own times."""

    takings: list[TakingRow] = field(default_factory=list)
    book: list[BookRow] = field(default_factory=list)
    lines: list[StatementRow] = field(default_factory=list)

    def paid(self, key: str, minor: int, at: Instant, payment: str = "") -> Rows:
        name = payment or f"p-{key}"
        self.takings.append(TakingRow(key, key, minor, "KES", "shop", name, f"e-{key}", at, at))
        return self

    def invoice(self, key: str, minor: int, at: Instant | None, group: str | None = None) -> Rows:
        status: BookStatus = "paid"
        line = f"bok_{key}.1"
        self.book.append(BookRow(key, line, key, "invoice", minor, "KES", at, status, group))
        return self

    def settled(self, key: str, minor: int, at: Instant, payment: str) -> Rows:
        order = key or None
        line = f"stm_{payment}.1"
        self.lines.append(
            StatementRow(key, line, payment, order, "payment", "KES", minor, 0, minor, at)
        )
        return self

    def world(self, *hands: tuple[str, str]) -> World:
        return World(
            takings=tuple(self.takings),
            book=tuple(self.book),
            lines=tuple(self.lines),
            rules=replace(RULES, fees=()),
            coverage=Coverage(books=COVERAGE.books, statements=(REACH,)),
            hands=tuple([HandMatch(one=one, other=other) for one, other in hands]),
        )


def four_invoices() -> Rows:
    """Return four invoices of the last minute of a month, paid together in the next."""
    found = Rows().paid("g", 400, NOVEMBER)
    for number in range(4):
        found.invoice(f"i{number}", 100, LAST, "G")
    return found


@for_each(
    ("rows", "hands", "first", "second"),
    [
        # rows, decisions of people, what is reported of the first period, and of the second
        (four_invoices(), [], ["by_group"], []),
        # The group's payments are of two months, and the book knows when each was placed.
        (
            Rows().paid("i0", 60, LAST).paid("g", 140, NOVEMBER)
            .invoice("i0", 100, LAST, "G").invoice("i1", 100, NOVEMBER, "G"),
            [],
            ["by_group"],
            [],
        ),
        # Without dates in the book it is of when its first money came.
        (
            Rows().paid("i0", 60, LAST).paid("g", 140, NOVEMBER)
            .invoice("i0", 100, None, "G").invoice("i1", 100, None, "G"),
            [],
            ["by_group"],
            [],
        ),
        # A person gave an invoice of the one month to an order of the other.
        (
            Rows().paid("x", 100, NOVEMBER).invoice("i0", 100, LAST),
            [("bok_i0", "x")],
            ["by_hand"],
            [],
        ),
        (
            Rows().paid("x", 100, LAST).invoice("i0", 100, NOVEMBER),
            [("bok_i0", "x")],
            [],
            ["by_hand"],
        ),
        # A statement line names an order of the one month and a payment of the other.
        (
            Rows().paid("x", 100, NOVEMBER, "p1").invoice("x", 100, NOVEMBER)
            .invoice("i0", 100, LAST).settled("i0", 100, NOVEMBER + DAY, "p1"),
            [],
            ["book_paid_not_received", "by_payment"],
            [],
        ),
        # A person gave a line of no order to an order of the month before.
        (
            Rows().paid("x", 100, LAST).invoice("x", 100, LAST)
            .settled("", 100, NOVEMBER + DAY, "elsewhere"),
            [("stm_elsewhere", "x")],
            ["by_hand"],
            [],
        ),
        # Nothing joins these two.
        (
            Rows().paid("x", 100, NOVEMBER).invoice("i0", 100, LAST),
            [],
            ["book_paid_not_received"],
            ["paid_not_in_book"],
        ),
    ],
)  # fmt: skip
def test_what_is_joined_across_a_border_is_of_one_period(
    rows: Rows, hands: list[tuple[str, str]], first: list[str], second: list[str]
) -> None:
    world = rows.world(*hands)
    reported = [matched(world, period) for period in PERIODS]
    assert [causes(decisions) for decisions, _, _ in reported] == [first, second]
    assert all(control.holds for _, control, _ in reported)
    assert causes(world.decided()[0]) == sorted(first + second)


# --- months add up --------------------------------------------------------------------------------


def dated(world: World, at: Instant) -> World:
    """Return the world with a date on every line, and no rule that joins by dates alone."""
    book = [row if row.placed_at else row._replace(placed_at=at) for row in world.book]
    lines = [row if row.settled_at else row._replace(settled_at=at) for row in world.lines]
    rules: MatchRules = replace(world.rules, date_window=None)
    return replace(world, book=tuple(book), lines=tuple(lines), rules=rules)


def sums(controls: Sequence[Control]) -> Control:
    whole = controls[0]
    for each in controls[1:]:
        whole += each
    return whole


def names(decisions: Sequence[Decision]) -> Counter[Any]:
    """Return the reports without candidates, which depend on other rows without a partner."""
    return Counter(
        (each.identity, each.money, each.cites if isinstance(each, Break) else each.lines)
        for each in decisions
    )


@st.composite
def straddling(draw: st.DrawFn) -> World:
    """Draw a few cases that join rows of any time with rows of any other."""
    rows, hands = Rows(), list[tuple[str, str]]()
    for case in range(draw(st.integers(1, 3))):
        times = st.sampled_from([START, LAST, NOVEMBER, NOVEMBER + DAY])
        first, second, third = (draw(times) for _ in range(3))
        one, other, group = (f"{name}{case}" for name in "abg")
        match draw(st.sampled_from(["together", "each", "by hand", "line by hand", "payment"])):
            case "together":
                rows.paid(draw(st.sampled_from([one, group])), 200, third)
                rows.invoice(one, 100, first, group).invoice(other, 100, second, group)
            case "each":
                rows.paid(one, 50, second).paid(group, 150, third)
                rows.invoice(one, 100, first, group).invoice(other, 100, second, group)
            case "by hand":
                rows.paid(one, 100, first).invoice(other, 100, second)
                hands.append((one, f"bok_{other}"))
            case "line by hand":
                rows.paid(one, 100, first).invoice(one, 100, second)
                rows.settled("", 100, third, f"stray{case}")
                hands.append((f"stm_stray{case}", one))
            case _:
                rows.paid(one, 100, first, f"p{case}").invoice(one, 100, second)
                rows.invoice(other, 100, third).settled(other, 100, third, f"p{case}")
    return rows.world(*hands)


@given(world=worlds() | straddling())
def test_every_line_is_in_exactly_one_period_and_together_they_give_everything(
    world: World,
) -> None:
    world = dated(world, START + 2 * HOUR)
    borders = (START - HOUR, START + DAY, AS_OF)
    ends = zip((None, *borders), (*borders, None), strict=True)
    months = [Period(since=since, until=until) for since, until in ends]
    parts = [matched(world, month) for month in months]
    every = ids_of(world.takings, world.book, world.lines)
    assert Counter(name for _, _, ids in parts for name in ids) == Counter(every)
    decisions, control = world.decided()
    assert names([each for some, _, _ in parts for each in some]) == names(decisions)
    together = sums([each for _, each, _ in parts])
    assert (together.lines, together.read, together.breaks) == (
        control.lines,
        control.read,
        control.breaks,
    )
