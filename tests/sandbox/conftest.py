"""Fixtures of the sandbox's tests."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """The loop the service runs on."""
    return "asyncio"
