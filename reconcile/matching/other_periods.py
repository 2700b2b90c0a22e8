"""The orders of all other periods, matched for one answer: which of their lines are of no movement.

Leaves out: what is told of them, which their own period tells. A report of a period places a
statement line by the money that it settles, and money of an order can move in another period than
the one that the order belongs to. So a report must know of such an order what only the matching
knows: which of its lines settle nothing of it.
"""

from __future__ import annotations

from reconcile.matching.breaks import Break
from reconcile.matching.fallback import WAYS, Rest
from reconcile.matching.funds import Left
from reconcile.matching.group import Deciding
from reconcile.matching.rules import Terms
from reconcile.matching.tally import Group, Tally


class OtherPeriods:
    """One matching of what `within` leaves out. Memory is that of what a matching leaves over."""

    def __init__(self, terms: Terms) -> None:
        self._tally, self._left = Tally(terms.rules.currency), Left()
        self._deciding = Deciding(terms, self._tally, self._left)
        self._known: set[str] = set()
        self._never_notified: set[str] = set()

    def order(self, group: Group) -> None:
        """One order, or one line of none."""
        before = len(self._left.lines)
        self._deciding.group(group)
        if group.takings:  # a line beside no money can be of none
            self._known |= {row.line_id for row in self._left.lines[before:]}
        for told in self._tally.told():
            if isinstance(told, Break) and told.cause == "settled_never_notified":
                self._never_notified.update(told.cites if group.takings else ())

    def never_notified(self) -> set[str]:
        """The ids of the lines that have an order, and are of no movement of any; asked once all
        orders were told."""
        rest = Rest(self._left)
        for way in WAYS:
            way(rest, self._deciding)
            rest.put_back(self._left)
            self._tally.told()
        return self._never_notified | (self._known & rest.lines.keys())
