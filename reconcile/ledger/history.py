"""Everything known about one order: a set that only grows.

Leaves out: any order among its members, and any judgement. Union is the only way to add.
"""

from __future__ import annotations

from collections.abc import Iterable

from reconcile.instants import Instant
from reconcile.ledger.events import Delivery
from reconcile.ledger.records import Record
from reconcile.values import frozen


@frozen
class History:
    """The deliveries and records of one order.

    A delivery whose event names another order may be among them: it is there because it shares
    a reference or an event id with this order, and the fold must see that contradiction.
    """

    order: str
    deliveries: frozenset[Delivery] = frozenset()
    records: frozenset[Record] = frozenset()

    def __or__(self, other: History) -> History:
        """Union. Raises ValueError when the two speak of different orders."""
        if self.order != other.order:
            raise ValueError("histories of different orders have no union")
        return History(
            order=self.order,
            deliveries=self.deliveries | other.deliveries,
            records=self.records | other.records,
        )

    def known_at(self, as_of: Instant) -> History:
        """What had reached us by then, that instant included."""
        return History(
            order=self.order,
            deliveries=frozenset(d for d in self.deliveries if d.received_at <= as_of),
            records=frozenset(r for r in self.records if r.recorded_at <= as_of),
        )

    def instant_at(self, now: Instant) -> Instant:
        """The instant to judge at when asked now: never before anything that is here was known.

        A clock that was ahead and has been set right would otherwise make what it dated be
        forgotten, until time caught up with it.
        """
        heard = [d.received_at for d in self.deliveries]
        recorded = [r.recorded_at for r in self.records]
        return max([now, *heard, *recorded])

    def only(self, cites: Iterable[str]) -> History:
        """The part that a set of cited event ids and record ids points at."""
        wanted = frozenset(cites)
        return History(
            order=self.order,
            deliveries=frozenset(d for d in self.deliveries if d.event.event_id in wanted),
            records=frozenset(r for r in self.records if r.record_id in wanted),
        )
