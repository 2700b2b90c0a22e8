"""Time zones by name, and sentences in local time.

The package `reconcile` writes instants in UTC, because programs compare and seal its sentences.
This module rewrites them in local time for people.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from app.core.errors import UsageError
from reconcile import instants
from reconcile.instants import Instant
from reconcile.periods import Calendar


def zone_named(name: str) -> tzinfo:
    """Return the time zone with a name such as Africa/Nairobi. Raise UsageError for an unknown
    name."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(
            f"{name[:40]!r} is not a known time zone: write a name such as Africa/Nairobi or UTC"
        ) from None


def wall_clock(instant: Instant, zone: tzinfo) -> Instant:
    """Return an instant whose date and time in UTC are the given instant's local date and time.

    Outside the range of `datetime`, return the instant itself.
    """
    if zone is UTC:
        return instant
    try:
        offset = instants.moment_of(instant).astimezone(zone).utcoffset() or timedelta()
    except OverflowError:
        return instant
    return Instant(instant + int(offset.total_seconds()) * instants.SECOND)


_LOCAL: Final = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?))?", re.ASCII)


def typed_instant(text: str, zone: tzinfo) -> Instant:
    """Return the instant that a person typed: a local time such as `2026-11-20 12:00`, a day, or
    RFC 3339.

    A day means its start. Of a local time that occurs twice, the first counts. Raises ValueError
    for any other text.
    """
    found = _LOCAL.fullmatch(text)
    try:
        if found is None:
            return instants.parse_instant(text)
        local = datetime.fromisoformat(f"{found[1]}T{found[2] or '00:00'}").replace(tzinfo=zone)
        return instants.parse_instant(local.astimezone(UTC).isoformat())
    except (ValueError, OverflowError):
        raise ValueError("write a time such as 2026-11-20 12:00") from None


def typed_deadline(text: str, zone: tzinfo) -> Instant:
    """Return the instant that a person typed as a deadline; a day means its last second.

    Raise ValueError for text that `typed_instant` refuses.
    """
    found = _LOCAL.fullmatch(text)
    if found is None or found[2] is not None:
        return typed_instant(text, zone)
    typed_instant(text, zone)  # raises if there is no such day
    return Instant(Calendar(zone).day(text)[1] - instants.SECOND)


# --- sentences in local time ----------------------------------------------------------------------

_MOMENT: Final = re.compile(
    r"\b(?P<before>(?:at|on) )?(?:(?P<exact>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z)|"
    rf"(?P<day>\d{{1,2}}) (?P<month>{'|'.join(instants.MONTHS)}) (?P<year>\d{{4}}), "
    r"(?P<time>\d\d:\d\d) UTC)"
    r"(?!\w)",
    re.ASCII,
)


class Piece(NamedTuple):
    """Part of a sentence. `at` is set if the part is an instant, written in local time."""

    text: str
    at: Instant | None = None


def local_pieces(text: str, zone: tzinfo) -> Iterator[Piece]:
    """Split a sentence at its instants, and write each instant in local time, to the minute.

    After `at`, a local midnight becomes `on` and the day, because bank files have dates without a
    time.
    """
    last = 0
    for found in _MOMENT.finditer(text):
        exact = found["exact"]
        if exact is None:
            month = instants.MONTHS.index(found["month"]) + 1
            exact = f"{found['year']}-{month:02}-{int(found['day']):02}T{found['time']}:00Z"
        try:
            at = instants.parse_instant(exact)
        except ValueError:  # not a real instant
            continue
        local = wall_clock(at, zone)
        before, day = (
            found["before"] or "",
            found["before"] is not None and local % instants.DAY == 0,
        )
        yield Piece(text[last : found.start()] + ("on " if day else before))
        yield Piece(_words(local, day=day, aloud=found["exact"] is None), at)
        last = found.end()
    yield Piece(text[last:])


def _words(local: Instant, *, day: bool, aloud: bool) -> str:
    if aloud:
        words = instants.plain_instant(local).removesuffix(" UTC")
        return words.partition(",")[0] if day else words
    words = (
        instants.format_instant(local - local % instants.MINUTE)
        .replace("T", " ")
        .removesuffix(":00Z")
    )
    return words[: len("2026-10-16")] if day else words


def local_text(text: str, zone: tzinfo, *, named: bool = False) -> str:
    """Return a text with each instant in local time. Commands in backquotes stay.

    named  whether each time of day gets the zone's abbreviation, such as EAT
    """
    parts = text.split("`")
    has_code = len(parts) % 2 == 1  # a single backquote is an ordinary character
    for place, part in enumerate(parts):
        if not (has_code and place % 2):
            parts[place] = "".join(
                f"{piece.text} {_name(piece.at, zone)}"
                if named and piece.at is not None and ":" in piece.text
                else piece.text
                for piece in local_pieces(part, zone)
            )
    return "`".join(parts)


def local_moment(at: Instant, zone: tzinfo) -> str:
    """Return an instant in local time to the minute, with its zone; a midnight as a day."""
    local = wall_clock(at, zone)
    if local % instants.DAY == 0:
        return _words(local, day=True, aloud=False)
    return f"{_words(local, day=False, aloud=False)} {_name(at, zone)}"


def _name(at: Instant, zone: tzinfo) -> str:
    try:
        return instants.moment_of(at).astimezone(zone).tzname() or str(zone)
    except OverflowError:
        return "UTC"
