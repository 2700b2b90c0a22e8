"""The ring of refused arrivals at its bounds: how many and how many bytes stay, and which go."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest

from app.database.locks import LINKING, REFUSING, take_lock
from app.receiving import refusal_store
from app.receiving.refusal_store import Rejection, RejectionRing
from tests.database.builders import rejection

OVERHEAD = 400


class Ring:
    """One over a table in memory; `asked` notes each statement."""

    dialect = "sqlite"
    spread = False

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.asked: list[str] = []

    def ask(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement."""
        self.asked.append(sql.split()[0])
        return self.connection.execute(sql, values).fetchall()

    @property
    def kept(self) -> list[str]:
        """Return the content of the ring."""
        rows = self.connection.execute("SELECT id FROM rejections ORDER BY id")
        return [row[0] for row in rows]


@pytest.fixture
def table() -> Iterator[Ring]:
    """Make an empty ring."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(
            "CREATE TABLE rejections (id TEXT PRIMARY KEY, received_at, source, verdict, digest, "
            "size, headers, body, problem)"
        )
        yield Ring(connection)


def of(*sizes: int, headers: str = "") -> list[Rejection]:
    """Build refused arrivals with bodies of these sizes."""
    return [rejection(body=b"x" * size, headers=headers) for size in sizes]


@pytest.mark.parametrize(
    ("most", "before", "new", "stay"),
    [
        (10, 9, 1, 10),
        (10, 10, 1, 9),
        (10, 0, 11, 9),
        (10, 0, 30, 9),
        (1, 0, 1, 1),
        (1, 1, 1, 0),
        (20, 20, 1, 18),
    ],
)
def test_how_many_stay(table: Ring, most: int, before: int, new: int, stay: int) -> None:
    """Up to the bound; one more, and it is emptied to nine tenths of it. The oldest go."""
    ring = RejectionRing(max_count=most, max_bytes=10**9)
    items = of(*[0] * (before + new))
    for part in (items[:before], items[before:]):
        ring.append(table, part)
    assert table.kept == [each.delivery_id for each in items[len(items) - stay :]]


@pytest.mark.parametrize(
    ("sizes", "headers", "stay"),
    [
        ([3_600, 5_600], "", 2),
        ([3_601, 5_600], "", 1),
        ([600, 3_600, 4_600], "", 3),
        ([600, 3_600, 4_601], "", 1),
        ([601, 3_600, 4_600], "", 2),
        ([3_600, 4_601, 1], "", 3),
        ([600, 2_600, 3_600], "é" * 500, 2),
        ([600, 2_600, 3_601], "é" * 500, 1),
        ([9_200], "é" * 200, 1),
        ([9_201], "é" * 200, 0),
        ([8_600, 1], "", 2),
    ],
)
def test_how_many_bytes_stay(table: Ring, sizes: list[int], headers: str, stay: int) -> None:
    """Of 10,000: bodies, twice the characters of their headers, and 400 for each row; beyond that
    nine tenths."""
    ring = RejectionRing(max_count=100, max_bytes=10_000)
    items = of(*sizes, headers=headers)
    for item in items:
        ring.append(table, [item])
    assert table.kept == [each.delivery_id for each in items[len(items) - stay :]]


def test_what_is_there_is_counted_once(table: Ring) -> None:
    """By a ring that begins, with its bytes; and again only when it is trimmed."""
    first = of(1_000, 1_000, headers="ab")
    RejectionRing(max_count=9, max_bytes=10**6).append(table, first)
    bytes_of_two = 2 * (1_000 + 2 * 2 + OVERHEAD)
    for spare, stay in ((OVERHEAD, 3), (OVERHEAD - 1, 2)):
        table.connection.execute("SAVEPOINT s")
        table.asked.clear()
        ring = RejectionRing(max_count=9, max_bytes=bytes_of_two + spare)
        ring.append(table, of(0))
        assert len(table.kept) == stay
        assert table.asked[0] == "SELECT"
        table.asked.clear()
        ring.append(table, [])
        assert table.asked == []
        table.connection.execute("ROLLBACK TO s")


def test_what_is_read_a_second_time_is_kept_once(table: Ring) -> None:
    """As after a restore."""
    ring, items = RejectionRing(max_count=9, max_bytes=10**6), of(5)
    ring.append(table, items)
    ring.append(table, items)
    assert table.kept == [items[0].delivery_id]


def test_rows_without_a_body_count_as_well(table: Ring) -> None:
    """An erasure leaves none."""
    ring = RejectionRing(max_count=2, max_bytes=10**6)
    ring.append(table, of(5, 5))
    table.connection.execute("UPDATE rejections SET body = NULL")
    RejectionRing(max_count=2, max_bytes=10**6).append(table, of(5))
    assert len(table.kept) == 1


def test_where_several_write_it_is_counted_each_time(
    table: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a lock, before anything is counted."""
    locks: list[tuple[int, int]] = []
    monkeypatch.setattr(
        refusal_store, "take_lock", lambda _, lock: locks.append((lock, len(table.asked)))
    )
    monkeypatch.setattr(refusal_store, "insert_rows", lambda connection, **rows: None)
    table.dialect = "postgresql"
    ring = RejectionRing(max_count=9, max_bytes=10**6)
    ring.append(table, of(1))
    ring.append(table, of(1))
    assert locks == [(REFUSING, 0), (REFUSING, 1)]
    assert table.asked == ["SELECT"] * 2


async def test_who_takes_out_locks_as_the_reader_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the same order, before any row: else each could wait for the other."""
    locks: list[int] = []

    async def run(connection: Any, function: Any, lock: int) -> None:
        assert (connection, function) == ("connection", take_lock)
        locks.append(lock)

    monkeypatch.setattr(refusal_store, "run", run)
    connection: Any = "connection"
    assert await refusal_store.delete_rejections(connection, []) == set()
    assert locks == [LINKING, REFUSING]
