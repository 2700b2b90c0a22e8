"""The merchant's zone in a bundle: how far its clocks were from UTC at each moment that report.html
tells, in times.json.

The bundle says it itself: whoever renders the page again gets the same bytes, whatever is known of
zones there. A bundle of a merchant whose zone is UTC has no such file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any, Final

from app.core.local_times import local_text
from app.core.zones import wall_clock
from reconcile.instants import Instant, format_instant, moment_of, parse_instant

TIMES: Final = "times.json"

Offset = tuple[timedelta, str]
"""How far a zone's clocks are from UTC, and what it is called then."""


class LetterZone(tzinfo):
    """A zone that notes what it was asked, or knows that from a bundle."""

    def __init__(
        self, name: str, zone: tzinfo | None, known: Mapping[datetime, Offset] | None = None
    ) -> None:
        """zone: the real one; None: `known` has each span's offset by its first moment in UTC."""
        self._name, self._zone = name, zone
        self._known = dict(sorted((known or {}).items()))
        self._begins = list(self._known)

    def fromutc(self, moment: datetime) -> datetime:
        """As the zone's clocks show it, with its offset then."""
        plain = moment.replace(tzinfo=None)
        offset, called = self._noted(plain) if self._zone is not None else self._kept(plain)
        return (plain + offset).replace(tzinfo=timezone(offset, called))

    def _noted(self, plain: datetime) -> Offset:
        try:
            local = plain.replace(tzinfo=UTC).astimezone(self._zone)
        except OverflowError:  # at the ends of the calendar, where the zone has no such time
            local = plain.replace(tzinfo=UTC)
        self._known[plain] = (local.utcoffset() or timedelta(), local.tzname() or self._name)
        return self._known[plain]

    def _kept(self, plain: datetime) -> Offset:
        return self._known[self._begins[max(0, bisect_right(self._begins, plain) - 1)]]

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        """Unknown of a local time alone."""
        return None

    def dst(self, moment: datetime | None) -> timedelta | None:
        """Not known."""
        return None

    def tzname(self, moment: datetime | None) -> str | None:
        """The zone's own name."""
        return self._name

    def document(self) -> dict[str, Any]:
        """times.json, once the page is made."""
        spans: list[list[Any]] = []
        for moment, (offset, called) in sorted(self._known.items()):
            told = [int(offset.total_seconds()), called]
            if not spans or spans[-1][1:] != told:
                spans.append([f"{moment.isoformat()}Z", *told])
        return {"zone": self._name, "from_utc_s": spans}

    def words(self) -> str:
        """Which zone it is, and what its names mean, once the page is made."""
        called = dict.fromkeys(
            f"{name} is {timezone(offset)}" for _, (offset, name) in sorted(self._known.items())
        )
        return f"Times are those of {self._name}: {', '.join(called)}."


def letter_zone(zone: tzinfo | None) -> LetterZone | None:
    """The zone of a bundle that is built; None where it is UTC."""
    return None if zone in (None, UTC) or str(zone) == "UTC" else LetterZone(str(zone), zone)


def zone_in(told: Mapping[str, Any]) -> LetterZone:
    """The zone of a bundle that is verified. Raises ValueError and LookupError for what is none."""
    known = {
        moment_of(parse_instant(begins)).replace(tzinfo=None): (timedelta(seconds=seconds), called)
        for begins, seconds, called in told["from_utc_s"]
    }
    if not known:
        raise ValueError("times.json knows no moment")
    return LetterZone(told["zone"], None, known)


class Times:
    """Tells moments of one page: in the zone, each with its name, or in UTC."""

    def __init__(self, zone: LetterZone | None) -> None:
        self._zone = zone

    def at(self, instant: Instant) -> str:
        """One moment, exactly."""
        if self._zone is None:
            return format_instant(instant)
        called = moment_of(instant).astimezone(self._zone).tzname()
        return f"{self.clock(instant).replace('T', ' ').removesuffix('Z')} {called}"

    def clock(self, instant: Instant) -> str:
        """As the zone's clocks show it, in the form of RFC 3339."""
        return format_instant(instant if self._zone is None else wall_clock(instant, self._zone))

    def text(self, sentence: str) -> str:
        """A sentence whose moments are told so."""
        return sentence if self._zone is None else local_text(sentence, self._zone, named=True)

    def words(self) -> str:
        """Which zone it is; to be asked last."""
        return "Times are UTC." if self._zone is None else self._zone.words()
