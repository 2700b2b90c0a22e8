"""Hostile text is judged on PostgreSQL as on SQLite. PostgreSQL keeps no zero byte in a text."""

from pathlib import Path

import asyncpg
import pytest

from app.access.operators import register_operator
from app.access.tokens import TOKEN_SCOPES, issue_own_token, issue_token
from tests.api.driving import driving
from tests.api.test_hostile_json import bodies, check
from tests.database.builders import opened
from tests.postgres.conftest import ask_in_loop
from tests.postgres.test_erasures import Run, run

__all__ = ("run",)

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


@pytest.mark.parametrize("value", [2**63, "\ud800"])
async def test_a_value_that_cannot_be_sent_does_not_mean_a_server_without_answer(
    url: str, value: int | str
) -> None:
    """Else a delivery with it would be tried again for ever, and hold up all after it."""
    kind = "bigint" if isinstance(value, int) else "text"
    async with opened(url) as inbox:
        writer = inbox.database.writer
        with pytest.raises(asyncpg.DataError):
            await writer.commit(lambda plain: plain.ask(f"SELECT ?::{kind}", (value,)))
        await writer.touch()


@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.soak)])
async def test_hostile_json_is_judged_as_on_sqlite(url: str, tmp_path: Path, every: int) -> None:
    """Each body is kept to the byte."""
    async with driving(tmp_path, with_worker=False, raising=True, DATABASE_URL=url) as driver:
        await check(driver, every=every)
        kept = [row[0] for row in await ask_in_loop(url, "SELECT body FROM deliveries")]
        assert sorted(kept) == sorted(body for body, _ in bodies(every))


def test_bytes_of_another_encoding_are_refused_without_asking_the_server(run: Run) -> None:
    for words in (("orders", "show", "\udcff"), ("tokens", "revoke", "\udcff")):
        code, _, err = run(*words)
        assert (code, err) == (
            2,
            "tallyhook: an argument is not valid UTF-8: type it again\n",
        )
