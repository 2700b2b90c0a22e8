"""A service that is killed at any moment keeps what it acknowledged, and starts again."""

import random
import signal
import time
from pathlib import Path

import pytest

from tests.faults.check import assert_kept, look
from tests.faults.injecting import (
    DATABASE,
    INBOX,
    INBOX_LOG,
    LOG,
    base,
    copied,
    faulty,
    start,
    under_load,
)
from tests.faults.load import load
from tests.faults.plants import EARLY, SMALL_LOG, script
from tests.faults.service import a_service, needs_strace

pytestmark = pytest.mark.slow

ROUNDS = 3
ACKS = 40
"""Acknowledgements in a round, at least, before the kill."""

CAUGHT_WITHIN = 15
"""Rounds in which a control must have lost something."""


def killed_under_load(folder: Path, number: int, *plants: str, acks: int = ACKS) -> set[str]:
    """Start, load, kill; return the acknowledged deliveries."""
    with (
        a_service(folder, script=script(SMALL_LOG, *plants)) as service,
        load(service.port, name=f"r{number}") as driver,
    ):
        driver.until(acks)
        time.sleep(random.Random(number).random() * 0.05)
        assert service.end(signal.SIGKILL) == -signal.SIGKILL
    return driver.ledger.deliveries


def killed_again_and_again(folder: Path, *, rounds: int, acks: int) -> None:
    """Kill again and again, each start recovering from the last kill, and check that nothing
    acknowledged is lost."""
    acknowledged: set[str] = set()
    for number in range(rounds):
        acknowledged |= killed_under_load(folder, number, acks=acks)
    assert_kept(folder / "t.db", acknowledged)
    print(f"{rounds} kills, {len(acknowledged):,} acknowledgements, none lost")
    assert len(acknowledged) >= rounds * acks


def test_nothing_is_lost_in_three_kills(tmp_path: Path) -> None:
    killed_again_and_again(tmp_path, rounds=ROUNDS, acks=ACKS)


@pytest.mark.soak
@pytest.mark.parametrize(("rounds", "acks"), [(10, 1_000), (250, 4_000)])
def test_nothing_is_lost_in_many_kills(tmp_path: Path, rounds: int, acks: int) -> None:
    """The longer form has a million acknowledgements, and a database that grows all the while."""
    killed_again_and_again(tmp_path, rounds=rounds, acks=acks)


def test_an_answer_before_the_commit_is_caught(tmp_path: Path) -> None:
    """Some round finds a service that answers too soon."""
    acknowledged: set[str] = set()
    for number in range(CAUGHT_WITHIN):
        acknowledged |= killed_under_load(tmp_path, number, EARLY)
        if look(tmp_path / "t.db").lost(acknowledged):
            return
    pytest.fail("nothing was lost in five times as many kills")


READER_ENDED = b'"event":"a child process has ended","component":"the process that reads the inbox"'
ALL_POINTS = [
    ("pwrite64:signal=KILL:when=13", DATABASE),
    ("pwrite64:signal=KILL:when=1", INBOX),
    ("fdatasync:signal=KILL:when=1", INBOX),
    ("fdatasync:signal=KILL:when=1", DATABASE),
    *(
        (f"{call}:signal=KILL:when={n}", file)
        for call, last in (("fdatasync", 100), ("pwrite64", 500))
        for file in (INBOX_LOG, LOG)
        for n in range(1, last + 1)
    ),
]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database that was closed in order."""
    return base(tmp_path_factory.mktemp("stopped") / "base", killed=False)


@needs_strace
@pytest.mark.soak
@pytest.mark.parametrize(("inject", "file"), ALL_POINTS)
async def test_killed_at_any_call(stopped: Path, tmp_path: Path, inject: str, file: str) -> None:
    """These are the first hundred syncs and five hundred writes of each log, and some of the
    files."""
    folder = copied(stopped, tmp_path / "case")
    with faulty(folder, inject=inject, file=file) as (process, case):
        assert case.served, process.log
        if file in (INBOX, INBOX_LOG):
            under_load(process, case, acks=3_000)
            assert process.code() == -signal.SIGKILL
        else:  # what writes to the database is started and killed again and again
            with load(process.port, name="case") as driver:
                driver.until_it(lambda: READER_ENDED in process.log)
                driver.until(len(driver.ledger.acknowledged) + ACKS)
            case.ledger = driver.ledger
            assert process.popen.poll() is None
    killed = [line for line in case.trace.read_text().splitlines() if line.endswith("= ?")]
    assert any(inject.partition(":")[0] in line for line in killed), "the kill was not injected"
    await start(folder)
    assert_kept(folder / "t.db", case.ledger.deliveries)
