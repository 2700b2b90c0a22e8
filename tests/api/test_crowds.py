"""Many deliveries of the same events at once, at one receiver on SQLite."""

from pathlib import Path

import pytest

from tests.api.crowds import collisions, many_times
from tests.api.driving import driving


async def test_events_many_times_at_once(tmp_path: Path) -> None:
    async with driving(tmp_path, with_worker=False) as driver:
        await many_times([driver], events=20, times=16)


async def test_ids_with_two_bodies(tmp_path: Path) -> None:
    async with driving(tmp_path, with_worker=False) as driver:
        await collisions([driver], number=30)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
async def test_ten_thousand_events_sixteen_times(tmp_path: Path) -> None:
    async with driving(tmp_path, with_worker=False) as driver:
        await many_times([driver], events=10_000, times=16)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
async def test_a_thousand_ids_with_two_bodies(tmp_path: Path) -> None:
    async with driving(tmp_path, with_worker=False) as driver:
        await collisions([driver], number=1_000)
