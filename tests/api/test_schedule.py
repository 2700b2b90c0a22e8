"""Scheduled tasks in the API."""

from pathlib import Path
from typing import Any

from app.access.tokens import TokenScope, issue_token
from tests.api.driving import driving


async def test_entries_are_listed_page_by_page_in_the_order_of_the_setting(tmp_path: Path) -> None:
    names = ["late", "early", "noon"]
    words: dict[str, Any] = {"SCHEDULE": "; ".join(f"{n} | 30 2 * * * | reconcile" for n in names)}
    async with driving(tmp_path, with_worker=False, **words) as driver:
        token = await issue_token(driver.context, name="books", scopes=["finance"])
        seen: list[str] = []
        after: str | None = ""
        for _ in names:
            answer = await driver.client.get(
                f"/api/v1/schedule?limit=1&after={after}",
                headers={"Authorization": f"Bearer {token}"},
            )
            (entry,) = answer.json()["entries"]
            seen.append(entry["name"])
            after = answer.json()["next"]
        assert (seen, after) == (names, None)
        refused = await driver.client.get(
            "/api/v1/schedule?after=never", headers={"Authorization": f"Bearer {token}"}
        )
        assert (refused.status_code, refused.json()["code"]) == (422, "parameter_invalid")


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
