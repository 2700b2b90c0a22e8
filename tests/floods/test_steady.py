"""An ordinary day of steady deliveries, frequent looks and a backup: all are accepted, and nothing
grows but the database."""

import os
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest

from app.core.ids import new_secret
from tests.bench.machine import rss_mib
from tests.bench.processes import DATABASE, environment, server
from tests.bench.requests import secret_text
from tests.e2e.processes import command, token
from tests.floods.flood import a_process, told
from tests.floods.steady import Steady
from tests.forking import start
from tests.waiting import PATIENCE_S, until

RATE = 200
"""Deliveries a second: a large shop's busiest hour."""

LOG_MIB = 64
"""Bound of a log that is folded in time, also during a backup."""

WARM_S = 240
"""Seconds until SQLite's page caches have reached their bounds, some 130 MiB together."""

DRIFT_MIB = 20
PATHS = ("/metrics", "/readyz", "/api/v1/orders?limit=50", "/api/v1/outcomes?limit=50")


@dataclass(slots=True)
class Day:
    """Results, with memory and open files for each second."""

    steady: Steady | None = None
    statuses: set[int] = field(default_factory=set)
    memory: list[float] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    log_mib: float = 0.0
    backed_up: int | None = None


def a_day(folder: Path, *, seconds: int) -> Day:
    """Deliver, look, and back up half-way."""
    day, secret = Day(), secret_text(new_secret())
    settings = environment(folder / DATABASE, secret)
    own = {name.removeprefix("TALLYHOOK_"): value for name, value in settings.items()}
    log = folder / "serve.log"
    with server(["app", "serve", "--port"], log=log, env=settings, start=start) as target:
        bearer = {"Authorization": f"Bearer {token(folder, **own)}"}
        address = f"http://127.0.0.1:{target.port}"
        with httpx2.Client(base_url=address, headers=bearer, timeout=PATIENCE_S) as client:
            # It listens before its reader has begun.
            until(lambda: client.get("/readyz").status_code == 200)
            deliverer = ("tests.floods.steady", str(target.port), secret, str(RATE))
            with a_process(*deliverer) as provider:
                until(lambda: written(folder / DATABASE))
                for second in range(seconds):
                    began = time.monotonic()
                    day.statuses |= {client.get(path).status_code for path in PATHS}
                    day.memory.append(rss_mib(target.pid))
                    day.files.append(len(os.listdir(f"/proc/{target.pid}/fd")))
                    size = (folder / f"{DATABASE}-wal").stat().st_size
                    day.log_mib = max(day.log_mib, size / 1024**2)
                    if second == seconds // 2:
                        made = command(folder, "backup", str(folder / "half-way.backup"), **own)
                        day.backed_up = made.returncode
                    time.sleep(max(0.0, began + 1 - time.monotonic()))
                day.steady = told(provider)
    return day


def written(database: Path) -> bool:
    """Return whether the first delivery is stored."""
    with closing(sqlite3.connect(database)) as reading:
        return bool(reading.execute("SELECT 1 FROM deliveries LIMIT 1").fetchone())


def check(day: Day) -> None:
    """Check what holds of every day, however long."""
    warm = day.memory[WARM_S:]
    drift = max(warm) - warm[0] if warm else 0.0
    print(f"{day.steady}, log {day.log_mib:.0f} MiB, warm +{drift:.1f} MiB, files {day.files[-1]}")
    assert day.steady is not None
    assert day.steady.sent > RATE * len(day.memory) / 2
    assert day.steady.acknowledged == day.steady.sent
    assert (day.statuses, day.backed_up) == ({200}, 0)
    assert day.log_mib <= LOG_MIB
    assert drift <= DRIFT_MIB
    # What is open for a moment only does not count.
    assert min(day.files[-5:]) <= max(day.files[: len(day.files) // 2]) + 2


@pytest.mark.soak
@pytest.mark.timeout(4_000)
@pytest.mark.parametrize("seconds", [4, 3_600])
def test_a_day(tmp_path: Path, seconds: int) -> None:
    """Some seconds, too few to judge memory, and an hour."""
    check(a_day(tmp_path, seconds=seconds))
