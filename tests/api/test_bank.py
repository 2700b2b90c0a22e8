"""The bank's lines in the API: listed page by page, and refused where they cannot be matched."""

from pathlib import Path

import pytest

from app.access.tokens import issue_token
from app.finance import reconcile_rows
from app.finance.imports import ImportRequest, import_bank
from reconcile.instants import MINUTE, Instant
from tests.api.driving import Driver

BANK = """account,booked_at,amount,currency,entry_reference,reference,counterparty,text
main,2026-01-04,1.00,KES,B0,,,OPENING
main,2026-01-06,1455.00,KES,B1,,PROVIDER LTD,PAYOUT PO-100200
"""


async def test_too_many_lines_to_match_are_a_conflict_that_says_what_to_look_at(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await issue_token(driver.context, name="books", scopes=["finance"])
    bearer, address = {"Authorization": f"Bearer {token}"}, "/api/v1/bank/lines?limit=1"
    path = tmp_path / "bank.csv"
    path.write_text(BANK)
    assert not (await import_bank(driver.context, ImportRequest(path=path))).problems
    first = (await driver.client.get(address, headers=bearer)).json()
    following = await driver.client.get(f"{address}&after={first['next']}", headers=bearer)
    assert [len(each["lines"]) for each in (first, following.json())] == [1, 1]
    assert following.json()["next"] is None
    monkeypatch.setattr(reconcile_rows, "MOST", 1)
    driver.clock.put(Instant(driver.clock.now() + MINUTE))
    refused = await driver.client.get(address, headers=bearer)
    assert (refused.status_code, refused.json()["code"]) == (409, "bank_not_matched")
    assert "more than 1 bank lines" in refused.json()["detail"]
