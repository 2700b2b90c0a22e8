"""Reports of any period by the API: made beside what is served, and the command's document."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx2
import pytest

from app import bootstrap_reports
from app.access.tokens import issue_token
from app.cli import main
from app.config.load import load_settings
from app.core.clock import SystemClock
from app.core.errors import UnreachableError, UsageError
from app.finance.report_period import report_period
from app.finance.reports.render import render
from reconcile.instants import MINUTE, Instant
from reconcile.reporting.report import Scope
from tests.api.driving import Driver, environ
from tests.api.test_finance import Books, keep_books
from tests.reconcile.build import T

Ask = Callable[..., Awaitable[httpx2.Response]]

PERIOD = "reports?from=2026-01-01&to=2026-12-31"


class Maker:
    """Makes reports in this process, and waits before each where it is told to."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.asked: list[Scope] = []
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.refuses = ""

    async def __call__(self, scope: Scope) -> bytes:
        self.asked.append(scope)
        await self.go_on.wait()
        if self.refuses:
            raise UsageError(self.refuses)
        report = await report_period(self._driver.context, scope, progress=lambda _: None)
        return render(report, "json")


@pytest.fixture
def maker(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Maker:
    made = Maker(driver)
    monkeypatch.setattr("app.bootstrap_reports.making_reports", lambda settings: made)
    return made


@pytest.fixture
async def ask(driver: Driver, maker: Maker) -> Ask:
    """Asks with a token of finance, or another one."""
    token = await issue_token(driver.context, name="reports", scopes=["finance"])

    async def asking(path: str = PERIOD, token: str = token) -> httpx2.Response:
        bearer = {"Authorization": f"Bearer {token}"}
        return await driver.client.get(f"/api/v1/{path}", headers=bearer)

    return asking


async def test_it_is_the_document_of_the_command(
    driver: Driver, maker: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By days and by moments, now and as of an instant, on each basis."""
    books: Books = await keep_books(driver, tmp_path, monkeypatch)
    for query, words in (
        ("from=2026-01-01&to=2026-12-31", ("--from", "2026-01-01", "--to", "2026-12-31")),
        (
            "from=2026-01-01T00:00:00Z&to=2027-01-01T00:00:00%2B00:00&basis=settled",
            ("--from", "2026-01-01", "--to", "2026-12-31", "--basis", "settled"),
        ),
    ):
        file = tmp_path / "report.json"
        told = ("report", "period", *words, "--format", "json", "-o", str(file))
        assert await asyncio.to_thread(main.run, told) == 0
        told = json.loads(file.read_bytes())
        assert told["breaks"]
        assert await books.get(f"reports?{query}") == told
    assert SystemClock().now() == driver.clock.now()


async def test_what_was_made_a_moment_ago_is_given_again(
    ask: Ask, driver: Driver, maker: Maker
) -> None:
    """For a minute after its end, of the same period, basis and instant alone."""
    answers = [await ask() for _ in range(2)]
    assert [each.status_code for each in answers] == [200, 200]
    assert len(maker.asked) == 1
    assert (await ask(f"{PERIOD}&basis=received")).status_code == 200
    driver.clock.put(Instant(driver.clock.now() + MINUTE))
    assert (await ask()).status_code == 200
    assert [each.basis for each in maker.asked] == ["captured", "received", "captured"]


async def test_who_asks_while_it_is_made_is_told_so(
    ask: Ask, maker: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And asks again; of another period there is none meanwhile."""
    monkeypatch.setattr("app.core.jobs.PATIENCE_S", 0.0)
    maker.go_on.clear()
    first = await ask()
    assert (first.status_code, first.json()["state"]) == (202, "under_way")
    assert int(first.headers["retry-after"]) > 0
    again, other = await ask(), await ask(f"{PERIOD}&basis=received")
    assert (again.status_code, other.status_code) == (202, 503)
    assert (other.json()["code"], int(other.headers["retry-after"]) > 0) == ("reports_busy", True)
    monkeypatch.setattr("app.core.jobs.PATIENCE_S", 60.0)
    maker.go_on.set()
    assert (await ask()).status_code == 200
    assert len(maker.asked) == 1


async def test_what_cannot_be_made_is_said(ask: Ask, driver: Driver, maker: Maker) -> None:
    for query, word in (
        ("to=2026-12-31", "from is missing"),
        ("from=2026-02-01&to=2026-01-01", "from must be before to"),
        ("from=2026-13-01&to=2026-12-31", "from is a day"),
        ("from=2026-01-01&to=soon", "to: "),
        ("from=2026-01-01&to=2026-12-31&basis=paid", "basis is one of"),
        ("from=2026-01-01&to=2026-12-31&as_of=9999-01-01T00:00:00Z", "as_of lies in the future"),
        ("from=2001-01-01&to=2026-12-31", "120 months"),
    ):
        refused = await ask(f"reports?{query}")
        assert (refused.status_code, refused.json()["code"]) == (422, "parameter_invalid"), query
        assert word in refused.json()["detail"]
        assert "--" not in refused.json()["detail"]
    assert maker.asked == []
    maker.refuses = "it took more than 30 minutes and was ended"
    refused = await ask()
    assert (refused.status_code, refused.json()["code"]) == (409, "report_not_made")
    other = await issue_token(driver.context, name="shop", scopes=["read"])
    assert (await ask(token=other)).status_code == 403


async def test_a_report_that_takes_too_long_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its process, which has not even begun by then."""
    monkeypatch.setattr(bootstrap_reports, "MOST_S", 0.0)
    make = bootstrap_reports.making_reports(load_settings(environ(tmp_path)))
    scope = Scope(
        start=Instant(T - MINUTE), end=T, as_of=T, basis="captured", environment="sandbox"
    )
    with pytest.raises(UnreachableError, match="ask for a shorter period"):
        await make(scope)


async def test_a_process_of_its_own_makes_it(driver: Driver) -> None:
    """Of a time before everything: that process has the machine's clock."""
    token = await issue_token(driver.context, name="reports", scopes=["finance"])
    period = "reports?from=2019-12-01&to=2019-12-31&as_of=2020-01-01T00:00:00Z"
    bearer, code = {"Authorization": f"Bearer {token}"}, 202
    while code == 202:
        answer = await driver.client.get(f"/api/v1/{period}", headers=bearer)
        code = answer.status_code
    assert answer.status_code == 200, answer.text
    assert answer.json()["to"] == "2020-01-01T00:00:00Z"
