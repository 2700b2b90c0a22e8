"""A driven service for each test, and a shared one for tables of requests."""

from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.api.driving import Driver, driving
from tests.memory import memory


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[Driver]:
    """Run a service with its worker, its clock at T."""
    async with driving(tmp_path) as driven:
        yield driven


@pytest.fixture(scope="module")
async def one_driver() -> AsyncIterator[Driver]:
    """Share one service between a file's tables of requests that leave nothing behind.

    Starting a service takes longer than any of those requests.
    """
    with TemporaryDirectory(dir=memory(), prefix="tallyhook-") as folder:
        async with driving(Path(folder)) as driven:
            yield driven
