"""Several write in one process, and another process writes, too: who has the database when."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from threading import Event
from time import monotonic

import pytest

from app.core.errors import StoreUnavailable
from app.database import locks, writer
from app.database.engine import writing_engine
from app.database.locks import WriteLock
from app.database.statements import PlainConnection
from app.database.writer import Space, Writer
from tests.waiting import PATIENCE_S, soon


async def a_writer(tmp_path: Path) -> AsyncIterator[Writer]:
    path, space = tmp_path / "t.db", Space(tmp_path, low_water_mib=0)
    engine = writing_engine(f"sqlite+aiosqlite:///{path}")
    made = Writer(engine, lock=WriteLock(path), log=None, place=None, space=space)
    await made.connect()
    yield made
    await made.close()


one = pytest.fixture(a_writer, name="one")
other = pytest.fixture(a_writer, name="other")


async def _write(writer: Writer, said: list[str], word: str) -> None:
    async with writer.transaction():
        said.append(word)


@pytest.mark.parametrize(
    ("keep_s", "order"),
    [(100.0, ["mine", "mine", "theirs"]), (0.0, ["theirs", "mine", "mine"])],
)
async def test_small_writes_of_one_process_share_a_turn_while_it_is_short(
    one: Writer, other: Writer, monkeypatch: pytest.MonkeyPatch, keep_s: float, order: list[str]
) -> None:
    monkeypatch.setattr(writer, "KEEP_S", keep_s)
    said: list[str] = []
    async with one.transaction():
        writing = [asyncio.create_task(_write(one, said, "mine")) for _ in range(2)]
        writing.append(asyncio.create_task(_write(other, said, "theirs")))
        await soon(lambda: one.is_wanted)
    await asyncio.gather(*writing)
    assert said == order


@pytest.mark.parametrize("gone", [True, False])
async def test_a_lock_kept_for_a_writer_that_gives_up_is_released(
    one: Writer, other: Writer, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    monkeypatch.setattr(writer, "KEEP_S", 100.0)
    monkeypatch.setattr(locks, "WAIT_S", 0.1)
    said: list[str] = []
    async with one.transaction():
        waiting = asyncio.create_task(_write(one, said, "mine"))
        await asyncio.sleep(0)
        if not gone:
            one.fail("planned")
    if gone:
        waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled() or "planned" in str(waiting.exception())
    await _write(other, said, "theirs")
    assert said == ["theirs"]


async def test_whether_another_process_waited_is_remembered_for_a_second(
    one: Writer, other: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    await _write(one, said, "mine")
    assert not one.was_wanted
    async with one.transaction():
        waiting = asyncio.create_task(_write(other, said, "theirs"))
        await soon(lambda: one.is_wanted)
    await waiting
    assert (one.was_wanted, other.was_wanted) == (True, False)
    now = monotonic()
    monkeypatch.setattr(writer, "monotonic", lambda: now + writer.WANTED_S)
    assert not one.was_wanted


async def test_how_long_a_transaction_held_the_database_is_without_the_wait_for_it(
    one: Writer, other: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(writer, "monotonic", lambda: now[0])
    async with other.transaction():
        waiting = asyncio.create_task(_write(one, [], "mine"))
        await soon(lambda: other.is_wanted)
        now[0] = 5.0
    await waiting
    assert (one.held_s, other.held_s) == (0.0, 5.0)


async def test_a_cancelled_writer_holds_the_lock_until_its_transaction_ends(
    database_in_threads: None, one: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction goes on in the driver's thread."""
    monkeypatch.setattr(locks, "WAIT_S", 0.05)
    begun, ending, lock = Event(), Event(), WriteLock(tmp_path / "t.db")

    def slowly(connection: PlainConnection) -> None:
        begun.set()
        ending.wait(PATIENCE_S)

    writing = asyncio.create_task(one.commit(slowly))
    await soon(begun.is_set)
    writing.cancel()
    try:
        with pytest.raises(StoreUnavailable):
            await lock.take()
    finally:
        ending.set()
    with pytest.raises(asyncio.CancelledError):
        await writing
    await lock.take()
    lock.close()


async def test_only_the_first_reason_of_a_poisoned_writer_is_reported(one: Writer) -> None:
    told: list[str] = []
    one.on_poison = told.append
    for reason in ("the disk has failed", "the file is gone"):
        one.fail(reason)
    assert (one.poison, told) == ("the disk has failed", ["the disk has failed"])
