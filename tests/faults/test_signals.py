"""Processes that a signal ends: any process left names it, the signal and its likely cause."""

import os
import signal
from pathlib import Path

import pytest

from app.core.process import why_ended
from tests.faults.load import deliver
from tests.faults.service import a_service
from tests.waiting import until

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (4, "it ended with exit code 4"),
        (-signal.SIGBUS, "it was ended by SIGBUS (Bus error): a file that it had mapped"),
        (-signal.SIGKILL, "it was ended by SIGKILL (Killed): a person killed it, or the system"),
        (-signal.SIGSEGV, "at fault"),
        (-signal.SIGTERM, "it was ended by SIGTERM (Terminated): somebody ended it"),
        (-1000, "it was ended by signal 1000"),
    ],
)
def test_an_exit_code_is_said_in_words(code: int, said: str) -> None:
    assert said in why_ended(code)


def test_a_reader_that_a_signal_ends_is_explained_and_started_again(tmp_path: Path) -> None:
    with a_service(tmp_path, restarts="1") as service:
        first = service.worker()
        os.kill(first, signal.SIGBUS)
        until(lambda: b"it was ended by SIGBUS (Bus error)" in service.process.log)
        until(lambda: service.children() not in ([], [first]))
        assert deliver(service.port, "e1")[0].status == 200
        assert service.end(signal.SIGTERM) == 0


def test_a_receiver_that_a_signal_ends_is_reported_by_its_reader(tmp_path: Path) -> None:
    """It cannot say so itself."""
    with a_service(tmp_path) as service:
        until(lambda: service.process.request("GET", "/readyz")[0] == 200)
        assert deliver(service.port, "e1")[0].status == 200
        until(lambda: b'"verdict":"stored"' in service.process.log)  # it hears its parent
        assert service.end(signal.SIGBUS) == -signal.SIGBUS
    (line,) = [each for each in service.process.lines if "receiver has ended" in each["event"]]
    assert "such as the -shm file of the database or the inbox" in line["problem"]


def test_one_that_ends_as_asked_reports_nothing(tmp_path: Path) -> None:
    with a_service(tmp_path) as service:
        deliver(service.port, "e1")
        assert service.end(signal.SIGTERM) == 0
    assert b"receiver has ended" not in service.process.log
