"""Commands on a distributed database, from an import to an erasure."""

from pathlib import Path
from typing import Any

import pytest

from app.sandbox.scenarios import SCENARIOS
from tests.api.driving import driving
from tests.e2e.test_same_everywhere import play
from tests.postgres.test_erasures import ERASE, Run, bodies, buy, run
from tests.sandbox.harness import START

__all__ = ("run",)

pytestmark = pytest.mark.postgres


@pytest.mark.soak
def test_an_order_is_reconciled_proved_checked_and_erased(
    run: Run, empty_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLYHOOK_ERASURE_JOURNAL", str(tmp_path / "safe" / "erasures"))
    book, bundle = tmp_path / "book.csv", str(tmp_path / "a.zip")
    book.write_text("reference,amount,currency,placed_at\nA,1500.00,KES,2026-11-20T10:00:00Z\n")

    def did(*words: str) -> str:
        code, out, err = run(*words)
        assert code == 0, (words, out, err)
        return out

    did("db", "distribute")
    buy("A")
    did("records", "import", str(book))
    did("reconcile", "run")
    did("report", "period", "--from", "2026-11-01", "--to", "2026-11-30")
    did("evidence", "build", "A", "-o", bundle)
    did("evidence", "verify", bundle)
    did("db", "check", "--deep")
    did(*ERASE)
    assert bodies(empty_url) == [False]
    did("db", "check", "--deep")


@pytest.mark.soak
async def test_each_scenario_ends_as_on_sqlite(url: str, tmp_path: Path) -> None:
    async def ended(**more: Any) -> list[tuple[str, ...]]:
        async with driving(tmp_path, with_worker=False, at=START, **more) as driver:
            await play(driver)
            orders = (await driver.api("GET", "/orders", params={"limit": 100})).json()["orders"]
            names = ("order", "outcome", "fulfillable", "findings", "totals")
            return sorted(tuple(str(each[name]) for name in names) for each in orders)

    found = await ended()
    assert len(found) == len(SCENARIOS)
    assert await ended(DATABASE_URL=url) == found
