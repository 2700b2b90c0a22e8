"""What does not rest on each other goes to the server at once, and comes out as if it had not."""

from __future__ import annotations

from typing import Any

import pytest

from app.store.sql import arrays
from app.store.sql.statements import Script, run, selecting, together
from app.store.store import Store
from tests.store.builders import arrival, events_in, histories, keep, said

pytestmark = pytest.mark.postgres


async def sent_while(store: Store, *items: Any) -> list[str]:
    """The statements that keeping some arrivals takes: each is a round trip. A new connection's
    first, of a new batch and of another, also ask for the kinds of their parameters."""
    await keep(store, arrival(said("first", order="first")))
    await keep(store, arrival(None))
    async with store.writing() as connection:
        driver: Any = (await connection.get_raw_connection()).driver_connection
    seen: list[str] = []
    with driver.query_logger(lambda record: seen.append(record.query)):
        await keep(store, *items)
    return seen


def counting(begin: int, *, times: int) -> Script[list[int]]:
    """A script that asks some times, each for the number after the one that it was told."""
    found = [begin]
    for _ in range(times):
        rows = yield "SELECT $1::bigint + 1, 'x'", (found[-1],)
        found.append(rows[0][0])
    return found


async def test_orphans_are_adopted_with_the_rest(store: Store) -> None:
    """Several at once, each by its own order, in the statement that writes their links."""
    orphans = [said(f"n{n}", payment=f"p{n}", session=f"s{n}") for n in range(3)]
    await keep(store, *map(arrival, orphans))
    naming = [said(f"e{n}", order=f"O{n}", payment=f"p{n}") for n in range(3)]
    sent = await sent_while(store, *map(arrival, naming))
    assert [sql.startswith("WITH") and "UPDATE events" in sql for sql in sent[-2:]] == [True, False]
    found = await histories(store, ["O0", "O1", "O2"])
    for number, history in enumerate(found.values()):
        assert events_in(history) == {orphans[number].key, naming[number].key}


async def test_scripts_side_by_side(store: Store) -> None:
    """Each is sent its own rows, though one asks more often than another, or never."""
    async with store.writing() as connection:
        scripts = (counting(10, times=2), counting(20, times=0), counting(30, times=3))
        found = await run(connection, together("postgresql", *scripts))
        assert found == [[10, 11, 12], [20], [30, 31, 32, 33]]


async def test_questions_of_different_shapes(store: Store) -> None:
    """Rows of any number and kind of columns, and NULL, come back as they would alone."""
    await keep(store, arrival(said("e1", order="A", payment="p1")))
    shapes = (
        "SELECT body, size, problem FROM deliveries WHERE event_id IN ({})",
        "SELECT order_key FROM events WHERE event_id IN ({})",
        "SELECT event_id FROM events WHERE event_id IN ({}) AND order_key IS NULL",
    )
    async with store.writing() as connection:
        alone = [
            await run(connection, selecting("postgresql", sql=sql, values=["e1"])) for sql in shapes
        ]
        asked = (selecting("postgresql", sql=sql, values=["e1"]) for sql in shapes)
        assert await run(connection, together("postgresql", *asked)) == alone
    assert [len(rows) for rows in alone] == [1, 1, 0]


def test_parameters_are_numbered_through() -> None:
    """Beyond nine, too: `$1` of the second statement is not the beginning of `$12`."""
    first = ("A " + " ".join(f"${n}" for n in range(1, 12)), range(11))
    sql, values = arrays.written_together([first, ("B $1 $2", ("x", "y"))])
    assert sql == f"WITH w0 AS ({first[0]}) B $12 $13"
    assert values == [*range(11), "x", "y"]
