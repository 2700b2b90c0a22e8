"""The time a request was signed: where it stands, how it is written, how old it may be.

Only ASCII digits are a timestamp. What other parsers let pass (`1.5`, `+1`, `1_0`, full-width
digits, NaN) is refused with a sentence that says what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from app.providers.paths import Place
from app.providers.refusal import Reason, Refusal
from app.providers.request import Request
from reconcile.instants import (
    DAY,
    MILLISECOND,
    SECOND,
    Duration,
    Instant,
    format_duration,
    format_instant,
    parse_instant,
)


@dataclass(frozen=True, slots=True)
class Unit:
    """What one step of the number is worth, and how many digits it may have (year 33658)."""

    length: Duration
    digits: int
    word: str
    milliseconds_from: int = 999
    """From this number of digits on it counts milliseconds."""


UNITS: Final[Mapping[str, Unit]] = {
    "s": Unit(SECOND, 12, "seconds"),
    "ms": Unit(MILLISECOND, 15, "milliseconds"),
    "s_or_ms": Unit(SECOND, 15, "seconds or milliseconds", milliseconds_from=13),
    "iso8601": Unit(0, 0, "a date and time"),
    "any": Unit(SECOND, 15, "a date and time, seconds or milliseconds", milliseconds_from=13),
}
"""How a timestamp is written. `iso8601` is no number: `2026-11-20T10:00:00+07:00`, zone included;
`any` is that, or digits as of `s_or_ms`."""

_ANY: Final = UNITS["any"]

_PLAUSIBLE: Final[Duration] = 365 * DAY
"""How near to now a number must come, read in another unit, before we name that unit."""

# What is wrong with a text that is not all digits, most telling first.
_FAULTS = (
    (re.compile(rb"\Z"), "is empty"),
    (re.compile(rb"[\x00-\x7f]*[\x80-\xff]"), "has characters that are not ASCII"),
    (re.compile(rb".*\s", re.DOTALL), "has blanks"),
    (re.compile(rb"[0-9]+\.[0-9]*\Z"), "has a fraction"),
    (re.compile(rb"[+-][0-9]+\Z"), "has a sign"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timestamp:
    """The rule of one profile. `past` and `future` are inclusive."""

    place: Place
    unit: Unit
    past: Duration
    future: Duration

    def text(self, request: Request) -> bytes | Refusal:
        """The timestamp as received: exactly one, since a second would make it ambiguous."""
        found = self.place.values(request)
        if len(found) == 1:
            return found[0]
        fault = "came more than once" if found else "is missing"
        return self._refusal("timestamp_missing", fault)

    def write(self, now: Instant) -> bytes:
        """`now` as the profile writes it."""
        if not self.unit.length or self.unit is _ANY:
            return format_instant(now).encode("ascii")
        return b"%d" % (now // self.unit.length)

    def judge(self, text: bytes, now: Instant) -> Refusal | None:
        """None where `text` is a timestamp no older or newer than allowed."""
        if not self.unit.length or (self.unit is _ANY and not text.isdigit()):
            return self._judge_date(text, now)
        if not text.isdigit():  # of bytes: ASCII digits only
            return self._refusal("timestamp_missing", _fault(text))
        if len(text) > self.unit.digits:
            return self._too_long(text, now)
        fine = len(text) >= self.unit.milliseconds_from
        return self._judge_age(now - int(text) * (MILLISECOND if fine else self.unit.length))

    def _judge_date(self, text: bytes, now: Instant) -> Refusal | None:
        try:
            instant = parse_instant(text.decode("ascii"))
        except ValueError:
            return self._refusal("timestamp_missing", "is no date and time with its zone")
        return self._judge_age(now - instant)

    def _judge_age(self, age: Duration) -> Refusal | None:
        if -self.future <= age <= self.past:
            return None
        return self._too_old(age) if age > 0 else self._too_new(-age)

    def _too_old(self, age: Duration) -> Refusal:
        allowed = format_duration(self.past)
        fault = f"is {format_duration(age)} old; at most {allowed} is allowed"
        return self._refusal("timestamp_too_old", fault)

    def _too_new(self, lead: Duration) -> Refusal:
        allowed = format_duration(self.future)
        fault = f"lies {format_duration(lead)} ahead of our clock; at most {allowed} is allowed"
        return self._refusal("timestamp_too_new", fault)

    def _too_long(self, text: bytes, now: Instant) -> Refusal:
        unit = self.unit
        # One unit finer has three digits more: the one mistake senders really make.
        if len(text) <= unit.digits + 3:
            moment = int(text) * unit.length // 1000
            if abs(moment - now) <= _PLAUSIBLE:
                finer = "milliseconds" if unit.length == SECOND else "microseconds"
                fault = f"counts {finer} where {unit.word} are meant"
                return self._refusal("timestamp_too_new", fault)
        return self._refusal("timestamp_missing", f"has more than {unit.digits} digits")

    def _refusal(self, reason: Reason, fault: str) -> Refusal:
        return Refusal(reason, f"The timestamp in {self.place.text} {fault}.")


def _fault(text: bytes) -> str:
    for pattern, fault in _FAULTS:
        if pattern.match(text):
            return fault
    return "is not written in digits only"
