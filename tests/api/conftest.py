"""A driven service for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.api.driving import Driver, driving


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[Driver]:
    """A service with its worker, its clock at T."""
    async with driving(tmp_path) as driven:
        yield driven
