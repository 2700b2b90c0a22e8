"""Unreadable messages, with values that name orders or payments."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from app.database.statements import PlainConnection, insert_rows, select_rows
from reconcile.instants import Instant

NO_VALUE: Final = ""


class UnreadMessage(NamedTuple):
    """One value of an unreadable message. For a message whose values cannot be read, the value is
    ""."""

    value: str
    delivery_id: str
    source: str
    received_at: Instant


def keep_unread(connection: PlainConnection, messages: Iterable[UnreadMessage]) -> None:
    """Store messages that could not be read, each with its values."""
    insert_rows(
        connection,
        table="unread_values",
        columns=UnreadMessage._fields,
        rows=sorted(set(messages)),
        conflict="ON CONFLICT (value, delivery_id) DO NOTHING",
    )


def forget_unread(connection: PlainConnection, deliveries: Collection[str]) -> set[str]:
    """Delete these messages' values. Return the orders concerned."""
    if not deliveries or not any_unread(connection):
        return set()
    rows = select_rows(connection, sql=_OF_DELIVERIES, values=deliveries)
    found = orders_named(connection, [UnreadMessage(*row) for row in rows])
    select_rows(connection, sql=_FORGET, values=deliveries)
    return found


_OF_DELIVERIES: Final = (
    "SELECT value, delivery_id, source, received_at FROM unread_values WHERE delivery_id IN ({})"
)
_FORGET: Final = "DELETE FROM unread_values WHERE delivery_id IN ({})"


EMPTIED: Final = (
    "DELETE FROM unread_values WHERE delivery_id IN ({}) AND value <> '' "
    "AND NOT EXISTS (SELECT 1 FROM order_due WHERE order_due.order_key = unread_values.value) "
    "AND NOT EXISTS (SELECT 1 FROM links WHERE links.reference = unread_values.value "
    "AND links.source = unread_values.source)"
)
"""SQL statement that deletes emptied messages' values."""


def any_unread(connection: PlainConnection) -> bool:
    return bool(connection.ask("SELECT 1 FROM unread_values LIMIT 1"))


def is_unread(connection: PlainConnection, delivery: str) -> bool:
    """Return whether this delivery is a stored unreadable message."""
    return bool(select_rows(connection, sql=_OF_DELIVERIES, values=[delivery]))


def orders_named(connection: PlainConnection, messages: Sequence[UnreadMessage]) -> set[str]:
    """Return the known orders that these messages name."""
    names = {
        name
        for each in messages
        if each.value != NO_VALUE
        for name in (each.value, f"@{each.source}:{each.value}")
    }
    found = (
        {row[0] for row in select_rows(connection, sql=_KNOWN, values=names)} if names else set()
    )
    by_source: dict[str, set[str]] = {}
    for each in messages:
        by_source.setdefault(each.source, set()).add(each.value)
    for source, values in by_source.items():
        rows = select_rows(connection, sql=_LINKED, values=values, first=(source,))
        found |= {row[0] for row in rows}
    return found


_KNOWN: Final = "SELECT order_key FROM order_due WHERE order_key IN ({})"
_LINKED: Final = "SELECT order_key FROM links WHERE source=? AND reference IN ({})"


def messages_with(connection: PlainConnection, values: Collection[str]) -> list[UnreadMessage]:
    """Return the messages that have one of these values, sorted by arrival."""
    rows = select_rows(connection, sql=_WITH, values=values) if values else []
    return sorted(
        [UnreadMessage(*row) for row in rows], key=lambda each: (each.received_at, each.delivery_id)
    )


_WITH: Final = (
    "SELECT value, delivery_id, source, received_at FROM unread_values WHERE value IN ({})"
)


def problems_of(connection: PlainConnection, deliveries: Collection[str]) -> Mapping[str, str]:
    """Return each delivery's reading problem, by delivery id."""
    rows = select_rows(connection, sql=_PROBLEMS, values=deliveries) if deliveries else []
    return {row[0]: row[1] for row in rows}


_PROBLEMS: Final = "SELECT id, problem FROM deliveries WHERE id IN ({})"
