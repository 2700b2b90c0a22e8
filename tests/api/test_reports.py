"""Reports that finance requests through the API are the same as from the commands.

They are reports and journals of any period, the verification of closed months, and a preview of
rules. They are made while requests are served.
"""

import asyncio
import json
import os
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.access.tokens import issue_token
from app.api import report_routes
from app.cli import main
from app.config.load import load_settings
from app.core.clock import SystemClock
from app.core.errors import UnreachableError, UsageError
from app.finance import close_period, rule_file
from app.finance.match_rules import save_rules
from app.finance.report_period import report_in
from app.wiring.work import ElsewhereOf
from reconcile.instants import EARLIEST, LATEST, MINUTE, Instant
from reconcile.reporting.closing import Closing
from reconcile.reporting.report import Scope
from tests.api.described import not_as_described
from tests.api.driving import Driver, environ
from tests.api.test_finance import Books, keep_books
from tests.contexts import run_here
from tests.finance.loading import cover
from tests.reconcile.build import T

Ask = Callable[..., Awaitable[httpx2.Response]]
Post = Callable[[Any], Awaitable[httpx2.Response]]

PERIOD = "reports?from=2026-01-01&to=2026-12-31"


class Maker:
    """Runner of report jobs in this process, which can be made to wait before each.

    asked   the periods for which a report or a journal was made
    words   the other argument of each job: a journal's form, a month, or rules
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.asked: list[Scope] = []
        self.words: list[Any] = []
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.refuses = ""

    async def does(self, use: Any, *words: Any) -> Any:
        """Run a use case."""
        if isinstance(words[0], Scope):
            self.asked.append(words[0])
        self.words.append(words[-1] if len(words) < 3 else words[1])
        await self.go_on.wait()
        if self.refuses:
            raise UsageError(self.refuses)
        return await use(self._driver.context, *words)


def as_described(answer: httpx2.Response) -> httpx2.Response:
    """Return the answer after checking it against the description."""
    assert not_as_described(answer) == [], answer.text
    return answer


@pytest.fixture
def maker(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Maker:
    made = Maker(driver)
    run_here(monkeypatch, made.does)
    return made


@pytest.fixture
async def ask(driver: Driver, maker: Maker) -> Ask:
    """Send a request with a token of finance, or another one."""
    token = await issue_token(driver.context, name="reports", scopes=["finance"])

    async def asking(path: str = PERIOD, token: str = token) -> httpx2.Response:
        bearer = {"Authorization": f"Bearer {token}"}
        return as_described(await driver.client.get(f"/api/v1/{path}", headers=bearer))

    return asking


@pytest.fixture
async def post(driver: Driver, maker: Maker) -> Post:
    """Send rules to preview, with a token of finance."""
    token = await issue_token(driver.context, name="rules", scopes=["finance"])

    async def posting(body: Any) -> httpx2.Response:
        bearer = {"Authorization": f"Bearer {token}"}
        path = "/api/v1/rules/preview"
        return as_described(
            await driver.client.post(path, headers=bearer, content=json.dumps(body))
        )

    return posting


async def test_it_is_the_document_of_the_command(
    driver: Driver, maker: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compared by days and by moments, now and as of an instant, on each basis."""
    books: Books = await keep_books(driver, tmp_path, monkeypatch)
    for query, words in (
        ("from=2026-01-01&to=2026-12-31", ("--from", "2026-01-01", "--to", "2026-12-31")),
        (
            "from=2026-01-01T00:00:00Z&to=2027-01-01T00:00:00%2B00:00&basis=settled",
            ("--from", "2026-01-01", "--to", "2026-12-31", "--basis", "settled"),
        ),
    ):
        file = tmp_path / "report.json"
        command = ("report", "period", *words, "--format", "json", "-o", str(file))
        assert await asyncio.to_thread(main.run, command) == 0
        report = json.loads(file.read_bytes())
        assert report["breaks"]
        assert await books.get(f"reports?{query}") == report
    assert SystemClock().now() == driver.clock.now()


async def test_what_was_made_a_moment_ago_is_given_again(
    ask: Ask, driver: Driver, maker: Maker
) -> None:
    """It is kept for a minute, for the same period, basis and instant alone."""
    answers = [await ask() for _ in range(2)]
    assert [each.status_code for each in answers] == [200, 200]
    assert len(maker.asked) == 1
    assert (await ask(f"{PERIOD}&basis=received")).status_code == 200
    driver.clock.put(Instant(driver.clock.now() + MINUTE))
    assert (await ask()).status_code == 200
    assert [each.basis for each in maker.asked] == ["captured", "received", "captured"]


async def test_who_asks_while_it_is_made_is_answered_so(
    ask: Ask, maker: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client asks again; a report of another period is not available meanwhile."""
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
        ("from=2026-13-01&to=2026-12-31", "from must be a day"),
        ("from=2026-01-01&to=soon", "to: "),
        ("from=2026-01-01&to=2026-12-31&basis=paid", "basis must be one of"),
        ("from=2026-01-01&to=2026-12-31&as_of=9999-01-01T00:00:00Z", "as_of is in the future"),
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


async def test_a_report_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    """Its process is killed before it has even begun."""
    limits = {**report_routes._LIMITS, "most_s": 0.0}
    work = ElsewhereOf(load_settings(environ(tmp_path)))(purpose="reading", **limits)
    scope = Scope(
        start=Instant(T - MINUTE), end=T, as_of=T, basis="captured", environment="sandbox"
    )
    with pytest.raises(UnreachableError, match="request a shorter period"):
        await work(report_in, scope, "json")


JOURNAL = "journals?from=2026-01-01&to=2026-12-31"


def _written(words: Sequence[str], path: Path) -> bytes:
    """Return what a command writes into a file."""
    assert main.run((*words, "-o", str(path))) == 0
    return path.read_bytes()


async def test_a_journal_is_that_of_the_command(
    ask: Ask, driver: Driver, maker: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal byte for byte in each form; JSON is the default."""
    await keep_books(driver, tmp_path, monkeypatch)
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    words = ("report", "journal", "--from", "2026-01-01", "--to", "2026-12-31", "--format")
    for form, kind in (
        ("json", "application/json"),
        ("csv", "text/csv; charset=utf-8"),
        ("beancount", "text/plain; charset=utf-8"),
        ("xero", "text/csv; charset=utf-8"),
    ):
        written = await asyncio.to_thread(_written, (*words, form), tmp_path / form)
        for _ in range(2):  # the second is given from what was made
            answer = await ask(f"{JOURNAL}&format={form}")
            assert (answer.status_code, answer.headers["content-type"]) == (200, kind)
            assert answer.content == written
    assert (await ask(JOURNAL)).json()["count"] > 3
    assert len(maker.asked) == 4
    assert os.listdir(folder) == []


async def test_a_journal_that_is_too_long_is_refused(
    ask: Ask, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused before it is whole, and no part is answered."""
    monkeypatch.setattr(report_routes, "MAX_JOURNAL_BYTES", 100)
    refused = await ask(JOURNAL)
    assert (refused.status_code, refused.json()["code"]) == (409, "report_not_made")
    assert "`tallyhook report journal` or" in refused.json()["detail"]
    for query, word in (
        ("&format=pdf", "format must be one of beancount, csv"),
        ("&as_of=x", "as_of: "),
    ):
        refused = await ask(JOURNAL + query)
        assert (refused.status_code, refused.json()["code"]) == (422, "parameter_invalid")
        assert word in refused.json()["detail"]


async def test_one_is_made_at_once_whatever_it_is(
    ask: Ask, post: Post, maker: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.core.jobs.PATIENCE_S", 0.0)
    maker.go_on.clear()
    first = await ask(JOURNAL)
    assert (first.status_code, first.json()["detail"][:11]) == (202, "The journal")
    for other in (await ask(), await ask("periods/verification"), await post({"toml": ""})):
        assert (other.status_code, other.json()["code"]) == (503, "reports_busy")
    maker.go_on.set()


async def test_the_proof_of_closed_months_is_that_of_the_command(
    ask: Ask, driver: Driver, maker: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It covers all months, or one; a failing step says so; a month that is not closed has none."""
    books = await keep_books(driver, tmp_path, monkeypatch)
    nothing = (await ask("periods/verification")).json()
    assert nothing == {"passed": True, "steps": []}
    await cover(driver.context.database, at=EARLIEST, until=LATEST)
    monkeypatch.setattr(close_period, "REPORT_FORMATS", ("json", "csv"))
    for month in ("2026-08", "2026-09"):
        driver.clock.put(Instant(driver.clock.now() + MINUTE))
        asked = close_period.CloseRequest(
            period=month, by=None, as_of=None, margin_days=10, still_s=0.0
        )
        done = await close_period.close_period(driver.context, asked, progress=lambda _: None)
        assert isinstance(done, Closing), done
    found = await books.printed("period", "verify")
    assert [each["period"] for each in found] == ["2026-08"] * 5 + ["2026-09"] * 5
    assert (await ask("periods/verification")).json() == {"passed": True, "steps": found}
    one = (await ask("periods/2026-09/verification")).json()
    assert one == {"passed": True, "steps": found[5:]}
    unknown = await ask("periods/2026-10/verification")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "period_not_closed")
    assert maker.words == [None, None, "2026-09"]


async def test_a_step_that_fails_is_said_before_all_steps(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [
        {
            "period": "2026-09",
            "version": 1,
            "step": step,
            "passed": step == "chain",
            "sentence": "…",
        }
        for step in ("chain", "prints")
    ]

    async def verification(*_: Any) -> list[dict[str, Any]]:
        return steps

    monkeypatch.setattr(report_routes, "_verification", verification)
    assert (await ask("periods/verification")).json() == {"passed": False, "steps": steps}


async def test_a_preview_of_rules_is_that_of_the_command(
    post: Post, driver: Driver, maker: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It puts nothing in force, and is made anew after the rules in force change."""
    books = await keep_books(driver, tmp_path, monkeypatch)
    rules, file = '[tolerance]\nKES = "100.00"\n', tmp_path / "rules.toml"
    file.write_text(rules)
    before = await books.get("rules")
    found = await books.printed("reconcile", "preview", "--rules", str(file))
    assert found["changes"]
    for _ in range(2):
        assert (await post({"toml": rules})).json() == found
    assert await books.get("rules") == before
    assert maker.words == [rules]
    await save_rules(driver.context, rules, by=None)
    assert (await post({"toml": rules})).json()["changes"] == []


async def test_rules_that_are_none_are_refused(post: Post, maker: Maker) -> None:
    """The refusal names every mistake, also for a body that is anything else."""
    refused = await post({"toml": "bank_margin = 3\n[tolerance]\nKES = 'x'\n"})
    assert (refused.status_code, refused.json()["code"]) == (422, "rules_invalid")
    assert "bank_margin" in refused.json()["detail"]
    assert "tolerance.KES" in refused.json()["detail"]
    assert (await post({"toml": "\ud800"})).json()["code"] == "rules_invalid"
    for body in ({}, {"toml": 3}, {"toml": "", "by": "Ann"}):
        assert (await post(body)).json()["code"] == "request_invalid"
    assert (await post([])).json()["code"] == "json_invalid"
    assert (await post({"toml": "#" * (2 * rule_file.MAX_BYTES)})).status_code == 413
    assert len(maker.words) == 2
