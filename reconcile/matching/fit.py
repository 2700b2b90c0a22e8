"""Which lines fit each other by amount and date alone, where a rule allows that.

Leaves out: what the lines are. Two are one only if neither fits any other: nothing is guessed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from reconcile.instants import Duration, Instant

MOST_FITS: Final = 3
"""Fitting lines that one line is told of. Two already make it ambiguous; no more are looked for."""


class Offer(NamedTuple):
    """One line that seeks a partner."""

    name: str
    currency: str
    minor: int
    at: Instant


@dataclass(slots=True)
class Fits:
    """pairs: those that fit only each other; open: every other line that fits some, by name, with
    the names of those it fits, first of one side and then of the other."""

    pairs: list[tuple[str, str]] = field(default_factory=list)
    left: dict[str, tuple[str, ...]] = field(default_factory=dict)
    right: dict[str, tuple[str, ...]] = field(default_factory=dict)


def fits(
    left: Iterable[Offer],
    right: Iterable[Offer],
    *,
    window: Duration,
    tolerance: Callable[[str], int],
) -> Fits:
    """What fits what: the currency is one, the amounts and the dates are near enough."""
    ordered_left, ordered_right = _ordered(left), _ordered(right)
    found = Fits()
    found.left = _each(ordered_left, ordered_right, window=window, tolerance=tolerance)
    found.right = _each(ordered_right, ordered_left, window=window, tolerance=tolerance)
    for name, others in list(found.left.items()):
        if len(others) == 1 and found.right[others[0]] == (name,):
            found.pairs.append((name, others[0]))
            del found.left[name], found.right[others[0]]
    return found


_Row = tuple[str, int, Instant, str]


def _ordered(offers: Iterable[Offer]) -> list[_Row]:
    return sorted([(each.currency, each.minor, each.at, each.name) for each in offers])


def _each(
    seeking: list[_Row], among: list[_Row], *, window: Duration, tolerance: Callable[[str], int]
) -> dict[str, tuple[str, ...]]:
    found = {}
    for currency, minor, at, name in seeking:
        near = tolerance(currency)
        low, high = (currency, minor - near, at - window), (minor + near, at + window)
        fitting = _within(among, low, most_minor=high[0], until=high[1])
        if fitting:
            found[name] = fitting
    return found


def _within(
    among: list[_Row], low: tuple[str, int, Instant], *, most_minor: int, until: Instant
) -> tuple[str, ...]:
    """The first names from `low` on; it goes from amount to amount, not from line to line."""
    currency, minor, since = low
    names: list[str] = []
    while len(names) < MOST_FITS:
        place = bisect_left(among, (currency, minor, since, ""))
        if place == len(among) or among[place][0] != currency or among[place][1] > most_minor:
            break
        reached = among[place][1]
        if reached == minor:
            names += _of_amount(among, place, minor=minor, until=until)
            minor += 1
        else:
            minor = reached
    return tuple(names[:MOST_FITS])


def _of_amount(among: list[_Row], place: int, *, minor: int, until: Instant) -> list[str]:
    """The names from this place on, as long as amount and date allow."""
    names = []
    for row in among[place : place + MOST_FITS]:
        if row[1] != minor or row[0] != among[place][0] or row[2] > until:
            break
        names.append(row[3])
    return names
