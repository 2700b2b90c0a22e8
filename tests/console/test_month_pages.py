"""Pages of months: coverage, what is against closing, closing by one or two, the journal kept."""

import asyncio
import json
import re
from dataclasses import replace
from html import unescape

import pytest

from app.access.sessions import note_failure
from app.console.application import build_console
from app.console.finance_pages import CHECKS
from app.core.jobs import Jobs
from app.finance.close_period import CloseRequest, against_closing
from app.finance.imports import ImportRequest, import_book
from app.finance.match_rules import save_rules
from app.finance.reconcile_period import RunRequest, reconcile_period
from app.finance.reports.journal_forms import JOURNAL_FORMATS
from reconcile.instants import DAY, MINUTE, Instant, format_instant
from reconcile.reporting.closing import Blocker
from tests.console.conftest import RunningConsole, import_bank_and_statement, send, settle_orders
from tests.console.test_pages import shown
from tests.contexts import instead
from tests.database.builders import tamper
from tests.waiting import soon


async def no_pause(_: float) -> None:
    """Replace a wait."""


@pytest.mark.parametrize("alone", [pytest.param(True, marks=pytest.mark.costly), False])
async def test_a_month_is_closed_by_one_person_or_by_two(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    """The rules decide; obstacles are shown, and with one nothing is closed or proposed."""
    monkeypatch.setattr("app.finance.close_period.asyncio.sleep", no_pause)
    await save_rules(console.context, f"close_alone = {str(alone).lower()}\n", by="a finance")
    async with console.signed_in("finance") as client:
        month = (await client.get("/periods.json")).json()["open"][0]["period"]
        path = f"/do/close?month={month}"
        early = await send(client, path, reason="month end")
        await settle_orders(console)
        console.driver.clock.put(console.driver.clock.now() + 45 * DAY)
        await reconcile_period(console.context, RunRequest(), progress=lambda _: None)
    async with console.signed_in("finance") as client:
        against = (await client.get(f"/periods/{month}.json")).json()["checks"]
        button = "Close it" if alone else "Propose it"
        assert f"<button>{button}</button>" in (await client.get(path)).text
        sent = await send(client, path, reason="month end")
        listed = (await client.get("/proposals.json")).json()["proposals"]
        waits = (await client.get(f"/periods/{month}.json")).json()["proposal"]
    assert early.status_code == 400
    assert [each for each in against if each["state"] == "failed"] == []
    if not alone:
        assert "Proposed to a second person" in shown(sent.text)
        assert console.driver.rows("SELECT 1 FROM closings") == []
        async with console.signed_in("admin") as client:
            name = listed[0]["id"]
            assert waits == {"id": name, "by": "a finance"}
            asked_for = shown((await client.get(f"/proposals/{name}")).text)
            assert "Totals by currency" in asked_for
            page = (await client.get(f"/periods/{month}")).text
            (link,) = re.findall(rf'"(/reports/{month}\?as=html&amp;as_of=[^"]+)"', page)
            proposed = await client.get(unescape(link))
            sent = await send(client, f"/do/approve?proposal={name}", reason="it ties")
            closed = await client.get(f"/reports/{month}?as=html")
            words = "Not a closed report: its figures may still change"
            assert words in proposed.text
            assert "and a admin, approved" in closed.text
    assert sent.status_code == 303
    (closing,) = console.driver.rows("SELECT period FROM closings")
    assert closing == (month,)
    ((who, facts),) = console.driver.rows(
        "SELECT who, facts FROM audit WHERE action='period_closed'"
    )
    assert (who, json.loads(facts).get("second")) == ("a finance", None if alone else "a admin")


async def test_a_month_is_closed_with_exceptions_by_two_who_say_why(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The form has a field for each condition that does not hold; the page leads to the days."""
    monkeypatch.setattr("app.finance.close_period.asyncio.sleep", no_pause)
    console.driver.clock.put(console.driver.clock.now() + 45 * DAY)
    async with console.signed_in("finance") as client:
        month = (await client.get("/periods.json")).json()["open"][0]["period"]
        path, page = f"/do/close?month={month}", f"/periods/{month}"
        checks = (await client.get(f"{page}.json")).json()["checks"]
        red = [each for each in checks if each["state"] == "failed"]
        offered = (await client.get(page)).text
        form = shown((await client.get(path)).text)
        reasons = {"line-0": "coverage:shop", "except-0": "the portal is gone"}
        sent = await send(client, path, reason="month end", **reasons)
        (waits,) = (await client.get("/proposals.json")).json()["proposals"]
    assert [(each["line"], each["where"]) for each in red] == [("coverage:shop", "/coverage")]
    assert "Close it with exceptions…" in offered
    assert f"Why you close although this is not met: {red[0]['sentence']}" in form
    assert "Proposed to a second person" in shown(sent.text)
    async with console.signed_in("admin") as client:
        asked_for = shown((await client.get(f"/proposals/{waits['id']}")).text)
        done = await send(client, f"/do/approve?proposal={waits['id']}", reason="it is gone")
        report = shown((await client.get(f"/reports/{month}?as=html")).text)
    assert "Exceptions" in asked_for
    assert done.status_code == 303
    assert "the portal is gone" in report
    assert "shop has no statement of the period: its 1 payment was not compared" in report


async def test_coverage_is_listed_declared_and_taken_back(console: RunningConsole) -> None:
    console.driver.clock.put(console.driver.clock.now() + 45 * DAY)
    days = {"first_day": "2026-10-01", "last_day": "2026-10-20", "reason": "I fetched it"}
    async with console.signed_in("finance") as client:
        nothing = shown((await client.get("/do/declare-coverage")).text)
        await import_bank_and_statement(console)
        sent = await send(client, "/do/declare-coverage", name="bank main", wallet="", **days)
        wrong = await send(client, "/do/declare-coverage", name="bank x", wallet="", **days)
        page = shown((await client.get("/coverage")).text)
        listed = (await client.get("/coverage.json")).json()["coverage"]
        (number,) = [each["number"] for each in listed if each["reason"]]
        back = await send(client, f"/do/withdraw-coverage?number={number}", reason="no, wrong")
        left = (await client.get("/coverage.json")).json()["coverage"]
    assert "Nothing is imported yet" in nothing
    assert (sent.status_code, wrong.status_code, back.status_code) == (303, 404, 303)
    assert "main Bank file 2026-10-01 to 2026-10-20 a finance: I fetched it" in page
    assert [(each["name"], each["days"]) for each in left] == [
        ("main", "2026-10-01 to 2026-10-31"), ("shop", "2026-10-01 to 2026-10-31"),
    ]  # fmt: skip


async def test_a_closed_months_journal_is_a_download_and_it_is_reopened_by_two(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its versions stand on the page of the month and in the list, and are given byte for byte."""
    monkeypatch.setattr("app.finance.close_period.asyncio.sleep", no_pause)
    await settle_orders(console)
    console.driver.clock.put(console.driver.clock.now() + 60 * DAY)
    await reconcile_period(console.context, RunRequest(), progress=lambda _: None)
    async with console.signed_in("finance") as client:
        month = (await client.get("/periods.json")).json()["open"][0]["period"]
        nothing = shown((await client.get(f"/do/reopen?month={month}")).text)
        await send(client, f"/do/close?month={month}", reason="month end")
        document = (await client.get(f"/periods/{month}.json")).json()
        links = [f"/reports/{month}?as={each['as']}&version=1" for each in document["journals"]]
        files = [await client.get(link) for link in links]
        page = unescape((await client.get(f"/periods/{month}")).text)
        console.driver.clock.put(Instant(console.driver.clock.now() + MINUTE))
        asked_for = await send(client, f"/do/reopen?month={month}", reason="a file is missing")
        (waits,) = (await client.get("/proposals.json")).json()["proposals"]
    assert "no month is closed" in nothing
    assert document["reopenable"]
    assert all(f'"{link}"' in page for link in links)
    assert [each.status_code for each in files] == [200] * len(JOURNAL_FORMATS)
    assert files[0].headers["content-disposition"] == (
        f'attachment; filename="journal-{month}.beancount"'
    )
    assert "Proposed to a second person" in shown(asked_for.text)
    async with console.signed_in("admin") as client:
        sent = await send(client, f"/do/approve?proposal={waits['id']}", reason="so it is")
        again = (await client.get(f"/periods/{month}.json")).json()
        (listed,) = (await client.get("/periods.json")).json()["closed"]
        assert [(await client.get(link)).content for link in links] == [e.content for e in files]
    assert sent.status_code == 303
    assert (again["closed_at"], again["first"], again["reopenable"]) == (None, month, False)
    assert [each["reopened_by"] for each in again["versions"]] == ["a finance"]
    assert (listed["version"], listed["reopened_by"]) == (1, "a finance")


async def test_months_wait_for_each_other_and_the_first_to_be_closed_is_warned_of(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first closed month shuts earlier ones out; then each waits for the month before, and a
    closed month is not offered again."""
    monkeypatch.setattr("app.finance.close_period.asyncio.sleep", no_pause)
    await settle_orders(console)
    console.driver.clock.put(console.driver.clock.now() + 60 * DAY)
    await reconcile_period(console.context, RunRequest(), progress=lambda _: None)
    warning = "No month is closed yet. Once 2026-12 is, none before it can be closed any more"
    async with console.signed_in("finance") as client:
        listed = [each["period"] for each in (await client.get("/periods.json")).json()["open"]]
        forms = [shown((await client.get(f"/do/close?month={each}")).text) for each in listed]
        closed = await send(client, f"/do/close?month={listed[0]}", reason="month end")
        console.driver.clock.put(console.driver.clock.now() + MINUTE)
        again = shown((await client.get(f"/do/close?month={listed[0]}")).text)
        second = shown((await client.get(f"/do/close?month={listed[1]}")).text)
        next_one, later = [await client.get(f"/periods/{each}") for each in listed[1:]]
    assert listed == ["2026-11", "2026-12", "2027-01"]
    assert [warning in each for each in forms] == [False, True, False]
    assert "Once 2027-01 is" in forms[2]
    assert closed.status_code == 303
    assert "This month is closed: there is nothing to do." in again
    assert "No month is closed yet" not in second
    assert "Before it can be closed" in shown(next_one.text)
    assert later.status_code == 200
    assert "in order and without gaps: 2026-12 is closed first." in shown(later.text)
    assert "/reports/2027-01?as=html" in later.text


async def test_what_is_against_closing_is_looked_for_in_a_job(
    console: RunningConsole,
) -> None:
    """A page that does not wait says so. The result is shared until somebody acts or a minute has
    passed."""
    looks, go_on = [], asyncio.Event()

    async def against(asked: CloseRequest) -> tuple[Blocker, ...]:
        looks.append((asked.period, asked.by))
        await go_on.wait()
        return (Blocker(code="pending", sentence="Two are pending.", do="Wait."),)

    jobs = Jobs(console.context.clock, patience_s=0)
    work = instead(console.console.work, against_closing, against)
    made = replace(console.console, jobs=jobs, work=work)
    slow = RunningConsole(console=made, application=build_console(made), driver=console.driver)
    async with slow.signed_in("finance") as client:
        month = (await client.get("/periods.json")).json()["open"][0]["period"]
        path = f"/periods/{month}"
        for _ in range(2):
            page = (await client.get(path)).text
        unseen = (await client.get(f"{path}.json")).json()
        go_on.set()
        job = jobs.newest("look", month)
        assert job is not None
        await soon(lambda: job.ended is not None)
        seen = [(await client.get(f"{path}.json")).json() for _ in range(2)]
        async with slow.signed_in("admin") as another:
            await another.get(path)
        assert looks == [(month, "a finance")]
        await note_failure(console.context)
        await client.get(path)
        console.driver.clock.put(Instant(console.driver.clock.now() + 2 * MINUTE))
        await client.get(path)
    assert "the service has been checking what prevents closing it" in shown(page)
    assert "/do/close" not in page
    assert (unseen["checks"], unseen["looked_at"]) == ([], None)
    assert seen[0] == seen[1]
    failed = [each["sentence"] for each in seen[0]["checks"] if each["state"] == "failed"]
    assert failed == ["Two are pending."]
    assert len(looks) == 3


async def test_a_month_says_what_is_against_closing_it(console: RunningConsole) -> None:
    """The current month is not over; a past one lists each condition."""
    async with console.signed_in("finance") as client:
        listed = (await client.get("/periods.json")).json()
        first = listed["open"][0]["period"]
        now = (await client.get(f"/periods/{first}.json")).json()
        assert (await client.get("/periods/yesterday")).status_code == 404
    await settle_orders(console)
    console.driver.clock.put(console.driver.clock.now() + 45 * DAY)
    async with console.signed_in("finance") as client:
        later = (await client.get(f"/periods/{first}.json")).json()
        text = shown((await client.get(f"/periods/{first}")).text)
    assert [each["check"] for each in now["checks"] if each["state"] == "failed"] == ["too_early"]
    assert {each["check"] for each in later["checks"]} == set(CHECKS)
    for each in later["checks"]:
        assert each["sentence"] in text
    assert console.driver.rows("SELECT 1 FROM closings") == []


async def test_months_begin_with_what_came_or_was_imported_first(console: RunningConsole) -> None:
    """Not only once orders are judged."""
    for table in ("revisions", "deliveries"):
        await tamper(console.context, table, f"DELETE FROM {table}")
    async with console.signed_in("finance") as client:
        html = (await client.get("/")).text
    path = console.driver.path.parent / "book.csv"
    path.write_text("reference,amount,currency\nA-1,1.00,KES\n")
    await import_book(console.context, ImportRequest(path=path, by="a finance"))
    imported = format_instant(console.driver.clock.now())[:7]
    console.driver.clock.put(console.driver.clock.now() + 31 * DAY)
    async with console.signed_in("finance") as client:
        now = (await client.get("/now.json")).json()["finance"]
        listed = (await client.get("/periods.json")).json()["open"]
    assert "none yet: months begin with the first arrival or import" in html
    assert "each that is over is closed" not in html
    assert now["month"]["period"] == imported
    assert listed[0]["period"] == imported
