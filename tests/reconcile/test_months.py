"""Months side by side, on generated worlds: what is of one is of no other."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reconcile.instants import DAY, TICK, Instant
from reconcile.matching.books import match_key
from reconcile.matching.breaks import Break
from reconcile.matching.ledger_lines import LedgerLine, Taken
from reconcile.matching.match import OtherPeriods
from reconcile.matching.period import Period, joined_dates, within
from reconcile.matching.rows import BookRow, StatementRow, TakingRow, ledger_line_row
from reconcile.matching.rules import Terms
from reconcile.money import Money
from reconcile.reporting.inputs import BreakSeen, merged
from reconcile.reporting.report import PeriodReport
from reconcile.reporting.tally import PeriodTally
from tests.finance.reports.samples import scope, taking
from tests.reconcile.books_strategies import World, dates, worlds
from tests.reconcile.books_truth import AS_OF, START, in_key_order

EXAMPLES = 5_000 if os.environ.get("TALLYHOOK_LONG") else 10

FIRST, LAST = START - 60 * DAY, AS_OF + DAY
"""Instants before and after every date of a world."""


@st.composite
def orders_over_months(draw: st.DrawFn) -> World:
    """Draw orders placed, paid and settled on dates of their own, with fitting and other lines."""
    takings: list[TakingRow] = []
    book: list[BookRow] = []
    lines: list[StatementRow] = []
    for number in range(draw(st.integers(1, 3))):
        name, payment = f"Z-{number}", f"z{number}"
        at = draw(dates())
        moved = Taken(
            kind="captured",
            source="checkout",
            payment=payment,
            minor=1_000,
            currency="KES",
            at=at,
            received_at=at,
            cites=(f"evt_{payment}",),
        )
        takings.append(ledger_line_row(taking(name, draw(dates()), moved)))
        if draw(st.booleans()):
            booked: tuple[Any, ...] = (
                match_key(name),
                f"bok{name}.1",
                name,
                "order",
                1_000,
                "KES",
                draw(dates()),
            )
            book.append(BookRow(*booked))
        for gross in draw(st.lists(st.sampled_from([1_000, 1_000, 300, -300]), max_size=3)):
            line, order = f"stm{name}{len(lines)}.1", draw(st.sampled_from([name, None]))
            content: list[Any] = [match_key(name), line, payment, order, "payment", "KES"]
            content += [gross, 0, gross, draw(st.none() | dates())]
            lines.append(StatementRow(*content))
    return World(takings=tuple(takings), book=tuple(book), lines=tuple(lines))


def taking_of(row: TakingRow) -> LedgerLine:
    if row.whole is not None:
        return row.whole
    money = Money(minor=row.minor, currency=row.currency) if row.currency else None
    moved = Taken(
        kind="captured",
        source=row.source,
        payment=row.payment,
        minor=row.minor,
        currency=row.currency,
        at=row.at,
        received_at=row.at,
        cites=(row.cite,),
    )
    return LedgerLine(
        key=row.key,
        order=row.order,
        as_of=AS_OF,
        outcome="succeeded" if row.minor else "failed",
        fulfillable=bool(row.minor),
        expected=money,
        opened_at=row.opened_at,
        taken=(moved,) if row.minor else (),
        payments=((row.source, row.payment),) if row.minor else (),
        findings=(),
    )


def reported(world: World, start: Instant, end: Instant) -> PeriodReport:
    """Return the report of one month of a world, as the application makes it."""
    terms = Terms(rules=world.rules, as_of=AS_OF, coverage=world.coverage, hands=world.hands)
    takings, book = in_key_order(world.takings), in_key_order(world.book)
    lines = in_key_order(world.lines)
    lines = [row if row.settled_at else row._replace(known_at=START) for row in lines]
    joined = joined_dates(
        takings=takings, book=book, statements=lines, hands=world.hands, settles=terms.settles
    )
    elsewhere, others, matching = set[str](), OtherPeriods(terms), world.matching()
    tally = PeriodTally(scope(start=start, end=end, as_of=LAST), elsewhere=elsewhere)
    sifted = within(
        Period(since=start, until=end),
        takings=takings,
        book=book,
        statements=lines,
        joined=joined,
        elsewhere=elsewhere,
        outside=others.order,
    )
    for decision in matching.decide(takings=sifted[0], book=sifted[1], statements=sifted[2]):
        if isinstance(decision, Break):
            tally.found(BreakSeen(found=decision, state="open", sentence="", next_step=""))
    tally.never_notified_elsewhere(others.never_notified())
    for seen in merged(map(taking_of, takings), lines):
        tally.order(seen)
    return tally.report()


def months(cuts: Sequence[Instant]) -> Iterator[tuple[Instant, Instant]]:
    ends = [FIRST, *sorted(set(cuts)), LAST]
    return pairwise(ends)


def _cuts() -> st.SearchStrategy[list[Instant]]:
    return st.lists(dates() | dates().map(lambda at: at + TICK), max_size=4, unique=True)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="TALLYHOOK_LONG" not in os.environ,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(world=worlds(), more=orders_over_months(), cuts=_cuts())
def test_the_lines_of_all_months_are_all_lines_each_once(
    world: World, more: World, cuts: list[Instant]
) -> None:
    world = world + more
    counted, brought = Counter[str](), Counter[str]()
    for start, end in months(cuts):
        report = reported(world, start, end)
        assert report.ties_hold, [tie for tie in report.ties if not tie.holds]
        for row in report.fees:
            counted[row.currency] += row.count
            brought[row.currency] += row.net
    whole = reported(world, FIRST, LAST)
    assert counted == Counter(row.currency for row in world.lines)
    settled = {row.currency: row.sum for row in whole.money if row.flow == "settled"}
    assert {c: n for c, n in brought.items() if n} == {c: n for c, n in settled.items() if n}
