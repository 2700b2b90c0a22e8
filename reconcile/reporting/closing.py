"""A closed period: what was reported, on what evidence, by which rules, and by whom.

Leaves out: reading evidence and printing. A closing is written once. It names the closing before
it by digest, so that none can be changed without every later one showing it, and it speaks only
of the evidence that became known after the one before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, Literal

from reconcile.canonical import fingerprint
from reconcile.instants import DAY, Instant, format_instant, parse_instant
from reconcile.matching.breaks import BreakCause
from reconcile.periods import Month, month_named
from reconcile.reporting.report import AdjustmentRow, PeriodReport
from reconcile.reporting.words import CAUSE_WORDS
from reconcile.values import frozen

SHOWN: Final = 12
"""Hex digits of a closing's digest that an adjustment cites: among some hundreds they are one."""

Name = tuple[str, str, str, str]
"""(table, currency or empty, line, what)"""


@frozen
class Figure:
    """One line of a report that adds up: `count` of things, `sum` in minor units of `currency`.

    table     of which table it is
    line      the row within it: an outcome, a flow, a cause
    what      what of the row: such as `captured`; empty where a row has one sum
    """

    table: str
    currency: str
    line: str
    what: str
    count: int
    sum: int

    @property
    def name(self) -> Name:
        """What makes two figures the same figure."""
        return (self.table, self.currency, self.line, self.what)

    def document(self) -> list[Any]:
        """As a JSON list."""
        return [*self.name, self.count, self.sum]


def figure_of(document: list[Any]) -> Figure:
    """The figure that `document` wrote."""
    table, currency, line, what, count, total = document
    return Figure(table=table, currency=currency, line=line, what=what, count=count, sum=total)


def figures(report: PeriodReport) -> tuple[Figure, ...]:
    """Every figure of a report that is not zero, sorted by name."""
    found = added(_rows(report))
    return tuple(sorted(found, key=lambda each: each.name))


def added(figures: Iterable[Figure]) -> list[Figure]:
    """Figures of equal name added up; those that come to nothing are left out."""
    sums: dict[Name, tuple[int, int]] = {}
    for each in figures:
        count, total = sums.get(each.name, (0, 0))
        sums[each.name] = (count + each.count, total + each.sum)
    return [
        Figure(table=name[0], currency=name[1], line=name[2], what=name[3], count=count, sum=total)
        for name, (count, total) in sums.items()
        if count or total
    ]


def difference(then: Iterable[Figure], now: Iterable[Figure]) -> tuple[Figure, ...]:
    """What must be added to the figures of then to get those of now, sorted by name."""
    found = added([*now, *(_negative(each) for each in then)])
    return tuple(sorted(found, key=lambda each: each.name))


def _negative(figure: Figure) -> Figure:
    return Figure(
        table=figure.table,
        currency=figure.currency,
        line=figure.line,
        what=figure.what,
        count=-figure.count,
        sum=-figure.sum,
    )


def _rows(report: PeriodReport) -> Iterator[Figure]:
    """Breaks stand without their ages: a break that grows older is no news of the period."""
    for step in report.flow:
        yield _figure("flow", step.currency, step.step, "", step.count, step.sum)
    for orders in report.control:
        currency, bucket = orders.currency, orders.bucket
        yield _figure("control", currency, bucket, "orders", orders.count, orders.sum)
        yield _figure("control", currency, bucket, "captured", 0, orders.captured)
        yield _figure("control", currency, bucket, "refunded", 0, orders.refunded)
        yield _figure("control", currency, bucket, "lost", 0, orders.lost)
    for money in report.money:
        yield _figure("money", money.currency, money.flow, "", money.count, money.sum)
    for row in report.matching:
        line = f"{row.side} {row.bucket}"
        yield _figure("matching", row.currency, line, "", row.count, row.sum)
        yield _figure("matching", row.currency, line, "fee", 0, row.fee)
        yield _figure("matching", row.currency, line, "net", 0, row.net)
    for fee in report.fees:
        yield _figure("fees", fee.currency, fee.kind, "gross", fee.count, fee.gross)
        yield _figure("fees", fee.currency, fee.kind, "fee", 0, fee.fee)
        yield _figure("fees", fee.currency, fee.kind, "net", 0, fee.net)
    for found in report.breaks:
        yield _figure("breaks", found.currency, found.cause, "", found.count, found.sum)


def _figure(
    table: str, currency: str | None, line: str, what: str, count: int, total: int
) -> Figure:
    return Figure(
        table=table, currency=currency or "", line=line, what=what, count=count, sum=total
    )


# --- adjustments ---------------------------------------------------------------------------------


@frozen
class ClosedMonth:
    """What has been said of a closed month: its figures, and what reports since have added.

    closing  the digest of its closing
    """

    month: Month
    closing: str
    original: tuple[Figure, ...]
    reported: tuple[Figure, ...] = ()


def adjustments(stated: ClosedMonth, now: Iterable[Figure]) -> tuple[AdjustmentRow, ...]:
    """What a report must add to what was stated, so that it comes to the figures of now."""
    original = {each.name: each for each in stated.original}
    reported = {each.name: each for each in added(stated.reported)}
    changes = difference([*stated.original, *stated.reported], now)
    return tuple(
        _row(stated, change, original=original.get(name), reported=reported.get(name))
        for name, change in ((each.name, each) for each in changes)
    )


def _row(
    stated: ClosedMonth, change: Figure, *, original: Figure | None, reported: Figure | None
) -> AdjustmentRow:
    return AdjustmentRow(
        period=stated.month.name,
        figure="/".join([part for part in (change.table, change.line, change.what) if part]),
        currency=change.currency or None,
        count_change=change.count,
        sum_original=0 if original is None else original.sum,
        sum_told=0 if reported is None else reported.sum,
        sum_change=change.sum,
        closing=stated.closing.removeprefix("sha256:")[:SHOWN],
    )


def change_in(row: AdjustmentRow) -> Figure:
    """What an adjustment adds, as a figure of the month that it speaks of."""
    table, line, *what = row.figure.split("/")
    return Figure(
        table=table,
        currency=row.currency or "",
        line=line,
        what="".join(what),
        count=row.count_change,
        sum=row.sum_change,
    )


FORM: Final = 2
"""Form of the document. A later form gets a further number."""


@frozen
class EvidenceDigest:
    """The evidence of one kind that became known on one day: how many rows, and their SHA-256.

    part  `deliveries`, `events`, `records`, …
    """

    part: str
    day: str
    count: int
    digest: str


@frozen
class Print:
    """One format of the report at closing: the SHA-256 and length of its bytes."""

    format: str
    sha256: str
    size: int


@frozen
class Adjusted:
    """What a report adds to a period that was closed before it."""

    period: str
    figures: tuple[Figure, ...]


@frozen
class Closing:
    """One closed month.

    known_after  the evidence digested here became known after this instant: `as_of` of the closing
                 before it; 0 for the first
    before       digest of the closing before it; None for the first
    by, role     who closed it
    margin_days  how long after its end it could be closed at the earliest
    policy       what folds and matches depended on: the merchant's policy and rules
    program      what made it: the program's version
    checkpoint   size and head of the sealed log then; None where nothing was sealed. The audit
                 entry of closing, which bears the closing's digest, is sealed after it
    """

    month: Month
    as_of: Instant
    closed_at: Instant
    by: str
    role: str
    margin_days: int
    known_after: Instant
    before: str | None
    policy: Mapping[str, Any]
    program: Mapping[str, str]
    checkpoint: Mapping[str, Any] | None
    evidence: tuple[EvidenceDigest, ...]
    figures: tuple[Figure, ...]
    adjusted: tuple[Adjusted, ...]
    report: Mapping[str, Any]
    prints: tuple[Print, ...]

    @property
    def digest(self) -> str:
        """`sha256:…` over the whole document."""
        return fingerprint(closing_document(self))

    @property
    def history(self) -> str:
        """`sha256:…` over the digests of all its evidence, and so over the evidence."""
        return fingerprint([_sealed_document(each) for each in self.evidence])


def adjusted_in(rows: Iterable[AdjustmentRow]) -> tuple[Adjusted, ...]:
    """The adjustments that a report states, by the month that they speak of."""
    found: dict[str, list[Figure]] = {}
    for row in rows:
        found.setdefault(row.period, []).append(change_in(row))
    return tuple(Adjusted(period=period, figures=tuple(found[period])) for period in sorted(found))


def closing_document(closing: Closing) -> dict[str, Any]:
    """The closing as JSON values, from which `closing_of` makes it again."""
    month = closing.month
    ends = {"start": format_instant(month.start), "end": format_instant(month.end)}
    return {
        "form": FORM,
        "month": {"zone": month.zone, **ends},
        "period": month.name,
        "as_of": format_instant(closing.as_of),
        "closed_at": format_instant(closing.closed_at),
        "by": closing.by,
        "role": closing.role,
        "margin_days": closing.margin_days,
        "known_after": format_instant(closing.known_after),
        "before": closing.before,
        "policy": dict(closing.policy),
        "program": dict(closing.program),
        "checkpoint": None if closing.checkpoint is None else dict(closing.checkpoint),
        "evidence": [_sealed_document(each) for each in closing.evidence],
        "figures": [each.document() for each in closing.figures],
        "adjusted": [
            {"period": each.period, "figures": [one.document() for one in each.figures]}
            for each in closing.adjusted
        ],
        "report": dict(closing.report),
        "prints": [[each.format, each.sha256, each.size] for each in closing.prints],
    }


def _sealed_document(sealed: EvidenceDigest) -> list[Any]:
    return [sealed.part, sealed.day, sealed.count, sealed.digest]


def closing_of(document: Mapping[str, Any]) -> Closing:
    """The closing of a document. Raises KeyError, TypeError or ValueError where it is not one."""
    if document["form"] != FORM:
        raise ValueError("the closing was written by a later version of the program")
    return Closing(
        month=_month_of(document),
        as_of=parse_instant(document["as_of"]),
        closed_at=parse_instant(document["closed_at"]),
        by=document["by"],
        role=document["role"],
        margin_days=document["margin_days"],
        known_after=parse_instant(document["known_after"]),
        before=document["before"],
        policy=document["policy"],
        program=document["program"],
        checkpoint=document["checkpoint"],
        evidence=tuple(
            EvidenceDigest(part=part, day=day, count=count, digest=digest)
            for part, day, count, digest in document["evidence"]
        ),
        figures=tuple(figure_of(each) for each in document["figures"]),
        adjusted=tuple(
            Adjusted(
                period=each["period"], figures=tuple(figure_of(one) for one in each["figures"])
            )
            for each in document["adjusted"]
        ),
        report=document["report"],
        prints=tuple(
            Print(format=form, sha256=sha256, size=size)
            for form, sha256, size in document["prints"]
        ),
    )


def _month_of(document: Mapping[str, Any]) -> Month:
    plain, counted = month_named(document["period"]), document["month"]
    bounds = (parse_instant(counted["start"]), parse_instant(counted["end"]))
    month = replace(plain, zone=counted["zone"], bounds=bounds)
    return plain if month.is_of_utc else month


def first_difference(then: Iterable[EvidenceDigest], now: Iterable[EvidenceDigest]) -> str | None:
    """The first part and day whose evidence is not what it was, in one sentence; None: all is."""
    before = {(each.day, each.part): each for each in then}
    after = {(each.day, each.part): each for each in now}
    for day, part in sorted(before.keys() | after.keys()):
        old, new = before.get((day, part)), after.get((day, part))
        if old != new:
            return _changed(part, day, old, new)
    return None


def _changed(part: str, day: str, old: EvidenceDigest | None, new: EvidenceDigest | None) -> str:
    was, are = (0 if each is None else each.count for each in (old, new))
    what = part.replace("_", " ")
    if was == are:
        return f"{what} of {day}: {are:,} as at closing, and not the same"
    return f"{what} of {day}: {was:,} at closing, {are:,} now"


# --- why a month cannot be closed yet -------------------------------------------------------------


BlockerCode = Literal["too_early", "ties", "breaks", "pending", "rejected"]

BLOCKING: Final[frozenset[BreakCause]] = frozenset({"unresolved", "payment_in_doubt", "ambiguous"})
"""Causes of breaks that must be decided before a month is closed."""

ACCEPTED: Final = "accepted"
"""The state of a break that a person has taken responsibility for."""

NAMED: Final = 3
"""Examples named in one reason; the report lists them all."""


@frozen
class Blocker:
    """One reason, and what to do: a sentence each. cause: of which breaks it speaks, if of some."""

    code: BlockerCode
    sentence: str
    do: str
    cause: BreakCause | None = None


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
        ids = ", ".join([line.identity for line in undecided if line.cause == cause][:NAMED])
        called, more = CAUSE_WORDS[cause], " …" if count > NAMED else ""
        yield Blocker(
            code="breaks",
            sentence=f"Breaks to be decided, {called[:1].lower()}{called[1:]}: {count:,} "
            f"({ids}{more}).",
            do=f"See `tallyhook breaks list --cause {cause}`; put each right at its source, "
            "match it by hand, or accept it with a reason.",
            cause=cause,
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
