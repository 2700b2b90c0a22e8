"""A rebuild by several processes publishes what one publishes, in the same order."""

import os
import shutil
import sqlite3
import time
from concurrent.futures import Future
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import UnreachableError
from app.orders import rebuild
from app.orders.history_store import Range, ranges
from app.orders.rebuild import refold_all
from app.orders.record_store import add_records
from app.receiving.inbox import open_inbox
from reconcile.ledger.events import Event
from tests.contexts import settings_of
from tests.database.builders import arrival, context, keep, opened, quiet, said, session_opened
from tests.database.made import put_new

ORDERS = 40


def url_of(path: Path) -> str:
    """Return the URL of a database's file."""
    return f"sqlite+aiosqlite:///{path}"


def story(number: int) -> list[Event]:
    """Return the events of one order: paid, declined, nameless, given back."""
    order, payment = f"O-{number:03}", f"p-{number}"
    money: dict[str, Any] = {"order": order, "payment": payment}
    events = [said(f"e{number}-0", **money)]
    if number % 2:
        events.append(said(f"e{number}-1", "succeeded", **money))
    if number % 4 == 3:
        events.append(said(f"e{number}-2", "refunded", payment=payment))
    if number % 5 == 0:
        events.append(said(f"e{number}-3", "declined", order=order, payment=f"q-{number}"))
    return events


@pytest.fixture
async def filled(tmp_path: Path) -> Path:
    """Make a database of some orders, none of them folded."""
    path = tmp_path / "t.db"
    put_new(path)
    async with opened(url_of(path)) as inbox:
        for number in range(ORDERS):
            events = story(number)
            await keep(inbox, *(arrival(each) for each in [*events, events[0]]))
        async with inbox.database.writing() as connection:
            await add_records(connection, [session_opened("ZZ-only-a-record", "cs-1")])
    return path


async def rebuilt(path: Path, *, jobs: int) -> int:
    """Rebuild it. How many orders that were."""
    settings = settings_of(path)
    async with open_inbox(settings, purpose="alone") as inbox:
        return await refold_all(context(inbox, at=90), progress=quiet, jobs=jobs)


def published(path: Path) -> list[list[tuple[Any, ...]]]:
    """Return everything that a rebuild writes, except when it opened and committed."""
    counters = "counters WHERE name <> 'last commit' AND name NOT LIKE 'inbox %'"
    with closing(sqlite3.connect(path)) as database:
        return [
            database.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall()
            for table in ("ledgers", "revisions", "order_due", counters)
        ]


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use ranges of a few orders each."""
    monkeypatch.setattr(rebuild, "EVENTS_AT_ONCE", 7)


async def test_several_processes_publish_what_one_does(filled: Path, small_ranges: None) -> None:
    """Row by row, numbers included; and once more, when all of it was published."""
    other = filled.with_name("other.db")
    shutil.copy(filled, other)
    for _ in range(2):
        assert await rebuilt(filled, jobs=1) == ORDERS + 1
        assert await rebuilt(other, jobs=2) == ORDERS + 1
        found = published(filled)
        assert len(found[0]) == ORDERS + 1
        assert len({outcome for _, _, outcome, *_ in found[0]}) >= 2
        assert published(other) == found


async def test_one_that_leaves_a_range_out_is_caught(
    filled: Path, small_ranges: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison above sees it."""
    other = filled.with_name("other.db")
    shutil.copy(filled, other)
    await rebuilt(filled, jobs=1)
    first = [True]

    async def all_but_the_first(connection: Any, *, events: int) -> Any:
        async for each in ranges(connection, events=events):
            if not first:
                yield each
            first.clear()

    monkeypatch.setattr(rebuild, "ranges", all_but_the_first)
    await rebuilt(other, jobs=1)
    assert published(other) != published(filled)


async def test_ranges_hold_every_order_once(filled: Path) -> None:
    """The last one is open: what is known by a record alone is in it, too."""
    async with opened(url_of(filled)) as inbox, inbox.database.reading() as connection:
        for events in (1, 2, 3, 7, 1_000):
            found = [each async for each in ranges(connection, events=events)]
            assert found[0].after == ""
            assert found[-1].last is None
            assert all(one.last == other.after for one, other in pairwise(found))


def dying(orders: Range, now: int) -> None:
    """Kill the process while it folds."""
    os._exit(9)


@pytest.mark.costly
async def test_a_process_that_dies_ends_the_rebuild(
    filled: Path, small_ranges: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a sentence; the next rebuild does all of it."""
    with monkeypatch.context() as planted:
        planted.setattr(rebuild, "_folded_elsewhere", dying)
        with pytest.raises(UnreachableError, match="--jobs 1"):
            await rebuilt(filled, jobs=2)
    assert await rebuilt(filled, jobs=2) == ORDERS + 1
    assert len(published(filled)[0]) == ORDERS + 1


@pytest.mark.costly
async def test_what_waits_for_a_pool_that_breaks_is_not_taken_back(
    filled: Path, small_ranges: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool sets on each of its futures that it broke, and its thread dies of one that was
    cancelled meanwhile: here it takes its time over each."""
    set_exception = Future.set_exception

    def slowly(future: Future[Any], error: BaseException | None) -> None:
        set_exception(future, error)
        time.sleep(0.05)

    monkeypatch.setattr(rebuild, "_folded_elsewhere", dying)
    monkeypatch.setattr(Future, "set_exception", slowly)
    with pytest.raises(UnreachableError, match="--jobs 1"):
        await rebuilt(filled, jobs=2)


async def test_a_part_of_which_nothing_can_be_published_ends_no_rebuild(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where each order of it would be held, and none could be folded with its hold."""
    monkeypatch.setattr(rebuild, "with_holds", lambda *_: [])
    assert await rebuilt(filled, jobs=1) == ORDERS + 1
    assert published(filled)[:2] == [[], []]
