"""Backups of a service under load, and what is restored from them."""

import asyncio
import json
import shutil
import signal
import sqlite3
import stat
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.client import HTTPException
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from app.config.load import load_settings
from app.context.context import AppContext
from app.core.clock import SystemClock
from app.orders.history_store import scan
from app.orders.rebuild import refold_all
from app.orders.refold import refold_until_quiet
from app.privacy.check import check_database
from app.wiring.opening import open_context
from reconcile.canonical import canonical_json
from reconcile.instants import DAY, Instant
from reconcile.ledger.explain import ledger_document
from reconcile.ledger.fold import fold
from tests.api.driving import environ, of_order
from tests.contexts import ACCEPTED
from tests.database.builders import quiet
from tests.e2e.processes import Process, command, serving
from tests.faults.check import assert_kept, look
from tests.waiting import until

SENDERS = 4
LATER = SystemClock().now() + 30 * DAY


def now() -> Instant:
    """Return the machine's own time, by which a real process judges ages."""
    return SystemClock().now()


class Load:
    """Deliveries sent without a pause, and those of them that were acknowledged."""

    def __init__(self, process: Process, mark: str) -> None:
        self._process = process
        self._mark = mark
        self._ended = threading.Event()
        self.sending: list[Future[None]] = []
        self.acknowledged: list[str] = []
        self.times: list[float] = []
        """Time of each acknowledgement, in seconds of a monotonic clock."""

    def end(self) -> None:
        """Send no more."""
        self._ended.set()

    def send(self, sender: int) -> None:
        """One sender's work until the end: orders get pending and final events, and doubles."""
        number = 0
        while not self._ended.is_set():
            order, claim = f"O-{sender}-{number // 3}", ("pending", "succeeded", "succeeded")
            name = f"{self._mark}-{sender}-{number - (number % 3 == 2)}"
            try:
                status, answer = self._process.send(
                    of_order(order, name, claim[number % 3]), at=now()
                )
            except (OSError, ValueError, HTTPException):
                assert self._process.popen.poll() is None, self._process.log
                self._ended.wait(0.05)  # its provider delivers it again
                continue
            if status == 200:
                self.acknowledged.append(answer["delivery"])
                self.times.append(time.monotonic())
            number += 1

    def wait_for(self, count: int) -> None:
        """Wait until that many more are acknowledged."""
        wanted = len(self.acknowledged) + count
        until(
            lambda: len(self.acknowledged) >= wanted or any(each.done() for each in self.sending),
            otherwise=lambda: f"{len(self.acknowledged)} of {wanted} acknowledgements",
        )
        self.look_at_senders()

    def look_at_senders(self) -> None:
        """Raise what one of the senders has raised."""
        for each in self.sending:
            if each.done():
                each.result()

    def stall_s(self, began: float, ended: float) -> float:
        """Return the longest time between two acknowledgements, of those between two instants."""
        times = [began, *(each for each in sorted(self.times) if began < each < ended), ended]
        return max(later - earlier for earlier, later in pairwise(times))


@contextmanager
def loaded(process: Process, mark: str) -> Iterator[Load]:
    """Run several senders."""
    load = Load(process, mark)
    with ThreadPoolExecutor(SENDERS) as pool:
        load.sending = [pool.submit(load.send, sender) for sender in range(SENDERS)]
        try:
            yield load
        finally:
            load.end()
    load.look_at_senders()


def rows(path: Path, sql: str) -> list[tuple[Any, ...]]:
    """Ask a database file."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
        return database.execute(sql).fetchall()


async def rebuilt(folder: Path) -> None:
    """Check that the restored store is sound, and that every ledger is byte-identical after a
    rebuild."""

    settings = load_settings(environ(folder))
    async with open_context(settings, purpose="alone") as context:
        assert (await check_database(context, deep=1, progress=quiet)).problems == []
        await refold_until_quiet(context, limit=500, progress=quiet)
        before = await ledgers(context)
        await refold_all(context, progress=quiet)
        assert await ledgers(context) == before
        assert (await check_database(context, deep=1, progress=quiet)).problems == []


async def ledgers(context: AppContext) -> tuple[list[bytes], list[Any]]:
    """Return every ledger folded as of one instant, and its cached form."""
    async with context.database.reading() as connection:
        folded = [
            canonical_json(ledger_document(fold(history, policy=context.policy, as_of=LATER)))
            async for part in scan(connection)
            for history in part
        ]
        cached = await connection.exec_driver_sql(
            "SELECT order_key, outcome, fulfillable, findings, substance, next_decision_at "
            "FROM ledgers ORDER BY order_key"
        )
        return folded, [tuple(row) for row in cached]


def backed_up_and_restored(folder: Path, rounds: int) -> None:
    """Back up under load; restore elsewhere, check and rebuild there. Repeat in each round."""
    (live := folder / "live").mkdir()
    acknowledged: set[str] = set()
    stalls: list[float] = []
    with serving(live) as process:
        for number in range(rounds):
            file = folder / f"{number}.backup"
            with loaded(process, f"e{number}") as load:
                load.wait_for(100)
                before, began = set(load.acknowledged), time.monotonic()
                made = command(live, "backup", str(file), "--format", "json")
                stalls.append(load.stall_s(began, time.monotonic()))
                assert made.returncode == 0, made.stderr
                assert len(load.acknowledged) > len(before), "the load stood still meanwhile"
            held = json.loads(made.stdout)["deliveries"]
            restored(folder / f"restored-{number}", file, acknowledged | before, held)
            acknowledged.update(load.acknowledged)
        process.end(signal.SIGKILL)
    print(f"{rounds} backups; no acknowledgement for {max(stalls):.3f} s at most")


def restored(place: Path, file: Path, acknowledged: set[str], held: int) -> None:
    """Restore the backup in a place of its own; check that it is whole, and has all that it must
    have."""
    place.mkdir()
    for name in ("t.erasures", "t.erasures.key"):  # which no backup holds
        shutil.copy(place.parent / "live" / name, place / name)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert command(place, "restore", *ACCEPTED, str(file)).returncode == 0
    assert rows(place / "t.db", "PRAGMA integrity_check") == [("ok",)]
    assert_kept(place / "t.db", acknowledged)
    assert rows(place / "t.db", "SELECT count(*) FROM deliveries") == [(held,)]
    asyncio.run(rebuilt(place))
    assert list(place.parent.glob("*.part*")) == []


@pytest.mark.slow
def test_backups_under_load_lose_nothing(tmp_path: Path) -> None:
    """What was acknowledged before a backup is in it, sound, and folds to the same ledgers."""
    backed_up_and_restored(tmp_path, rounds=1)


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_sixty_backups_under_load(tmp_path: Path) -> None:
    """The long form of the above."""
    backed_up_and_restored(tmp_path, rounds=60)


def test_a_restored_service_goes_on(tmp_path: Path) -> None:
    """Restoring needs the service stopped; afterwards a replay is a duplicate, news is kept."""
    file = tmp_path / "one.backup"
    with serving(tmp_path) as process:
        assert process.send(of_order("O-1", "e1"), at=now())[1]["verdict"] == "accepted"
        assert command(tmp_path, "backup", str(file)).returncode == 0
        assert process.send(of_order("O-2", "e2"), at=now())[1]["verdict"] == "accepted"
        refused = command(tmp_path, "restore", *ACCEPTED, str(file), "--force")
        assert refused.returncode == 3
        assert b"already serves" in refused.stderr
        process.end(signal.SIGKILL)
    restored = command(tmp_path, "restore", *ACCEPTED, str(file), "--force", "--format", "json")
    assert restored.returncode == 0
    with serving(tmp_path) as process:
        again = process.send(of_order("O-1", "e1"), at=now())[1]
        assert process.became(again) == "duplicate"
        news = process.send(of_order("O-2", "e2"), at=now())[1]
        # What the inbox still held when the backup was put back has been read from there again.
        assert process.became(news) in ("stored", "duplicate")
    kept = Path(json.loads(restored.stdout)["kept"])
    assert len(look(kept).deliveries) == 2
