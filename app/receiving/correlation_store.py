"""Links from payments and sessions to orders."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations
from typing import Final

from app.database.layout import settle
from app.database.statements import PlainConnection, insert_rows, select_rows
from app.sealing.log_queue_store import mark_read_again
from reconcile.ledger.events import UNCONFIRMED, Event
from reconcile.ledger.placing import may_link

LinkKey = tuple[str, str, str]
"""Reference, kind and source of a payment or session."""

Links = dict[LinkKey, str]

RETURNED: Final = "_returned"
"""Suffix of a link's kind for events about returned money."""

LINKS_REMEMBERED = 20_000
"""Maximum number of links in the cache."""

ORPHANS = (
    'SELECT "row", source, event_id, payment, session, standing FROM events '
    "WHERE order_key IS NULL AND "
)

ADOPTED = (
    "UPDATE events SET order_key=adopted.order_key FROM unnest($1::bigint[], $2::text[]) "
    'AS adopted ("row", order_key) WHERE events."row"=adopted."row"'
)

_BROUGHT = (
    "WITH adopted AS (SELECT delivery_id, event_id, source, digest FROM events "
    'WHERE "row" IN ({})) SELECT delivery_id FROM adopted UNION SELECT deliveries.id FROM adopted '
    "JOIN deliveries ON deliveries.event_id = adopted.event_id "
    "AND deliveries.source = adopted.source AND deliveries.digest = adopted.digest "
    "WHERE deliveries.verdict = 'duplicate' /* events WHERE \"row\" = ANY($1) */ "
    "/* deliveries WHERE event_id IN (SELECT event_id FROM events) */"
)

Orphan = tuple[int, str, str, str | None, str | None, str]
"""Waiting event: row, source, id, payment, session, standing."""


class LinkMemory:
    """Cache of committed links. The cache never becomes outdated, because the links never
    change."""

    def __init__(self) -> None:
        self.orders: Links = {}
        """Cached order of each reference."""

    def add(self, links: Links) -> None:
        if len(self.orders) + len(links) > LINKS_REMEMBERED:
            self.orders.clear()
        self.orders.update(links)

    def forget(self) -> None:
        """Clear the cache. Call this function after an unreachable database."""
        self.orders.clear()


@dataclass(slots=True)
class Linking:
    """Links that one transaction found or created, and the affected events."""

    memory: LinkMemory
    orders: dict[tuple[str, str, str], str] = field(default_factory=dict)
    links: Links = field(default_factory=dict)
    made: Links = field(default_factory=dict)
    adopted: dict[int, str] = field(default_factory=dict)
    contested: set[tuple[str, str]] = field(default_factory=set)
    torn: set[tuple[str, str]] = field(default_factory=set)
    """Source and id of each event whose bodies can belong to several orders."""
    loose: set[tuple[str, str, str]] = field(default_factory=set)
    """Keys of unconfirmed events that name their order."""
    orphans: bool = True
    """True if any stored event waits for its order."""

    def contest(self, one: str | None, other: str | None) -> None:
        """Record that two orders share a reference or event id."""
        if one is not None and other is not None and one != other:
            self.contested |= {(one, other), (other, one)}

    def touched(self) -> Iterable[str]:
        """Yield each order whose history a new link changed."""
        yield from self.adopted.values()
        for one, _ in self.contested:
            yield one

    def load_of(self, connection: PlainConnection, events: Sequence[Event]) -> None:
        """Load these events' links. Call this method before `assign`."""
        self.load(connection, [key for event in events for key in keys_of(event)])
        self._look_for_orphans(connection)

    def assign(self, connection: PlainConnection, fresh: Sequence[Event]) -> None:
        """Assign each new event to its order, and link references."""
        nameless = []
        for event in fresh:
            keys = keys_of(event)
            if event.order is None or event.shop == "other":
                nameless.append((event, keys))
                continue
            self.orders[event.key] = event.order
            if event.standing == UNCONFIRMED:
                self.loose.add(event.key)
            elif not may_link(event):
                self._note_return(keys, event.order)
            else:
                self.join(keys, event.order)
        known = -1
        while known != len(self.made):  # an adopted orphan may link a nameless event
            known = len(self.made)
            if nameless:
                self._assign_nameless(nameless)
            self._adopt(connection)
        self._contest_bodies(connection)

    def link(self, connection: PlainConnection, links: Links) -> None:
        """Link a record's references to orders."""
        self.load(connection, list(links))
        self._look_for_orphans(connection)
        for key, order in links.items():
            self.join([key], order)
        self._adopt(connection)
        self._contest_bodies(connection)
        self.write(connection)

    def write(self, connection: PlainConnection) -> None:
        if self.made:
            insert_rows(
                connection,
                table="links",
                columns=("reference", "kind", "source", "order_key"),
                rows=[(*key, order) for key, order in self.made.items()],
                conflict="ON CONFLICT DO NOTHING",
            )
        if self.adopted:
            self._write_adopted(connection)
            brought = select_rows(connection, sql=_BROUGHT, values=self.adopted)
            mark_read_again(connection, sorted({delivery for (delivery,) in brought}))
        if self.contested:
            insert_rows(
                connection,
                table="contested",
                columns=("order_key", "other"),
                rows=sorted(self.contested),
                conflict="ON CONFLICT DO NOTHING",
            )

    # --- steps -----------------------------------------------------------------------------------

    def _write_adopted(self, connection: PlainConnection) -> None:
        if connection.dialect == "sqlite":
            for row, order in self.adopted.items():
                connection.ask('UPDATE events SET order_key=? WHERE "row"=?', (order, row))
        else:
            connection.ask(ADOPTED, (list(self.adopted), list(self.adopted.values())))

    def load(self, connection: PlainConnection, keys: list[LinkKey]) -> None:
        """Load the orders to which these references are linked."""
        known = self.memory.orders
        self.links |= {key: known[key] for key in keys if key in known}
        missing = {key[0] for key in keys if key not in known}
        if missing:
            rows = select_rows(
                connection,
                sql="SELECT reference, kind, source, order_key FROM links WHERE reference IN ({})",
                values=missing,
            )
            self.links |= {(row[0], row[1], row[2]): row[3] for row in rows}

    def _look_for_orphans(self, connection: PlainConnection) -> None:
        settle(connection)  # an orphan that is not visible would never be adopted
        rows = connection.ask("SELECT 1 FROM events WHERE order_key IS NULL LIMIT 1")
        self.orphans = bool(rows)

    def join(self, keys: Iterable[LinkKey], order: str) -> None:
        """Link references to an order. Shared references contest both orders."""
        for key in keys:
            linked = self.links.get(key)
            if linked is None:
                self.links[key] = self.made[key] = order
                self.contest(order, self.links.get(_of_return(key)))
            elif linked != order:
                self.contest(order, linked)

    def _note_return(self, keys: Iterable[LinkKey], order: str) -> None:
        for key in keys:
            self.contest(order, self.links.get(key))
            noted = _of_return(key)
            if noted not in self.links:
                self.links[noted] = self.made[noted] = order
            self.contest(order, self.links[noted])

    def _assign_nameless(self, nameless: Sequence[tuple[Event, Sequence[LinkKey]]]) -> None:
        known = -1
        while known != len(self.links):
            known = len(self.links)
            for event, keys in nameless:
                order = self._linked(keys)
                if order is not None:
                    self.orders[event.key] = order
                if order is not None and event.standing != UNCONFIRMED:
                    self.join(keys, order)

    def _linked(self, keys: Iterable[LinkKey]) -> str | None:
        return next((self.links[key] for key in keys if key in self.links), None)

    def _adopt(self, connection: PlainConnection) -> None:
        if not self.orphans:
            return
        tried: set[LinkKey] = set()
        while keys := self.made.keys() - tried:
            tried |= keys
            for kind in ("payment", "session"):
                references = {reference for reference, of, _ in keys if of == kind}
                sql = f"{ORPHANS}{kind} IN ({{}})"
                self._adopt_rows(select_rows(connection, sql=sql, values=references))

    def _adopt_rows(self, rows: Iterable[Orphan]) -> None:
        for row, source, event_id, payment, session, standing in rows:
            keys = keys_of_references(source, payment, session)
            order = self._linked(keys)
            if order is not None and row not in self.adopted:
                self.adopted[row] = order
                if standing != UNCONFIRMED:
                    self.torn.add((source, event_id))
                    self.join(keys, order)

    def _contest_bodies(self, connection: PlainConnection) -> None:
        if not self.torn:
            return
        rows = select_rows(
            connection,
            sql='SELECT source, event_id, "row", order_key, order_ref FROM events '
            "WHERE standing <> 'unconfirmed' AND event_id IN ({})",
            values={event_id for _, event_id in self.torn},
        )
        orders: dict[tuple[str, str], set[str | None]] = {key: set() for key in self.torn}
        for source, event_id, row, order_key, order_ref in rows:
            if (source, event_id) in orders:
                order = order_ref or order_key or self.adopted.get(row)
                orders[source, event_id].add(order)
        for key, new in self.orders.items():
            source, event_id, _ = key
            if (source, event_id) in orders and key not in self.loose:
                orders[source, event_id].add(new)
        for found in orders.values():
            for one, other in combinations(found, 2):
                self.contest(one, other)


def _of_return(key: LinkKey) -> LinkKey:
    return (key[0], f"{key[1]}{RETURNED}", key[2])


def keys_of(event: Event) -> Sequence[LinkKey]:
    """Return an event's references to a payment and a session."""
    return keys_of_references(event.source, event.payment, event.session)


@lru_cache(maxsize=1_024)
def keys_of_references(source: str, payment: str | None, session: str | None) -> Sequence[LinkKey]:
    """Return a record's references to a payment and a session."""
    found = ((payment, "payment", source), (session, "session", source))
    return [(reference, kind, of) for reference, kind, of in found if reference is not None]
