"""A batch on SQLite is kept whole or not at all, and nothing of it lies in a temporary file."""

import os
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError

from app.core.errors import StoreUnavailable
from app.database import engine
from app.receiving.append_store import Arrival, Ready
from app.receiving.inbox import Inbox
from tests.database.builders import arrival, keep, opened, rows, said
from tests.database.made import put_new


@pytest.fixture
def url(tmp_path: Path) -> str:
    put_new(tmp_path / "t.db")
    return f"sqlite+aiosqlite:///{tmp_path}/t.db"


WRONG: dict[str, dict[str, Any]] = {
    "a wrong kind": {"headers": b"bytes"},
    "nothing": {"digest": None},
}
"""Values that no table takes, each because of another constraint."""


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
async def test_a_refused_row_fails_its_batch_alone(inbox: Inbox, wrong: dict[str, Any]) -> None:
    await keep(inbox, arrival(said("first", order="A"), delivery_id="dlv_first"))
    batch = [arrival(said(f"e{n}", order=f"O{n}", payment=f"p{n}")) for n in range(5)]
    batch[2] = batch[2]._replace(**wrong)
    with pytest.raises((DBAPIError, StoreUnavailable, sqlite3.Error)):
        await keep(inbox, *batch)
    for table in ("deliveries", "events", "order_due", "unsealed"):
        assert await rows(inbox, f"SELECT count(*) FROM {table}") == [(1,)], table
    assert await rows(inbox, "SELECT * FROM links") == []
    assert await keep(inbox, *batch[:2], *batch[3:]) == ["stored"] * 4


@contextmanager
def no_more_files() -> Iterator[None]:
    lowest = os.dup(0)
    os.close(lowest)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def wide(name: str) -> list[Arrival]:
    """Return deliveries of 3 MB for orders whose marks fill many pages."""
    events = [said(f"{name} {n}", order=f"{n:0200}", payment=f"{name} {n}") for n in range(400)]
    return [arrival(event, body=event.digest.encode() + b"x" * 7_500) for event in events]


async def test_a_batch_needs_no_temporary_file(inbox: Inbox) -> None:
    """Nobody would erase what is in it."""
    await keep(inbox, *wide("first"))
    with no_more_files():
        assert set(await keep(inbox, *wide("new"))) == {"stored"}
        again = [arrival(item.event, body=item.body) for item in wide("new")]
        assert set(await keep(inbox, *again)) == {"duplicate"}


async def test_control_a_temporary_file_is_seen_where_it_is_allowed(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "IN_MEMORY", "PRAGMA temp_store=FILE")
    async with opened(url) as inbox:
        await keep(inbox, *wide("first"))
        with no_more_files(), pytest.raises(StoreUnavailable, match="open files"):
            await keep(inbox, *wide("new"))


async def test_a_delivery_with_a_known_id_is_skipped(inbox: Inbox) -> None:
    """Its row was read before, by a database that was restored since."""
    first = arrival(said("first", order="A"))
    await keep(inbox, first)
    assert await inbox.append([Ready(None, [first])]) == []
    for table in ("deliveries", "events", "unsealed"):
        assert await rows(inbox, f"SELECT count(*) FROM {table}") == [(1,)], table
