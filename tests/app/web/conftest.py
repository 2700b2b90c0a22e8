"""A driven service for each test, and the log that it writes."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.logs import configure_logging
from tests.app.web.driving import Driver, driving


@pytest.fixture(autouse=True)
def log() -> io.StringIO:
    """What the process logs during the test."""
    stream = io.StringIO()
    configure_logging(format="json", level="info", stream=stream)
    return stream


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[Driver]:
    """A service with its worker, its clock at T."""
    async with driving(tmp_path) as driven:
        yield driven
