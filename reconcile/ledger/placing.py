"""Where people placed payments: which order an event belongs to because of an assignment.

Leaves out: what the shop named and what events name; those count where nobody assigned the payment.

Of all assignments of a payment the latest counts alone. It covers every event that names the
payment, and the events of its session that name no payment of their own. An assignment of a session
covers the payments of that session likewise.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

from reconcile.ledger.events import UNCONFIRMED, Event
from reconcile.ledger.records import WITHDRAWN, Record

Key = tuple[str, Literal["payment", "session"], str]
"""(source, kind of reference, reference)"""


class Placed(NamedTuple):
    """An assignment of an event.

    record  the latest assignment
    by      ids that it rests on: the record's, and that of an event which ties the session to the
            assigned payment
    """

    record: Record
    by: tuple[str, ...]

    @property
    def order(self) -> str | None:
        """The order that the event was given to; None if that was withdrawn."""
        return None if self.record.reason == WITHDRAWN else self.record.order


class Placing:
    """The assignments in a history. `placed` returns that of an event."""

    def __init__(self, assignments: Sequence[Record], events: Iterable[Event]) -> None:
        """Take assignments in the order in which they were recorded."""
        self._latest: Final[dict[Key, Record]] = {}
        for record in assignments:
            for key in _keys(record):
                self._latest[key] = record
        self._ties: Final[dict[Key, dict[Key, str]]] = {}
        for event in events:
            if event.standing != UNCONFIRMED:
                keys = _keys(event)
                for one, other in zip(keys, reversed(keys), strict=True) if len(keys) > 1 else ():
                    known = self._ties.setdefault(one, {})
                    known[other] = min(event.event_id, known.get(other, event.event_id))

    def placed(self, event: Event) -> Placed | None:
        """Return the assignment that covers an event; None if nobody assigned it."""
        keys = _keys(event)
        if not keys:
            return None
        direct = self._latest.get(keys[0])
        if direct is not None:
            return Placed(direct, (direct.record_id,))
        found = [
            Placed(record, (record.record_id,))
            for key in keys[1:]
            if (record := self._latest.get(key)) is not None
        ]
        found += [
            Placed(record, (record.record_id, tie))
            for key, tie in self._ties.get(keys[0], {}).items()
            if key not in keys and (record := self._latest.get(key)) is not None
        ]
        return max(found, key=lambda each: (each.record.recorded_at, each.by), default=None)


def _keys(each: Event | Record) -> list[Key]:
    """Return what an event or a record names: its payment first, then its session."""
    source = each.source or ""
    keys: list[Key] = []
    if each.payment is not None:
        keys.append((source, "payment", each.payment))
    if each.session is not None:
        keys.append((source, "session", each.session))
    return keys
