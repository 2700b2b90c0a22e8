"""Time zones by their names, from the system's database or, where it has none, from `tzdata`."""

from __future__ import annotations

from datetime import UTC, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from app.core.errors import UsageError
from reconcile.instants import SECOND, Instant, moment_of


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
