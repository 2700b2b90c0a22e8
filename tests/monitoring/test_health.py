"""Figures of the service while a write is held up."""

from pathlib import Path

import pytest

from app.context.context import AppContext
from app.monitoring import health
from app.monitoring.health import store_state
from tests.api.driving import driving


async def test_the_queue_is_counted_before_anything_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check whether it can be written may wait; by then the queue may be empty."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        queue = driver.service.inbox.queue
        depths = iter((7, 0))
        monkeypatch.setattr(type(queue), "depth", property(lambda self: depth[0]))
        depth = [next(depths)]

        async def held_up(context: AppContext) -> None:
            depth[0] = next(depths)

        monkeypatch.setattr(health, "refusal", held_up)
        assert (await store_state(driver.context)).queue == 7
