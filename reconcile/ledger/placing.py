"""Which order an event belongs to, where a stronger claim than its own number says so.

Leaves out: what events name; that counts where nobody assigned the payment and the shop named none.

A person's assignment outranks the shop's naming (a reference that it named, a session that we
opened for it), which outranks the order that the event names. Of all assignments of a payment the
latest counts alone. It covers every event that names the payment, and the events of its session
that name no payment of their own; an assignment of a session covers the payments of that session.
A payment that the shop named for several orders is placed by none of these.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

from reconcile.ledger.events import UNCONFIRMED, Event
from reconcile.ledger.records import WITHDRAWN, Record, RecordKind

Key = tuple[str, Literal["payment", "session"], str]
"""(source, kind of reference, reference)"""


NAMINGS: Final[frozenset[RecordKind]] = frozenset(("reference_named", "session_opened"))
"""Kinds by which the shop says whose a session or payment is."""

CLAIMS: Final[frozenset[RecordKind]] = NAMINGS | {"payment_assigned"}
"""Kinds that outrank the order that an event names."""


class Placed(NamedTuple):
    """The strongest claim on an event.

    order  the order that the event was given to; None if that was withdrawn
    by     ids that it rests on: the assignment's, and that of an event which ties the session to
           the assigned payment; that of the record in which the shop named its order
    """

    order: str | None
    by: tuple[str, ...]


class Placing:
    """The assignments and namings in a history. `placed` returns the claim on an event."""

    def __init__(self, records: Sequence[Record], events: Iterable[Event]) -> None:
        """Take records in the order in which they were recorded."""
        self._latest: Final[dict[Key, Record]] = {}
        self._named: Final[dict[Key, list[Record]]] = {}
        for record in records:
            for key in _keys(record):
                if record.kind == "payment_assigned":
                    self._latest[key] = record
                elif record.kind in NAMINGS:
                    self._named.setdefault(key, []).append(record)
        self._ties: Final[dict[Key, dict[Key, str]]] = {}
        for event in events:
            if event.standing != UNCONFIRMED:
                keys = _keys(event)
                for one, other in zip(keys, reversed(keys), strict=True) if len(keys) > 1 else ():
                    known = self._ties.setdefault(one, {})
                    known[other] = min(event.event_id, known.get(other, event.event_id))

    def placed(self, event: Event) -> Placed | None:
        """Return the claim that covers an event; None if what it names itself counts."""
        keys = _keys(event)
        if not keys:
            return None
        direct = self._latest.get(keys[0])
        found: list[tuple[Record, tuple[str, ...]]] = []
        if direct is not None:
            found.append((direct, (direct.record_id,)))
        else:
            found += [
                (record, (record.record_id,))
                for key in keys[1:]
                if (record := self._latest.get(key)) is not None
            ]
            found += [
                (record, (record.record_id, tie))
                for key, tie in self._ties.get(keys[0], {}).items()
                if key not in keys and (record := self._latest.get(key)) is not None
            ]
        if found:
            record, by = max(found, key=lambda each: (each[0].recorded_at, each[1]))
            if record.reason != WITHDRAWN:
                return Placed(record.order, by)
        else:
            by = ()
        named = [record for key in keys for record in self._named.get(key, ())]
        if len({record.order for record in named}) == 1:
            return Placed(named[0].order, (*by, named[0].record_id))
        return Placed(None, by) if by else None


def _keys(each: Event | Record) -> list[Key]:
    """Return what an event or a record names: its payment first, then its session."""
    source = each.source or ""
    keys: list[Key] = []
    if each.payment is not None:
        keys.append((source, "payment", each.payment))
    if each.session is not None:
        keys.append((source, "session", each.session))
    return keys
