"""A disk that is slow, or holds a sync up for seconds: nobody waits for long, nothing is lost."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from reconcile.instants import SECOND, Instant
from tests.faults.check import assert_kept
from tests.faults.injecting import INBOX_LOG, LOG, Case, faulty
from tests.faults.load import CONNECTIONS, Answer, load
from tests.faults.plants import HASTY, PATIENT
from tests.faults.service import needs_strace
from tests.waiting import until

pytestmark = [needs_strace, pytest.mark.slow]

HELD_S = 4
"""Eight times what anybody is let wait, so that a machine that stands still does not matter."""

SYNC = 30
"""Number of the log's sync that is held up: one under load."""


@dataclass(slots=True)
class Held:
    """Results of a service whose sync was held up between two instants.

    ready  the status of its readiness meanwhile, with `reasons`
    """

    case: Case
    began: Instant
    ended: Instant
    ready: int
    reasons: list[str]

    @property
    def meanwhile(self) -> list[Answer]:
        """Answers while it was held up, and one for each connection just before."""
        return [each for each in self.case.ledger.answers if self.began < each.at < self.ended]


def held(folder: Path, *, file: str = INBOX_LOG, plant: str = HASTY) -> Held:
    """Load before, while and after a sync is held up."""
    inject = f"fdatasync:delay_enter={HELD_S}s:when={SYNC}"
    with faulty(folder, inject=inject, file=file, plant=plant) as (process, case):
        with load(process.port, name="held") as driver:
            driver.until_it(lambda: 503 in driver.ledger.statuses() or _delayed(case))
            ready, _, said = process.request("GET", "/readyz")
            driver.until_it(lambda: _delayed(case))
            driver.until(len(driver.ledger.acknowledged) + 100)
        case.ledger = driver.ledger
        until(lambda: process.request("GET", "/readyz")[0] == 200)
        assert process.popen.poll() is None
    (line,) = _delayed(case)
    began = Instant(float(line.split(maxsplit=2)[1]) * SECOND)
    ended = began + HELD_S * SECOND
    return Held(case, began, ended, ready=ready, reasons=json.loads(said)["reasons"])


def _delayed(case: Case) -> list[str]:
    """Return the calls that were held up, once they are over."""
    return [line for line in case.trace.read_text().splitlines() if "(DELAYED)" in line]


@pytest.mark.costly
def test_a_sync_that_is_held_up_keeps_no_sender_waiting(tmp_path: Path) -> None:
    """All connections are asked to come again; afterwards deliveries are accepted."""
    found = held(tmp_path)
    answers = found.case.ledger.answers
    refused = [each for each in found.meanwhile if each.status == 503]
    assert len(refused) >= CONNECTIONS
    assert {each.status for each in answers} == {200, 503}
    assert len(found.meanwhile) - len(refused) <= CONNECTIONS
    assert found.ready == 503
    assert "not finished a write" in found.reasons[0]
    assert_kept(tmp_path / "t.db", found.case.ledger.deliveries)
    print(f"{HELD_S} s held up: {len(refused):,} refused, {len(found.case.ledger.acknowledged):,} "
          "acknowledged before and after, none lost")  # fmt: skip


@pytest.mark.soak
def test_a_database_that_is_held_up_refuses_nobody(tmp_path: Path) -> None:
    """Deliveries rest on the inbox, and are read once the database answers."""
    found = held(tmp_path, file=LOG)
    assert len(found.meanwhile) > 10 * CONNECTIONS
    assert {each.status for each in found.case.ledger.answers} == {200}
    assert_kept(tmp_path / "t.db", found.case.ledger.deliveries)


@pytest.mark.soak
def test_a_service_that_is_patient_is_caught(tmp_path: Path) -> None:
    """It lets all senders wait until the disk is there again."""
    found = held(tmp_path, plant=PATIENT)
    assert len(found.meanwhile) <= CONNECTIONS
    assert {each.status for each in found.case.ledger.answers} == {200}


@pytest.mark.soak
def test_a_slow_disk_is_no_reason_to_refuse(tmp_path: Path) -> None:
    """Where every sync takes 50 ms, all deliveries are accepted."""
    inject = "fdatasync:delay_enter=50ms"
    with (
        faulty(tmp_path, inject=inject, file=INBOX_LOG) as (process, case),
        load(process.port, name="slow") as driver,
    ):
        driver.until(200)
    assert len(_delayed(case)) >= 200 / CONNECTIONS
    assert driver.ledger.statuses() == {200}
    assert len(driver.ledger.acknowledged) >= 200
    assert_kept(tmp_path / "t.db", driver.ledger.deliveries)
