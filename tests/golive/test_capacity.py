"""`tallyhook doctor --capacity`: what a machine and a database carry, and how that is said."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from app.core.clock import SystemClock
from app.golive import capacity
from app.golive.capacity import CORES, FEW, PLANNED, USUAL_BYTES, WHOLE_WAY, Capacity, judge
from app.monitoring.monitoring_store import ArrivalRates, Stored
from app.monitoring.preflight import Check
from reconcile.instants import DAY, MINUTE
from tests.api.driving import of_order
from tests.e2e.processes import command, serving
from tests.reconcile.build import T

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
"""It carries 2,000 deliveries a second."""


def said(found: Capacity) -> dict[str, Check]:
    """Return the checks by name."""
    checks = list(judge(found))
    assert len({each.what for each in checks}) == len(checks)
    return {each.what: each for each in checks}


def test_each_figure_says_whether_it_was_measured_derived_or_extrapolated() -> None:
    found = {name: each.sentence for name, each in said(SHOP).items()}
    assert found.pop("processor").endswith("carries 2,000 deliveries a second, 172,800,000 a day.")
    assert found == {
        "deliveries": "Measured: 2,000 a day in 7 days; at most 3,000 in a day (2026-11-20) and 60 "
        "in a minute (2026-11-20T10:00) of the last 90 days.",
        "disk": "Measured: 1.5 GB for 1,000,000 deliveries, 1,500 bytes each with ledgers and log. "
        "Extrapolated: 1.1 GB a year, 1.6 GB if every day were the busiest.",
        "disk full": "1.5 GB are free above TALLYHOOK_DISK_LOW_WATER_MB. Extrapolated: full in 500 "
        "days, in 333 if every day were the busiest.",
        "memory": "Measured: 250.0 MB, by process: 7: 100.0 MB, 8: 150.0 MB.",
        "sync": "Measured: the disk syncs a write in 2.0 ms. Derived: a sender that waits for each "
        "answer gets 500 a second at most; others share a sync.",
        "growth": "Derived: the busiest minute took 0.05% of what this machine carries. "
        "Extrapolated with such peaks: it carries 4,000,000 deliveries a day. PostgreSQL is due at "
        "50%, or once a lost machine must not stop deliveries.",
    }
    assert {each.state for each in said(SHOP).values()} == {"ok"}


def test_a_disk_that_is_full_within_three_months_is_reported() -> None:
    soon = said(replace(SHOP, free=89 * 2_000 * 1_500))["disk full"]
    assert (soon.state, "full in 89 days" in soon.sentence) == ("weak", True)
    assert "TALLYHOOK_RETENTION_DAYS" in (soon.do or "")
    assert said(replace(SHOP, free=91 * 2_000 * 1_500))["disk full"].state == "ok"


def test_postgresql_is_due_when_the_busiest_minute_takes_half_of_the_machine() -> None:
    crowded = replace(SHOP, rates=replace(RATES, busiest_minute=60_000))
    assert (said(crowded)["growth"].state, "PostgreSQL" in str(said(crowded)["growth"].do)) == (
        "weak",
        True,
    )
    free = replace(SHOP, rates=replace(RATES, busiest_minute=59_999))
    assert said(free)["growth"].state == "ok"
    shared = said(replace(crowded, shared=True, free=None, sync_s=None))
    assert "on another machine" in (shared["growth"].do or "")
    assert (shared["disk full"].state, shared["sync"].state) == ("weak", "ok")


def test_sqlite_uses_two_cores_and_postgresql_all_of_them() -> None:
    many = replace(SHOP, cores=8)
    assert many.carried == SHOP.carried
    assert replace(many, shared=True).carried == 4 * SHOP.carried


def test_too_few_deliveries_are_not_divided_by() -> None:
    """An empty database takes more than a few deliveries do."""
    few = said(replace(SHOP, stored=Stored(FEW - 1, 30_000_000)))["disk"].sentence
    assert f"too few to divide by: {USUAL_BYTES:,} bytes each are assumed." in few
    assert "Extrapolated: 2.1 GB a year" in few
    enough = said(replace(SHOP, stored=Stored(FEW, 30_000_000)))["disk"].sentence
    assert "3,000 bytes each with ledgers and log." in enough


def test_nothing_is_extrapolated_from_no_delivery() -> None:
    found = said(replace(SHOP, rates=ArrivalRates(), stored=Stored(0, 400_000)))
    assert set(found) == {"deliveries", "disk", "memory", "sync", "processor"}
    assert "xtrapolated:" not in " ".join(each.sentence for each in found.values())


def test_memory_that_cannot_be_read_is_not_left_out_of_a_sum() -> None:
    found = said(replace(SHOP, memory={7: 100_000_000, 8: None}))["memory"]
    assert (found.state, "cannot be read" in found.sentence) == ("weak", True)
    assert "can be seen from here" in said(replace(SHOP, memory={}))["memory"].sentence


def test_a_folder_that_may_not_be_written_to_has_no_sync_time(tmp_path: Path) -> None:
    assert capacity.sync_time(tmp_path / "absent") is None
    assert (capacity.sync_time(tmp_path) or 0) > 0
    assert list(tmp_path.iterdir()) == []


def test_the_processor_is_measured_by_genuine_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each delivery is verified, and the fold has all of them."""
    monkeypatch.setattr(capacity, "CALIBRATION_S", 0.01)
    folded = []
    monkeypatch.setattr(capacity, "fold", lambda history, **words: folded.append(history))
    assert 0 < capacity.work_time() < 1
    assert {len(each.deliveries) for each in folded} == {4}


def test_a_running_service_is_measured(tmp_path: Path) -> None:
    with serving(tmp_path) as process:
        sent = process.send(of_order("O-1", "e1"), at=SystemClock().now())
        assert process.became(sent[1]) == "stored"
        ended = command(tmp_path, "doctor", "--capacity", "--format", "json")
        found = {each["what"]: each for each in json.loads(ended.stdout)}
    assert ended.returncode == 0
    assert set(found) == {
        "deliveries", "disk", "disk full", "memory", "sync", "processor", "growth",
    }  # fmt: skip
    assert "1 in a minute" in found["deliveries"]["sentence"]
    assert f"{process.popen.pid}: " in found["memory"]["sentence"]
    assert found["memory"]["sentence"].count("MB") >= 3, "its worker is a process of its own"
    before = digests(tmp_path)
    assert command(tmp_path, "doctor", "--capacity").returncode == 0
    assert digests(tmp_path) == before


def digests(folder: Path) -> dict[str, str]:
    """Return the digest of each file of the database."""
    files = [folder / name for name in ("t.db", "t.db.inbox")]
    return {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in files}


def test_a_database_that_is_not_there_is_said(tmp_path: Path) -> None:
    ended = command(tmp_path, "doctor", "--capacity", "--format", "json")
    ((what, state),) = {(each["what"], each["state"]) for each in json.loads(ended.stdout)}
    assert (ended.returncode, what, state) == (1, "database", "must")
