"""Records of closed months: figures, evidence, rules and people. Each record contains the previous
record's digest."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from reconcile.canonical import fingerprint
from reconcile.instants import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    Instant,
    format_duration,
    format_instant,
    format_known,
    parse_instant,
)
from reconcile.matching.causes import CAUSES, BreakCause
from reconcile.matching.control import STATED_BALANCE
from reconcile.money import Money
from reconcile.periods import Month, month_named
from reconcile.reporting.journal import Revenue
from reconcile.reporting.report import (
    AGES,
    AdjustmentRow,
    Age,
    CoverageRow,
    ExceptionRow,
    PeriodReport,
)
from reconcile.reporting.words import AGE_WORDS

SHOWN: Final = 12
"""Number of hex digits of a digest that are shown."""

Name = tuple[str, str, str, str]
"""Name of a figure: table, currency, row and sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One sum of a report, in minor units."""

    table: str
    currency: str
    line: str
    what: str
    count: int
    sum: int

    @property
    def name(self) -> Name:
        """Return the figure's name: table, currency, row and sum."""
        return (self.table, self.currency, self.line, self.what)

    def document(self) -> list[Any]:
        return [*self.name, self.count, self.sum]


def figure_of(document: list[Any]) -> Figure:
    """Parse a figure from the list that `Figure.document` returns."""
    table, currency, line, what, count, total = document
    return Figure(table=table, currency=currency, line=line, what=what, count=count, sum=total)


def figures(report: PeriodReport) -> tuple[Figure, ...]:
    """Return a report's nonzero figures, sorted by name."""
    found = added(_rows(report))
    return tuple(sorted(found, key=lambda each: each.name))


def added(figures: Iterable[Figure]) -> list[Figure]:
    """Add up figures with equal names, without zero results."""
    sums: dict[Name, tuple[int, int]] = {}
    for each in figures:
        count, total = sums.get(each.name, (0, 0))
        sums[each.name] = (count + each.count, total + each.sum)
    return [figure_of([*name, *both]) for name, both in sums.items() if any(both)]


def difference(then: Iterable[Figure], now: Iterable[Figure]) -> tuple[Figure, ...]:
    """Return the present figures minus the earlier figures."""
    negative = (replace(each, count=-each.count, sum=-each.sum) for each in then)
    return tuple(sorted(added([*now, *negative]), key=lambda each: each.name))


def _rows(report: PeriodReport) -> Iterator[Figure]:
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
    for held in report.suspense:
        if not held.line.startswith("days_"):
            yield _figure("suspense", held.currency, held.line, "", held.count, held.sum)
    for found in report.breaks:
        yield _figure("breaks", found.currency, found.cause, "", found.count, found.sum)


def _figure(
    table: str, currency: str | None, line: str, what: str, count: int, total: int
) -> Figure:
    return figure_of([table, currency or "", line, what, count, total])


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedMonth:
    """Figures of a closed month, as reported so far."""

    month: Month
    closing: str
    original: tuple[Figure, ...]
    reported: tuple[Figure, ...] = ()


def adjustments(stated: ClosedMonth, now: Iterable[Figure]) -> tuple[AdjustmentRow, ...]:
    """Return a row for each figure with an unreported change."""
    original = {each.name: each for each in stated.original}
    reported = {each.name: each for each in added(stated.reported)}
    changes = difference([*stated.original, *stated.reported], now)
    return tuple(
        AdjustmentRow(
            period=stated.month.name,
            figure="/".join([part for part in (each.table, each.line, each.what) if part]),
            currency=each.currency or None,
            count_change=each.count,
            sum_original=original[each.name].sum if each.name in original else 0,
            sum_told=reported[each.name].sum if each.name in reported else 0,
            sum_change=each.sum,
            closing=stated.closing.removeprefix("sha256:")[:SHOWN],
        )
        for each in changes
    )


def change_in(row: AdjustmentRow) -> Figure:
    """Return the change that an adjustment row states."""
    table, line, *what = row.figure.split("/")
    return _figure(table, row.currency, line, "".join(what), row.count_change, row.sum_change)


FORM: Final = 3
"""Version of the stored documents' format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceDigest:
    """Number and SHA-256 of one day's rows of one kind."""

    part: str
    day: str
    count: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Print:
    """SHA-256 and length of a printed report or journal."""

    format: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjusted:
    """Changes that a report makes to a closed month."""

    period: str
    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """Closing of one month, with figures and evidence."""

    month: Month
    version: int = 1
    as_of: Instant
    closed_at: Instant
    by: str
    role: str
    proposed_at: Instant | None = None
    """Time of the proposal; None if one person closed the month."""
    approved_by: str | None = None
    margin_days: int
    known_after: Instant
    """Instant after which the evidence became known; 0 for the first closing."""
    before: str | None
    """Digest of the previous record. None for the first."""
    policy: Mapping[str, Any]
    revenue: Revenue | None = None
    program: Mapping[str, str]
    checkpoint: Mapping[str, Any] | None
    """Size and head of the sealed log. None if nothing was sealed."""
    evidence: tuple[EvidenceDigest, ...]
    figures: tuple[Figure, ...]
    adjusted: tuple[Adjusted, ...]
    report: Mapping[str, Any]
    prints: tuple[Print, ...]

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the whole closing document, as `sha256:…`."""
        return fingerprint(closing_document(self))

    @property
    def history(self) -> str:
        """Return one SHA-256 over all evidence of this closing."""
        return fingerprint(_evidence_document(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopening:
    """Reopening of the last closing."""

    period: str
    version: int
    at: Instant
    by: str
    second: str
    reason: str
    before: str

    def document(self) -> dict[str, Any]:
        return {
            "form": FORM,
            "period": self.period,
            "version": self.version,
            "reopened_at": format_instant(self.at),
            "by": self.by,
            "second": self.second,
            "reason": self.reason,
            "before": self.before,
        }

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the whole reopening document, as `sha256:…`."""
        return fingerprint(self.document())


def reopening_of(document: Mapping[str, Any]) -> Reopening:
    """Parse a reopening. Raises KeyError, TypeError or ValueError if the document is invalid."""
    if document["form"] != FORM:
        raise ValueError("the reopening was written by a later version of the program")
    names = ("period", "version", "by", "second", "reason", "before")
    given = {name: document[name] for name in names}
    return Reopening(at=parse_instant(document["reopened_at"]), **given)


def adjusted_in(rows: Iterable[AdjustmentRow]) -> tuple[Adjusted, ...]:
    found: dict[str, list[Figure]] = {}
    for row in rows:
        found.setdefault(row.period, []).append(change_in(row))
    return tuple(Adjusted(period=period, figures=tuple(found[period])) for period in sorted(found))


def closing_document(closing: Closing) -> dict[str, Any]:
    month = closing.month
    ends = {"start": format_instant(month.start), "end": format_instant(month.end)}
    return {
        "form": FORM,
        "month": {"zone": month.zone, **ends},
        "period": month.name,
        "version": closing.version,
        "as_of": format_instant(closing.as_of),
        "closed_at": format_instant(closing.closed_at),
        "by": closing.by,
        "role": closing.role,
        "proposed_at": format_known(closing.proposed_at),
        "approved_by": closing.approved_by,
        "margin_days": closing.margin_days,
        "known_after": format_instant(closing.known_after),
        "before": closing.before,
        "policy": dict(closing.policy),
        "revenue": None if closing.revenue is None else dict(closing.revenue.taxes),
        "program": dict(closing.program),
        "checkpoint": None if closing.checkpoint is None else dict(closing.checkpoint),
        "evidence": _evidence_document(closing),
        "figures": [each.document() for each in closing.figures],
        "adjusted": [
            {"period": each.period, "figures": [one.document() for one in each.figures]}
            for each in closing.adjusted
        ],
        "report": dict(closing.report),
        "prints": [[each.format, each.sha256, each.size] for each in closing.prints],
    }


def _evidence_document(closing: Closing) -> list[list[Any]]:
    return [[each.part, each.day, each.count, each.digest] for each in closing.evidence]


def closing_of(document: Mapping[str, Any]) -> Closing:
    """Parse a closing. Raises KeyError, TypeError or ValueError if the document is invalid."""
    if document["form"] != FORM:
        raise ValueError("the closing was written by a later version of the program")
    plain, counted = month_named(document["period"]), document["month"]
    bounds = (parse_instant(counted["start"]), parse_instant(counted["end"]))
    month = replace(plain, zone=counted["zone"], bounds=bounds)
    return Closing(
        month=plain if month.is_of_utc else month,
        version=document["version"],
        as_of=parse_instant(document["as_of"]),
        closed_at=parse_instant(document["closed_at"]),
        by=document["by"],
        role=document["role"],
        proposed_at=None
        if document["proposed_at"] is None
        else parse_instant(document["proposed_at"]),
        approved_by=document["approved_by"],
        margin_days=document["margin_days"],
        known_after=parse_instant(document["known_after"]),
        before=document["before"],
        policy=document["policy"],
        revenue=None if document["revenue"] is None else Revenue(taxes=document["revenue"]),
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


def first_difference(then: Iterable[EvidenceDigest], now: Iterable[EvidenceDigest]) -> str | None:
    """Return a sentence about the first changed evidence, or None."""
    before = {(each.day, each.part): each for each in then}
    after = {(each.day, each.part): each for each in now}
    for day, part in sorted(before.keys() | after.keys()):
        old, new = before.get((day, part)), after.get((day, part))
        if old != new:
            was, are = (0 if each is None else each.count for each in (old, new))
            what = part.replace("_", " ")
            if was == are:
                return f"{what} of {day}: {are:,} as at closing, but different ones"
            return f"{what} of {day}: {was:,} at closing, {are:,} now"
    return None


# --- why a month cannot be closed yet -------------------------------------------------------------


BlockerCode = Literal[
    "too_early",
    "unread",
    "coverage",
    "balances",
    "unasked",
    "unreadable",
    "not_kept",
    "gap",
    "unallocated",
    "not_ours",
    "rejected",
    "pending",
    "unsettled",
    "breaks",
    "ties",
]

CONDITIONS: Final[Mapping[BlockerCode, str]] = {
    "too_early": "The month and the days after it are over.",
    "unread": "All deliveries that were accepted have been read.",
    "coverage": "Statements and bank files cover the whole month.",
    "balances": "No accepted difference of a bank statement is open again.",
    "unasked": "Providers have stated the state of every payment that is not final.",
    "unreadable": "No unreadable message from that time waits for a person.",
    "not_kept": "All unsigned requests of the month were stored.",
    "gap": "No accepted gap, which may have lost evidence, is in the month.",
    "unallocated": "No payment that was read waits for its order.",
    "not_ours": "No delivery of the month was set aside as another shop's.",
    "rejected": "No refused delivery of the month would be accepted now.",
    "pending": "No order of the month is pending.",
    "unsettled": "Each payment that a statement covers is settled, or accepted as it is.",
    "breaks": "No break of the month must be decided before closing. Others may stay open: the "
    "report lists them.",
    "ties": "All control sums of the month's report agree.",
}
"""Conditions for closing a month, in display order."""

UNCONDITIONAL: Final[frozenset[BlockerCode]] = frozenset({"too_early", "unread"})
"""Conditions of closing without possible exception."""

ACCEPTED: Final = "accepted"

NAMED: Final = 3
"""Maximum number of examples in one reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """Reason why a month cannot be closed yet."""

    code: BlockerCode
    sentence: str
    do: str
    cause: BreakCause | None = None
    about: str | None = None

    @property
    def line(self) -> str:
        """Return the blocker's name for an exception."""
        about = self.cause or self.about
        return self.code if about is None else f"{self.code}:{about}"


def closing_lines(
    against: Iterable[Blocker],
) -> Iterator[tuple[str, str, Blocker | None]]:
    """Yield each condition of closing: name, sentence, and blocker."""
    found = tuple(against)
    unknown = any(each.code in UNCONDITIONAL for each in found)
    for code, sentence in CONDITIONS.items():
        own = [each for each in found if each.code == code]
        yield from ((each.line, each.sentence, each) for each in own)
        if not own and not unknown:
            yield code, sentence, None


def excepted(
    found: Iterable[Blocker], reasons: Mapping[str, str]
) -> tuple[tuple[Blocker, ...], tuple[ExceptionRow, ...]]:
    """Return the remaining blockers, and the exceptions with reasons."""
    every = tuple(found)
    made = [e for e in every if e.line in reasons and e.code not in UNCONDITIONAL]
    rows = [
        ExceptionRow(line=each.line, sentence=each.sentence, why=reasons[each.line])
        for each in made
    ]
    return tuple([each for each in every if each not in made]), tuple(rows)


def too_early(month: Month, *, now: Instant, margin_days: int) -> Iterator[Blocker]:
    """Yield a blocker during the first `margin_days` days after the month."""
    opens = month.end + margin_days * DAY
    if now < opens:
        yield Blocker(
            code="too_early",
            sentence=f"{month.name} can be closed from {format_instant(opens)} on, {margin_days} "
            f"{'day' if margin_days == 1 else 'days'} after its end, so that late webhooks and "
            "statements can arrive.",
            do="Wait, or change TALLYHOOK_CLOSING_MARGIN_DAYS.",
        )


def unread(behind_s: int) -> Blocker:
    """Return the blocker for deliveries that are stored but unread."""
    return Blocker(
        code="unread",
        sentence="Some accepted deliveries have not been read yet, the oldest for "
        f"{format_duration(behind_s * SECOND)}, so no figure contains their money.",
        do="Check that `tallyhook serve` runs and `/readyz` reports it ready, then close.",
    )


def unasked(names: Sequence[str], *, then: bool = False) -> Iterator[Blocker]:
    """Yield a blocker for payments without the provider's confirmation."""
    if names:
        shown, more = ", ".join(names[:NAMED]), " …" if len(names) > NAMED else ""
        asked = "between the month's end and --as-of" if then else "just now"
        yield Blocker(
            code="unasked",
            sentence="Payments that are not final and whose state was not confirmed by the "
            f"provider {asked}: {len(names):,} ({shown}{more}).",
            do=(
                "Close without --as-of, so that providers are asked first. With --as-of, today's "
                "answers do not count."
            )
            if then
            else "Check that `tallyhook serve` runs and reaches the provider, then close.",
        )


def not_kept(count: int) -> Iterator[Blocker]:
    """Yield a blocker for requests that were not stored."""
    if count:
        yield Blocker(
            code="not_kept",
            sentence="Unsigned requests of the month that were not stored because there were too "
            f"many: {count:,}. Genuine callbacks may be among them, so payments may be missing.",
            do="Import the statements of its sources, which show every payment.",
        )


def lost_in_gap(gap: str, *, since: Instant, until: Instant, lost: int | None) -> Blocker:
    """Return the blocker for an accepted gap in the month's data. `lost` is None if the number of
    lost deliveries is unknown."""
    count = "" if lost is None else f" Deliveries that are lost: {lost:,}."
    return Blocker(
        code="gap",
        sentence=f"Data from {format_instant(since)} to {format_instant(until)} may be lost. "
        f"Payments, refunds and the shop's statements may be missing.{count}",
        do="Import the statements of that time, which show every payment, and let providers send "
        "its events again.",
        about=gap,
    )


def in_report(report: PeriodReport) -> Iterator[Blocker]:
    """Yield the blockers that the report itself shows."""
    for tie in report.ties:
        if not tie.holds:
            yield Blocker(
                code="ties",
                sentence=f"{tie.name} does not hold in {tie.currency or 'number'}: {tie.left} is "
                f"{tie.left_value}, {tie.right} is {tie.right_value}.",
                do=CAUSES["wallet_balance_differs"].step + "."
                if tie.right == STATED_BALANCE
                else "Run `tallyhook db check`; do not close before the cause is known.",
            )
    yield from _breaks(report)
    yield from _coverage(report)
    for row in report.balances:
        if row.state == "reopened":
            difference = Money(minor=row.difference, currency=row.currency)
            yield Blocker(
                code="balances",
                sentence=f"The statement of {row.account} that closes on {row.closed} was accepted "
                f"with a difference of {difference}, and the next one does not begin with its "
                "closing balance.",
                do="Ask the bank for the statement again, withdraw the import and import the new "
                "one: `tallyhook bank withdraw`.",
                about=f"{row.account}:{row.closed}",
            )
    yield from _waiting(report)
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
        line for line in report.break_lines if CAUSES[line.cause].blocks and line.state != ACCEPTED
    ]
    causes = Counter(line.cause for line in undecided)
    for cause, count in sorted(causes.items()):
        ids = ", ".join([line.identity for line in undecided if line.cause == cause][:NAMED])
        called, more = CAUSES[cause].name, " …" if count > NAMED else ""
        yield Blocker(
            code="breaks",
            sentence=f"Breaks to be decided, {called[:1].lower()}{called[1:]}: {count:,} "
            f"({ids}{more}).",
            do=(
                f"See `tallyhook breaks list --cause {cause}`; correct each at its source, match "
                "it by hand, or accept it with a reason."
            ),
            cause=cause,
        )
    hidden = sum(each.left_out for each in report.unlisted if each.table == "break_lines")
    if hidden:
        yield Blocker(
            code="breaks",
            sentence=f"Open breaks that the report has no room to list: {hidden:,}.",
            do=(
                "Reduce their number first. So many breaks of one cause usually come from a single "
                "mistake."
            ),
        )


def _coverage(report: PeriodReport) -> Iterator[Blocker]:
    names = dict.fromkeys((row.kind, row.name, row.wallet) for row in report.coverage)
    for kind, name, wallet in names:
        own = [e for e in report.coverage if (e.kind, e.name, e.wallet) == (kind, name, wallet)]
        asked = kind == "bank" or wallet is not None or own[0].payments
        if kind == "book" or own[0].whole or not asked:
            continue
        called = " ".join(filter(None, (name or "no named source", wallet)))
        spans = " and ".join(
            f"from {format_instant(row.since)} until {format_instant(row.until)}"
            for row in own
            if row.since is not None and row.until is not None
        )
        whose = "Files of bank account" if kind == "bank" else "Statements of"
        covers = f"cover the month only {spans}" if spans else "cover no day of the month"
        also = f"; payments that it took: {own[0].payments:,}" if own[0].payments else ""
        option = f"--bank {name}" if kind == "bank" else f"--source {name}"
        option += f' --wallet "{wallet}"' if wallet else ""
        hours, lacking = _of_another_zone(own, start=report.scope.start, end=report.scope.end)
        yield Blocker(
            code="coverage",
            sentence=f"{whose} {called} {covers}{also}.{hours}",
            do=f"Import the file of {lacking}, or say which days the imported files cover: "
            f"`tallyhook coverage declare {option}`.",
            about=f"bank:{name}" if kind == "bank" else "/".join(filter(None, (name, wallet))),
        )
    covered = [row for row in report.coverage if row.kind == "statement" and row.since is not None]
    if covered and not any(row.kind == "bank" for row in report.coverage):
        yield Blocker(
            code="coverage",
            sentence="No bank file is imported, so payouts in statements were not compared with "
            "anything.",
            do="Import the bank's file of the month: `tallyhook bank import`.",
            about="bank",
        )


_FARTHEST: Final = 14 * HOUR


def _of_another_zone(
    own: Sequence[CoverageRow], *, start: Instant, end: Instant
) -> tuple[str, str]:
    (since, until), found = (own[0].since, own[-1].until), list[tuple[str, str]]()
    if len(own) > 1 or since is None or until is None:
        return "", "the other days"
    for lack, which, other in ((since - start, "first", "before"), (end - until, "last", "after")):
        if 0 < lack <= _FARTHEST and lack % (15 * MINUTE) == 0:
            span = format_duration(lack)
            found.append((f"the {which} {span} of the month", f"the month {other}"))
        elif lack:
            return "", "the other days"
    hours, months = (" and ".join(each) for each in zip(*found, strict=True))
    return (
        f" Its files count days in another zone, so {hours} are in the file of {months}.",
        f"{months}, too",
    )


def _moneys(counts: Iterable[tuple[str, int]]) -> str:
    sums: Counter[str] = Counter()
    for currency, minor in counts:
        sums[currency] += minor
    return ", ".join(str(Money(minor=sums[each], currency=each)) for each in sorted(sums))


def _waiting(report: PeriodReport) -> Iterator[Blocker]:
    held = [row for row in report.suspense if row.line == "closing" and row.count]
    if held:
        money = _moneys((row.currency, row.sum) for row in held)
        yield Blocker(
            code="unallocated",
            sentence="Payments without an order at the end of the month: "
            f"{sum(row.count for row in held):,} ({money}).",
            do="Assign each to its order, or dismiss it: `tallyhook unallocated list`.",
        )
    if report.unsettled:
        ages = Counter[Age]()
        for row in report.unsettled:
            ages[row.age] += row.count
        aged = ", ".join(f"{AGE_WORDS[age].lower()} {ages[age]:,}" for age in AGES if ages[age])
        money = _moneys((row.currency, row.sum) for row in report.unsettled)
        yield Blocker(
            code="unsettled",
            sentence=f"Payments captured and not settled: {ages.total():,} ({money}), by age: "
            f"{aged}.",
            do="Import the statement that settles them, or ask the provider, and accept the break "
            "of each with a reason.",
        )


def evidence_blockers(
    *,
    unreadable: int,
    lost: int,
    not_ours: int,
    genuine: int,
    gaps: Iterable[Blocker] = (),
) -> Iterator[Blocker]:
    """Yield the blockers for deliveries outside the report."""
    if unreadable:
        yield Blocker(
            code="unreadable",
            sentence=f"Unreadable messages: {unreadable:,}.",
            do=(
                "See `tallyhook deliveries list --verdict unreadable`: correct the profile, or "
                "record what the messages say."
            ),
        )
    yield from not_kept(lost)
    yield from gaps
    if not_ours:
        yield Blocker(
            code="not_ours",
            sentence=f"Deliveries of the month that belong to another shop: {not_ours:,}.",
            do="See `tallyhook deliveries list --verdict not_ours`: check that none is yours.",
        )
    yield from rejected(genuine)


def rejected(count: int) -> Iterator[Blocker]:
    """Yield a blocker for rejected deliveries that are now acceptable."""
    if count:
        yield Blocker(
            code="rejected",
            sentence=f"Rejected deliveries that would be accepted now: {count:,}.",
            do="Run `tallyhook deliveries reverify`, then close.",
        )
