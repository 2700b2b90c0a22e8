"""The figures of the console: slow, large or missing pages hold no bar."""

import asyncio
import time
from typing import Any

from tests.bench.console import Asked, Beats, Browsed, browsing_figure, page_figures
from tests.bench.load import Leg
from tests.bench.orders import Stretch

STRETCH = Stretch(seed=1, first=0, count=5)


def page(path: str, **changes: Any) -> Asked:
    given: dict[str, Any] = {
        "status": 200, "seconds": [0.01] * 20, "size": 9_000, "worked": 0.01, "held": 0.001,
        "paused": 0.002,
    }  # fmt: skip
    return Asked(path=path, **given | changes)


def test_one_page_that_is_off_is_enough() -> None:
    good = [page("/"), page("/orders")]
    assert all(figure.holds for figure in page_figures(good, STRETCH))
    for changes, place in (
        ({"seconds": [0.01] * 18 + [0.2] * 2}, 0),
        ({"status": 500}, 0),
        ({"held": 0.03}, 1),
        ({"size": 51_000}, 2),
    ):
        figures = page_figures([*good, page("/off", **changes)], STRETCH)
        assert [figure.holds for figure in figures].index(False) == place, changes


def test_the_beats_see_what_holds_the_loop() -> None:
    async def held() -> float:
        beats = Beats()
        beats.begin()
        await asyncio.sleep(0)
        ends = time.thread_time() + 0.05
        while time.thread_time() < ends:
            pass
        await asyncio.sleep(0.005)
        beats.end()
        return beats.held

    assert asyncio.run(held()) >= 0.05


def test_deliveries_that_come_later_beside_people_hold_no_bar() -> None:
    def leg(p99: float, refused: int = 0) -> Leg:
        fields: dict[str, Any] = dict.fromkeys(Leg.__dataclass_fields__, 1)
        return Leg(**fields | {"p99_ms": p99, "refused": refused})

    alone = [leg(10), leg(11), leg(12)]
    for beside, pages, holds in (
        ([leg(10), leg(11), leg(13)], 9, True),
        ([leg(13), leg(14), leg(11)], 9, False),
        ([leg(10), leg(10), leg(10, refused=1)], 9, False),
        ([leg(10), leg(10), leg(10)], 0, False),
    ):
        found = Browsed(alone=alone, beside=beside, pages=pages)
        assert browsing_figure(found).holds is holds
