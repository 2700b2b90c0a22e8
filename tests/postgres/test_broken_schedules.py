"""Seeded schedules of what excludes: an epoch that was raised, and marks that follow their rows.

Each has a control, in which a protection is taken out and some schedule must find that.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import StorePoisoned, StoreUnavailable
from app.database import holders, layout
from app.database.statements import PlainConnection
from app.receiving import append_store
from app.receiving.append_store import Appended, Arrival, append_ahead, append_ready
from app.receiving.inbox import Inbox
from reconcile.instants import EARLIEST
from tests.database.builders import rows
from tests.postgres.conftest import ask_in_loop, emptying
from tests.postgres.schedules import Schedule
from tests.postgres.test_schedules import (
    FINDS_WITHIN,
    SEEDS,
    Impatient,
    World,
    alone,
    claims_run_out,
    erasing_early,
    played,
)
from tests.postgres.test_sharing import several

__all__ = ("alone", "erasing_early")

pytestmark = pytest.mark.postgres

WRITTEN = (
    "SELECT (SELECT count(*) FROM deliveries), (SELECT count(*) FROM revisions), "
    "(SELECT count(*) FROM inbox), (SELECT sum(due_at) FROM order_due)"
)


# --- the epoch ------------------------------------------------------------------------------------


async def taken_over(url: str, folder: Path, *, seed: int) -> None:
    """Take over from readers and workers under way, and check that they write nothing more."""
    async with several(url, 6) as stores:
        taker, *others = stores
        world, seen = World(stores, folder), list[Any]()
        await world.begin(seed)

        def take(connection: PlainConnection) -> bool:
            assert taker.database.writer.holder is not None
            own = taker.database.writer.holder.id
            for holder, newest in connection.ask("SELECT holder, newest FROM holders"):
                if holder != own:
                    connection.ask(holders._TAKE_OVER, (EARLIEST, holder, newest))
            left = "SELECT 1 FROM holders WHERE kind <> 'ended' AND holder <> ?"
            return not connection.ask(left, (own,))

        async def be_alone() -> None:
            for _ in range(seed):  # others begin meanwhile
                await rows(taker, "SELECT 1")
            while not await taker.database.writer.commit(take):
                pass
            seen.extend(await rows(taker, WRITTEN))

        async def work(inbox: Inbox) -> None:
            with suppress(StorePoisoned):
                await world.read(inbox)
                await world.fold(inbox)

        acts = {str(number): partial(work, each) for number, each in enumerate(others)}
        await Schedule(seed).play(url, acts | {"taker": be_alone})
        assert await rows(taker, WRITTEN) == seen, f"written by who was taken over: seed {seed}"


@pytest.mark.parametrize(
    "seed",
    [pytest.param(n, marks=() if n == 1 else pytest.mark.soak) for n in SEEDS[:FINDS_WITHIN]],
)
async def test_who_is_taken_over_writes_nothing_more_in_any_schedule(
    url: str, tmp_path: Path, seed: int
) -> None:
    await taken_over(url, tmp_path, seed=seed)


@pytest.mark.soak
async def test_a_schedule_finds_an_epoch_that_is_not_looked_at(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: a holder's row is found whatever its epoch is."""
    for name in ("HELD", "_FIND"):
        sql = getattr(holders, name)
        monkeypatch.setattr(holders, name, sql.replace("AND epoch = ?", "AND epoch >= ?"))

    async def play_some() -> None:
        for seed in SEEDS[:FINDS_WITHIN]:
            await ask_in_loop(url, emptying())
            await taken_over(url, tmp_path / str(seed), seed=seed)

    with pytest.raises(AssertionError, match="written by who was taken over") as found:
        await play_some()
    print(found.value)


# --- marks in a second transaction ----------------------------------------------------------------


class Patient(Impatient):
    """An Impatient world whose readers try again, as where another has stored the deliveries. The
    erasure comes last: on several nodes it keeps appends out."""

    async def erase(self, inbox: Inbox) -> None:
        if inbox is self._stores[0]:
            await super().erase(inbox)

    async def read(self, inbox: Inbox) -> None:
        while True:
            with suppress(StoreUnavailable):
                return await super().read(inbox)

    async def left(self) -> dict[str, Any]:
        first = self._stores[0]
        await ask_in_loop(first.settings.database_url, "UPDATE inbox SET taken_by = NULL")
        await self.read(first)  # what was to be tried again, once its claim has run out
        return await super().left()


@pytest.fixture
async def spread_url(url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a database that is taken for one of several nodes: rows first, marks later."""
    for name in ("_HAS_CITUS", "_ANY_DISTRIBUTED", "_PENDING"):
        monkeypatch.setattr(layout, name, "SELECT true, '0'")
    await noted(url)
    return url


async def noted(url: str) -> None:
    """Empty the database but for the note of its layout."""
    note = f"INSERT INTO meta (name, value) VALUES ('{layout.LAYOUT}', '{layout.DISTRIBUTED}')"
    await ask_in_loop(url, emptying(), note)


@pytest.mark.costly
@pytest.mark.parametrize(
    "seed",
    [pytest.param(n, marks=() if n == 1 else pytest.mark.soak) for n in SEEDS[:FINDS_WITHIN]],
)
async def test_marks_of_a_second_transaction_are_complete_in_any_schedule(
    alone: dict[str, Any],
    spread_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    """Also where claims run out between both, and another reader takes the row."""
    claims_run_out(monkeypatch, seed)
    found, trace = await played(spread_url, tmp_path / "nodes", seed=seed, kind=Patient)
    assert found == alone, "\n".join([f"seed {seed}", *trace])


def marks_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the second transaction mark what its own reader has stored in the first, and no more."""
    stored, mine, mark = dict[int, set[str]](), list[set[str]](), append_store._mark_ahead

    def first(connection: PlainConnection, ready: Any, *, memory: Any) -> Any:
        before = {row[0] for row in connection.ask("SELECT id FROM deliveries")}
        came = {arrival.delivery_id for each in ready for arrival in each.arrivals}
        stored.setdefault(id(memory), set()).update(came - before)
        return append_ahead(connection, ready, memory=memory)

    def second(connection: PlainConnection, ready: Any, *, memory: Any, ring: Any) -> Appended:
        mine[:] = [stored.get(id(memory), set())]
        return append_ready(connection, ready, memory=memory, ring=ring)

    def marked(connection: PlainConnection, arrivals: Sequence[Arrival]) -> Appended:
        ours = [each for each in arrivals if each.delivery_id in mine[0]]
        return mark(connection, ours) if ours else Appended([], [], {})

    monkeypatch.setattr(append_store, "append_ahead", first)
    monkeypatch.setattr(append_store, "append_ready", second)
    monkeypatch.setattr(append_store, "_mark_ahead", marked)


@pytest.mark.soak
async def test_a_schedule_finds_marks_that_leave_out_what_another_reader_stored(
    alone: dict[str, Any], spread_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks_its_own(monkeypatch)
    for seed in SEEDS[:FINDS_WITHIN]:
        await noted(spread_url)
        with monkeypatch.context() as patched:
            claims_run_out(patched, seed)
            try:
                found, _ = await played(spread_url, tmp_path / str(seed), seed=seed, kind=Patient)
            except AssertionError:
                break
        if found != alone:
            break
    else:
        pytest.fail("no schedule finds it")
    print(f"seed {seed}")
