"""Months are closed on PostgreSQL as on SQLite."""

import pytest

from app.finance import close_period
from tests.finance.closing import three_closings

pytestmark = pytest.mark.postgres


@pytest.mark.costly
async def test_three_months_are_closed_and_each_late_event_is_an_adjustment_once(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(close_period, "REPORT_FORMATS", ("json",))
    await three_closings(url)
