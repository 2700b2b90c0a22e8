"""Every delivery acknowledged before a power cut is there after it, whatever a disk keeps of
unsynced data: a recorded service's disk is rebuilt as after a cut at each call."""

import signal
from pathlib import Path

import pytest

from tests.faults.explorer import explore, explore_all
from tests.faults.load import load
from tests.faults.plants import EARLY, NORMAL, SMALL_LOG, script
from tests.faults.service import a_service, needs_strace
from tests.faults.trace import Call, events, recorder

pytestmark = needs_strace

ACKS = 110
"""Acknowledgements in one of the two lives of a recorded service, at least."""

FEW_ACKS = 12
"""Acknowledgements in the gate, in one of the two lives, at least."""

EVERY = 8
"""Step between the calls after which the power is cut in the gate."""

LIVES = (("1", signal.SIGKILL), ("2", signal.SIGTERM))


def record(folder: Path, *plants: str, acks: int = ACKS, lives: int = len(LIVES)) -> Path:
    """Record a service that is killed under load, starts again, and is stopped under load."""
    folder.mkdir()
    for life, number in LIVES[:lives]:
        under = recorder(folder / f"{life}.trace")
        with (
            a_service(folder, script=script(SMALL_LOG, *plants), under=under) as service,
            load(service.port, name=life) as driver,
        ):
            driver.until(acks)
            service.end(number)
    return folder


def calls(recording: Path) -> int:
    traces = recording.glob("*.trace")
    return sum(isinstance(event, Call) for trace in traces for event in events(trace))


def assert_all_kept(
    folder: Path, *, states: int, acks: int, life: int = ACKS, every: int = 1
) -> None:
    """Record until there is enough of both, and check that nothing is wrong anywhere.

    Only states that were laid out and opened count: several calls leave the same state without
    unsynced writes.
    """
    recordings: list[Path] = []
    recorded = 0
    while 3 * recorded < states or 2 * life * len(recordings) < acks:
        recordings.append(record(folder / f"recording-{len(recordings)}", acks=life))
        recorded += calls(recordings[-1]) // every
    found = explore_all(recordings, every=every)
    print(found.sentence())
    assert found.examples == []
    assert (found.lost, found.corrupt, found.halves) == (0, 0, 0)
    assert found.opened >= states
    assert found.acks >= acks


@pytest.mark.slow
def test_every_acknowledged_delivery_outlives_a_cut_at_any_call(tmp_path: Path) -> None:
    assert_all_kept(tmp_path, states=100, acks=2 * FEW_ACKS, life=FEW_ACKS, every=EVERY)


@pytest.mark.soak
@pytest.mark.timeout(7_200)
def test_the_same_of_many_times_as_many(tmp_path: Path) -> None:
    assert_all_kept(tmp_path, states=250_000, acks=8_000)


@pytest.mark.slow
@pytest.mark.parametrize(
    "plant",
    [
        pytest.param(NORMAL, id="synced too rarely", marks=pytest.mark.soak),
        pytest.param(EARLY, id="told too soon", marks=pytest.mark.soak),
    ],
)
def test_a_service_that_breaks_the_promise_is_caught(tmp_path: Path, plant: str) -> None:
    """The search finds losses in a service that syncs too rarely or answers too soon."""
    recording = record(tmp_path / "recording", plant, acks=300, lives=1)
    found = explore(recording, seed=0, every=EVERY)
    print(found.sentence())
    assert found.lost > found.states / 10
    assert found.corrupt == 0 or plant == NORMAL  # of such a loss the service itself tells
