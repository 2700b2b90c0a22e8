"""The log of a service under attack is no output of the test."""

from __future__ import annotations

import io

import pytest

from app.logs import configure_logging


@pytest.fixture(autouse=True)
def log() -> io.StringIO:
    """What the process logs during the test."""
    stream = io.StringIO()
    configure_logging(format="json", level="info", stream=stream)
    return stream
