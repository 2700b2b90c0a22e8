"""Check that bank statements open with the previous closing balance."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Literal

DifferenceState = Literal["open", "confirmed", "reopened"]
"""State of an accepted difference between a statement's entries and balances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementBalances:
    """Opening and closing balance of one bank statement, in minor units."""

    account: str
    currency: str
    opened: str
    closed: str
    opening: int
    closing: int
    difference: int = 0
    """Difference between entries and balances, if two people accepted it."""
    of_import: int = 0
    """Number of the import that brought the statement."""
    place: int = 0
    """Place of the statement in its file."""
    proposal: str | None = None
    """Id of the proposal by which the difference was accepted."""

    @property
    def stated(self) -> tuple[str, str, int, int]:
        """Return the facts that identify a statement in several files."""
        return self.opened, self.closed, self.opening, self.closing


Followed = tuple[StatementBalances, StatementBalances | None]
"""Bank statement and its account's next statement, if any."""


def followed(found: Iterable[StatementBalances]) -> Iterator[Followed]:
    """Yield each bank statement with its account's next statement."""
    of_account = sorted(found, key=lambda one: (one.account, one.currency, *_in_time(one)))
    for _, some in groupby(of_account, key=lambda one: (one.account, one.currency)):
        once = dict[tuple[str, str, int, int], StatementBalances]()
        for each in some:
            once.setdefault(each.stated, each)
        own = list(once.values())
        by_day = sorted((one.opened, place) for place, one in enumerate(own))
        for place, each in enumerate(own):
            begins = islice(by_day, bisect_left(by_day, (each.closed, 0)), None)
            later = (at for at in begins if at[1] > place)
            day, first = next(later, ("", place))
            if first == place:
                yield each, None
                continue
            candidates = [first]
            for opened, at in later:
                if opened != day:
                    break
                candidates.append(at)
            joins = (at for at in candidates if own[at].opening == each.closing)
            yield each, own[next(joins, first)]


def _in_time(one: StatementBalances) -> tuple[str, str, int, int]:
    return one.closed, one.opened, one.of_import, one.place


def difference_state(found: StatementBalances, after: StatementBalances | None) -> DifferenceState:
    """Return whether the next statement confirms the closing balance of this statement."""
    if after is None:
        return "open"
    return "confirmed" if after.opening == found.closing else "reopened"
