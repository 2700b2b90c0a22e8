"""The bench of several readers and workers: its figures know a wrong answer, and what its ceilings
are of is done."""

from dataclasses import replace
from typing import Any

import pytest

from tests.bench.scaling import (
    CORES,
    Drained,
    ceiling_figures,
    drained_figures,
    measure_ceilings,
)

pytestmark = pytest.mark.postgres

DONE = Drained(
    seconds=10.0,
    deliveries=1_000,
    waited={"advisory": 0.05},
    processor_s=(2.0, 1.0),
    right=True,
    unbroken=True,
)
FAST = {1: DONE, 4: replace(DONE, seconds=2.5), 8: replace(DONE, seconds=1.25)}


@pytest.mark.parametrize("wrong", [{"right": False}, {"unbroken": False}, {"seconds": 4.0}])
def test_speed_with_a_wrong_answer_holds_nothing(wrong: dict[str, Any]) -> None:
    assert all(figure.holds for figure in drained_figures(FAST))
    figures = drained_figures(FAST | {4: replace(FAST[4], **wrong)})
    assert [figure.holds for figure in figures] == [False, True, True, True]


def test_waiting_for_locks_is_a_figure_of_its_own() -> None:
    figures = drained_figures(FAST | {8: replace(FAST[8], waited={"advisory": 0.2})})
    assert [figure.holds for figure in figures] == [True, True, True, False]


def test_the_processor_time_of_a_delivery_is_printed() -> None:
    """It tells whether the cores or the locks bound the figure."""
    details = drained_figures(FAST)[1].details
    assert details["microseconds of a processor for a delivery"] == 2_000
    assert details["microseconds of the server for a delivery"] == 1_000
    assert details["used of all cores"] == 3.0 / 2.5 / CORES


async def test_ceilings_are_of_all_that_was_prepared(url: str) -> None:
    found = await measure_ceilings(url, 40)
    assert [each.count for each in found.parts] == [160, 40, 200]
    assert found.right
    fast = [replace(each, seconds=1e-6) for each in found.parts]
    for right in (True, False):
        figures = ceiling_figures(replace(found, parts=fast, right=right))
        assert [figure.holds for figure in figures] == [right] * 3
