"""Blockers of closing a month: all are reported at once, each with what to do."""

from dataclasses import replace
from typing import Any, get_args

from reconcile.instants import DAY, HOUR, TICK, Instant
from reconcile.matching.causes import BREAK_CAUSES, BreakCause
from reconcile.periods import Month
from reconcile.reporting import closing
from reconcile.reporting import report as r
from reconcile.reporting.tally import PeriodTally
from tests.rows import for_each

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


@for_each(
    ("since", "until", "told", "do"),
    [
        (3, 0, "so the first 3 h of the month are in the file of the month before.",
         "Import the file of the month before, too, or say"),
        (0, 8, "so the last 8 h of the month are in the file of the month after.",
         "Import the file of the month after, too, or say"),
        (24, 0, None, "Import the file of the other days, or say"),
        (3, 24, None, "Import the file of the other days, or say"),
    ],
)  # fmt: skip
def test_hours_that_lack_because_of_a_files_zone_are_called_so(
    since: int, until: int, told: str | None, do: str
) -> None:
    row = r.CoverageRow(
        kind="bank",
        name="main",
        wallet=None,
        declared_by="",
        since=Instant(OCTOBER.start + since * HOUR),
        until=Instant(OCTOBER.end - until * HOUR),
        whole=False,
        payments=0,
    )
    (blocker,) = closing.in_report(replace(EMPTY, coverage=(row,)))
    assert told is None or blocker.sentence.endswith(told)
    assert ("another zone" in blocker.sentence) == (told is not None)
    assert blocker.do.startswith(do)


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


@for_each("cause", BREAK_CAUSES)
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


def covered(kind: Any, name: str, days: int | None, **more: Any) -> r.CoverageRow:
    """Return what files cover of the month, from its first day on; None: nothing."""
    whole = days == 31
    ends = None if days is None else Instant(OCTOBER.start + days * DAY)
    since = None if days is None else OCTOBER.start
    given = {"wallet": None, "payments": 0, "declared_by": "", "whole": whole, **more}
    return r.CoverageRow(kind=kind, name=name, since=since, until=ends, **given)


BANK = covered("bank", "main", 31)


@for_each(
    ("rows", "lines"),
    [
        ((BANK, covered("statement", "shop", 31, payments=2)), []),
        ((BANK, covered("statement", "shop", None, payments=2)), ["coverage:shop"]),
        ((BANK, covered("statement", "shop", 30, payments=2)), ["coverage:shop"]),
        ((BANK, covered("statement", "quiet", None)), []),
        ((BANK, covered("statement", "till", 9, wallet="Utility")), ["coverage:till/Utility"]),
        ((covered("bank", "main", 30),), ["coverage:bank:main"]),
        ((covered("statement", "shop", 31, payments=2),), ["coverage:bank"]),
        ((BANK, covered("book", "shopify", None)), []),
    ],
)
def test_closing_asks_for_sources_with_payments_wallets_and_bank_accounts(
    rows: tuple[r.CoverageRow, ...], lines: list[str]
) -> None:
    found = [*closing.in_report(replace(EMPTY, coverage=rows))]
    assert [each.line for each in found] == lines
    left, exceptions = closing.excepted(found, dict.fromkeys(lines, "so"))
    assert left == ()
    assert [each.line for each in exceptions] == lines


def test_payments_of_no_order_and_unsettled_ones_are_asked_for_by_age() -> None:
    held = r.SuspenseRow(currency="KES", line="closing", count=2, sum=150)
    young, old = [
        r.UnsettledRow(currency="KES", age=age, count=count, sum=500)
        for age, count in ((r.AGES[1], 1), (r.AGES[2], 3))
    ]
    found = [*closing.in_report(replace(EMPTY, suspense=(held,), unsettled=(young, old)))]
    assert [each.line for each in found] == ["unallocated", "unsettled"]
    assert found[0].sentence == "Payments without an order at the end of the month: 2 (KES 1.50)."
    assert found[1].sentence.startswith("Payments captured and not settled: 4 (KES 10.00), by age:")


def test_what_came_and_is_in_no_figure_is_asked_for() -> None:
    none = closing.evidence_blockers(unreadable=0, lost=0, not_ours=0, genuine=0)
    assert list(none) == []
    gap = closing.lost_in_gap("gap_1", since=Instant(0), until=Instant(0), lost=5)
    found = closing.evidence_blockers(unreadable=1, lost=2, not_ours=3, genuine=4, gaps=[gap])
    assert [each.line for each in found] == [
        "unreadable",
        "not_kept",
        "gap:gap_1",
        "not_ours",
        "rejected",
    ]
    assert gap.sentence.endswith("Deliveries that are lost: 5.")
    unknown = closing.lost_in_gap("gap_1", since=Instant(0), until=Instant(0), lost=None)
    assert unknown.sentence.endswith("the shop's statements may be missing.")


def test_each_condition_is_listed_with_what_is_against_it() -> None:
    pending = closing.Blocker(code="pending", sentence="Two are pending.", do="Wait.")
    lines = {line: against for line, _, against in closing.closing_lines([pending])}
    assert lines == {**dict.fromkeys(closing.CONDITIONS), "pending": pending}
    assert set(closing.CONDITIONS) == set(get_args(closing.BlockerCode))
    unread = closing.unread(60)
    assert [each[2] for each in closing.closing_lines([unread])] == [unread]


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
