"""Finance's documents through the API are those of the commands, page by page."""

import asyncio
import contextlib
import io
import json
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.access.tokens import issue_token
from app.api import finance_routes, report_routes
from app.cli import main
from app.core.clock import SystemClock
from app.finance import closed_periods, period_store
from app.finance.break_acts import living_breaks
from app.finance.imports import ImportRequest, import_bank, import_book, import_statement
from app.finance.match_rules import save_rules
from app.finance.period_store import Closed
from app.finance.reconcile_period import RunRequest, reconcile_period
from app.finance.withdraw_import import withdraw_import
from reconcile.instants import DAY, format_instant
from tests.api.driving import Driver, environ, event
from tests.finance.deciding import decide
from tests.reconcile.build import T

DAY_OF_T = format_instant(T)
BOOK = f"""reference,kind,amount,currency,placed_at,status
ORD-1,order,1500.00,KES,{DAY_OF_T},paid
ORD-2,order,10.00,KES,{DAY_OF_T},unpaid
ord 2,invoice,20.00,KES,{DAY_OF_T},unpaid
"""
STATEMENT = f"""payment_reference,order_reference,gross,fee,net,currency,settled_at,payout
pay_7,,700.00,0.00,700.00,KES,{DAY_OF_T},PO-100200
pay_8,,800.00,0.00,800.00,KES,{DAY_OF_T},PO-100200
pay_1,ORD-1,1400.00,0.00,1400.00,KES,{DAY_OF_T},PO-100200
"""
BANK = f"""account,booked_at,amount,currency,counterparty,text
main,{DAY_OF_T[:10]},2900.00,KES,PROVIDER LTD,PAYOUT PO-100200
main,{DAY_OF_T[:10]},5.00,KES,Jane,GIFT
"""
MORE = f"main,{DAY_OF_T[:10]},6.00,KES,Jane,ANOTHER GIFT\n"


class Books:
    """The API of finance, and the commands to compare it with."""

    def __init__(self, driver: Driver, token: str) -> None:
        self._driver = driver
        self._bearer = {"Authorization": f"Bearer {token}"}

    async def get(self, path: str, code: int = 200) -> Any:
        """Return a route's document."""
        answer = await self._driver.client.get(f"/api/v1/{path}", headers=self._bearer)
        assert answer.status_code == code, answer.text
        return answer.json()

    async def pages(self, path: str, name: str, *, by: str = "after") -> list[Any]:
        """Return all items of a route, requested one by one."""
        found, following = [], ""
        joined = "&" if "?" in path else "?"
        while True:
            page = await self.get(f"{path}{joined}limit=1{following}")
            assert len(page[name]) <= 1
            found += page[name]
            if page["next"] is None:
                return found
            following = f"&{by}={page['next']}"

    async def printed(self, *words: str) -> Any:
        """Return the JSON that a command prints."""
        written = io.StringIO()

        def work() -> None:
            with contextlib.redirect_stdout(written):
                assert main.run((*words, "--format", "json")) == 0

        await asyncio.to_thread(work)
        return json.loads(written.getvalue())


@pytest.fixture
async def books(driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Books:
    return await keep_books(driver, tmp_path, monkeypatch)


async def keep_books(driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Books:
    """Import a book, a statement and a bank file, withdraw one import, and leave breaks and a
    note."""
    now = T + 20 * DAY
    monkeypatch.setattr(SystemClock, "now", lambda self: driver.clock.now())
    for name, value in environ(driver.path.parent).items():
        monkeypatch.setenv(name, value)
    driver.clock.put(now)
    await driver.send(event("evt_1"))
    await driver.send(event("evt_2", payment={"reference": "pay_2", "amount": 1500}))
    context, path = driver.context, tmp_path / "file.csv"
    for content, read in (
        (BOOK, import_book),
        (BANK, import_bank),
        (BANK + MORE, import_bank),
        (STATEMENT, partial(import_statement, source="shop")),
    ):
        path.write_text(content)
        imported = await read(context, ImportRequest(path=path))
        assert imported.problems == []
    await withdraw_import(context, 3, kind="bank", by=None, reason="of another shop")
    driver.clock.put(now + DAY)
    await save_rules(context, "settle_margin = '9 days'\n", by=None)
    for _ in range(2):
        await reconcile_period(context, RunRequest(), progress=lambda _: None)
    (some,) = [part async for part in living_breaks(context)]
    await decide(context, some[0].identity, "commented", reason="I asked them", by=None)
    driver.clock.put(now + 2 * DAY)
    token = await issue_token(context, name="books", scopes=["finance"])
    return Books(driver, token)


async def test_what_a_command_lists_the_api_has_page_by_page(books: Books) -> None:
    """Each list has the same documents in the same order, none twice."""
    for path, name, by, words in (
        ("records/lines", "lines", "after", ("records", "list")),
        ("statement/lines", "lines", "after", ("statement", "list")),
        ("records/imports", "imports", "before", ("records", "imports")),
        ("statement/imports", "imports", "before", ("statement", "imports")),
        ("bank/imports", "imports", "before", ("bank", "imports")),
        ("runs", "runs", "before", ("reconcile", "list")),
        ("breaks", "breaks", "after", ("breaks", "list")),
        ("late?all=true", "late", "after", ("late", "list", "--all")),
    ):
        printed = await books.printed(*words)
        assert printed, words
        assert await books.pages(path, name, by=by) == printed, path
        whole = await books.get(path)
        assert (whole[name], whole["next"]) == (printed, None), path
    (withdrawn, *_) = await books.printed("bank", "imports")
    assert (withdrawn["withdraws"], withdrawn["reason"]) == (3, "of another shop")


async def test_what_a_command_shows_the_api_shows(books: Books) -> None:
    """Compared are a break with its history, a run, a bank line and the rules."""
    for each in await books.printed("breaks", "list"):
        shown = await books.get(f"breaks/{each['id']}")
        assert shown == await books.printed("breaks", "show", each["id"])
    run = await books.printed("reconcile", "show", "2")
    assert await books.get("runs/2") == run | {"next": None}
    first = await books.get("runs/2?limit=1")
    assert first["breaks"] == run["breaks"][:1]
    more = await books.get(f"runs/2?after={first['next']}")
    assert more["breaks"] == run["breaks"][1:]
    assert await books.get("rules") == await books.printed("reconcile", "rules", "show")
    for line in (await books.get("bank/lines"))["lines"]:
        whole = await books.get(f"bank/lines/{line['line']}")
        assert whole == await books.printed("bank", "show", line["line"])
        assert {"counterparty", "text"} <= whole.keys() - line.keys()


async def test_lists_are_narrowed(books: Books) -> None:
    causes = {each["cause"] for each in await books.printed("breaks", "list")}
    for cause in causes:
        narrowed = await books.get(f"breaks?cause={cause}")
        assert narrowed["breaks"] == await books.printed("breaks", "list", "--cause", cause)
    assert len(causes) > 1
    assert (await books.get("breaks?state=closed"))["breaks"] == []
    assert (await books.get("breaks?assignee=nobody"))["breaks"] == []
    of_order = await books.get("records/lines?reference=ord-2")
    assert of_order["lines"] == await books.printed("records", "list", "--reference", "ord-2")
    paged = await books.pages("records/lines?reference=ord-2", "lines")
    assert paged == of_order["lines"]
    before = f"records/lines?as_of={format_instant(T)}"
    assert (await books.get(before))["lines"] == []


async def test_what_is_not_there_is_said(books: Books) -> None:
    for path, code in (
        ("breaks/brk_x", "break_unknown"),
        ("runs/9", "run_unknown"),
        ("runs/x", "run_unknown"),
        ("bank/lines/bnk_x", "bank_line_unknown"),
        ("periods/2026-10", "period_not_closed"),
    ):
        assert (await books.get(path, 404))["code"] == code
    for path in ("breaks?cause=x", "late?all=x", "runs?before=x", "records/lines?limit=0"):
        assert (await books.get(path, 422))["code"] == "parameter_invalid"


async def test_a_closed_month_is_what_was_kept(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer equals the stored bytes, whatever the program would write now."""
    report = b'{"period": "as it was kept"}'
    journal = [b'{"transactions"', b": []}"]

    async def closed_report(_: Any, *asked: str, version: int | None) -> bytes:
        assert (asked, version) == (("2026-10", "json"), None)
        return report

    async def closed_journal(_: Any, *asked: str, version: int | None) -> AsyncGenerator[bytes]:
        assert (asked, version) == (("2026-10", "json"), 2)
        for part in journal:
            yield part

    monkeypatch.setattr(closed_periods, "closed_report", closed_report)
    monkeypatch.setattr(finance_routes, "closed_journal", closed_journal)
    assert await books.get("periods/2026-10") == json.loads(report)
    asked = "periods/2026-10/journal?version=2"
    assert await books.get(asked) == json.loads(b"".join(journal))
    monkeypatch.setattr(report_routes, "MAX_JOURNAL_BYTES", 10)
    assert (await books.get(asked, 409))["code"] == "report_not_made"
    expected = {"periods": await books.printed("period", "list"), "next": None}
    assert await books.get("periods") == expected


async def test_closed_months_page_by_page(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    months = [f"2026-{month:02}" for month in range(1, 8)]

    async def all_closed(connection: Any) -> list[Closed]:
        return [
            Closed(period=each, version=version, as_of=T, closed_at=T, by="ann", digest="")
            for each in months
            for version in (1, 2)
        ]

    monkeypatch.setattr(period_store, "all_closings", all_closed)
    found = await books.pages("periods", "periods", by="after")
    assert [each["period"] for each in found[::2]] == months
    assert [each["version"] for each in found] == [1, 2] * len(months)
    assert (await books.get("periods?after=2026-01", 422))["code"] == "parameter_invalid"
