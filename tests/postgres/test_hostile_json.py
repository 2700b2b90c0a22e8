"""Hostile JSON is judged on PostgreSQL as it is on SQLite: by the same verdicts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.driving import driving
from tests.api.test_hostile_json import bodies, check
from tests.postgres.conftest import ask_in_loop

pytestmark = pytest.mark.postgres


@pytest.mark.slow
@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.soak)])
async def test_hostile_documents_are_judged_as_on_sqlite(
    url: str, tmp_path: Path, every: int
) -> None:
    """Each body is kept to the byte."""
    async with driving(tmp_path, with_worker=False, raising=True, DATABASE_URL=url) as driver:
        await check(driver, every=every)
        kept = [row[0] for row in await ask_in_loop(url, "SELECT body FROM deliveries")]
        assert sorted(kept) == sorted(body for body, _ in bodies(every))
