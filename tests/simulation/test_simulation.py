"""Seeded worlds in which every promise is kept: thousands in the long form."""

import io
import os
from collections.abc import Iterable

import pytest

from tests.simulation.many import play

GATE = (0, 1, 3)
"""Worlds of the gate, of half a second to two seconds each; together they have all of `HAPPENS`."""

LONG = 2_000
"""Worlds of the long form, from 0 on, unless `SIMULATION_SEEDS` is set."""

HAPPENS = frozenset(
    (
        *("starts", "stops", "failed", "killed before", "killed after", "power cut"),
        *("power cut in the middle of a commit", "clock steps", "nobody there"),
        *("held", "lost", "gateway", "signature_invalid", "wrong_environment"),
        "accepted",
    )
)
"""Faults that must occur in the worlds of one test, or they would prove little."""


@pytest.mark.slow
def test_every_promise_is_kept_in_every_world(log: io.StringIO) -> None:
    """Whatever is lost, doubled, delayed or killed: all ends as the provider knows it."""
    every_promise_is_kept(GATE, log)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_every_promise_is_kept_in_two_thousand_worlds(log: io.StringIO) -> None:
    every_promise_is_kept(range(int(os.environ.get("SIMULATION_SEEDS", LONG))), log)


def every_promise_is_kept(worlds: Iterable[int], log: io.StringIO) -> None:
    total = play(worlds)
    print(total.text())
    assert not total.failures, total.text()
    assert "an order cannot be folded" not in log.getvalue()
    assert total.counts.keys() >= HAPPENS
