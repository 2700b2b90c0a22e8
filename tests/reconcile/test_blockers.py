"""What stands against closing a month is reported at once, each with what to do."""

from dataclasses import replace

import pytest

from reconcile.instants import DAY, TICK
from reconcile.matching.breaks import BREAK_CAUSES, BreakCause
from reconcile.periods import Month
from reconcile.reporting import closing
from reconcile.reporting import report as r
from reconcile.reporting.tally import PeriodTally

OCTOBER = Month(year=2026, number=10)
EMPTY: r.PeriodReport = PeriodTally(
    r.Scope(
        start=OCTOBER.start,
        end=OCTOBER.end,
        as_of=OCTOBER.end + 10 * DAY,
        basis="captured",
        environment="sandbox",
    )
).report()


def found(cause: BreakCause, state: str = "open") -> r.BreakLine:
    return r.BreakLine(
        identity=f"brk_{cause}",
        cause=cause,
        state=state,
        order="ORD-1",
        payment=None,
        currency="KES",
        sum=5,
        since=OCTOBER.start,
        age_days=3,
        sentence="…",
        next_step="…",
        cites=(),
    )


def codes(report: r.PeriodReport) -> list[str]:
    return [each.code for each in closing.in_report(report)]


def test_a_month_opens_for_closing_when_the_margin_after_its_end_is_over() -> None:
    opens = OCTOBER.end + 10 * DAY
    assert list(closing.too_early(OCTOBER, now=opens, margin_days=10)) == []
    (blocker,) = closing.too_early(OCTOBER, now=opens - TICK, margin_days=10)
    assert blocker.sentence.startswith(
        "2026-10 can be closed from 2026-11-11T00:00:00Z on, 10 days"
    )


def test_an_empty_month_has_nothing_against_it() -> None:
    assert codes(EMPTY) == []
    assert list(closing.rejected(0)) == []


@pytest.mark.parametrize("cause", BREAK_CAUSES)
def test_only_breaks_that_say_nothing_certain_block_and_only_until_accepted(
    cause: BreakCause,
) -> None:
    blocks = cause in ("unresolved", "payment_in_doubt", "ambiguous")
    for state in ("open", "assigned"):
        report = replace(EMPTY, break_lines=(found(cause, state),))
        assert codes(report) == (["breaks"] if blocks else [])
    assert codes(replace(EMPTY, break_lines=(found(cause, "accepted"),))) == []


def test_every_reason_is_reported_at_once_with_what_to_do() -> None:
    tie = r.Tie(
        name="net", currency="KES", left="captured", left_value=2, right="settled", right_value=3
    )
    pending = r.ControlRow(
        currency="KES", bucket="pending", count=2, sum=9, captured=0, refunded=0, lost=0
    )
    report = replace(
        EMPTY,
        ties=(tie,),
        control=(pending,),
        break_lines=(found("unresolved"), found("ambiguous"), found("unresolved", "assigned")),
        unlisted=(r.Unlisted(table="break_lines", listed=3, bound=3, left_out=4),),
    )
    blockers: list[closing.Blocker] = [*closing.in_report(report), *closing.rejected(1)]
    assert [each.code for each in blockers] == [
        "ties",
        "breaks",
        "breaks",
        "breaks",
        "pending",
        "rejected",
    ]
    assert blockers[0].sentence == "net does not hold in KES: captured is 2, settled is 3."
    assert blockers[2].sentence.startswith(
        "Breaks to be decided, order to be resolved: 2 (brk_unresolved"
    )
    assert all(each.do for each in blockers)


def test_a_break_that_only_grows_older_is_no_adjustment() -> None:
    young = r.BreakAgeRow(
        cause="not_settled",
        age="up_to_7_days",
        state="open",
        currency="KES",
        count=2,
        sum=9,
        at_risk=9,
    )
    then = replace(EMPTY, breaks=(young,))
    stated = closing.ClosedMonth(month=OCTOBER, closing="sha256:ab", original=closing.figures(then))
    older = replace(then, breaks=(replace(young, age="up_to_30_days"),))
    assert closing.adjustments(stated, closing.figures(older)) == ()
    (row,) = closing.adjustments(
        stated, closing.figures(replace(then, breaks=(replace(young, count=1, sum=4),)))
    )
    assert row.count_change == -1
    assert (row.sum_original, row.sum_change, row.sum_now) == (9, -5, 4)
    assert (row.period, row.figure, row.closing) == (
        "2026-10",
        "breaks/not_settled",
        "ab",
    )


def test_what_was_reported_once_is_not_reported_again() -> None:
    figure = closing.Figure(
        table="money", currency="KES", line="captured", what="", count=1, sum=10
    )
    stated = closing.ClosedMonth(
        month=OCTOBER,
        closing="sha256:ab",
        original=(figure,),
        reported=(replace(figure, count=1, sum=5),),
    )
    assert closing.adjustments(stated, [replace(figure, count=2, sum=15)]) == ()
    (row,) = closing.adjustments(stated, [replace(figure, count=2, sum=12)])
    assert (row.sum_original, row.sum_told, row.sum_change, row.sum_now) == (10, 5, -3, 12)
