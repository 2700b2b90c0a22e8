"""An operator's days: a backlog after a kill, a shop that is away, another machine, a bad network.

Each has a short form here and a long one for `make nightly`, which prints its figures.
"""

import json
import os
import shutil
import signal
import sqlite3
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from app.core.clock import SystemClock
from reconcile.instants import SECOND
from tests.contexts import ACCEPTED
from tests.docs.test_runbook import steps
from tests.e2e.endpoint import listening
from tests.e2e.processes import command, running, serving, token
from tests.faults.check import assert_kept, look
from tests.faults.load import deliver, load
from tests.faults.network import needs_namespaces, network
from tests.faults.plants import ALARMS_SOON, WATCHFUL, script
from tests.faults.service import a_service
from tests.waiting import until

pytestmark = pytest.mark.slow

SOON = """
from app.orders import notify_shop
notify_shop.FIRST_PAUSE = 100_000
"""
"""A first pause of a tenth of a second before a notification is sent again."""

SECRET = "whsec_c2hvcC1zZWNyZXQtb2YtMzAtYnl0ZXMtbG9uZyE="


def rows(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    """Return what the database of a folder answers."""
    with closing(sqlite3.connect(f"file:{folder / 't.db'}?mode=ro", uri=True)) as database:
        return database.execute(sql).fetchall()


def sound(folder: Path, acknowledged: set[str]) -> None:
    """Check that all of them are there, and that `db check` finds nothing."""
    assert_kept(folder / "t.db", acknowledged)
    checked = command(folder, "db", "check", "--deep", "--jobs", "1")
    assert checked.returncode == 0, checked.stdout + checked.stderr


# --- a backlog after a kill ----------------------------------------------------------------------


UNFOLDED = """
SELECT count(*) FROM order_due d
WHERE NOT EXISTS (SELECT 1 FROM ledgers l WHERE l.order_key = d.order_key)
"""


def read_after_a_kill(folder: Path, unread: int) -> str:
    """Let deliveries wait unread, kill all, start, and return when each step was reached."""
    with a_service(folder, script=WATCHFUL, INBOX_ALARM_S="1", INBOX_RED_S="1") as service:
        reader = service.worker()
        os.kill(reader, signal.SIGSTOP)
        with load(service.port, again=10_000) as driver:
            driver.until(unread)
        until(lambda: service.alarms("reader"))
        status, _, told = service.process.request("GET", "/readyz")
        assert (status, b"have been unread for" in told) == (503, True)
        service.signal(signal.SIGKILL)
        os.kill(reader, signal.SIGKILL)
        service.process.code()
    acknowledged = driver.ledger.deliveries
    assert rows(folder, "SELECT count(*) FROM deliveries") < [(len(acknowledged) // 2,)]
    began = time.monotonic()
    with a_service(folder) as service:
        acknowledged |= {answer.delivery for answer in deliver(service.port, "first-1")}
        first = time.monotonic() - began
        until(lambda: rows(folder, "SELECT count(*) FROM revisions") > [(0,)])
        folded = time.monotonic() - began
        until(lambda: rows(folder, "SELECT count(*) FROM deliveries") >= [(len(acknowledged),)])
        until(lambda: rows(folder, UNFOLDED) == [(0,)])
        done = time.monotonic() - began
        assert service.process.end() == 0
    sound(folder, acknowledged)
    return (
        f"{len(acknowledged):,} unread after a kill: first answer {first:.1f} s after the start, "
        f"first fold {folded:.1f} s, all folded {done:.1f} s"
    )


def test_what_waited_unread_is_read_and_folded_after_a_kill(tmp_path: Path) -> None:
    assert "unread after a kill" in read_after_a_kill(tmp_path, 200)


@pytest.mark.soak
def test_twenty_thousand_unread_after_a_kill(tmp_path: Path) -> None:
    print(read_after_a_kill(tmp_path, 20_000))


@pytest.mark.soak
def test_an_alarm_comes_and_goes_within_five_seconds_of_its_limit(tmp_path: Path) -> None:
    """By the real clock: of a reader that stands still, in readiness and figures."""
    limit_s, within_s = 10, 5
    with a_service(tmp_path, INBOX_ALARM_S=str(limit_s)) as service:
        for number in range(3):
            os.kill(service.worker(), signal.SIGSTOP)
            (answer,) = deliver(service.port, f"unread-{number}")
            until(lambda: service.alarms("reader"))
            came = (SystemClock().now() - answer.at) / SECOND
            os.kill(service.worker(), signal.SIGCONT)
            resumed = SystemClock().now()
            until(lambda: not service.alarms("reader"))
            went = (SystemClock().now() - resumed) / SECOND
            print(f"an alarm at {limit_s} s came after {came:.1f} s, and went after {went:.1f} s")
            assert limit_s <= came <= limit_s + within_s
            assert went <= within_s
        assert service.process.end() == 0


# --- a shop that is away, slow, or fails for one order -------------------------------------------


class Shop:
    """An endpoint for notifications that fails as it is told.

    status   what it answers to the notification of an order
    delay_s  how long each answer takes
    """

    def __init__(self) -> None:
        self.port, self.delay_s = 0, 0.0
        self.failing: set[str] = set()
        self.heard: dict[str, list[int]] = {}
        """Numbers of the revisions that it accepted, by order."""
        self._lock = Lock()

    def _take(self, _: str, document: dict[str, Any]) -> int:
        order, number = document["data"]["order"], document["data"]["id"]
        time.sleep(self.delay_s)
        if order in self.failing:
            return 500
        with self._lock:
            self.heard.setdefault(order, []).append(number)
        return 204

    @contextmanager
    def open(self) -> Iterator[None]:
        """Listen, on the same port each time, until the block ends."""
        with listening(self._take, port=self.port) as self.port:
            yield

    def settings(self) -> dict[str, str]:
        """Return the settings with which a service notifies it."""
        with self.open():  # which chooses the port
            return {"SHOP__URL": f"http://127.0.0.1:{self.port}/", "SHOP__SECRET": SECRET}

    def heard_all(self, folder: Path) -> bool:
        """Return whether it has accepted the newest revision of each order."""
        newest = dict(rows(folder, "SELECT order_key, max(seq) FROM revisions GROUP BY order_key"))
        with self._lock:
            return {order: numbers[-1] for order, numbers in self.heard.items()} == newest


def told_of_shop(folder: Path, **settings: str) -> tuple[str, str]:
    """Return state and sentence of what `doctor` says of the shop."""
    told = json.loads(command(folder, "doctor", "--format", "json", **settings).stdout)
    return next((each["state"], each["sentence"]) for each in told if each["what"] == "shop")


def notified_after_absence(folder: Path, *, orders: int, away_s: float, plant: str = "") -> str:
    """Have a shop away while orders are paid, and return how long it then took to notify it."""
    shop, names = Shop(), [f"away{number}-1" for number in range(orders)]
    settings = shop.settings()
    with a_service(folder, script=plant, **settings) as service:
        began = time.monotonic()
        acknowledged = {answer.delivery for answer in deliver(service.port, *names)}
        until(lambda: rows(folder, "SELECT count(*) FROM revisions") == [(orders,)])
        until(lambda: b"the shop does not accept notifications" in service.process.log)
        until(lambda: service.alarms("shop_away"))
        time.sleep(max(0.0, away_s - (time.monotonic() - began)))
        assert told_of_shop(folder, **settings) == (
            "must",
            "It does not answer (connection_failed).",
        )
        back = time.monotonic()
        with shop.open():
            for step in steps("Alarms", "shop_away") if plant else ():
                assert command(folder, *step, **settings).returncode == 0
            for tenth in range(1, 11):  # each within the usual patience
                until(lambda least=orders * tenth // 10: len(shop.heard) >= least)
            until(lambda: shop.heard_all(folder))
            took = time.monotonic() - back
            assert told_of_shop(folder, **settings)[0] == "ok"
            until(lambda: not service.alarms("shop_away"))
            assert service.process.end() == 0
    said = [line["event"] for line in service.process.lines if "shop" in line["event"]]
    assert said == [
        "the shop does not accept notifications",
        "the shop accepts notifications again",
    ]
    assert len(acknowledged) == len(shop.heard) == orders
    sound(folder, acknowledged)
    return (
        f"a shop away for {away_s:.0f} s: {orders:,} orders notified {took:.1f} s after its return"
    )


def test_a_shop_that_comes_back_hears_of_every_order(tmp_path: Path) -> None:
    """`doctor` and an alarm name it meanwhile, and the runbook's step has it notified at once; the
    log has one line when it goes, and one at its return."""
    print(notified_after_absence(tmp_path, orders=40, away_s=1.0, plant=ALARMS_SOON))


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_five_thousand_notifications_wait_ten_minutes(
    tmp_path: Path,
) -> None:
    print(notified_after_absence(tmp_path, orders=5_000, away_s=600.0))


def notified_slowly(folder: Path, *, orders: int, delay_s: float) -> str:
    """Notify a shop that takes its time for each answer, while providers deliver."""
    shop, names = Shop(), [f"slow{number}-1" for number in range(orders)]
    settings, shop.delay_s = shop.settings(), delay_s
    with shop.open(), a_service(folder, **settings) as service:
        began = time.monotonic()
        acknowledged = {answer.delivery for answer in deliver(service.port, *names)}
        answered = time.monotonic() - began
        until(lambda: len(shop.heard) == orders and shop.heard_all(folder))
        took = time.monotonic() - began
        assert service.process.end() == 0
    assert answered < took, "the provider waited for the shop"
    sound(folder, acknowledged)
    return f"a shop that takes {delay_s} s an answer: {orders} orders notified in {took:.1f} s"


def test_a_slow_shop_holds_no_provider_up(tmp_path: Path) -> None:
    print(notified_slowly(tmp_path, orders=24, delay_s=0.5))


@pytest.mark.soak
def test_a_shop_that_takes_five_seconds_an_answer(tmp_path: Path) -> None:
    print(notified_slowly(tmp_path, orders=160, delay_s=5.0))


def test_a_shop_that_fails_for_one_order_hears_of_all_others(tmp_path: Path) -> None:
    """The order is listed as stuck, with an alarm; the runbook's step sends it to a mended shop."""
    shop, names = Shop(), [f"one{number}-1" for number in range(20)]
    settings, failing = shop.settings(), "ORD-one7-"
    shop.failing.add(failing)
    listing, redelivering = steps("Alarms", "notification_stuck")
    listing += ["--format", "json"]
    with shop.open(), a_service(tmp_path, script=script(SOON, ALARMS_SOON), **settings) as service:
        acknowledged = {answer.delivery for answer in deliver(service.port, *names)}
        until(lambda: len(shop.heard) == len(names) - 1)
        until(lambda: b"one7" in command(tmp_path, *listing, **settings).stdout)
        (stuck,) = json.loads(command(tmp_path, *listing, **settings).stdout)
        assert (stuck["order"], stuck["state"]) == (failing, "stuck"), stuck
        until(lambda: service.alarms("notification_stuck"))
        assert not service.alarms("shop_away")
        shop.failing.clear()
        assert command(tmp_path, *redelivering, **settings).returncode == 0
        until(lambda: shop.heard_all(tmp_path))
        until(lambda: not service.alarms("notification_stuck"))
        assert service.process.end() == 0
    sound(tmp_path, acknowledged)


# --- a damaged database --------------------------------------------------------------------------


def test_a_damaged_database_is_replaced_by_its_newest_backup(tmp_path: Path) -> None:
    """By the runbook's step. What came after the backup is named, and goes on only if accepted."""
    backup, damaged = tmp_path / "one.backup", tmp_path / "t.db"
    with serving(tmp_path) as process:
        kept = {answer.delivery for answer in deliver(process.port, "a-1", "b-1")}
        until(lambda: rows(tmp_path, "SELECT count(*) FROM revisions") == [(2,)])
        assert command(tmp_path, "backup", str(backup)).returncode == 0
        later = {answer.delivery for answer in deliver(process.port, "c-1", "d-1", "e-1")}
        until(lambda: rows(tmp_path, "SELECT count(*) FROM revisions") == [(5,)])
        assert process.end() == 0
    os.truncate(damaged, damaged.stat().st_size // 2)
    refused = command(tmp_path, "serve", "--port", "0")
    assert (refused.returncode, b"the database file is damaged" in refused.stderr) == (4, True)
    checking, restoring = steps("Not ready", "the database file is damaged")
    assert command(tmp_path, *checking).returncode != 0
    restoring[restoring.index("FILE")] = str(backup)
    refused = command(tmp_path, *restoring)
    assert refused.returncode == 3
    assert b"--accept-gap --reason TEXT" in refused.stderr
    done = command(tmp_path, *restoring, "--accept-gap", "--reason", "the disk failed")
    assert done.returncode == 0, done.stderr
    ((kind, most, reason),) = rows(tmp_path, "SELECT kind, deliveries, reason FROM gaps")
    assert (kind, reason) == ("database", "the disk failed")
    assert list(tmp_path.glob("t.db.replaced-*"))
    with serving(tmp_path) as process:
        kept |= {answer.delivery for answer in deliver(process.port, "f-1")}
        assert process.end() == 0
    assert len(look(damaged).lost(later)) <= most
    sound(tmp_path, kept)


# --- another machine, and another user -----------------------------------------------------------


ANOTHER = 61_234
"""Number of a user that no machine has a name for."""

READS = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
"""Capability to read everything, so that the program runs wherever it is installed. It writes only
its own files."""


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None,
    reason="it takes root and `setpriv` (util-linux) to become another user",
)
def test_a_backup_is_restored_and_served_by_another_user_at_another_path(tmp_path: Path) -> None:
    """The files are that user's alone, old cursors go on, and `db check` finds nothing."""
    here, there = tmp_path / "here", Path(tempfile.mkdtemp(prefix="tallyhook-there-", dir="/tmp"))
    here.mkdir()
    try:
        with serving(here) as process:
            shop = token(here)
            acknowledged = {answer.delivery for answer in deliver(process.port, "a-1", "b-1")}
            until(lambda: rows(here, "SELECT count(*) FROM revisions") == [(2,)])
            cursor = process.get("/api/v1/outcomes?after=0&limit=1", shop)["outcomes"][0]["id"]
            assert command(here, "backup", str(here / "one.backup")).returncode == 0
            assert process.end() == 0
        for kept in here.glob("*"):
            if kept.name == "one.backup" or ".key" in kept.name or kept.name == "t.erasures":
                shutil.copy(kept, there / kept.name)
        for each in (there, *there.iterdir()):
            os.chown(each, ANOTHER, ANOTHER)
        them = ["setpriv", f"--reuid={ANOTHER}", f"--regid={ANOTHER}", "--clear-groups", *READS]
        with running(
            there, "restore", *ACCEPTED, str(there / "one.backup"), within=them, stays=False
        ) as done:
            assert done.code() == 0, done.log
        with running(
            there,
            "serve",
            "--port",
            "0",
            within=them,
            DATABASE_URL=f"sqlite+aiosqlite:///{there}/t.db",
        ) as process:
            later = process.get(f"/api/v1/outcomes?after={cursor}", shop)["outcomes"]
            assert [each["order"] for each in later] == ["ORD-b-"]
            acknowledged |= {answer.delivery for answer in deliver(process.port, "c-1")}
            until(
                lambda: rows(there, "SELECT count(*) FROM revisions") >= [(3,)],
                otherwise=lambda: (
                    rows(there, "SELECT seq, order_key FROM revisions"),
                    process.log[-3000:],
                ),
            )
            assert process.end() == 0
        for kept in there.iterdir():
            assert kept.stat().st_uid == ANOTHER, kept
            assert not stat.S_IMODE(kept.stat().st_mode) & 0o077, kept
        sound(there, acknowledged)
    finally:
        shutil.rmtree(there)


# --- a network that loses packets ----------------------------------------------------------------


def delivered_over_a_bad_network(
    folder: Path, *, deliveries: int, loss: float, delay_s: float
) -> str:
    """Deliver from another network, through one that loses and reorders packets."""
    with network(loss=loss, delay_s=delay_s) as bad:
        words = ("serve", "--host", bad.host, "--port", "0")
        with running(folder, *words, within=bad.inside) as process:
            process.host = bad.host
            began = time.monotonic()
            with load(process.port, host=bad.host, again=5) as driver:
                driver.until(deliveries)
            took = time.monotonic() - began
            bad.loss = bad.delay_s = 0.0
            assert process.request("GET", "/readyz")[0] == 200
            assert process.end() == 0
    assert driver.ledger.statuses() == {200}
    assert bad.dropped > 0
    sound(folder, driver.ledger.deliveries)
    count = len(driver.ledger.acknowledged)
    return (
        f"{bad.dropped:,} of {bad.dropped + bad.carried:,} packets dropped, the others up to "
        f"{delay_s * 1000:.0f} ms late: {count:,} acknowledged in {took:.0f} s, none lost"
    )


@pytest.mark.costly
@needs_namespaces
def test_a_network_that_loses_packets_loses_no_delivery(tmp_path: Path) -> None:
    print(delivered_over_a_bad_network(tmp_path, deliveries=25, loss=0.08, delay_s=0.04))


@pytest.mark.soak
@needs_namespaces
def test_ten_thousand_deliveries_over_a_network_that_loses_packets(tmp_path: Path) -> None:
    print(delivered_over_a_bad_network(tmp_path, deliveries=10_000, loss=0.03, delay_s=0.02))
