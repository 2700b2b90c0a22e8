"""Query plans of the console on SQLite: no page scans a table that grows with the shop."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

import pytest

from app.console.page_list import PAGES
from app.database import statements
from tests.console.conftest import RunningConsole, import_bank_and_statement

GROWING: Final = {
    "deliveries", "events", "records", "revisions", "ledgers", "order_due", "links", "contested",
    "notifications", "takings", "breaks", "break_versions", "break_seen", "break_turns",
    "break_deeds", "book_lines", "statement_lines", "audit", "log_leaves", "log_nodes", "phones",
    "order_listings", "arrivals", "envelopes", "confirmations", "bank_lines", "rejections",
    "unsealed", "proposals", "imports",
}  # fmt: skip

NEWEST_FIRST: Final = (
    "FROM deliveries ORDER BY id DESC LIMIT",
    "FROM deliveries ORDER BY id LIMIT",
    "FROM deliveries ORDER BY deliveries.id DESC LIMIT",
    'FROM events ORDER BY "row" DESC LIMIT',
    "FROM imports ORDER BY number LIMIT",
    "FROM revisions ORDER BY seq LIMIT",
    "FROM notifications LEFT OUTER JOIN revisions ON revisions.seq = notifications.seq "
    "ORDER BY notifications.seq DESC LIMIT",
    "FROM (SELECT notifications.seq AS seq FROM notifications WHERE",
    'FROM unsealed ORDER BY "row" LIMIT',
)
"""Allowed scans: the first rows of an index without a condition, or a count that ends at a
bound."""

USUAL: Final = (
    "FROM notifications LEFT OUTER JOIN revisions ON revisions.seq = notifications.seq "
    "WHERE notifications.delivered_at IS NOT NULL ORDER BY notifications.seq DESC LIMIT"
)
"""Nearly every notification is delivered: the newest fifty of them are among the newest."""

BY_HAND: Final = "FROM break_deeds JOIN breaks ON id = break_id WHERE deed = 'matched'"
"""Query for all matches that people made. A new matching needs each of them, as a run does."""

FEW: Final = {
    "ix_records_holds", "ix_notifications_dead", "ix_notifications_due_at",
    "sqlite_autoindex_rejections_1", "ix_events_orphaned_session", "ix_events_orphaned_payment",
    "ix_records_placing", "ix_events_of_unknown_shops",
}  # fmt: skip
"""Indexes of what is exceptional: holds, and notifications that the shop has not taken; events of
no order or of an unknown shop, and what people decided about them; and the newest refused
deliveries, of a table that is a ring of so many."""

BOUNDED: Final = (
    "SELECT sum(count) FROM (SELECT count FROM unsealed LIMIT",
    "WHERE shop = 'other' AND standing <> 'unconfirmed' LIMIT ?) AS stating",
)
"""Queries that read a bounded number of rows: what waits to be sealed, and events of other
shops."""

OF_DAYS: Final = "FROM statement_lines WHERE kind = 'payment' AND settled_at >= :begin"
"""A month of payments, from which fee rules are suggested, a few times a year: an index by date
would cost every import a quarter more time."""

BY_A_JOB: Final = (
    "WHERE plain = 1 AND minor > 0 AND at >= :since) AS seen",
    "SELECT told FROM takings WHERE plain = 0",
    "WHERE kind IN ('payment', 'fee') AND settled_at >= :since",
)
"""Sums of everything, which a shared job makes, one at a time and in a process of its own."""

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
    "/deliveries?order=ORD-1&verdict=duplicate",
    "/deliveries?kind=payment.succeeded&source=shop",
    "/deliveries?no_order=yes",
    "/notifications?state=dead",
    "/notifications?state=waiting",
    "/notifications?state=delivered",
    "/notifications?order=ORD-1",
    "/audit?who=somebody",
    "/audit?action=erased",
    "/audit?subject=ORD-1",
    "/breaks?cause=paid_twice&order=age",
    "/bank?stands=bank_line_unknown",
    "/imports?kind=bank",
    "/imports/1",
    "/runs/1",
    "/proposals?before=prp_zz",
    "/unallocated?not_ours=true",
    "/unallocated?not_ours=true&source=shop&after=1",
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return every statement, whole or in parts, with values it ran with."""
    found: dict[str, Any] = {}
    run, ask = statements.CallingConnection.execute, statements._Sqlite.ask

    def noting(self: statements.CallingConnection, sql: str, values: Any = (), /) -> Any:
        if not isinstance(values, statements._Calling):  # what that asks comes by `ask`
            found.setdefault(sql, values.values if isinstance(values, statements.Whole) else values)
        return run(self, sql, values)

    def noting_plain(self: statements._Sqlite, sql: str, values: Any = ()) -> Any:
        found.setdefault(sql, values)
        return ask(self, sql, values)

    monkeypatch.setattr(statements.CallingConnection, "execute", noting)
    monkeypatch.setattr(statements._Sqlite, "ask", noting_plain)
    return found


def scans(database: sqlite3.Connection, sql: str, values: Any) -> Iterator[str]:
    """Return growing tables that SQLite would scan from an end."""
    sql = " ".join(sql.split())
    if not sql.startswith(("SELECT", "WITH")) or any(each in sql for each in NEWEST_FIRST):
        return
    for *_, step in database.execute(f"EXPLAIN QUERY PLAN {sql}", values):
        found = re.fullmatch(r"SCAN (\w+)(?: USING (?:COVERING )?INDEX (\w+))?", step)
        if any(each in sql for each in (USUAL, BY_HAND, OF_DAYS, *BOUNDED, *BY_A_JOB)):
            continue
        if "AUTOMATIC" in step:  # an index that is made for this statement, of a table's every row
            yield f"{step}: {sql}"
        if found and found[1] in GROWING and found[2] not in FEW:
            yield f"{step}: {sql}"
        if "ix_events_order_key (order_key>?)" in step:  # `IS NOT NULL`: the events of all orders
            yield f"{step}: {sql}"


async def elsewhere(console: RunningConsole) -> None:
    """Read in this process what a console's jobs read in another."""
    async with console.signed_in("admin") as client:
        for path in ("/bank", "/bank?stands=bank_line_unknown"):
            assert (await client.get(path)).status_code == 200


async def test_no_page_goes_through_what_grows(
    console_with_breaks: RunningConsole, asked: dict[str, Any]
) -> None:
    await import_bank_and_statement(console_with_breaks)
    await elsewhere(console_with_breaks)
    paths = [page.path for page in PAGES if "{subject}" not in page.path]
    asked.clear()
    async with console_with_breaks.signed_in("admin") as client:
        for path in (*paths, *LISTS):
            assert (await client.get(path)).status_code == 200, path
        found = (await client.get("/breaks.json")).json()["breaks"][0]["id"]
        assert (await client.get(f"/breaks/{found}")).status_code == 200
        for text in ("ORD-1", "+254712345678", "pay_1"):
            await client.post("/find", data={"text": text})
    with closing(sqlite3.connect(console_with_breaks.driver.path)) as database:
        found = [each for sql, values in asked.items() for each in scans(database, sql, values)]
    assert not found, "\n\n".join(found)
    assert len(asked) > 80
