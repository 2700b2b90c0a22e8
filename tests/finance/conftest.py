"""Fixtures of closed months."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.context.context import AppContext
from app.core.clock import SetClock
from app.finance import close_period as print_report
from tests.copied import copy_of
from tests.database.builders import opened
from tests.finance.closing import QUIET
from tests.finance.loading import settled_month_in
from tests.finance.month import CLOSED_AT


@pytest.fixture
def text_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a closing print only what is made quickly."""
    monkeypatch.setattr(print_report, "REPORT_FORMATS", ("json", "csv"))


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[AppContext]:
    """Yield a quiet October, seen when every margin is over."""
    url = f"sqlite+aiosqlite:///{tmp_path}/t.db"
    copy_of(settled_month_in, tmp_path, QUIET)
    async with opened(url) as inbox:
        yield inbox.context(clock=SetClock(CLOSED_AT))
