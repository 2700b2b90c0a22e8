"""A new batch on SQLite is one statement, and nothing of it is left where it is not new."""

from __future__ import annotations

import asyncio
import os
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.errors import StoreUnavailable
from app.store.arrivals import arriving, intake
from app.store.arrivals.intake import Arrival, Whole
from app.store.store import Store
from tests.store.builders import arrival, keep, opened, rows, said
from tests.store.made import put_new

pytestmark = pytest.mark.timeout(300)  # a batch that no statement takes would be tried for ever

ALONE = "INSERT OR ROLLBACK INTO arriving"
"""What the one statement begins with."""


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A database without a row."""
    put_new(tmp_path / "t.db")
    return f"sqlite+aiosqlite:///{tmp_path}/t.db"


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
