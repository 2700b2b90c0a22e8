"""A new batch on SQLite is one statement, which leaves what the ordinary way leaves, or nothing."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.errors import StoreUnavailable
from app.store import arriving, intake, statements
from app.store.intake import Arrival, Judged, Whole, append, append_alone
from app.store.links import LinkMemory
from app.store.store import Store
from tests.reconcile.build import seconds
from tests.store.builders import arrival, keep, opened, rows, said
from tests.store.made import put_new

ALONE = "INSERT OR ROLLBACK INTO arriving"
"""What the one statement begins with."""

Row = tuple[Any, ...]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A database without a row."""
    put_new(tmp_path / "t.db")
    return f"sqlite+aiosqlite:///{tmp_path}/t.db"


# --- both ways leave the same ---------------------------------------------------------------------


class Side:
    """A database in memory to which batches come in one of the two ways."""

    def __init__(self, schema: str, way: Any) -> None:
        self.way = way
        self.memory = LinkMemory()
        self.sent: list[str] = []
        self.raw = sqlite3.connect(
            ":memory:", isolation_level=None, factory=statements.ScriptConnection
        )
        self.raw.executescript(schema)
        for statement in arriving.PREPARING:
            self.raw.execute(statement)
        self.raw.set_trace_callback(self.sent.append)
        self.tables = [row[0] for row in self.raw.execute(_TABLES)]

    def keep(self, batch: Sequence[Arrival]) -> list[str]:
        """One batch, as the journal hands it over."""
        script = self.way("sqlite", batch, self.memory)
        crossing = statements._Crossing(script, transaction=True)
        self.sent.clear()
        self.raw.execute("script", crossing).close()
        assert not self.raw.in_transaction
        judged: Judged = crossing.result
        self.memory.add(judged.linking.links)
        return list(judged.verdicts)

    def generations(self) -> dict[str, int]:
        """How often something was said of each order."""
        return dict(self.raw.execute("SELECT order_key, generation FROM order_due"))

    def holds(self) -> dict[str, list[Row]]:
        """All rows of all tables, but for what need not be the same: an order's generation, which
        only has to rise, and which of two moments of one batch a phone number is noted at."""
        wanted = {"order_due": "order_key, due_at", "phones": "digest, kind, thing"}
        return {
            table: sorted(
                self.raw.execute(f"SELECT {wanted.get(table, '*')} FROM {table}"), key=repr
            )
            for table in self.tables
        }

    def clear(self) -> None:
        """An empty database, and a process that remembers nothing."""
        self.memory = LinkMemory()
        for table in FILLED:
            self.raw.execute(f"DELETE FROM {table}")


_TABLES = "SELECT name FROM main.sqlite_master WHERE type='table' AND name NOT LIKE 'sqlite%'"

FILLED = (
    "deliveries", "envelopes", "events", "confirmations", "links", "contested", "phones",
    "order_due", "unsealed",
)  # fmt: skip
"""What an arrival can put a row into."""

WORLDS, BATCHES = 250, 6

RARE: tuple[dict[str, Any], ...] = (
    {"event": None, "problem": "the body is not JSON"},
    {"whole": Whole(digest="whole", body=b"[1, 2]")},
    {"standing": "unconfirmed"},
)


def drawn_arrival(chance: random.Random, number: int) -> Arrival:
    """Nearly always a new event; seldom one that was heard before, or something out of the way."""
    name = f"e{chance.randrange(6)}" if chance.random() < 0.15 else f"new {number}"
    fields: dict[str, Any] = {
        "order": chance.choice(("A", "B", "C", "C", "C", None)),
        "payment": chance.choice((None, None, "p", "q", f"p{number}")),
        "session": chance.choice((None, None, None, "s", "p", f"s{number}")),
        "source": "other" if chance.random() < 0.1 else "shop",
    }
    if chance.random() < 0.5:  # mostly what hangs together, else every batch would be contested
        fields |= {"order": f"O{number % 9}", "payment": f"p{number % 9}", "session": None}
    rare = dict(chance.choice(RARE)) if chance.random() < 0.02 else {}
    if "standing" in rare:
        fields |= {"standing": rare.pop("standing")}
    event = said(name, chance.choice(("pending", "succeeded")), **fields)
    customer = chance.choice((None, b"one", b"two"))
    given = {"event": event, "customer": customer, **rare}
    return arrival(given.pop("event"), at=chance.randrange(90), **given)


def folded(chance: random.Random) -> list[tuple[str, Row]]:
    """What folds may have done to due marks meanwhile: cleared them, or put them anywhere."""
    order = chance.choice(("A", "B", "C", *(f"O{n}" for n in range(9))))
    due = chance.choice((None, None, seconds(-1), seconds(45), seconds(1_000)))
    return [("UPDATE order_due SET due_at=? WHERE order_key=?", (due, order))]


def lived(chance: random.Random, one: Side, other: Side) -> tuple[int, int]:
    """One world; how many batches were one statement, and how many were taken back."""
    alone, taken_back = 0, 0
    one.clear(), other.clear()
    for number in range(BATCHES):
        if chance.random() < 0.3:
            one.memory, other.memory = LinkMemory(), LinkMemory()
        for statement in folded(chance) * 2:
            one.raw.execute(*statement), other.raw.execute(*statement)
        size = chance.choice((1, 1, 2, 3, 5, 18))
        batch = [drawn_arrival(chance, number * 100 + place) for place in range(size)]
        before = one.generations(), other.generations()
        assert one.keep(batch) == other.keep(batch)
        assert one.holds() == other.holds()
        after = one.generations(), other.generations()
        assert risen(before[0], after[0]) == risen(before[1], after[1])
        tried = one.sent[0].startswith(ALONE)
        alone += tried and "BEGIN IMMEDIATE" not in one.sent
        taken_back += tried and "BEGIN IMMEDIATE" in one.sent
    return alone, taken_back


def risen(before: dict[str, int], after: dict[str, int]) -> set[str]:
    """Orders of which something more was said."""
    assert all(after[order] >= count for order, count in before.items())
    return {order for order, count in after.items() if count != before.get(order)}


def test_both_ways_leave_the_same(tmp_path: Path) -> None:
    """Whatever is stored and whatever comes, row for row; and both ways are gone."""
    put_new(tmp_path / "t.db")
    with closing(sqlite3.connect(tmp_path / "t.db")) as made:
        found = made.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid")
        schema = ";\n".join(row[0] for row in found if "sqlite_sequence" not in row[0])
    one, other = Side(schema, append_alone), Side(schema, append)
    with closing(one.raw), closing(other.raw):
        lives = [lived(random.Random(seed), one, other) for seed in range(WORLDS)]
    alone, taken_back = map(sum, zip(*lives, strict=True))
    assert alone > WORLDS
    assert taken_back > WORLDS / 2


# --- one statement --------------------------------------------------------------------------------


async def sent_while(store: Store, *items: Arrival) -> tuple[list[str], list[Any]]:
    """The statements that keeping some arrivals takes, and the verdicts or errors. What a trigger
    does is told as its own statement. There is no transaction afterwards."""
    async with store.writing() as connection:
        raw = await connection.get_raw_connection()
    driver: sqlite3.Connection = raw.driver_connection._conn  # type: ignore[union-attr]
    seen: list[str] = []
    driver.set_trace_callback(seen.append)
    answers = await asyncio.gather(*map(store.journal.submit, items), return_exceptions=True)
    driver.set_trace_callback(None)
    assert not driver.in_transaction
    return list(dict.fromkeys(seen)), answers


@pytest.mark.parametrize("count", [1, 2, 16, 17, 40])
async def test_a_new_batch_is_one_statement(store: Store, count: int) -> None:
    """Of whatever orders, payments and sessions, and whoever has made their links."""
    await keep(store, arrival(said("e", order="O0", payment="p0", session="s")))
    await keep(store, arrival(said("n", payment="waits", session="for its order")))
    said_of = [(f"O{n % 3}", f"p{n % 3}", f"s{n}") for n in range(count)]
    fields = [dict(zip(("order", "payment", "session"), each, strict=True)) for each in said_of]
    fields[0].update(order=None, session="s")  # it is remembered
    items = [arrival(said(f"e{n}", **each)) for n, each in enumerate(fields)]
    sent, _ = await sent_while(store, *items)
    assert [sql[: len(ALONE)] for sql in sent] == [ALONE]
    assert await rows(store, "SELECT count(*) FROM deliveries") == [(count + 2,)]


KNOWN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "duplicate": ({"event_id": "e", "order": "A"}, {"order": "A"}),
    "another body": ({"event_id": "e", "order": "A"}, {"order": "A", "payment": "p"}),
    "another source": ({"event_id": "e", "order": "A", "source": "other"}, {"order": "A"}),
    "its payment": ({"order": "B", "payment": "p"}, {"order": "A", "payment": "p"}),
    "its session": ({"order": "B", "session": "s"}, {"order": "A", "session": "s"}),
    "orphan": ({"payment": "p"}, {"order": "A", "payment": "p"}),
    "orphan's session": ({"session": "s"}, {"order": "A", "session": "s"}),
}
"""What is stored, and a new event that it speaks against."""


@pytest.mark.parametrize(("known", "new"), KNOWN.values(), ids=KNOWN.keys())
async def test_what_is_stored_takes_the_statement_back(
    url: str, known: dict[str, Any], new: dict[str, Any]
) -> None:
    """Nothing of it remains, and the batch goes the ordinary way, in the same crossing."""
    async with opened(url) as store:
        await keep(store, arrival(said(**{"event_id": "known", **known})))
    items = arrival(said("f", order="F")), arrival(said("e", **new))
    async with opened(url) as store:  # which remembers nothing
        (alone, begin, *between, commit), _ = await sent_while(store, *items)
        assert (alone[: len(ALONE)], begin, commit) == (ALONE, "BEGIN IMMEDIATE", "COMMIT")
        assert len(between) > 1
        marked = await rows(store, "SELECT ids FROM unsealed")
        assert marked[1:] == [("\n".join(item.delivery_id for item in items),)]
        assert await rows(store, "SELECT generation FROM order_due WHERE order_key='F'") == [(1,)]


NOT_PLAIN: dict[str, list[Arrival]] = {
    "twice": [arrival(said("e", order="A"))] * 2,
    "two bodies": [arrival(said("e", order="A")), arrival(said("e", order="A", payment="p"))],
    "contested": [arrival(said(f"e{each}", order=each, payment="p")) for each in "AB"],
    "unreadable": [arrival(None)],
    "no order": [arrival(said("e", payment="p"))],
    "a part": [arrival(said("e", order="A"), whole=Whole(digest="d", body=b"[]"))],
    "unconfirmed": [arrival(said("e", order="A", standing="unconfirmed"))],
    "too many": [arrival(said(f"e{n}", order="A")) for n in range(arriving.MOST + 1)],
}
"""Batches of which it is plain without asking that they go the ordinary way."""


@pytest.mark.parametrize("batch", NOT_PLAIN.values(), ids=NOT_PLAIN.keys())
async def test_what_is_not_plain_is_not_tried(url: str, batch: list[Arrival]) -> None:
    """It begins as the ordinary way does."""
    batch = [replace(item, delivery_id=f"dlv_{n}") for n, item in enumerate(batch)]
    async with opened(url, journal_batch=arriving.MOST + 1) as store:
        sent, _ = await sent_while(store, *batch)
        assert sent[0] == "BEGIN IMMEDIATE"
        assert await rows(store, "SELECT count(*) FROM deliveries") == [(len(batch),)]


async def test_the_longest_batch_is_one_statement(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite takes as many as we believe it takes."""
    monkeypatch.setattr(intake, "append", None)
    async with opened(url, journal_batch=arriving.MOST) as store:
        items = [arrival(said(f"e{n}", order=f"O{n}")) for n in range(arriving.MOST)]
        assert await keep(store, *items) == ["stored"] * arriving.MOST
        assert await rows(store, "SELECT count(*) FROM events") == [(arriving.MOST,)]


# --- faults ---------------------------------------------------------------------------------------

WRONG: dict[str, dict[str, Any]] = {
    "a known id": {"delivery_id": "dlv_first"},
    "a wrong kind": {"headers": b"bytes"},
    "nothing": {"digest": None},
}
"""What no table takes, each by another constraint than the trigger."""


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
async def test_a_row_that_is_refused_leaves_nothing(store: Store, wrong: dict[str, Any]) -> None:
    """Neither those before it nor a transaction; all are answered with the error, and later ones
    are kept."""
    await keep(store, arrival(said("first", order="A"), delivery_id="dlv_first"))
    batch = [arrival(said(f"e{n}", order=f"O{n}", payment=f"p{n}")) for n in range(5)]
    batch[2] = replace(batch[2], **wrong)
    sent, answers = await sent_while(store, *batch)
    assert [sql[: len(ALONE)] for sql in sent] == [ALONE]
    assert all(isinstance(answer, Exception) for answer in answers)
    for table in ("deliveries", "events", "order_due", "unsealed"):
        assert await rows(store, f"SELECT count(*) FROM {table}") == [(1,)], table
    assert await rows(store, "SELECT * FROM links") == []
    assert await keep(store, *batch[:2], *batch[3:]) == ["stored"] * 4


@contextmanager
def no_more_files() -> Iterator[None]:
    """This process can open no file."""
    lowest = os.dup(0)
    os.close(lowest)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def wide(name: str) -> list[Arrival]:
    """Deliveries of 3 MB in all, for orders whose marks fill many pages."""
    events = [said(f"{name} {n}", order=f"{n:0200}", payment=f"{name} {n}") for n in range(400)]
    return [arrival(event, body=event.digest.encode() + b"x" * 7_500) for event in events]


async def test_a_batch_needs_no_temporary_file(store: Store) -> None:
    """Neither as one statement nor the ordinary way: what such a file held nobody would erase."""
    await keep(store, *wide("first"))
    with no_more_files():
        assert set(await keep(store, *wide("new"))) == {"stored"}
        again = [arrival(item.event, body=item.body) for item in wide("new")]
        assert set(await keep(store, *again)) == {"duplicate"}


@pytest.mark.parametrize("name", ["new", "first"])
async def test_a_temporary_file_is_caught(
    url: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The same sees the file that either way would make."""
    monkeypatch.setattr(arriving, "PREPARING", arriving.PREPARING[1:])
    async with opened(url) as store:
        await keep(store, *wide("first"))
        with no_more_files(), pytest.raises(StoreUnavailable, match="open files"):
            await keep(store, *wide(name))
