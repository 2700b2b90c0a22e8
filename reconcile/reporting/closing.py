"""A closed period: what was reported, on what evidence, by which rules, and by whom.

Leaves out: reading evidence and printing. A closing is written once. It names the closing before
it by digest, so that none can be changed without every later one showing it, and it speaks only
of the evidence that became known after the one before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from reconcile.canonical import fingerprint
from reconcile.instants import Instant, format_instant, parse_instant
from reconcile.periods import Month, month_named
from reconcile.reporting.figures import Figure, change_in, figure_of
from reconcile.reporting.report import AdjustmentRow
from reconcile.values import frozen

FORM: Final = 1
"""The form of the document. A later form gets a further number; this one is read for ever."""


@frozen
class Sealed:
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
    checkpoint   size and head of the sealed log then; None where nothing was sealed. The deed of
                 closing, which bears the closing's digest, is sealed after it
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
    evidence: tuple[Sealed, ...]
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
    """The adjustments that a report tells, by the month that they speak of."""
    found: dict[str, list[Figure]] = {}
    for row in rows:
        found.setdefault(row.period, []).append(change_in(row))
    return tuple(Adjusted(period=period, figures=tuple(found[period])) for period in sorted(found))


def closing_document(closing: Closing) -> dict[str, Any]:
    """The closing as JSON values, from which `closing_of` makes it again."""
    return {
        "form": FORM,
        "period": closing.month.name,
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


def _sealed_document(sealed: Sealed) -> list[Any]:
    return [sealed.part, sealed.day, sealed.count, sealed.digest]


def closing_of(document: Mapping[str, Any]) -> Closing:
    """The closing of a document. Raises KeyError, TypeError or ValueError where it is not one."""
    if document["form"] != FORM:
        raise ValueError("the closing was written by a later version of the program")
    return Closing(
        month=month_named(document["period"]),
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
            Sealed(part=part, day=day, count=count, digest=digest)
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


def first_difference(then: Iterable[Sealed], now: Iterable[Sealed]) -> str | None:
    """The first part and day whose evidence is not what it was, in one sentence; None: all is."""
    before = {(each.day, each.part): each for each in then}
    after = {(each.day, each.part): each for each in now}
    for day, part in sorted(before.keys() | after.keys()):
        old, new = before.get((day, part)), after.get((day, part))
        if old != new:
            return _told(part, day, old, new)
    return None


def _told(part: str, day: str, old: Sealed | None, new: Sealed | None) -> str:
    was, are = (0 if each is None else each.count for each in (old, new))
    what = part.replace("_", " ")
    if was == are:
        return f"{what} of {day}: {are:,} as at closing, and not the same"
    return f"{what} of {day}: {was:,} at closing, {are:,} now"
