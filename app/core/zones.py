"""Time zones by their names, from the system's database or, where it has none, from `tzdata`; and
sentences for people, whose moments are written as the clocks of a zone show them.

The engine says when something was in UTC, for its sentences are compared, sealed and read by
programs: `2026-10-16T09:05:00Z`, or aloud `16 October 2026, 09:05 UTC`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from app.core.errors import UsageError
from reconcile.instants import (
    DAY,
    MINUTE,
    MONTHS,
    SECOND,
    Instant,
    format_instant,
    moment_of,
    parse_instant,
    plain_instant,
)
from reconcile.periods import Calendar


def zone_named(name: str) -> tzinfo:
    """The zone of a name such as Africa/Nairobi, or UTC. Raises UsageError where none is known."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(
            f"no time zone {name[:40]!r} is known here: write a name such as Africa/Nairobi or UTC"
        ) from None


def wall_clock(instant: Instant, zone: tzinfo) -> Instant:
    """An instant that UTC writes as this zone writes the given one. At the ends of the calendar,
    where the zone has no such time, the given one."""
    if zone is UTC:
        return instant
    try:
        offset = moment_of(instant).astimezone(zone).utcoffset() or timedelta()
    except OverflowError:
        return instant
    return Instant(instant + int(offset.total_seconds()) * SECOND)


_LOCAL: Final = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?))?", re.ASCII)


def typed_instant(text: str, zone: tzinfo) -> Instant:
    """A moment as a person types it: `2026-11-20 12:00` by the clocks of the zone, a day alone as
    its beginning there, or RFC 3339. Where an hour comes twice, the first one. Raises ValueError
    with what may be written."""
    found = _LOCAL.fullmatch(text)
    try:
        if found is None:
            return parse_instant(text)
        local = datetime.fromisoformat(f"{found[1]}T{found[2] or '00:00'}").replace(tzinfo=zone)
        return parse_instant(local.astimezone(UTC).isoformat())
    except (ValueError, OverflowError):
        raise ValueError("write a moment such as 2026-11-20 12:00") from None


def typed_deadline(text: str, zone: tzinfo) -> Instant:
    """The same for the last moment of something: a day alone is its last second there, also where
    its last hour comes twice."""
    found = _LOCAL.fullmatch(text)
    if found is None or found[2] is not None:
        return typed_instant(text, zone)
    typed_instant(text, zone)  # a day that there is
    return Instant(Calendar(zone).day(text)[1] - SECOND)


# --- sentences in local time ----------------------------------------------------------------------

_MOMENT: Final = re.compile(
    r"\b(?P<before>(?:at|on) )?(?:(?P<exact>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z)|"
    rf"(?P<day>\d{{1,2}}) (?P<month>{'|'.join(MONTHS)}) (?P<year>\d{{4}}), (?P<time>\d\d:\d\d) UTC)"
    r"(?!\w)",
    re.ASCII,
)


class Piece(NamedTuple):
    """A part of a sentence. `at`: the moment that it states in local time, in a sentence's words;
    None: it is what stood there."""

    text: str
    at: Instant | None = None


def local_pieces(text: str, zone: tzinfo) -> Iterator[Piece]:
    """A sentence in pieces, each moment one of them: to the minute, in the zone.

    What was at or on a local midnight was on that day: banks and files give days alone. A bound
    (`until`, `beyond`, `by`) keeps its time of day, without which it would say another day's end.
    """
    last = 0
    for found in _MOMENT.finditer(text):
        at = _instant(found)
        if at is None:
            continue
        local = wall_clock(at, zone)
        before, day = found["before"] or "", found["before"] is not None and local % DAY == 0
        yield Piece(text[last : found.start()] + ("on " if day else before))
        yield Piece(_words(local, day=day, aloud=found["exact"] is None), at)
        last = found.end()
    yield Piece(text[last:])


def _instant(found: re.Match[str]) -> Instant | None:
    """None where it is no real moment."""
    exact = found["exact"]
    if exact is None:
        month = MONTHS.index(found["month"]) + 1
        exact = f"{found['year']}-{month:02}-{int(found['day']):02}T{found['time']}:00Z"
    try:
        return parse_instant(exact)
    except ValueError:
        return None


def _words(local: Instant, *, day: bool, aloud: bool) -> str:
    if aloud:
        words = plain_instant(local).removesuffix(" UTC")
        return words.partition(",")[0] if day else words
    words = format_instant(local - local % MINUTE).replace("T", " ").removesuffix(":00Z")
    return words[: len("2026-10-16")] if day else words


def local_text(text: str, zone: tzinfo, *, named: bool = False) -> str:
    """A sentence with its moments as the zone's clocks show them; what stands between backquotes,
    such as a command, stays as it is.

    named  each time of day is followed by what the zone is called then, such as EAT: for where
           nothing beside the sentence says which zone is meant
    """
    parts = text.split("`")
    code = len(parts) % 2 == 1  # a backquote by itself is one
    return "`".join(
        part if code and place % 2 else _in_zone(part, zone, named=named)
        for place, part in enumerate(parts)
    )


def _in_zone(text: str, zone: tzinfo, *, named: bool) -> str:
    return "".join(
        f"{piece.text} {_name(piece.at, zone)}"
        if named and piece.at is not None and ":" in piece.text
        else piece.text
        for piece in local_pieces(text, zone)
    )


def local_moment(at: Instant, zone: tzinfo) -> str:
    """A moment to the minute as the zone's clocks show it, and what the zone is called then; of a
    midnight there the day alone."""
    local = wall_clock(at, zone)
    if local % DAY == 0:
        return _words(local, day=True, aloud=False)
    return f"{_words(local, day=False, aloud=False)} {_name(at, zone)}"


def _name(at: Instant, zone: tzinfo) -> str:
    """What people call a zone at a moment; UTC where `wall_clock` leaves it so."""
    try:
        return moment_of(at).astimezone(zone).tzname() or str(zone)
    except OverflowError:
        return "UTC"
