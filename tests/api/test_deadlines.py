"""Slow clients are disconnected within a quarter of a minute, by the settings' defaults."""

import asyncio

import pytest

from app.config.settings import Settings
from app.receiving.connection_limits import SWEEP_S
from app.wiring.service import gate_limits
from tests.api import wire
from tests.api.test_answering import WHOLE, answering
from tests.api.wire import connect
from tests.floods.slow import DRIPS, OPENINGS

GONE_S = 15
"""Seconds after which a slow connection must be closed."""


@pytest.mark.parametrize("kind", OPENINGS)
async def test_a_slow_client_is_soon_gone(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The loop's own time is moved from one check of the limits to the next; the test does not
    wait."""
    monkeypatch.setattr(wire, "LIMITS", gate_limits(Settings()))
    loop = asyncio.get_running_loop()
    opened = loop.time()
    client = connect(answering(WHOLE, asks="first"))
    await client.ask(OPENINGS[kind])
    reads = kind != "reader"
    client.wire.unread = 0 if reads else 60_000
    passed = SWEEP_S  # at the latest it is looked at then for the first time
    with monkeypatch.context() as moved:
        moved.setattr(loop, "time", lambda: opened + passed)
        while (reason := client.connection.overdue(loop.time())) is None:
            client.connection.data_received(DRIPS[kind])
            passed += SWEEP_S
            assert passed <= GONE_S
    assert reason == ("receive_deadline" if reads else "send_deadline")
