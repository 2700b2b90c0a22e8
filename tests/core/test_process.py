"""What a process asks of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app import bootstrap_serving
from app.bootstrap_serving import serve
from app.config.load import load_settings
from app.core.process import HAND_OVER_S
from tests.api.driving import environ


@pytest.fixture
def interval() -> Iterator[float]:
    before = sys.getswitchinterval()
    yield before
    sys.setswitchinterval(before)


async def test_the_receiver_lets_its_writer_have_the_interpreter_soon(
    tmp_path: Path, interval: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From before its store is open: whoever sent a delivery waits for the commit of all."""

    class Opened(Exception):
        pass

    def opening(*_: object, **__: object) -> None:
        assert sys.getswitchinterval() == pytest.approx(HAND_OVER_S)
        raise Opened

    monkeypatch.setattr(bootstrap_serving, "open_service", opening)
    assert interval > HAND_OVER_S
    with pytest.raises(Opened):
        await serve(load_settings(environ(tmp_path), serving=True), host="127.0.0.1", port=0)
