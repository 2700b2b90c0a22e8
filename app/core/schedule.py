"""Schedule of periodic work: parse its entries, and compute when each is due.

    nightly | 30 2 * * * | reconcile; month | 0 6 12 * * | reconcile month pdf xlsx folder

An entry has a name, a cron expression in the merchant's time zone, and words for the work. Clock
changes are handled as in Debian's cron: work of a skipped hour runs at its end, and work of a
repeated hour runs once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import tzinfo
from itertools import takewhile
from typing import TYPE_CHECKING, Final, Literal, get_args

from reconcile import instants
from reconcile.instants import Instant

if TYPE_CHECKING:
    from collections.abc import Iterator

Span = Literal["month", "day"]
SPANS: Final[tuple[Span, ...]] = get_args(Span)

Form = Literal["pdf", "xlsx", "html", "csv", "json"]
FORMS: Final[tuple[Form, ...]] = get_args(Form)

Way = Literal["folder", "mail", "post"]
WAYS: Final[tuple[Way, ...]] = get_args(Way)

CHECKPOINT: Final = "checkpoint"

ENTRIES_MAX: Final = 20
TEXT_MAX: Final = 4_000

LATE: Final[instants.Duration] = 10 * instants.MINUTE

LOOKED_BACK: Final[instants.Duration] = 400 * instants.DAY
"""Maximum age of missed work that is still done."""

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleEntry:
    """Entry of the schedule: the work, and the times at which it is due."""

    name: str
    cron: str
    """Cron expression of five fields. The minute must be a number."""
    reconcile: bool
    """True if everything is reconciled first."""
    span: Span | None = None
    """Period of the report, if any."""
    forms: tuple[Form, ...] = ()
    """Formats of the report."""
    ways: tuple[Way, ...] = ()
    """Ways in which the report and the checkpoint are delivered."""
    checkpoint: bool = False
    """True if the log's newest checkpoint is delivered."""


def schedule_entries(text: str) -> tuple[ScheduleEntry, ...]:
    """Return the schedule's entries from a setting's text. Raise ValueError, which states the
    mistake and the correct form."""
    if len(text) > TEXT_MAX:
        raise ValueError(f"must have {TEXT_MAX:,} characters at most")
    found = [_entry(part.strip()) for part in text.split(";") if part.strip()]
    names = [entry.name for entry in found]
    if len(found) > ENTRIES_MAX:
        raise ValueError(f"must have {ENTRIES_MAX} entries at most")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"has two entries named {twice}")
    return tuple(found)


def _entry(text: str) -> ScheduleEntry:
    from cronsim import CronSim, CronSimError

    parts = [part.strip() for part in text.split("|")]
    if len(parts) != 3:
        raise ValueError(
            "must be entries such as `nightly | 30 2 * * * | reconcile`, separated by semicolons"
        )
    name, cron, text = parts
    if not _NAME.fullmatch(name):
        raise ValueError("must name each entry with 1 to 40 characters of a-z, 0-9 and -")
    fields = cron.split()
    if len(fields) != 5 or not fields[0].isdigit():
        raise ValueError(
            f"{name}: the time must have five cron fields, and the minute must be a number: 30 2 "
            "* * *"
        )
    try:
        next(CronSim(cron, instants.moment_of(instants.EARLIEST)))
    except (CronSimError, StopIteration) as error:
        reason = str(error) or "it never comes"
        raise ValueError(f"{name}: the time is not valid for cron: {reason}") from None

    known, words = {"reconcile", CHECKPOINT, *SPANS, *FORMS, *WAYS}, text.lower().split()
    if strange := [word for word in words if word not in known]:
        raise ValueError(f"{name}: {strange[0][:20]} is not one of {', '.join(sorted(known))}")
    spans = [span for span in SPANS if span in words]
    forms = tuple(form for form in FORMS if form in words)
    ways = tuple(way for way in WAYS if way in words)
    checkpoint = CHECKPOINT in words
    reported = any([spans, forms]) or (bool(ways) and not checkpoint)
    if reported and not all([len(spans) == 1, forms, ways]):
        raise ValueError(
            f"{name}: a report needs month or day, a format ({', '.join(FORMS)}) and a way of "
            f"delivery ({', '.join(WAYS)})"
        )
    if checkpoint and not ways:
        raise ValueError(f"{name}: a checkpoint needs a way of delivery ({', '.join(WAYS)})")
    if not words:
        raise ValueError(f"{name}: names no task; write one, such as reconcile")
    return ScheduleEntry(
        name=name,
        cron=" ".join(fields),
        reconcile="reconcile" in words,
        span=spans[0] if spans else None,
        forms=forms,
        ways=ways,
        checkpoint=checkpoint,
    )


def next_time(entry: ScheduleEntry, *, after: Instant, zone: tzinfo) -> Instant | None:
    """Return the next instant after `after` at which an entry is due. Return None if there is
    none."""
    return next(_times(entry, after=after, zone=zone), None)


def due_time(entry: ScheduleEntry, *, since: Instant, now: Instant, zone: tzinfo) -> Instant | None:
    """Return the latest instant in a period at which an entry was due, or None.

    since  start of the period, exclusive
    now    end of the period, inclusive
    """
    begin = max(since, Instant(now - LOOKED_BACK))
    times = takewhile(lambda at: at <= now, _times(entry, after=begin, zone=zone))
    return max(times, default=None)


def is_late(due: Instant, *, began: Instant) -> bool:
    """Return whether work began so late that it must be reported.

    due    instant at which the work was due
    began  instant at which the work began
    """
    return began - due > LATE


def _times(entry: ScheduleEntry, *, after: Instant, zone: tzinfo) -> Iterator[Instant]:
    from cronsim import CronSim

    begin = instants.moment_of(after).astimezone(zone)
    # In the second of two equal hours the library begins with the first, which has passed.
    for local in CronSim(entry.cron, begin):
        at = instants.instant_of(local)
        if at > after:
            yield at
