"""`tallyhook doctor --capacity`: what a machine and a database carry, and how that is said."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.config.load import load_settings
from app.core.clock import SystemClock
from app.golive import capacity
from app.golive.capacity import CORES, FEW, PLANNED, USUAL_BYTES, WHOLE_WAY, Capacity, judge
from app.monitoring.monitoring_store import ArrivalRates, Stored
from app.monitoring.preflight import Check
from app.receiving.inbox import open_inbox
from reconcile.instants import DAY, MINUTE
from tests.api.driving import environ, of_order
from tests.e2e.processes import command, serving
from tests.reconcile.build import T
from tests.rows import for_each

RATES = ArrivalRates(
    daily=2_000.0,
    days=7,
    busiest_day=3_000,
    day=T // DAY,
    busiest_minute=60,
    minute=T // MINUTE,
)
SHOP = Capacity(
    rates=RATES,
    stored=Stored(1_000_000, 1_500_000_000),
    free=1_500_000_000,
    memory={7: 100_000_000, 8: 150_000_000},
    sync_s=0.002,
    work_s=PLANNED * CORES / (WHOLE_WAY * 2_000),
    cores=CORES,
    shared=False,
)
"""A shop that carries 2,000 deliveries a second."""


def said(found: Capacity) -> dict[str, Check]:
    """Return the checks by name."""
    checks = list(judge(found))
    assert len({each.what for each in checks}) == len(checks)
    return {each.what: each for each in checks}


def test_each_figure_says_whether_it_was_measured_derived_or_extrapolated() -> None:
    found = {name: each.sentence for name, each in said(SHOP).items()}
    assert found.pop("processor").endswith(
        "can process 2,000 deliveries a second, or 172,800,000 a day."
    )
    assert found == {
        "deliveries": "Measured: 2,000 a day on average over 7 days; at most 3,000 in a day "
        "(2026-11-20) and 60 in a minute (2026-11-20T10:00) of the last 90 days.",
        "disk": "Measured: 1.5 GB for 1,000,000 deliveries, which is 1,500 bytes each, including "
        "ledgers and log. "
        "Extrapolated: 1.1 GB a year, 1.6 GB if every day were the busiest.",
        "disk full": "1.5 GB are free above TALLYHOOK_DISK_LOW_WATER_MB. Extrapolated: full in 500 "
        "days, in 333 days if every day were the busiest.",
        "memory": "Measured: 250.0 MB, by process: 7: 100.0 MB, 8: 150.0 MB.",
        "sync": "Measured: the disk syncs a write in 2.0 ms. Derived: a sender that waits for each "
        "answer can send at most 500 a second. Parallel deliveries share a sync.",
        "growth": "Derived: the busiest minute used 0.05% of this machine's capacity. "
        "Extrapolated: with such peaks, this machine can process 6,000,000 deliveries a day. "
        "PostgreSQL is needed at 50%, or if deliveries must continue when a machine is lost.",
    }
    assert {each.state for each in said(SHOP).values()} == {"ok"}


@for_each(
    ("what", "changes", "state", "words"),
    [
        ("disk full", {"free": 89 * 2_000 * 1_500}, "weak", "full in 89 days"),
        ("disk full", {"free": 91 * 2_000 * 1_500}, "ok", "full in 91 days"),
        ("disk full", {"free": 3_651 * 2_000 * 1_500}, "ok", "full in more than ten years"),
        ("disk full", {"rates": replace(RATES, daily=0.0)}, "ok", "full in more than ten years"),
        ("disk full", {"free": None}, "weak", "cannot measure"),
        ("sync", {"sync_s": None}, "ok", "cannot be measured"),
        ("disk", {"stored": Stored(FEW - 1, 30_000_000)}, "ok", f"{USUAL_BYTES:,} bytes each are"),
        ("disk", {"stored": Stored(FEW, 30_000_000)}, "ok", "3,000 bytes each, including ledgers"),
        ("memory", {"memory": {7: 100_000_000, 8: None}}, "weak", "cannot be read"),
        ("memory", {"memory": {}}, "ok", "cannot see any"),
        ("growth", {"rates": replace(RATES, busiest_minute=59_999)}, "ok", "PostgreSQL is needed"),
        ("growth", {"rates": replace(RATES, busiest_minute=60_000)}, "weak", "used 50.00%"),
        ("growth", {"shared": True}, "ok", "Another machine is needed"),
    ],
)
def test_each_bound(what: str, changes: dict[str, Any], state: str, words: str) -> None:
    found = said(replace(SHOP, **changes))[what]
    assert (found.state, words in found.sentence) == (state, True)
    assert (found.do is None) == (state == "ok")


def test_sqlite_uses_two_cores_and_postgresql_all_of_them() -> None:
    many = replace(SHOP, cores=8)
    assert many.carried == SHOP.carried
    assert replace(many, shared=True).carried == 4 * SHOP.carried


def test_nothing_is_extrapolated_from_no_delivery() -> None:
    found = said(replace(SHOP, rates=ArrivalRates(), stored=Stored(0, 400_000)))
    assert set(found) == {"deliveries", "disk", "memory", "sync", "processor"}
    assert "xtrapolated:" not in " ".join(each.sentence for each in found.values())


async def test_of_a_cluster_no_size_is_divided_or_extrapolated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its coordinator holds neither the deliveries nor their number."""
    monkeypatch.setattr(capacity, "CALIBRATION_S", 0.01)
    async with open_inbox(load_settings(environ(tmp_path))):
        pass
    monkeypatch.setattr("app.database.layout.is_spread", lambda _: True)
    found = {each.what: each for each in await capacity.examine_capacity(environ(tmp_path))}
    assert (found["disk"].state, found["disk"].sentence) == (
        "weak",
        "This command cannot measure the disks of a cluster's nodes.",
    )
    assert "disk full" not in found


async def test_a_process_that_has_ended_or_cannot_be_seen_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child may end before its memory is read. The kernel lists a holder in another namespace as
    process 0."""
    monkeypatch.setattr(capacity, "CALIBRATION_S", 0.01)
    async with open_inbox(load_settings(environ(tmp_path))):
        pass
    ended = await asyncio.create_subprocess_exec("true")
    await ended.wait()
    running = await asyncio.create_subprocess_exec("sleep", "60")
    ids = [0, ended.pid, running.pid]
    monkeypatch.setattr(capacity, "processes_serving", lambda _: ids)
    try:
        found = {each.what: each for each in await capacity.examine_capacity(environ(tmp_path))}
    finally:
        running.kill()
        await running.wait()
    sentence = found["memory"].sentence
    assert sentence.count(": ") == 3, sentence
    assert f"by process: {running.pid}: " in sentence


def test_measuring_the_disk_leaves_no_file(tmp_path: Path) -> None:
    assert capacity.sync_time(tmp_path / "absent") is None
    assert (capacity.sync_time(tmp_path) or 0) > 0
    assert list(tmp_path.iterdir()) == []


def test_the_processor_is_measured_by_genuine_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "CALIBRATION_S", 0.01)
    folded = []
    monkeypatch.setattr(capacity, "fold", lambda history, **words: folded.append(history))
    assert 0 < capacity.work_time() < 1
    assert {len(each.deliveries) for each in folded} == {4}


def test_a_running_service_is_measured_and_a_database_not_changed(tmp_path: Path) -> None:
    words, files = ("doctor", "--capacity", "--format", "json"), ("t.db", "t.db.inbox")
    absent = command(tmp_path, *words)
    ((what, state),) = {(each["what"], each["state"]) for each in json.loads(absent.stdout)}
    assert (absent.returncode, what, state) == (1, "database", "must")
    with serving(tmp_path) as process:
        sent = process.send(of_order("O-1", "e1"), at=SystemClock().now())
        assert process.became(sent[1]) == "stored"
        found = {each["what"]: each for each in json.loads(command(tmp_path, *words).stdout)}
    assert found.keys() == said(SHOP).keys()
    assert "1 in a minute" in found["deliveries"]["sentence"]
    assert f"{process.popen.pid}: " in found["memory"]["sentence"]
    assert found["memory"]["sentence"].count("MB") >= 3, "its worker is a process of its own"
    before = [(tmp_path / name).read_bytes() for name in files]
    assert command(tmp_path, *words).returncode == 0
    assert [(tmp_path / name).read_bytes() for name in files] == before
