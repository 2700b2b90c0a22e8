"""What the console's pages ask of SQLite: no page goes through a table that grows with the shop."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

import pytest

from app.console.page_list import PAGES
from app.database import statements
from tests.console.conftest import RunningConsole

GROWING: Final = {
    "deliveries", "events", "records", "revisions", "ledgers", "order_due", "links", "contested",
    "notifications", "takings", "breaks", "break_versions", "break_seen", "break_turns",
    "break_deeds", "book_lines", "statement_lines", "audit", "log_leaves", "log_nodes", "phones",
    "order_listings", "arrivals", "envelopes", "confirmations",
}  # fmt: skip

NEWEST_FIRST: Final = (
    "FROM deliveries ORDER BY id DESC LIMIT",
    'FROM events ORDER BY "row" DESC LIMIT',
    "FROM revisions ORDER BY seq LIMIT",
    "FROM notifications LEFT JOIN revisions ON revisions.seq = notifications.seq "
    "ORDER BY notifications.seq DESC LIMIT",
    "FROM (SELECT 1 FROM notifications WHERE",
)
"""What a scan may be of: the first so many rows of an index, with no condition on them; or a count
that ends at a bound."""

USUAL: Final = (
    "FROM notifications LEFT JOIN revisions ON revisions.seq = notifications.seq "
    "WHERE (notifications.delivered_at IS NOT NULL) ORDER BY notifications.seq DESC LIMIT"
)
"""Nearly every notification is delivered: the newest fifty of them are among the newest."""

BY_HAND: Final = "FROM break_deeds JOIN breaks ON id = break_id WHERE deed = 'matched'"
"""All matches that people made: whoever matches anew needs each of them, as a run does."""

FEW: Final = {"ix_records_holds", "ix_notifications_dead", "ix_notifications_due_at"}
"""Indexes of what is exceptional: holds, and notifications that the shop has not taken."""

LISTS: Final = (
    "/orders?outcome=failed",
    "/orders?finding=paid_twice",
    "/orders?finding=paid_twice&outcome=succeeded&before=9",
    "/orders/ORD-1",
    "/orders/ORD-1?as_of=2030-01-01T00:00:00Z",
    "/deliveries?verdict=duplicate",
    "/deliveries?verdict=unreadable",
    "/deliveries?verdict=signature_mismatch",
    "/deliveries?source=shop&before=dlv_zz",
    "/notifications?state=dead",
    "/notifications?state=waiting",
    "/notifications?state=delivered",
    "/notifications?order=ORD-1",
    "/audit?who=somebody",
    "/audit?action=erased",
    "/audit?subject=ORD-1",
    "/breaks?cause=paid_twice&order=age",
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Every statement, with values that it was asked with."""
    found: dict[str, Any] = {}
    run, ask = statements.Whole.run, statements._Sqlite.ask

    def noting(self: statements.Whole, cursor: sqlite3.Cursor, sql: str) -> None:
        found.setdefault(sql, self.values)
        run(self, cursor, sql)

    def noting_plain(self: statements._Sqlite, sql: str, values: Any = ()) -> Any:
        found.setdefault(sql, values)
        return ask(self, sql, values)

    monkeypatch.setattr(statements.Whole, "run", noting)
    monkeypatch.setattr(statements._Sqlite, "ask", noting_plain)
    return found


def scans(database: sqlite3.Connection, sql: str, values: Any) -> Iterator[str]:
    """Tables that grow, and that SQLite would go through from an end."""
    if not sql.lstrip().startswith(("SELECT", "WITH")) or any(each in sql for each in NEWEST_FIRST):
        return
    for *_, step in database.execute(f"EXPLAIN QUERY PLAN {sql}", values):
        found = re.fullmatch(r"SCAN (\w+)(?: USING (?:COVERING )?INDEX (\w+))?", step)
        if USUAL in sql or BY_HAND in sql:
            continue
        if found and found[1] in GROWING and found[2] not in FEW:
            yield f"{step}: {sql}"


async def test_no_page_goes_through_what_grows(
    console_with_breaks: RunningConsole, asked: dict[str, Any]
) -> None:
    paths = [page.path for page in PAGES if "{subject}" not in page.path]
    async with console_with_breaks.signed_in("admin") as client:
        for path in (*paths, *LISTS):
            assert (await client.get(path)).status_code == 200, path
        found = (await client.get("/breaks.json")).json()["breaks"][0]["id"]
        assert (await client.get(f"/breaks/{found}")).status_code == 200
        for text in ("ORD-1", "+254712345678", "pay_1"):
            await client.post("/orders/find", data={"text": text})
    with closing(sqlite3.connect(console_with_breaks.driver.path)) as database:
        found = [each for sql, values in asked.items() for each in scans(database, sql, values)]
    assert not found, "\n\n".join(found)
    assert len(asked) > 80
