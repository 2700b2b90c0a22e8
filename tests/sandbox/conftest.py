"""Fixtures of the sandbox's tests."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """The loop the service runs on."""
    return "asyncio"
