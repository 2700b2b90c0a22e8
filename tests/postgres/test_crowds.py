"""Many deliveries of the same events at once, at several receivers on one PostgreSQL."""

import io
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from app.core.logs import configure_logging
from tests.api.crowds import collisions, many_times
from tests.api.driving import Driver, driving

pytestmark = pytest.mark.postgres


@pytest.fixture(autouse=True)
def log() -> None:
    """Drop the log line of each delivery."""
    configure_logging(format="json", level="warning", stream=io.StringIO())


@asynccontextmanager
async def receivers(folder: Path, url: str, count: int = 4) -> AsyncIterator[list[Driver]]:
    """Start so many services, each in a folder of its own."""
    async with AsyncExitStack() as stack:
        found = []
        for number in range(count):
            (own := folder / str(number)).mkdir()
            service = driving(own, with_worker=False, DATABASE_URL=url)
            found.append(await stack.enter_async_context(service))
        yield found


async def test_events_many_times_at_once(url: str, tmp_path: Path) -> None:
    """Each is stored once and has one effect."""
    async with receivers(tmp_path, url) as crowd:
        await many_times(crowd, events=12, times=8)


async def test_ids_with_two_bodies(url: str, tmp_path: Path) -> None:
    """Both are kept, and the order of arrival means nothing."""
    async with receivers(tmp_path, url) as crowd:
        await collisions(crowd, number=15)


@pytest.mark.soak
@pytest.mark.timeout(7_200)
async def test_ten_thousand_events_sixty_four_times(url: str, tmp_path: Path) -> None:
    """The long form of the first."""
    async with receivers(tmp_path, url) as crowd:
        await many_times(crowd, events=10_000, times=64)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
async def test_a_thousand_ids_with_two_bodies(url: str, tmp_path: Path) -> None:
    """The long form of the second."""
    async with receivers(tmp_path, url) as crowd:
        await collisions(crowd, number=1_000)
