"""History of one order: all known deliveries and records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from reconcile.instants import Instant
from reconcile.ledger.events import Delivery
from reconcile.ledger.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Deliveries and records of one order.

    Deliveries of other orders that share a reference are included.
    """

    order: str
    deliveries: frozenset[Delivery] = frozenset()
    records: frozenset[Record] = frozenset()

    def __or__(self, other: History) -> History:
        """Return the union of two histories. Raises ValueError if they belong to different
        orders."""
        if self.order != other.order:
            raise ValueError("histories of different orders have no union")
        return History(
            order=self.order,
            deliveries=self.deliveries | other.deliveries,
            records=self.records | other.records,
        )

    def known_at(self, as_of: Instant) -> History:
        """Return the part of the history known at `as_of`."""
        return History(
            order=self.order,
            deliveries=frozenset(d for d in self.deliveries if d.received_at <= as_of),
            records=frozenset(r for r in self.records if r.recorded_at <= as_of),
        )

    def instant_at(self, now: Instant) -> Instant:
        """Return the instant for which the order's ledger should be computed.

        The instant is later than `now` if a fast clock dated evidence.
        """
        heard = [d.received_at for d in self.deliveries]
        recorded = [r.recorded_at for r in self.records if r.kind != "redated"]
        return max([now, *heard, *recorded])

    def as_stored(self) -> History:
        """Return a copy with the arrival times as stored, uncorrected."""
        return self._moved((r.replaces, r.expires_at or r.at) for r in self._redatings())

    def as_it_counts(self) -> History:
        """Return a copy with the corrected arrival times."""
        return self._moved((r.replaces, r.at) for r in self._redatings())

    def _redatings(self) -> list[Record]:
        return [r for r in self.records if r.kind == "redated"]

    def _moved(self, moves: Iterable[tuple[str | None, Instant]]) -> History:
        instants: dict[str | None, Instant] = {}
        for thing, at in moves:
            instants[thing] = min(instants.get(thing, at), at)
        if not instants:
            return self
        return History(
            order=self.order,
            deliveries=frozenset(
                replace(d, received_at=instants.get(d.delivery_id, d.received_at))
                for d in self.deliveries
            ),
            records=frozenset(
                replace(r, recorded_at=instants.get(r.record_id, r.recorded_at))
                for r in self.records
            ),
        )

    def only(self, cites: Iterable[str]) -> History:
        """Return the part of the history that has these event ids and record ids."""
        wanted = frozenset(cites)
        return History(
            order=self.order,
            deliveries=frozenset(d for d in self.deliveries if d.event.event_id in wanted),
            records=frozenset(r for r in self.records if r.record_id in wanted),
        )
