"""Retention as an operator meets it: the setting, the service, the commands, what is shown."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from app.core import clock
from app.core.errors import UsageError
from app.orders.refold import refold_until_quiet
from app.privacy import prune
from reconcile.instants import DAY, HOUR, TICK, format_instant
from tests.api.driving import Driver, driving, event, of_order
from tests.cli.test_commands import Run, run
from tests.database.builders import quiet
from tests.reconcile.build import T
from tests.waiting import soon

__all__ = ["run"]

PHONE = "254711223344"
ON: dict[str, Any] = {"RETENTION_DAYS": "30"}


async def filled(driver: Driver) -> dict[str, Any]:
    """Make a settled order whose bodies hold a phone number, and one that is disputed."""
    private = event("e1", customer={"long": "x" * 9_000, "phone": PHONE})
    answer = (await driver.send(private)).json()
    await driver.send(private)
    await driver.send(of_order("O-2", "e2"))
    await driver.send(of_order("O-2", "e3", "disputed"))
    await driver.send({**event("e4"), "environment": "live"})
    await refold_until_quiet(driver.context, limit=100, progress=quiet)
    return dict(answer)


async def until_pruned(driver: Driver, count: int) -> None:
    """Wait until that many deliveries were pruned."""
    sql = "SELECT count(*) FROM deliveries WHERE pruned_at > 0"
    await soon(lambda: driver.rows(sql) == [(count,)])


@pytest.mark.slow
async def test_the_service_prunes_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the time it lets bodies go, says so with the ledger, and the ledger is the same."""
    monkeypatch.setattr(prune, "PASS_S", 0.01)
    monkeypatch.setattr(clock, "LEAP_REST_S", 0.0)
    async with driving(tmp_path, looking=True, **ON) as driver:
        await filled(driver)
        driver.clock.put(T + 30 * DAY - TICK)
        before = (await driver.api("GET", "/orders/ORD-1")).json()
        assert "pruned" not in before
        driver.clock.put(T + 30 * DAY)
        await until_pruned(driver, 2)
        after = (await driver.api("GET", "/orders/ORD-1")).json()
        told = after.pop("pruned")
        assert told["deliveries"] == 2
        assert told["last_at"] == format_instant(T + 30 * DAY)
        assert "bodies and headers of 2 deliveries" in told["sentence"]
        assert after == before | {"as_of": after["as_of"]}
        assert "pruned" not in (await driver.api("GET", "/orders/O-2")).json()
        again = await driver.send(event("e1", customer={"long": "x" * 9_000, "phone": PHONE}))
        assert again.json()["verdict"] == "duplicate"
        assert await driver.ready()


async def test_nothing_is_pruned_for_a_day_after_the_clock_went_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By elapsed time, which nobody sets. What a wrong date prunes is gone."""
    elapsed, looks = [0.0], [0]

    def monotonic() -> float:
        looks[0] += 1
        return elapsed[0]

    async def looked() -> None:
        before = looks[0]
        await soon(lambda: looks[0] > before + 3)

    monkeypatch.setattr(prune, "PASS_S", 0.01)
    monkeypatch.setattr(clock, "monotonic", monotonic)
    async with driving(tmp_path, looking=True, **ON) as driver:
        await filled(driver)
        await looked()
        driver.clock.put(T + 30 * DAY)
        for elapsed[0] in (0.0, clock.LEAP_REST_S - 1):
            await looked()
            assert driver.rows("SELECT count(*) FROM deliveries WHERE pruned_at > 0") == [(0,)]
        elapsed[0] = clock.LEAP_REST_S
        await until_pruned(driver, 2)


async def test_a_clock_that_jumps_once_the_guard_has_looked_prunes_nothing(tmp_path: Path) -> None:
    async with driving(tmp_path, looking=True, **ON) as driver:
        await filled(driver)
        await soon(lambda: driver.rows("SELECT count(*) FROM unsealed") == [(0,)])
        context = driver.context
        retention = prune.retention_of(context.settings, context.sources)
        assert retention is not None
        pruner = prune.Pruner(context, retention)
        guard = pruner._guard

        class Jumping(clock.LeapGuard):
            def has_leapt(self) -> bool:
                leapt = guard.has_leapt()
                driver.clock.put(T + 30 * DAY)
                return leapt

        pruner._guard = Jumping(context.clock)
        await pruner._look()
        assert driver.rows("SELECT count(*) FROM deliveries WHERE pruned_at > 0") == [(0,)]


async def test_nothing_is_pruned_while_something_is_dated_later_than_now(tmp_path: Path) -> None:
    """By the service or by hand. What would be deleted is still shown."""
    async with driving(tmp_path, with_worker=False, **ON) as driver:
        await filled(driver)
        driver.clock.put(T - HOUR)
        retention = prune.retention_of(driver.context.settings, driver.context.sources)
        assert retention is not None
        with pytest.raises(UsageError, match="nothing is pruned while the newest stored date"):
            await prune.prune_settled(driver.context, retention, progress=quiet)
        await prune.prune_settled(driver.context, retention, dry_run=True, progress=quiet)


async def test_it_is_off_unless_asked_for(tmp_path: Path) -> None:
    """Without the setting nothing is ever let go, and no task runs for it."""
    async with driving(tmp_path, looking=True) as driver:
        assert "the pruner" not in dict(driver.service.parts)


@pytest.mark.slow
async def test_a_pruner_that_fails_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What goes wrong in it is tried again; the service stays ready."""
    failures: list[int] = []
    sound = prune.settled_orders

    def failing(*words: Any, **options: Any) -> Any:
        failures.append(1)
        if len(failures) < 3:
            raise RuntimeError("planned")
        return sound(*words, **options)

    monkeypatch.setattr(prune, "PASS_S", 0.01)
    monkeypatch.setattr(clock, "LEAP_REST_S", 0.0)
    monkeypatch.setattr(prune, "settled_orders", failing)
    async with driving(tmp_path, looking=True, **ON) as driver:
        await filled(driver)
        driver.clock.put(T + 31 * DAY)
        await until_pruned(driver, 2)
        assert await driver.ready()


@pytest.mark.slow
def test_nothing_of_it_is_left_in_the_files(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dry run tells what the run then does; afterwards no file holds what was let go, though
    the service ended before it had deleted from its inbox what was read."""

    async def fill() -> str:
        async with driving(tmp_path, with_worker=False, looking=True) as driver:
            return str((await filled(driver))["delivery"])

    delivery = asyncio.run(fill())
    assert run("prune").code == 2
    monkeypatch.setenv("TALLYHOOK_RETENTION_DAYS", "30")

    with closing(sqlite3.connect(tmp_path / "t.db")) as database:
        for table in ("deliveries", "events", "rejections"):
            database.execute(f"UPDATE {table} SET received_at = received_at - {400 * DAY}")
        database.commit()

    def files() -> bytes:
        return b"".join(path.read_bytes() for path in tmp_path.glob("t.db*"))

    assert PHONE.encode() in files()
    would = run("prune", "--dry-run", "--format", "json").document
    assert (would["orders"], would["deliveries"], would["rejections"]) == (1, 2, 1)
    assert [each["order"] for each in would["settled"]] == ["ORD-1"]
    assert PHONE.encode() in files()
    assert "ORD-1" in run("prune", "--dry-run").out
    did = run("prune", "--format", "json").document
    assert {k: v for k, v in did.items() if k not in ("dry_run", "before")} == {
        k: v for k, v in would.items() if k not in ("dry_run", "before")
    }
    assert PHONE.encode() not in files()
    assert "were deleted" in run("orders", "show", "ORD-1").out
    shown = run("deliveries", "show", delivery, "--format", "json").document
    assert (shown["headers"], shown["pruned_at"] is None) == ([], False)
    assert json.dumps(run("deliveries", "list", "--format", "json").document)


@pytest.mark.parametrize("words", [["serve", "--port", "0"], ["prune"], ["prune", "--dry-run"]])
def test_shorter_than_the_provider_redelivers(
    run: Run, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """A time within which the provider may deliver again is refused, with what would be right."""
    monkeypatch.setenv("TALLYHOOK_RETENTION_DAYS", "29")
    ended = run(*words)
    assert (ended.code, ended.out) == (3, "")
    assert "write 30 or more" in ended.err
