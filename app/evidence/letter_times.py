"""Times in a letter, with the zone's offsets in times.json."""

from bisect import bisect_right
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any, Final

from app.core.zones import local_text, wall_clock
from reconcile.instants import Instant, format_instant, moment_of, parse_instant

TIMES: Final = "times.json"

Offset = tuple[timedelta, str]


class LetterZone(tzinfo):
    """Time zone that records the used offsets from UTC, or takes the offsets from a bundle."""

    def __init__(
        self, name: str, zone: tzinfo | None, known: Mapping[datetime, Offset] | None = None
    ) -> None:
        """Create the time zone from a real zone, or from the offsets in `known`.

        Each offset applies from its first moment in UTC.
        """
        self._name, self._zone = name, zone
        self._known = dict(sorted((known or {}).items()))
        self._begins = list(self._known)

    def fromutc(self, moment: datetime) -> datetime:
        """Convert a moment in UTC to the zone's local time."""
        plain = moment.replace(tzinfo=None)
        begins = plain
        if self._zone is None:
            begins = self._begins[max(0, bisect_right(self._begins, plain) - 1)]
        else:
            local = plain.replace(tzinfo=UTC)
            with suppress(OverflowError):  # at the ends of the calendar, where conversion fails
                local = local.astimezone(self._zone)
            self._known[plain] = (local.utcoffset() or timedelta(), local.tzname() or self._name)
        offset, called = self._known[begins]
        return (plain + offset).replace(tzinfo=timezone(offset, called))

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        """Return None, because a local time alone does not determine the offset."""
        return None

    def dst(self, moment: datetime | None) -> timedelta | None:
        """Return None, because daylight saving time is not known."""
        return None

    def tzname(self, moment: datetime | None) -> str | None:
        return self._name

    def document(self) -> dict[str, Any]:
        """Return the content of times.json with the used offsets. Call this after rendering."""
        spans: list[list[Any]] = []
        for moment, (offset, called) in sorted(self._known.items()):
            offset_and_name = [int(offset.total_seconds()), called]
            if not spans or spans[-1][1:] != offset_and_name:
                spans.append([f"{moment.isoformat()}Z", *offset_and_name])
        return {"zone": self._name, "from_utc_s": spans}

    def words(self) -> str:
        """Return a sentence on the zone and its abbreviations. Call this after rendering."""
        called = dict.fromkeys(
            f"{name} is {timezone(offset)}" for _, (offset, name) in sorted(self._known.items())
        )
        return f"Times are those of {self._name}: {', '.join(called)}."


def letter_zone(zone: tzinfo | None) -> LetterZone | None:
    """Return the time zone for a bundle's letter; None for UTC."""
    return None if zone in (None, UTC) or str(zone) == "UTC" else LetterZone(str(zone), zone)


def zone_in(document: Mapping[str, Any]) -> LetterZone:
    """Return the time zone in times.json. Raise ValueError or LookupError for invalid content."""
    known = {
        moment_of(parse_instant(begins)).replace(tzinfo=None): (timedelta(seconds=seconds), called)
        for begins, seconds, called in document["from_utc_s"]
    }
    if not known:
        raise ValueError("the list from_utc_s in times.json is empty")
    return LetterZone(document["zone"], None, known)


class Times:
    """Formatter of the moments of one page, in a time zone or in UTC."""

    def __init__(self, zone: LetterZone | None) -> None:
        self._zone = zone

    def at(self, instant: Instant) -> str:
        """Format a moment exactly, with the abbreviation of the time zone."""
        if self._zone is None:
            return format_instant(instant)
        called = moment_of(instant).astimezone(self._zone).tzname()
        return f"{self.clock(instant).replace('T', ' ').removesuffix('Z')} {called}"

    def clock(self, instant: Instant) -> str:
        """Format a moment like RFC 3339, but in local time."""
        return format_instant(instant if self._zone is None else wall_clock(instant, self._zone))

    def text(self, sentence: str) -> str:
        """Rewrite a sentence so that every moment in it is in local time."""
        return sentence if self._zone is None else local_text(sentence, self._zone, named=True)

    def words(self) -> str:
        """Return a sentence that names the time zone. Format all moments before this call."""
        return "Times are UTC." if self._zone is None else self._zone.words()


IN_UTC: Final = Times(None)
