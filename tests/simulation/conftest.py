"""Where the log of a simulated service goes."""

from __future__ import annotations

import io

import pytest

from app.logs import configure_logging


@pytest.fixture(autouse=True)
def log() -> io.StringIO:
    """The services' log goes nowhere; simulated traces are what is looked at."""
    stream = io.StringIO()
    configure_logging(format="json", level="info", stream=stream)
    return stream
