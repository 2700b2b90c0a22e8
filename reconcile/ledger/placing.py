"""Assign events to orders by the records of the shop and of persons.

1 a person's latest assignment decides
2 else the shop's records decide, unless they name several orders
3 else the event's own order number decides
"""

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

from reconcile.ledger.events import FOLLOWS_SUCCESS, UNCONFIRMED, Event
from reconcile.ledger.records import WITHDRAWN, Record, RecordKind

Key = tuple[str, Literal["payment", "session"], str]
"""Reference that an event or record names: source, kind of reference, reference."""


NAMINGS: Final[frozenset[RecordKind]] = frozenset(("reference_named", "session_opened"))

CLAIMS: Final[frozenset[RecordKind]] = NAMINGS | {"payment_assigned"}
"""Kinds of records that give a payment to an order."""


class Placed(NamedTuple):
    """Order of an event according to the strongest evidence."""

    order: str | None
    """Reference of the order; None if an assignment was withdrawn."""
    by: tuple[str, ...]
    """Ids of the evidence for the order."""


class Placing:
    """Index of the records that say to which orders payments and sessions belong."""

    def __init__(self, records: Sequence[Record], events: Iterable[Event]) -> None:
        """Index the records, which must be sorted by the time of recording."""
        self._shops: Final[dict[str, str]] = {}
        """Id of the record by which the shop placed the order, by order."""
        self._latest: Final[dict[Key, Record]] = {}
        self._named: Final[dict[Key, list[Record]]] = {}
        for record in records:
            if record.kind == "order_placed":
                self._shops.setdefault(record.order, record.record_id)
            for key in keys_of(record):
                if record.kind == "payment_assigned":
                    self._latest[key] = record
                elif record.kind in NAMINGS:
                    self._named.setdefault(key, []).append(record)
        self._ties: Final[dict[Key, dict[Key, str]]] = {}
        self._saying: Final[dict[Key, dict[str, str]]] = {}
        for event in events:
            if event.standing != UNCONFIRMED:
                keys = keys_of(event)
                for key in keys if may_link(event) else ():
                    said = self._saying.setdefault(key, {})
                    order = event.order or ""
                    said[order] = min(event.event_id, said.get(order, event.event_id))
                for one, other in zip(keys, reversed(keys), strict=True) if len(keys) > 1 else ():
                    known = self._ties.setdefault(one, {})
                    known[other] = min(event.event_id, known.get(other, event.event_id))

    def placed(self, event: Event) -> Placed | None:
        """Return the order to which records assign the event.

        If records name several orders, the result is None.
        """
        keys = keys_of(event)
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
        named = [
            (record, (record.record_id, *path))
            for key, path in self._tied(keys).items()
            for record in self._named.get(key, ())
        ]
        if len({record.order for record, _ in named}) == 1:
            record, rests_on = min(named, key=lambda each: (len(each[1]), each[1]))
            return Placed(record.order, (*by, *rests_on))
        return Placed(None, by) if by else None

    def followed(self, event: Event) -> Placed | None:
        """Return the other order that events of the payment name, if only one."""
        keys = keys_of(event)
        if event.standing == UNCONFIRMED or not keys:
            return None
        if any(key in self._named for key in self._tied(keys)):
            return None
        said = self._said(keys)
        among = [order for order in said if len(said) == 1 or order in self._shops]
        if len(among) != 1 or among[0] == event.order:
            return None
        order = among[0]
        by = (self._shops[order],) if len(said) > 1 else ()
        return Placed(order, (*by, *said[order]))

    def contested(self, event: Event, order: str) -> tuple[str, ...]:
        """Return the ids of events that name `order` for the payment of `event`.

        The result is empty if the events agree on the order.
        """
        said = self._said(keys_of(event))
        return said.get(order, ()) if len(said) > 1 else ()

    def _said(self, keys: list[Key]) -> dict[str, tuple[str, ...]]:
        said: dict[str, tuple[str, ...]] = {}
        for key, path in self._tied(keys).items():
            for order, event_id in self._saying.get(key, {}).items():
                said.setdefault(order, (event_id, *path))
        return said

    def _tied(self, keys: list[Key]) -> dict[Key, tuple[str, ...]]:
        found: dict[Key, tuple[str, ...]] = dict.fromkeys(keys, ())
        wanted = list(keys)
        while wanted:
            key = wanted.pop(0)
            for other, tie in sorted(self._ties.get(key, {}).items()):
                if other not in found:
                    found[other] = (*found[key], tie)
                    wanted.append(other)
        return found


def may_link(event: Event) -> bool:
    """Check whether an event links its payment to the order that the event names.

    An event about returned money never does.
    """
    return (
        event.order is not None
        and event.standing != UNCONFIRMED
        and event.claim not in FOLLOWS_SUCCESS
    )


def keys_of(each: Event | Record) -> list[Key]:
    """Return an event's or record's references, the payment first."""
    source = each.source or ""
    keys: list[Key] = []
    if each.payment is not None:
        keys.append((source, "payment", each.payment))
    if each.session is not None:
        keys.append((source, "session", each.session))
    return keys
