"""Whether it is too quiet: a decision, made of what was heard and of one moment.

Leaves out: how anything is heard. Nothing of a provider says that it has stopped sending; only
what usually comes does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from app.core.alarm import Alarm
from reconcile.instants import DAY, MINUTE, Duration, Instant, format_instant

EXPECTED: Final = 10
"""Deliveries that usually come in a stretch of the day, from which on none at all is no chance: of
as many that come independently, none comes once in 22,000 times."""

DAYS: Final = 7
"""Days before that are compared with, each with the same stretch of its day."""

LONGEST: Final[Duration] = DAY
"""Of a longer silence the beginning is compared, with what came before it."""

SESSIONS: Final = 3
"""Sessions without a word; of fewer, all customers may have left."""

SESSION_WAIT: Final[Duration] = 15 * MINUTE
"""How long a word on the first of them may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What was heard by `now`.

    last      the last verified delivery; None: there never was one
    usual     how many came in the stretch from `last` to `now`, or of LONGEST from `last`, on each
              of the DAYS days before `last`, the nearest first; counted up to EXPECTED
    sessions  when sessions were opened since then, the oldest first; the first SESSIONS of them
    """

    now: Instant
    last: Instant | None
    usual: Sequence[int]
    sessions: Sequence[Instant]


_DO: Final = "look at the provider's dashboard, and at `tallyhook deliveries list` for refused ones"


def silence(heard: Heard) -> Alarm | None:
    """The alarm, if it is too quiet."""
    since = "ever" if heard.last is None else f"since {format_instant(heard.last)}"
    waits = heard.sessions and heard.now - heard.sessions[0] >= SESSION_WAIT
    if waits and len(heard.sessions) >= SESSIONS:
        return Alarm(
            reason="sessions_without_events",
            sentence=f"Sessions were opened and no verified event has come {since}: {_DO}.",
        )
    if heard.last is not None and usual_of(heard.usual) >= EXPECTED:
        return Alarm(
            reason="usual_events_missing",
            sentence=f"No verified event has come {since}, where {EXPECTED} or more are usual: "
            f"{_DO}.",
        )
    return None


def usual_of(days: Sequence[int]) -> float:
    """What may be expected: the median of the days before, but no more than on the same day a week
    ago, so that a shop's quiet day is none to worry about."""
    return min(median(days), days[-1]) if len(days) == DAYS else 0
