"""Why a month cannot be closed yet: every reason, and what to do for each.

Leaves out: how the report came about. A month is closed when its figures can be stood by: whatever
is still open must at least be known for what it is. So these block:

- time: the month's end and the margin after it have not passed
- ties that do not hold: a sum that comes out differently on its two ways is a fault, not a figure
- breaks that say nothing certain, `unresolved`, `payment_in_doubt` and `ambiguous`, that nobody has
  accepted: what the money is has not been decided, and one day's figure would be a guess
- orders still pending: their deadline has not passed, or a confirmation has not come
- rejected deliveries that would be accepted now: their money is missing from every sum

Other breaks are known for what they are: cause, money and next step stand in the closed report,
and what becomes of them is an adjustment later. They do not block, and neither does what somebody
has accepted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, Literal

from reconcile.instants import DAY, Instant, format_instant
from reconcile.matching.breaks import BreakCause
from reconcile.periods import Month
from reconcile.reporting.report import PeriodReport
from reconcile.values import frozen

BlockerCode = Literal["too_early", "ties", "breaks", "pending", "rejected"]

BLOCKING: Final[frozenset[BreakCause]] = frozenset({"unresolved", "payment_in_doubt", "ambiguous"})
"""Causes of breaks that must be decided before a month is closed."""

ACCEPTED: Final = "accepted"
"""The state of a break that a person has taken responsibility for."""

NAMED: Final = 3
"""Examples named in one reason; the report lists them all."""


@frozen
class Blocker:
    """One reason, and what to do: a sentence each."""

    code: BlockerCode
    sentence: str
    do: str


def too_early(month: Month, *, now: Instant, margin_days: int) -> Iterator[Blocker]:
    """Whether the month, and the days after it in which its evidence still comes, are over."""
    opens = month.end + margin_days * DAY
    if now < opens:
        yield Blocker(
            code="too_early",
            sentence=f"{month.name} can be closed from {format_instant(opens)} on, {margin_days} "
            f"{'day' if margin_days == 1 else 'days'} after its end, so that late webhooks and "
            "statements may come.",
            do="Wait, or change TALLYHOOK_CLOSING_MARGIN_DAYS.",
        )


def in_report(report: PeriodReport) -> Iterator[Blocker]:
    """What the month's report itself says against closing it."""
    for tie in report.ties:
        if not tie.holds:
            yield Blocker(
                code="ties",
                sentence=f"{tie.name} does not hold in {tie.currency or 'number'}: {tie.left} is "
                f"{tie.left_value}, {tie.right} is {tie.right_value}.",
                do="Run `tallyhook db check`; do not close before it is understood.",
            )
    yield from _breaks(report)
    pending = sum(row.count for row in report.control if row.bucket == "pending")
    if pending:
        yield Blocker(
            code="pending",
            sentence=f"Orders that are still pending: {pending:,}.",
            do="See `tallyhook orders list --outcome pending`; wait for their deadline or the "
            "provider's confirmation.",
        )


def _breaks(report: PeriodReport) -> Iterator[Blocker]:
    undecided = [
        line for line in report.break_lines if line.cause in BLOCKING and line.state != ACCEPTED
    ]
    causes = Counter(line.cause for line in undecided)
    for cause, count in sorted(causes.items()):
        named = [line.identity for line in undecided if line.cause == cause][:NAMED]
        more = " …" if count > NAMED else ""
        yield Blocker(
            code="breaks",
            sentence=f"Breaks to be decided, {cause}: {count:,} ({', '.join(named)}{more}).",
            do=f"See `tallyhook breaks list --cause {cause}`; put each right at its source, "
            "match it by hand, or accept it with a reason.",
        )
    hidden = sum(each.left_out for each in report.unlisted if each.table == "break_lines")
    if hidden:
        yield Blocker(
            code="breaks",
            sentence=f"Open breaks beyond those that a report can list: {hidden:,}.",
            do="Bring their number down first: a cause with so many is one mistake.",
        )


def rejected(count: int) -> Iterator[Blocker]:
    """`count`: deliveries of the month that were refused and would be taken now."""
    if count:
        yield Blocker(
            code="rejected",
            sentence=f"Rejected deliveries that would be accepted now: {count:,}.",
            do="Run `tallyhook deliveries reverify`, then close.",
        )
