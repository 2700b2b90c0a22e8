"""PostgreSQL keeps no zero byte in a text: what brings one is told as a mistake of whoever asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.access.operators import register_operator
from app.access.tokens import TOKEN_SCOPES, issue_own_token, issue_token
from tests.api.driving import driving

pytestmark = pytest.mark.postgres

ASKED = (
    "orders?after=%00",
    "statement/lines?reference=%00",
    "records/lines?reference=A%00",
    "breaks?assignee=%00",
    "breaks/%00",
    "periods/2026-%0010",
    "bank/lines/%00",
)
ASKED_BY_PEOPLE = (
    "deliveries?source=%00",
    "deliveries?before=%00",
    "deliveries/%00",
    "notifications?order=%00",
    "proposals?before=%00",
    "proposals/%00",
)


async def test_a_zero_byte_in_an_address_is_no_fault_of_ours(url: str, tmp_path: Path) -> None:
    async with driving(tmp_path, with_worker=False, DATABASE_URL=url) as driver:
        program = await issue_token(driver.context, name="all", scopes=TOKEN_SCOPES)
        await register_operator(driver.context, name="Boss", role="admin", by=None)
        person, _ = await issue_own_token(driver.context, operator="Boss", until="1d", by="Boss")
        for token, paths in ((program, ASKED), (person, ASKED_BY_PEOPLE)):
            for path in paths:
                answer = await driver.client.get(
                    f"/api/v1/{path}", headers={"Authorization": f"Bearer {token}"}
                )
                assert answer.status_code == 422, (path, answer.text)
                assert answer.json()["code"] == "parameter_invalid"
