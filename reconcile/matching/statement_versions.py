"""Which line of a statement that is known already a row of a new file speaks of.

Leaves out: reading and storing. Statements come as files of one day, as files of everything so
far, and with lines that are settled later; money must neither be counted twice for that nor
disappear.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from reconcile.instants import DAY, Instant
from reconcile.values import frozen


@frozen
class Moved:
    """One movement as a row tells it: all that it says (`told`), and of it currency and gross."""

    kind: str
    told: tuple[Any, ...]
    money: tuple[str, int]
    settled_at: Instant | None
    payout: str | None


def paired(*, told: Sequence[Moved], known: Sequence[Moved]) -> list[int | None]:
    """For each row the place of the known line that it speaks of; None for a new line.

    All are of one source, subject and kind. Equal ones are paired first, each once; then those
    that can only be the same movement, in their order.
    """
    left = defaultdict[tuple[Any, ...], list[int]](list)
    for place in reversed(range(len(known))):
        left[known[place].told].append(place)
    places = [left[row.told].pop() if left[row.told] else None for row in told]
    free = sorted(place for each in left.values() for place in each)
    for number, row in enumerate(told):
        if places[number] is None:
            found = next((place for place in free if is_same(row, known[place])), None)
            if found is not None:
                free.remove(found)
                places[number] = found
    return places


def is_same(one: Moved, other: Moved) -> bool:
    """Whether two rows that differ can only be one movement, told twice.

    A payout that both name decides; else the day of settlement, if both have one. A payment is
    captured once, so its amount may have been corrected; of refunds, fees and disputes there may
    be several, and another amount is another movement.
    """
    if one.kind != "payment" and one.money != other.money:
        return False
    if one.payout is not None and other.payout is not None:
        return one.payout == other.payout
    if one.settled_at is not None and other.settled_at is not None:
        return one.settled_at // DAY == other.settled_at // DAY
    return True
