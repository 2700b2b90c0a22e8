"""What is done at its times, by the API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.access.tokens import TokenScope, issue_token
from tests.api.driving import driving


async def test_each_entry_with_its_next_time_for_who_may_read_finance(tmp_path: Path) -> None:
    words: dict[str, Any] = {
        "SCHEDULE": "nightly | 30 2 * * * | reconcile",
        "TIMEZONE": "Africa/Nairobi",
    }
    cases: tuple[tuple[TokenScope, int], ...] = (("finance", 200), ("read", 403))
    async with driving(tmp_path, with_worker=False, **words) as driver:
        asked = "/api/v1/schedule"
        for scope, status in cases:
            token = await issue_token(driver.context, name=scope, scopes=[scope])
            bearer = {"Authorization": f"Bearer {token}"}
            answer = await driver.client.get(asked, headers=bearer)
            assert answer.status_code == status
            if status == 200:
                (entry,) = answer.json()["entries"]
                assert (entry["name"], entry["cron"]) == ("nightly", "30 2 * * *")
                assert entry["next"].endswith("T23:30:00Z")
                assert entry["last"] is None
        assert (await driver.client.get(asked)).status_code == 401
