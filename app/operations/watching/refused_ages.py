"""Whether a clock is off: genuine deliveries are refused for their age, and none is taken.

An age is judged only once the signature was found right, so whoever sends knows the secret: the two
clocks differ, or an old request comes again.

What this receiver judged is remembered in memory and in the order in which it judged it. The times
that are stored tell no order while the clock is in doubt: when it was set back, those of deliveries
that were taken before are those of deliveries that are refused now. And each receiver has a clock
of its own.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from app.operations.watching.alarm import Alarm
from app.words import counted
from reconcile.instants import MINUTE, Duration, Instant

AGES: Final = ("timestamp_too_old", "timestamp_too_new")
"""The verdicts on a genuine delivery that is not of its time."""

WINDOW: Final[Duration] = 15 * MINUTE
"""How long a refusal counts. Within that a provider has usually sent again what was refused; what
came earlier says little of the clock as it is now."""

REFUSALS: Final = 3
"""From how many on of one source, with none taken in between: fewer may be late by themselves."""

BODIES: Final = 2
"""Of how many different bodies they must be: one request that is replayed proves nothing."""

KEPT: Final = 100
"""Bodies that are remembered of a source, those that were refused last."""


@dataclass(slots=True, kw_only=True)
class RefusedBody:
    """One body that was refused for its age: how often, when last, and what was said of it then."""

    times: int = 0
    last: Instant = 0
    problem: str = ""


class RefusedAges:
    """What one receiver refused for its age, of each source since it last took a delivery of it.

    Sources are those that are configured, so they are few.
    """

    def __init__(self) -> None:
        self._sources: dict[str, OrderedDict[str, RefusedBody]] = {}

    def taken(self, source: str) -> None:
        """A delivery of this source was genuine and of its time: the clocks agree."""
        self._sources.pop(source, None)

    def refused(self, source: str, *, digest: str, at: Instant, problem: str) -> None:
        """One was genuine and not of its time. `problem` says by how much."""
        bodies = self._sources.setdefault(source, OrderedDict())
        body = bodies.setdefault(digest, RefusedBody())
        body.times, body.last, body.problem = body.times + 1, at, problem
        bodies.move_to_end(digest)
        if len(bodies) > KEPT:
            bodies.popitem(last=False)

    def alarm(self, now: Instant) -> Alarm | None:
        """The alarm, if so many were refused of a source that a clock may be off."""
        told = {}
        for source, bodies in self._sources.items():
            # Those of a time that is still to come were refused before the clock was set back.
            recent = [body for body in bodies.values() if now - WINDOW <= body.last <= now]
            if len(recent) >= BODIES and sum(body.times for body in recent) >= REFUSALS:
                told[source] = recent
        return _alarm(told) if told else None


def _alarm(sources: dict[str, list[RefusedBody]]) -> Alarm:
    times = {source: sum(body.times for body in found) for source, found in sources.items()}
    each = ", ".join(f"{count:,} of {source}" for source, count in sorted(times.items()))
    refused = counted(sum(times.values()), "genuine delivery", "genuine deliveries")
    latest = max((body for found in sources.values() for body in found), key=lambda b: b.last)
    return Alarm(
        reason="deliveries_refused_for_age",
        sentence=f"{refused} were refused for their age ({each}), and none was taken in between: "
        "the clock of this machine or of the sender may be off, or old requests are sent again. Of "
        f"the latest: {latest.problem} Keep this clock by NTP and run `tallyhook doctor`, which "
        "compares it with the provider's where TALLYHOOK_CHECKOUT__BASE_URL is set. What was "
        "refused is not acknowledged, so most providers send it again.",
    )
