"""A batch of new deliveries as one statement, which writes nothing if one of them is not new.

Each row is a delivery with its event; the database puts the parts into their tables.

SQLite: for every statement the driver's thread gives up the interpreter lock and waits for it
again, several times, while requests come in. The rows go into a view, and its trigger does the
rest; where something stored speaks against the batch being new, it takes the whole statement back.
View and trigger are the own of the connection that serves: `PREPARING` makes them.

PostgreSQL: every statement is a round trip, and while a batch waits for its turn the next cannot
begin. The rows are one parameter, an array of the type `arriving`: as an array for each column,
they would take the driver three times as long.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain
from typing import Any, Final

from app.store.database.locks_shared import LINKING
from app.store.sql.mapping import DELIVERY_COLUMNS, EVENT_COLUMNS
from app.store.sql.statements import MAX_PARAMETERS, Alone
from reconcile.events import UNCONFIRMED

Row = tuple[Any, ...]
"""The values of DELIVERY_COLUMNS, of EVENT_COLUMNS, and the digest of the event's customer."""

_EVENT: Final = tuple(f"event_{name}" for name in EVENT_COLUMNS)
Link = tuple[str, str, str, str]
"""Reference, kind, source, order."""

# --- SQLite --------------------------------------------------------------------------------------

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
        WHERE NEW.event_{reference} IS NOT NULL AND NEW.event_standing <> '{UNCONFIRMED}'
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


def written(dialect: str, rows: Sequence[Row], links: Iterable[Link]) -> Alone:
    """Write new deliveries, at least one and MOST at most, unless something is known of one.

    links  those that their events make
    """
    mark = "\n".join([row[0] for row in rows])
    if dialect != "sqlite":
        columns = [list(column) for column in zip(*links, strict=True)] or [[], [], [], []]
        return Alone(_STATEMENT, (LINKING, rows, *columns, mark, len(rows)))
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


# --- PostgreSQL ----------------------------------------------------------------------------------

_HOLDS: Final = "(SELECT holds FROM supposed)"

# Every write waits for the row of `supposed`, and so for the lock that is taken in finding it.
_STATEMENT: Final = f"""WITH arrived AS MATERIALIZED (SELECT * FROM unnest($2::arriving[])),
supposed AS MATERIALIZED (
    SELECT nothing_known($1, (SELECT array_agg(event_id) FROM arrived), $3, $4, $5, $6) AS holds
),
w1 AS (
    INSERT INTO deliveries ({", ".join(DELIVERY_COLUMNS)})
    SELECT {", ".join(DELIVERY_COLUMNS)} FROM arrived WHERE {_HOLDS}
),
w2 AS (
    INSERT INTO events ({", ".join(EVENT_COLUMNS)})
    SELECT {", ".join(_EVENT)} FROM arrived WHERE {_HOLDS}
),
w3 AS (
    INSERT INTO links (reference, kind, source, order_key)
    SELECT * FROM unnest($3::text[], $4::text[], $5::text[], $6::text[]) WHERE {_HOLDS}
    ON CONFLICT DO NOTHING
),
w4 AS (
    INSERT INTO phones (digest, kind, thing, noted_at)
    SELECT customer, 'order', event_order_key, min(received_at) FROM arrived
    WHERE customer IS NOT NULL AND {_HOLDS} GROUP BY customer, event_order_key
    ORDER BY customer, event_order_key ON CONFLICT DO NOTHING
),
w5 AS (
    INSERT INTO order_due (order_key, due_at, generation)
    SELECT event_order_key, min(received_at), 1 FROM arrived
    WHERE {_HOLDS} GROUP BY event_order_key ORDER BY event_order_key
    ON CONFLICT (order_key) DO UPDATE SET generation = order_due.generation + 1,
    due_at = CASE WHEN order_due.due_at <= excluded.due_at
        THEN order_due.due_at ELSE excluded.due_at END
),
w6 AS (
    INSERT INTO unsealed (kind, ids, count) SELECT 'delivery', $7::text, $8::bigint WHERE {_HOLDS}
)
SELECT holds FROM supposed"""  # noqa: S608
