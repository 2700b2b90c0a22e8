"""Upgrades, and changes of settings and profiles, while providers deliver."""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from app import providers
from app.database import schema
from tests.api.driving import environ
from tests.cli.test_other_version import MIGRATION, NEWER
from tests.docs.test_runbook import steps
from tests.e2e.processes import Process, command
from tests.faults.check import assert_kept
from tests.faults.load import load
from tests.faults.plants import WATCHFUL
from tests.faults.service import a_service, planted
from tests.faults.test_operators_day import UNFOLDED, rows, sound
from tests.waiting import until

pytestmark = pytest.mark.slow

OLDER_RULES = """
import reconcile.ledger.policy as policy
import reconcile.ledger.fold as folding
from reconcile.ledger.ledger import Reason

policy.FORM -= 1
folding.withheld = lambda case, judgement: (Reason(code="price_unknown", cites=()),)
"""
"""A build of the same schema whose rules let no order be shipped."""

PROFILES = Path(providers.__file__).with_name("profiles")

ACKS = 30

SHIPS = "SELECT order_key FROM ledgers WHERE fulfillable"


def loaded(folder: Path, name: str, *, acks: int, script: str = "", **more: str) -> set[str]:
    """Serve a build under load, stop it as a supervisor does, and return what it acknowledged."""
    with (
        a_service(folder, script=script, **more) as service,
        load(service.port, name=name, rest_s=0.02) as driver,
    ):
        driver.until(acks)
        assert service.end(signal.SIGTERM) == 0
    return driver.ledger.deliveries


def held(folder: Path) -> set[str]:
    """Return the orders that an upgrade holds."""
    words = ("orders", "list", "--finding", "held_back", "--limit", "1000", "--format", "json")
    return {each["order"] for each in json.loads(command(folder, *words).stdout)}


def test_orders_that_only_newer_rules_let_ship_are_held_after_an_upgrade_under_load(
    tmp_path: Path,
) -> None:
    """Orders of the newer build alone are not held. Each order is folded by the newer rules, and an
    alarm lasts until each held order was released by the runbook's step."""
    acknowledged = loaded(tmp_path, "old", acks=ACKS, script=OLDER_RULES)
    before = {order for (order,) in rows(tmp_path, "SELECT DISTINCT order_key FROM revisions")}
    assert before
    acknowledged |= loaded(tmp_path, "new", acks=ACKS)
    with a_service(tmp_path, script=WATCHFUL) as service:
        until(lambda: rows(tmp_path, UNFOLDED) == [(0,)] and service.alarms("held"))
        until(lambda: len(held(tmp_path)) >= len(before))
        assert held(tmp_path) == before
        ships = {order for (order,) in rows(tmp_path, SHIPS)}
        assert ships
        assert not ships & before
        listing, releasing, *_ = steps("Alarms", "held")
        assert all(order.encode() in command(tmp_path, *listing).stdout for order in before)
        meant = {"REF": sorted(before), "REASON": ["rules_changed"], "…": ["a test"]}
        words = [each for word in releasing for each in meant.get(word, [word])]
        assert command(tmp_path, *words).returncode == 0
        until(lambda: before <= {order for (order,) in rows(tmp_path, SHIPS)})
        until(lambda: not service.alarms("held"))
        assert service.end(signal.SIGTERM) == 0
    sound(tmp_path, acknowledged)


NEWER_BUILD = """
from pathlib import Path
from app import providers
from app.database import schema

schema.MIGRATIONS = Path({folder!r})
schema.VERSIONS, schema.NEWEST = (*schema.VERSIONS, {newer!r}), {newer!r}
"""
"""A build with one more migration."""


def test_an_upgrade_to_a_newer_schema_under_load_keeps_all(tmp_path: Path) -> None:
    """`serve` of the newer build makes it; then the older one's commands refuse."""
    migrations, live = tmp_path / "migrations", tmp_path / "live"
    live.mkdir()
    shutil.copytree(schema.MIGRATIONS, migrations)
    text = MIGRATION.format(newer=NEWER, older=schema.NEWEST)
    (migrations / "versions" / "newer.py").write_text(text)
    newer = NEWER_BUILD.format(folder=str(migrations), newer=NEWER)
    acknowledged = loaded(live, "old", acks=ACKS)
    acknowledged |= loaded(live, "new", acks=ACKS, script=newer)
    assert rows(live, "SELECT version_num FROM alembic_version") == [(NEWER,)]
    assert command(live, "orders", "list").returncode == 3
    with planted(newer) as environment:
        words = [sys.executable, "-m", "app", "db", "check", "--deep", "--jobs", "1"]
        checked = Process(words, environ(live) | environment)
        assert checked.code() == 0, checked.log
    assert checked.popen.stderr is not None
    checked.popen.stderr.close()
    assert_kept(live / "t.db", acknowledged)


def test_settings_and_profiles_changed_under_load_take_effect_at_the_next_start(
    tmp_path: Path,
) -> None:
    """A reader that is killed meanwhile goes on by those of the start, though both are broken."""
    settings, profile, live = tmp_path / "settings", tmp_path / "own.toml", tmp_path / "live"
    live.mkdir()
    settings.touch(mode=0o600)
    settings.write_text("TALLYHOOK_GRACE_S=60\n")
    profile.write_text((PROFILES / "checkout.toml").read_text())
    more = {"CONFIG": str(settings), "SOURCES__SHOP__PROFILE": str(profile)}
    with a_service(live, restarts="3", **more) as service:
        with load(service.port, rest_s=0.02) as driver:
            driver.until(ACKS)
            settings.write_text("TALLYHOOK_GRACE_S=soon\n")
            profile.write_text("broken = \n")
            os.kill(service.worker(), signal.SIGKILL)
            driver.until(2 * ACKS)
        count = f"SELECT count(*) >= {len(driver.ledger.acknowledged)} FROM deliveries"
        until(lambda: rows(live, count) == [(1,)])
        until(lambda: service.process.request("GET", "/readyz")[0] == 200)
        assert service.end(signal.SIGTERM) == 0
    assert command(live, "serve", "--port", "0", **more).returncode == 3
    profile.write_text((PROFILES / "checkout.toml").read_text())
    settings.write_text("TALLYHOOK_GRACE_S=61\n")
    acknowledged = driver.ledger.deliveries | loaded(live, "later", acks=ACKS, **more)
    assert rows(live, "SELECT count(*) FROM deliveries WHERE verdict = 'unreadable'") == [(0,)]
    assert_kept(live / "t.db", acknowledged)
    assert command(live, "db", "check", "--deep", "--jobs", "1", **more).returncode == 0
