"""Fixtures of the sandbox's tests."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """Use the loop of the service."""
    return "asyncio"
