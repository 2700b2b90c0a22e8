"""A batch of new deliveries as one statement on SQLite: a view that takes them, and its trigger.

For every statement the driver's thread gives up the interpreter lock and waits for it again,
several times, while requests come in; so a batch is to be one. Each row of the view is a delivery
with its event, and the trigger puts the parts into their tables. Where something stored speaks
against the batch being new, it takes the whole statement back.

View and trigger are the own of the connection that serves: `PREPARING` makes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any, Final

from app.store.mapping import DELIVERY_COLUMNS, EVENT_COLUMNS
from app.store.statements import MAX_PARAMETERS, Alone

Row = tuple[Any, ...]
"""The values of DELIVERY_COLUMNS, of EVENT_COLUMNS, and the digest of the event's customer."""

_EVENT: Final = tuple(f"event_{name}" for name in EVENT_COLUMNS)
_COLUMNS: Final = (*DELIVERY_COLUMNS, *_EVENT, "customer", "mark", "marked")
"""`mark`, `marked`: the ids of all deliveries of the batch and their number, in its first row."""

MOST: Final = MAX_PARAMETERS // len(_COLUMNS)
"""Deliveries in one statement."""

_STEP: Final = 16
"""More deliveries than this are filled up with empty rows to a multiple of it: a statement is kept
for each length, with the values it had last, and for all lengths that would be most of a GB."""


def _new(columns: Sequence[str]) -> str:
    return ", ".join(f"NEW.{name}" for name in columns)


def _linking(reference: str) -> str:
    """A link that is there must lead to the same order."""
    return f"""
    INSERT INTO links (reference, kind, source, order_key)
        SELECT NEW.event_{reference}, '{reference}', NEW.source, NEW.event_order_key
        WHERE NEW.event_{reference} IS NOT NULL
        ON CONFLICT (reference, kind, source) DO UPDATE SET order_key = RAISE(ROLLBACK, 'linked')
        WHERE order_key <> NEW.event_order_key;"""


# An order that waits keeps its place, and setting `due_at` only where it changes spares its index.
_TRIGGER: Final = f"""
CREATE TEMP TRIGGER arrives INSTEAD OF INSERT ON arriving
WHEN NEW.id IS NOT NULL BEGIN
    SELECT RAISE(ROLLBACK, 'known')
        WHERE EXISTS (SELECT 1 FROM events WHERE event_id = NEW.event_id)
        OR EXISTS (SELECT 1 FROM events WHERE order_key IS NULL AND payment = NEW.event_payment)
        OR EXISTS (SELECT 1 FROM events WHERE order_key IS NULL AND session = NEW.event_session);
    INSERT INTO deliveries ({", ".join(DELIVERY_COLUMNS)}) VALUES ({_new(DELIVERY_COLUMNS)});
    INSERT INTO events ({", ".join(EVENT_COLUMNS)}) VALUES ({_new(_EVENT)});
    {_linking("payment")}
    {_linking("session")}
    INSERT INTO phones (digest, kind, thing, noted_at)
        SELECT NEW.customer, 'order', NEW.event_order_key, NEW.received_at
        WHERE NEW.customer IS NOT NULL ON CONFLICT DO NOTHING;
    INSERT INTO order_due (order_key, due_at, generation)
        VALUES (NEW.event_order_key, NEW.received_at, 1)
        ON CONFLICT (order_key) DO UPDATE SET generation = generation + 1;
    UPDATE order_due SET due_at = NEW.received_at
        WHERE order_key = NEW.event_order_key AND (due_at IS NULL OR due_at > NEW.received_at);
    INSERT INTO unsealed (kind, ids, count)
        SELECT 'delivery', NEW.mark, NEW.marked WHERE NEW.mark IS NOT NULL;
END"""  # noqa: S608

PREPARING: Final = (
    # SQLite lays the rows of a statement aside before a trigger sees them: two MB and more of them
    # would be in a file that nobody erases.
    "PRAGMA temp_store=MEMORY",
    "CREATE TEMP VIEW arriving AS SELECT " + ", ".join(f"NULL AS {name}" for name in _COLUMNS),
    _TRIGGER,
)
"""What a connection runs before it can run `written`."""


def written(rows: Sequence[Row]) -> Alone:
    """Write new deliveries, at least one and MOST at most, unless something is known of one."""
    mark = "\n".join([row[0] for row in rows])
    first = (*rows[0], mark, len(rows))
    rest = [(*row, None, None) for row in rows[1:]]
    length = _length(len(rows))
    empty = (None,) * (len(_COLUMNS) * (length - len(rows)))
    return Alone(_insert(length), (*first, *chain.from_iterable(rest), *empty))


def _length(count: int) -> int:
    return count if count <= _STEP else min(-(-count // _STEP) * _STEP, MOST)


@cache
def _insert(length: int) -> str:
    # OR ROLLBACK: see `statements.inserting`.
    row = f"({','.join('?' * len(_COLUMNS))})"
    values = ",".join([row] * length)
    return f"INSERT OR ROLLBACK INTO arriving ({', '.join(_COLUMNS)}) VALUES {values}"  # noqa: S608
