"""Whichever process folds, and however it ends, every order has the ledger of its events."""

import json
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults.check import assert_kept
from tests.faults.load import deliver, load
from tests.faults.plants import ALWAYS_TWO, SOON_QUIET
from tests.faults.service import Service, a_service
from tests.waiting import until

pytestmark = pytest.mark.slow

BEGAN = b"a second process folds and seals"
FAILED = b'"event":"a part of the worker failed"'
ENDED = b"the second folding process has ended"
KILLED = b'"event":"the second folding process has ended","exit_code":-9'

FAILS_BESIDE = """
import sys
import app.orders.worker as worker

async def fails(folding):
    return 1 // 0

if "--folding" in sys.argv:
    worker.FoldWorker._round = fails
"""

OUTCOMES = (
    "SELECT count(DISTINCT e.order_key) FROM events e WHERE e.order_key IS NOT NULL "
    "AND NOT EXISTS (SELECT 1 FROM ledgers l WHERE l.order_key = e.order_key "
    "AND l.outcome = 'succeeded')"
)
DUE = "SELECT count(*) FROM order_due WHERE due_at <= (SELECT max(as_of) FROM ledgers)"
DOUBLED = (
    "SELECT count(*) FROM (SELECT 1 FROM revisions GROUP BY order_key, substance HAVING count(*)>1)"
)
CALM = "SELECT count(*) FROM ledgers WHERE order_key = 'ORD-calm'"
BY_OTHERS = "SELECT count(*) FROM meta WHERE name='policy' AND value NOT LIKE '%:1800000000,%'"
OF_FILE = "whsec_" + "b3RoZXIgdGhhbiB0aGUgb3RoZXJz" * 2
UNSEALED = "SELECT count(*) FROM unsealed"


def asked(database: Path, query: str) -> int:
    """Return one number from the database."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)) as connection:
        return int(connection.execute(query).fetchone()[0])


def all_folded(database: Path) -> bool:
    """Return whether every order has its ledger, and every row its leaf."""
    return not (asked(database, OUTCOMES) or asked(database, DUE) or asked(database, UNSEALED))


def second(service: Service, first: int) -> int | None:
    """Return the process beside the first one, or None."""
    return next((pid for pid in service.children() if pid != first), None)


def test_one_that_is_killed_again_and_again_leaves_nothing_undone(tmp_path: Path) -> None:
    """Its transactions are atomic, and the first one folds until the next begins."""
    database = tmp_path / "t.db"
    with (
        a_service(tmp_path, script=ALWAYS_TWO, restarts="4") as service,
        load(service.port, name="two") as driver,
    ):
        first = service.worker()
        for kills in range(3):
            until(lambda kills=kills: service.process.log.count(BEGAN) > kills)
            driver.until(len(driver.ledger.acknowledged) + 40)
            until(lambda: second(service, first) is not None)
            os.kill(second(service, first) or 0, signal.SIGKILL)
            until(lambda kills=kills: service.process.log.count(KILLED) > kills)
        driver.until(len(driver.ledger.acknowledged) + 40)
        driver.stop()
        until(lambda: all_folded(database), otherwise=lambda: service.process.log.decode())
        assert service.end(signal.SIGTERM) == 0
    assert_kept(database, driver.ledger.deliveries)
    assert asked(database, DOUBLED) == 0


def test_one_folds_by_the_settings_that_the_service_was_started_with(tmp_path: Path) -> None:
    """Settings changed since the start are in force with the next start."""
    database, settings = tmp_path / "t.db", tmp_path / "settings"
    settings.touch(mode=0o600)
    with a_service(tmp_path, script=SOON_QUIET, restarts="1", CONFIG=str(settings)) as service:
        deliver(service.port, "calm0")
        until(lambda: asked(database, CALM) == 1)
        settings.write_text("TALLYHOOK_PAYMENT_WINDOW_S=77\n")
        with load(service.port, name="other") as driver:
            driver.until_it(lambda: ENDED in service.process.log)
            driver.stop()
        assert (
            b'"event":"the second folding process has ended","exit_code":0' in service.process.log
        )
        until(lambda: all_folded(database), otherwise=lambda: service.process.log.decode())
        assert service.end(signal.SIGTERM) == 0
    assert asked(database, BY_OTHERS) == 0


def test_a_reader_that_is_started_again_reads_by_the_settings_of_the_service(
    tmp_path: Path,
) -> None:
    """Though their file is broken by then; and nobody else can read the secrets that it gets."""
    settings = tmp_path / "settings"
    settings.touch(mode=0o600)
    settings.write_text(f"TALLYHOOK_SOURCES__OTHER__SECRETS={OF_FILE}\n")
    with a_service(tmp_path, restarts="1", CONFIG=str(settings)) as service:
        first = service.worker()
        settings.write_text("this is no setting\n")
        os.kill(first, signal.SIGKILL)
        until(lambda: [*{*service.children()} - {first}])
        deliver(service.port, "calm0")
        until(lambda: asked(tmp_path / "t.db", CALM) == 1)
        (second,) = service.children()
        for shown in ("cmdline", "environ"):
            assert OF_FILE.encode() not in Path(f"/proc/{second}/{shown}").read_bytes()
        assert service.end(signal.SIGTERM) == 0


def test_one_with_a_fault_says_which(tmp_path: Path) -> None:
    """The first one folds all the same."""
    script = ALWAYS_TWO + FAILS_BESIDE
    with a_service(tmp_path, script=script, restarts="2") as service:
        deliver(service.port, "fault0")
        until(lambda: ENDED in service.process.log)
        until(lambda: all_folded(tmp_path / "t.db"), otherwise=lambda: service.process.log.decode())
        assert service.end(signal.SIGTERM) == 0
    lines = service.process.log.splitlines()
    (said, *_) = (json.loads(line) for line in lines if FAILED in line)
    assert said["error_class"] == "builtins.ZeroDivisionError"


def test_one_with_little_to_do_ends_and_the_first_one_folds(tmp_path: Path) -> None:
    """A service that keeps up has the memory of two processes."""
    database = tmp_path / "t.db"
    with a_service(tmp_path, script=SOON_QUIET, restarts="2") as service:
        with load(service.port, name="busy") as driver:
            driver.until_it(lambda: BEGAN in service.process.log)
            driver.stop()
        until(lambda: ENDED in service.process.log)
        assert b'"exit_code":0' in service.process.log
        until(lambda: all_folded(database))
        deliver(service.port, "calm0", "calm1", "calm2")
        until(lambda: asked(database, CALM) == 1, otherwise=lambda: service.process.log.decode())
        until(lambda: all_folded(database), otherwise=lambda: service.process.log.decode())
