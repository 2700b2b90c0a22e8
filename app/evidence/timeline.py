"""Where everything of a timeline stands in its drawing: numbers only; a template draws them.

Moments stand in columns of equal width, in order; what lies between two of them is written there.
So a second and a week are both legible, and nothing overlaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from reconcile.instants import Instant, format_duration, format_instant

WIDTH: Final = 680
"""Of the drawing, in CSS pixels: an A4 page between its margins."""

LEFT: Final = 92
"""Of the first column: the lanes' names stand before it."""

HAPPENED, REACHED = 66, 134
"""Heights of the two lanes."""

MAX_COLUMNS: Final = 13
"""Moments that are drawn: with more, their times would run into each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """One event: when it is said to have happened, and when it first reached us."""

    number: int
    at: Instant
    received_at: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One moment. `gap` says how long it is since the one before; `day` where a new one begins."""

    x: int
    time: str
    day: str
    gap: str
    gap_x: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One event: where it happened, where it reached us, and how far its number is set off."""

    number: int
    happened_x: int
    reached_x: int
    set_off: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """The whole timeline."""

    columns: tuple[Column, ...]
    marks: tuple[Mark, ...]
    width: int = WIDTH
    left: int = LEFT
    happened: int = HAPPENED
    reached: int = REACHED


def drawing(spoken: Sequence[Spoken]) -> Drawing:
    """The last of them, as many as MAX_COLUMNS lets stand beside each other."""
    drawn = list(spoken[-MAX_COLUMNS:])
    while len(moments := _moments(drawn)) > MAX_COLUMNS:
        del drawn[0]
    step = (WIDTH - LEFT - 44) // max(len(moments) - 1, 1)
    place = {moment: LEFT + 14 + min(step, 160) * n for n, moment in enumerate(moments)}
    return Drawing(columns=_columns(moments, place), marks=_marks(drawn, place))


def _moments(spoken: Sequence[Spoken]) -> list[Instant]:
    return sorted({each.at for each in spoken} | {each.received_at for each in spoken})


def _columns(moments: Sequence[Instant], place: dict[Instant, int]) -> tuple[Column, ...]:
    columns = []
    before: Instant | None = None
    for moment in moments:
        day, _, time = format_instant(moment).rstrip("Z").partition("T")
        same = before is not None and format_instant(before).startswith(day)
        columns.append(
            Column(
                x=place[moment],
                time=time.partition(".")[0],
                day="" if same else day,
                gap="" if before is None else format_duration(moment - before),
                gap_x=0 if before is None else (place[before] + place[moment]) // 2,
            )
        )
        before = moment
    return tuple(columns)


def _marks(spoken: Sequence[Spoken], place: dict[Instant, int]) -> tuple[Mark, ...]:
    """Numbers of events that share a moment stand above each other."""
    seen: dict[Instant, int] = {}
    marks = []
    for each in spoken:
        seen[each.at] = seen.get(each.at, 0) + 1
        marks.append(
            Mark(
                number=each.number,
                happened_x=place[each.at],
                reached_x=place[each.received_at],
                set_off=(seen[each.at] - 1) * 13,
            )
        )
    return tuple(marks)
