"""Pages of finance: breaks, late money, runs, periods and reports, and what is done from them."""

import asyncio
import json
import re
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from html import unescape
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.access.proposal import Proposal
from app.console.application import build_console
from app.console.words import BREAK_STATES, SIDE_SENTENCES, STEPS
from app.core.jobs import Jobs
from app.core.schedule import schedule_entries
from app.finance import bank_store
from app.finance.break_acts import finished_run
from app.finance.imports import ImportRequest, import_bank
from app.finance.match_rules import save_rules
from app.finance.reconcile_period import RunRequest, ran, reconcile_period, run_document
from app.finance.reports.journal_forms import JOURNAL_FORMATS
from app.finance.scheduled_work import FolderWay, Schedule, run_now
from app.orders.order_facts import OrderFacts, tell_order
from reconcile.instants import DAY, Instant, format_instant
from reconcile.matching.breaks import ACTS, STATES
from reconcile.matching.control import SIDES
from reconcile.money import Money
from tests.api.driving import event
from tests.console.conftest import (
    ORIGIN,
    RunningConsole,
    hidden_in,
    import_bank_and_statement,
    rows_of,
    send,
)
from tests.console.test_pages import in_nairobi, shown
from tests.contexts import with_settings
from tests.reconcile.build import T
from tests.rows import for_each
from tests.searching import every
from tests.waiting import soon


async def breaks(client: httpx2.AsyncClient, query: str = "") -> dict[str, Any]:
    """Return the worklist's document."""
    found: dict[str, Any] = (await client.get(f"/breaks.json{query}")).json()
    return found


def test_every_word_of_a_break_has_a_sentence() -> None:
    assert set(SIDE_SENTENCES) == set(SIDES)
    assert set(STATES) <= set(BREAK_STATES)
    assert set(ACTS) <= set(STEPS)


async def test_without_a_run_the_page_says_what_to_do(console: RunningConsole) -> None:
    async with console.signed_in("finance") as client:
        text = shown((await client.get("/breaks")).text)
        assert (await client.get("/breaks/brk_0")).status_code == 404
    assert "Nothing has been reconciled yet" in text
    assert "Start a run" in text


async def test_the_worklist_is_ordered_and_added_up(console_with_breaks: RunningConsole) -> None:
    """It is ordered by money in each currency, or by age; totals cover all that match."""
    async with console_with_breaks.signed_in("support") as client:
        found = await breaks(client)
        text = shown((await client.get("/breaks")).text)
        lines = rows_of(await client.get("/breaks.csv"))
        aged = await breaks(client, "?order=age")
        dollars = await breaks(client, "?currency=USD")
    money = [
        (each["money"]["currency"], float(each["money"]["amount"])) for each in found["breaks"]
    ]
    assert money == sorted(money, key=lambda each: (each[0], -each[1]))
    assert {each["currency"] for each in [t["money"] for t in found["totals"]]} == {"KES", "USD"}
    for total in found["totals"]:
        of_it = [amount for currency, amount in money if currency == total["money"]["currency"]]
        assert (total["count"], float(total["money"]["amount"])) == (len(of_it), sum(of_it))
    assert [each["id"] for each in lines] == [each["id"] for each in found["breaks"]]
    for each in found["breaks"]:
        assert each["sentence"] in text
        assert each["next_step"] in text
    since = [each["since"] for each in aged["breaks"]]
    assert since == sorted(since)
    assert {each["money"]["currency"] for each in dollars["breaks"]} == {"USD"}


async def test_pages_of_breaks_follow_each_other(
    console_with_breaks: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console_with_breaks.signed_in("finance") as client:
        whole = [each["id"] for each in (await breaks(client))["breaks"]]
        monkeypatch.setattr("app.console.view.ROWS", 1)
        seen: list[str] = []
        skip: int | None = 0
        while skip is not None:
            found = await breaks(client, f"?skip={skip}")
            seen += [each["id"] for each in found["breaks"]]
            skip = found["next"]
    assert seen == whole
    assert len(seen) >= 2


AT = "2026-10-16T09:05:00Z"
"""A moment in a person's words: a page tells it as the zone's clocks show it."""


async def test_a_break_is_assigned_noted_and_accepted(console_with_breaks: RunningConsole) -> None:
    """Each act is in the operator's name; an accepted break leaves the worklist."""
    console = console_with_breaks
    async with console.signed_in("finance") as client:
        name = (await breaks(client))["breaks"][0]["id"]
        assigned = await send(client, f"/do/assign?break={name}", to="a support")
        assert (assigned.status_code, assigned.headers["location"]) == (
            303,
            f"/breaks/{name}?done=assign",
        )
        mine = await breaks(client, "?assignee=a+support&state=assigned")
        assert [each["id"] for each in mine["breaks"]] == [name]
        noted = await send(client, f"/do/comment?break={name}", reason="asked the provider")
        accepted = await send(client, f"/do/accept?break={name}", reason=f"refunded {AT}")
        assert (noted.status_code, accepted.status_code) == (303, 303)
        page = shown((await client.get(accepted.headers["location"])).text)
        left = await breaks(client)
        done = await breaks(client, "?state=accepted")
    assert "Accepted: nothing more" in page
    assert "Next step" not in page
    assert "refunded 2026-10-16 09:05" in page
    assert "“asked the provider”" in page
    assert name not in {each["id"] for each in left["breaks"]}
    assert [each["id"] for each in done["breaks"]] == [name]
    rows = console.driver.rows(
        "SELECT who, action FROM audit WHERE action LIKE 'break%' ORDER BY at"
    )
    assert sorted(rows) == [
        ("a finance", "break_accepted"),
        ("a finance", "break_assigned"),
        ("a finance", "break_commented"),
    ]


async def test_a_form_sent_twice_accepts_once(console_with_breaks: RunningConsole) -> None:
    async with console_with_breaks.signed_in("finance") as client:
        name = (await breaks(client))["breaks"][0]["id"]
        path = f"/do/accept?break={name}"
        form = {**hidden_in((await client.get(path)).text), "reason": "less than a cent"}
        first, again = await client.post(path, data=form), await client.post(path, data=form)
    assert (first.status_code, again.status_code) == (303, 409)
    assert len(console_with_breaks.driver.rows("SELECT 1 FROM break_deeds")) == 1


async def test_a_post_from_another_site_does_nothing(console_with_breaks: RunningConsole) -> None:
    async with console_with_breaks.signed_in("finance") as client:
        name = (await breaks(client))["breaks"][0]["id"]
        path = f"/do/accept?break={name}"
        form = {**hidden_in((await client.get(path)).text), "reason": "less than a cent"}
        elsewhere = {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}
        answer = await client.post(path, data=form, headers=elsewhere)
    assert answer.status_code == 403
    assert ORIGIN not in str(answer.headers)
    assert console_with_breaks.driver.rows("SELECT 1 FROM break_deeds") == []


async def test_above_the_limit_the_form_proposes(console_with_breaks: RunningConsole) -> None:
    """The form says so first; nothing is accepted until another person approves. The same goes for
    a currency without a limit."""
    console = console_with_breaks
    await save_rules(console.context, '[accept_alone_max]\nKES = "1.00"\n', by="a finance")
    async with console.signed_in("finance") as client:
        found = (await breaks(client, "?currency=KES"))["breaks"][0]["id"]
        path = f"/do/accept?break={found}"
        text = shown((await client.get(path)).text)
        sent = await send(client, path, reason="it is gone")
        again = await send(client, path, reason="it is gone")
        other = (await breaks(client, "?currency=USD"))["breaks"][0]["id"]
        dollars = shown((await client.get(f"/do/accept?break={other}")).text)
        page = shown((await client.get(f"/breaks/{found}")).text)
        now = (await client.get("/now.json")).json()
        front = shown((await client.get("/")).text)
    assert "more than the KES 1.00 that one person may accept" in text
    assert "when another operator approves it" in text
    assert "Propose it" in text
    assert "Accept it" not in text
    assert "Its order is ORD-1." in shown(sent.text)
    assert "Proposed to a second person" in shown(sent.text)
    assert again.status_code == 400
    assert "already made the same proposal" in shown(again.text)
    assert console.driver.rows("SELECT break_id FROM break_deeds") == []
    assert "No rule says how much USD one person may accept" in dollars
    assert "it waits for a second person" in page
    (waits,) = now["proposals"]
    assert "1 proposal waits for a second person" in front
    assert f"{waits['title']} {waits['subject']} of a finance" in front


async def waiting(console: RunningConsole) -> str:
    """Return the id of a finance operator's proposal to accept a break."""
    await save_rules(console.context, '[accept_alone_max]\nKES = "1.00"\n', by="a finance")
    async with console.signed_in("finance") as client:
        found = (await breaks(client, "?currency=KES"))["breaks"][0]["id"]
        await send(client, f"/do/accept?break={found}", reason="it is gone")
        listed = (await client.get("/proposals.json")).json()
    assert listed["waiting"] == 1
    name: str = listed["proposals"][0]["id"]
    return name


async def test_another_operator_approves_on_the_page(console_with_breaks: RunningConsole) -> None:
    """The proposer sees no button, and a form sent from any of their sessions does nothing."""
    console = console_with_breaks
    name = await waiting(console)
    async with console.signed_in("finance") as client:
        own = (await client.get(f"/proposals/{name}")).text
        form = shown((await client.get(f"/do/approve?proposal={name}")).text)
        sent = await client.post(
            f"/do/approve?proposal={name}", data={"form": "made up", "reason": "I agree with me"}
        )
    assert "/do/approve" not in own
    assert "/do/withdraw" in own
    assert "you made this proposal yourself" in form.lower()
    assert sent.status_code == 400
    assert console.driver.rows("SELECT 1 FROM break_deeds") == []
    async with console.signed_in("admin") as client:
        page = shown((await client.get(f"/proposals/{name}")).text)
        done = await send(client, f"/do/approve?proposal={name}", reason="I saw the letter")
        after = shown((await client.get(done.headers["location"])).text)
        listed = (await client.get("/proposals.json")).json()
        lines = rows_of(await client.get("/proposals.csv"))
        late = await client.get(f"/do/reject?proposal={name}")
        assert (await client.get("/proposals/prp_0")).status_code == 404
    assert "it is gone" in page
    assert "You approved the proposal, and the act was carried out" in after
    assert "I saw the letter" in after
    assert [each["state"] for each in listed["proposals"]] == ["approved"]
    assert [(each["by"], each["decided_by"]) for each in lines] == [("a finance", "a admin")]
    assert "Reject it" not in shown(late.text)
    assert console.driver.rows("SELECT who, second FROM break_deeds") == [("a finance", "a admin")]
    trail = console.driver.rows("SELECT who, facts FROM audit WHERE action='break_accepted'")
    assert [(who, json.loads(facts)["second"]) for who, facts in trail] == [
        ("a finance", "a admin")
    ]


async def test_an_approval_that_takes_long_goes_on_without_its_page(
    console_with_breaks: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page says that it runs and offers no second one; it counts once it is done."""
    usual, go_on = console_with_breaks, asyncio.Event()
    name = await waiting(usual)
    kinds = usual.console.proposals.kinds
    kind = kinds["accept_above_limit"]
    monkeypatch.setitem(kinds, kind.name, replace(kind, takes_long=True))

    async def approve(*words: str) -> None:
        await go_on.wait()
        await usual.console.approve(*words)

    jobs = Jobs(usual.context.clock, patience_s=0)
    made = replace(usual.console, jobs=jobs, approve=approve)
    console = RunningConsole(console=made, application=build_console(made), driver=usual.driver)
    async with console.signed_in("admin") as client:
        sent = await send(client, f"/do/approve?proposal={name}", reason="I saw the letter")
        page = (await client.get(f"/proposals/{name}")).text
        meanwhile = (await client.get(f"/proposals/{name}.json")).json()["state"]
        go_on.set()
        job = jobs.newest("approve", name)
        assert job is not None
        await soon(lambda: job.ended is not None)
        after = (await client.get(f"/proposals/{name}.json")).json()["state"]
    assert "You may leave this page" in shown(sent.text)
    assert "The act is being carried out since" in shown(page)
    assert "/do/approve" not in page
    assert (meanwhile, after) == ("waiting", "approved")
    assert console.driver.rows("SELECT who, second FROM break_deeds") == [("a finance", "a admin")]


@pytest.mark.parametrize(
    ("role", "act", "state"),
    [("admin", "reject", "rejected"), ("finance", "withdraw", "withdrawn")],
)
async def test_a_proposal_is_rejected_or_withdrawn(
    console_with_breaks: RunningConsole, role: str, act: str, state: str
) -> None:
    console = console_with_breaks
    name = await waiting(console)
    async with console.signed_in(role) as client:
        done = await send(client, f"/do/{act}?proposal={name}", reason="not like this")
        text = shown((await client.get(done.headers["location"])).text)
        found = (await client.get(f"/proposals/{name}.json")).json()
    assert (found["state"], found["steps"][-1]["reason"]) == (state, "not like this")
    assert "nothing was done" in text
    assert console.driver.rows("SELECT 1 FROM break_deeds") == []


async def test_a_kind_says_where_its_subject_is_shown_and_whether_it_is_for_good(
    console: RunningConsole,
) -> None:
    said = {}
    for name, kind in console.console.proposals.kinds.items():
        about = Proposal(
            id="prp_1", kind=name, subject="a thing", sentence="Do it.", subject_state="",
            given={"import": "7"}, who="a finance", role="finance", reason="so",
            at=Instant(0), until=Instant(1),
        )  # fmt: skip
        said[name] = (None if kind.where is None else kind.where(about), kind.for_good)
    assert said == {
        "accept_above_limit": (("breaks", "a thing"), False),
        "accept_balance_difference": (None, False),
        "assign_payment": (("unallocated", "a thing"), False),
        "dismiss_payment": (("unallocated", "a thing"), False),
        "withdraw_assignment": (("unallocated", "a thing"), False),
        "change_rules": (None, False),
        "close_period": (("periods", "a thing"), True),
        "reopen_period": (("periods", "a thing"), True),
        "erase": (("orders", "a thing"), True),
        "erase_person": (None, True),
        "withdraw_import": (("imports", "7"), False),
        "unmask": (None, False),
        "export": (None, False),
    }


async def test_a_break_goes_to_an_operator_only(console_with_breaks: RunningConsole) -> None:
    async with console_with_breaks.signed_in("support") as client:
        name = (await breaks(client))["breaks"][0]["id"]
        sent = await send(client, f"/do/assign?break={name}", to="nobody we know")
        without = await send(client, f"/do/comment?break={name}", reason=" ")
    assert (sent.status_code, without.status_code) == (400, 400)
    assert console_with_breaks.driver.rows("SELECT 1 FROM break_deeds") == []


async def test_late_money_is_listed_with_what_is_proposed(
    console_with_breaks: RunningConsole,
) -> None:
    async with console_with_breaks.signed_in("finance") as client:
        found = (await client.get("/late.json")).json()
        text = shown((await client.get("/late")).text)
        none = shown((await client.get("/late?state=settled")).text)
    assert {each["cause"] for each in found["late"]} == {"paid_twice"}
    assert {each["money"]["currency"] for each in found["totals"]} == {"KES", "USD"}
    assert "refund" in text
    assert "No late money is in this state" in none


async def test_the_bank_shows_each_booking_with_its_payout(console: RunningConsole) -> None:
    """Only finance sees it, with what the bank wrote, and filtered on request."""
    async with console.signed_in("finance") as client:
        empty = shown((await client.get("/bank")).text)
        await import_bank_and_statement(console)
        text = shown((await client.get("/bank")).text)
        found = (await client.get("/bank.json?stands=by_reference")).json()
        wrong = await client.get("/bank?stands=nowhere")
    assert "No file of the bank has been imported" in empty
    assert "PO-100200" in text
    assert "Wanjiku" in text
    assert found["places"] == {"by_reference": 1, "bank_line_unknown": 1}
    assert [each["payouts"][0]["reference"] for each in found["lines"]] == ["PO-100200"]
    assert wrong.status_code == 400


async def test_amounts_of_a_csv_are_numbers_also_where_money_left(console: RunningConsole) -> None:
    """A spreadsheet adds up to the page's totals; text stays text, and a payout has its
    reference."""
    await import_bank_and_statement(console)
    left = console.driver.path.parent / "left.csv"
    left.write_text("booked_at,amount,currency,text,reference\n2026-10-08,-3.50,KES,RENT,-1+2\n")
    asked = ImportRequest(path=left, account="petty cash", by="a finance")
    await import_bank(console.context, asked)
    async with console.signed_in("finance") as client:
        found = (await client.get("/bank.json")).json()["lines"]
        lines = rows_of(await client.get("/bank.csv"))
    assert [each["amount_amount"] for each in lines] == [each["amount"]["amount"] for each in found]
    assert sorted(each["amount_amount"] for each in lines) == ["-3.50", "5.00", "7.00"]
    assert {each["payouts"] for each in lines} == {"PO-100200", ""}
    assert "'-1+2" in {each["reference"] for each in lines}


async def test_sentences_of_breaks_tell_days_and_times_of_the_zone(
    console: RunningConsole,
) -> None:
    """It holds on every page that shows such a sentence; JSON stays in UTC."""
    nairobi = in_nairobi(console)
    context = nairobi.context
    await import_bank_and_statement(nairobi)
    await save_rules(context, '[accept_alone_max]\nKES = "1.00"\n', by="a finance")
    await reconcile_period(context, RunRequest(), progress=lambda _: None)
    said = "KES 7.00 on 2026-10-07 , but no payout"
    async with nairobi.signed_in("finance") as client:
        found = await breaks(client, "?cause=bank_line_unknown")
        (seen,) = found["breaks"]
        name = seen["id"]
        pages = [(await client.get(path)).text for path in ("/breaks", f"/breaks/{name}.html")]
        form = await client.get(f"/do/accept?break={name}")
        sent = await send(client, f"/do/accept?break={name}", reason="theirs")
        (waits,) = (await client.get("/proposals.json")).json()["proposals"]
        paths = ("/proposals", f"/proposals/{waits['id']}")
        pages += [form.text, *[(await client.get(path)).text for path in paths]]
    assert "Proposed to a second person" in shown(sent.text)
    assert "at 2026-10-06T21:00:00Z, but no payout" in seen["sentence"]
    for page in pages:
        assert said in shown(page)
        assert "T21:00:00Z" not in shown(page)


async def test_a_run_is_started_by_who_is_signed_in(console: RunningConsole) -> None:
    """It covers everything or some days and is in the audit trail; an invalid day is refused."""
    async with console.signed_in("finance") as client:
        assert "Nothing has been reconciled yet" in shown((await client.get("/runs")).text)
        wrong = await send(client, "/do/run", since="last week", until="", reason="month end")
        whole = await send(client, "/do/run", since="", until="", reason="month end")
        days = {"since": "2026-10-01 ", "until": " 2026-10-31", "reason": "a look"}
        look = await send(client, "/do/run", **days)
        found = (await client.get("/runs.json")).json()["runs"]
        page = await client.get(look.headers["location"])
    assert (wrong.status_code, whole.status_code, look.status_code) == (400, 303, 303)
    assert "write a day" in shown(wrong.text)
    assert [each["kind"] for each in found] == ["look", "lived"]
    assert found[0]["to"] == "2026-11-01T00:00:00Z"
    assert "this page shows its result" in shown(page.text)
    assert "from 2026-10-01 to before 2026-11-01 , a look" in shown(page.text)
    rows = console.driver.rows(
        "SELECT who, reason FROM audit WHERE action='reconciled' ORDER BY at"
    )
    assert sorted(rows) == [("a finance", "a look"), ("a finance", "month end")]


async def test_sums_of_a_run_that_do_not_tie_are_told_in_money(
    console_with_breaks: RunningConsole,
) -> None:
    """The command's JSON has minor units."""
    console = console_with_breaks
    with closing(sqlite3.connect(console.driver.path)) as database, database:
        database.row_factory = sqlite3.Row
        run = dict(database.execute("SELECT * FROM runs").fetchone())
        result = json.loads(run["result"])
        of = ("takings", "KES")
        (line,) = [each for each in result["read"] if (each["side"], each["currency"]) == of]
        line["sum"], line["count"] = line["sum"] + 1_234_567, line["count"] + 1
        run |= {"number": run["number"] + 1, "result": json.dumps(result)}
        marks = ", ".join("?" * len(run))
        database.execute(f"INSERT INTO runs ({', '.join(run)}) VALUES ({marks})", [*run.values()])
    async with console.signed_in("finance") as client:
        text = shown((await client.get("/runs/2")).text)
        (rows, sums) = (await client.get("/runs/2.json")).json()["broken_ties"]
    assert "2 of " in text
    assert f"): {rows['left']} and {rows['right']} " in text
    right = Money(minor=sums["right"], currency="KES")
    assert f"): {Money(minor=sums['left'], currency='KES')} and {right} " in text
    assert sums["left"] - sums["right"] == 1_234_567


async def test_a_run_shows_its_control_totals(console_with_breaks: RunningConsole) -> None:
    """Every row stands in one bucket, by side, and the page says whether sums tie."""
    console = console_with_breaks
    by_command = run_document(await ran(console.context, await finished_run(console.context, 1)))
    async with console.signed_in("finance") as client:
        found = (await client.get("/runs/1.json")).json()
        page = (await client.get("/runs/1")).text
        lines = rows_of(await client.get("/runs/1.csv"))
        listed = (await client.get("/runs")).text
        assert [(await client.get(f"/runs/{one}")).status_code for one in (2, "x")] == [404, 404]
    async with console.signed_in("support") as client:
        assert (await client.get("/runs/1")).status_code == 403
    assert {name: found[name] for name in by_command} == by_command
    assert {each["side"] for each in found["control"]} == {"takings", "settlement"}
    assert [(each["side"], each["bucket"], each["count"]) for each in lines] == [
        (each["side"], each["bucket"], str(each["count"])) for each in found["control"]
    ]
    text = shown(page)
    assert f"All {found['ties_checked']} sums tie" in text
    assert "Captures, compared with the order book" in text
    assert "Paid more than once" in text
    assert 'href="/runs/1"' in listed


async def test_the_reports_page_shows_what_is_done_at_its_times(
    console: RunningConsole, tmp_path: Path
) -> None:
    """It shows the last and next time, and why the last one failed."""
    text = "month | 0 6 12 * * | reconcile month pdf folder; idle | 0 0 1 1 * | reconcile"
    context = with_settings(console.context, schedule=text)
    console.console = replace(console.console, context=context)
    console.application = build_console(console.console)
    schedule = Schedule(
        entries=schedule_entries(text), ways={"folder": FolderWay(folder=tmp_path / "none")}
    )
    await run_now(console.context, schedule, "month", by="a admin")
    async with console.signed_in("finance") as client:
        told = (await client.get("/reports.json")).json()["schedule"]
        text = shown((await client.get("/reports")).text)
    async with console.signed_in("support") as client:
        assert (await client.get("/reports.json")).status_code == 403
    month, idle = told
    assert (month["last"]["state"], month["last"]["asked"], idle["last"]) == ("failed", True, None)
    assert month["last"]["problem"].startswith("the folder TALLYHOOK_REPORTS__FOLDER")
    assert month["last"]["problem"] in text
    assert "Reconciles, then reports the month before: PDF, by folder" in text


@for_each("form", ["html", "xlsx", "csv", "json", "table"][:: every(3)])
async def test_a_report_is_a_download_in_each_form(console: RunningConsole, form: str) -> None:
    async with console.signed_in("finance") as client:
        month = (await client.get("/reports.json")).json()["reports"][0]["period"]
        answer = await client.get(f"/reports/{month}?as={form}")
        days = await client.get(f"/reports/period?from={month}-01&to={month}-02&as={form}")
        wrong = await client.get(f"/reports/{month}?as=odt")
        page = (await client.get("/reports")).text
    async with console.signed_in("support") as client:
        refused = await client.get(f"/reports/{month}?as={form}")
    assert (answer.status_code, days.status_code) == (200, 200)
    assert answer.headers["content-disposition"].startswith("attachment; filename=")
    assert len(answer.content) > 100
    assert (wrong.status_code, refused.status_code) == (400, 403)
    # A browser that is bidden to save what comes shows nothing of why none did.
    assert f'href="/reports/{month}?as={form}"' in page
    assert " download" not in re.sub(r">[^<]*<", "><", page)


async def test_a_journal_has_a_page_and_a_download_in_each_form(console: RunningConsole) -> None:
    """Each balance opens its postings, whose sum it is."""
    async with console.signed_in("finance") as client:
        month = (await client.get("/reports.json")).json()["reports"][0]["period"]
        assert f'href="/journals/{month}"' in (await client.get("/reports")).text
        told = (await client.get(f"/journals/{month}.json")).json()
        page = (await client.get(f"/journals/{month}")).text
        account = told["balances"][0]["account"]
        opened = (await client.get(f"/journals/{month}.json?account={account}")).json()
        days = (await client.get(f"/journals/period.json?from={month}-01&to={month}-28")).json()
        files = {form: await client.get(f"/journals/{month}?as={form}") for form in JOURNAL_FORMATS}
        wrong = await client.get(f"/journals/{month}?as=odt")
    async with console.signed_in("support") as client:
        refused = (
            await client.get(f"/journals/{month}"),
            await client.get(f"/journals/{month}?as=csv"),
        )
    assert "This journal has payments, but no sales" in told["about"]
    assert "This journal has payments, but no sales" in shown(page)
    assert account in {"Assets:Clearing:Provider", "Assets:Bank"}
    sums = Counter[str]()
    for each in opened["postings"]:
        sums[each["amount"]["currency"]] += Decimal(each["amount"]["amount"])  # type: ignore[assignment]
    assert sums == {
        row["balance"]["currency"]: Decimal(row["balance"]["amount"])
        for row in told["balances"]
        if row["account"] == account
    }
    assert days["count"] <= told["count"]
    for form, answer in files.items():
        assert (answer.status_code, len(answer.content) > 50) == (200, True)
        assert answer.headers["content-disposition"].startswith("attachment; filename=")
        assert f"as={form}" in page
    assert [each.status_code for each in (wrong, *refused)] == [400, 403, 403]


@pytest.mark.usefixtures("folding")
async def test_now_shows_what_finance_has_to_do_and_each_number_leads_to_its_list(
    console_with_breaks: RunningConsole,
) -> None:
    console = console_with_breaks
    for number in range(3):
        money = Money(minor=1_000, currency="KES")
        placed = OrderFacts(order=f"NEW-{number}", money=money, placed_at=T)
        await tell_order(console.context, placed)
    due = format_instant(Instant(T + 14 * DAY))
    dispute = {"reference": "dp_1", "amount": 1500, "currency": "KES", "respond_by": due}
    await console.driver.send(event("evt_dispute", "disputed", refund=dispute))
    await soon(lambda: len(console.driver.rows("SELECT 1 FROM ledgers")) == 6)
    opened = "SELECT 1 FROM order_listings WHERE word = 'finding dispute_open'"
    await soon(lambda: len(console.driver.rows(opened)) == 1)
    async with console.signed_in("finance") as client:
        found = (await breaks(client))["breaks"]
        await send(client, f"/do/assign?break={found[0]['id']}", to="a finance")
        now = (await client.get("/now.json")).json()
        html = (await client.get("/")).text
        listed = {
            group: (await client.get(f"/orders.json?group={group}")).json()["orders"]
            for group in now["groups"]
            if group != "needs_a_person"
        }
        everything = (await client.get("/orders.json")).json()
        aged = [
            (await breaks(client, f"?age={each['age']}&currency={each['currency']}"))["breaks"]
            for each in now["finance"]["ages"]
        ]
        mine = (await breaks(client, "?assignee=a+finance"))["breaks"]
        turned = (await client.get("/orders.json?outcome=not_attempted&after=NEW-1")).json()
    assert {group: len(rows) for group, rows in listed.items()} == {
        group: count for group, count in now["groups"].items() if group != "needs_a_person"
    }
    assert now["groups"]["never_tried"] == 3
    assert [each["order"] for each in listed["never_tried"]] == ["NEW-0", "NEW-1", "NEW-2"]
    assert [each["order"] for each in turned["orders"]] == ["NEW-2"]
    assert everything["all"] == len(everything["orders"])
    finance = now["finance"]
    assert [each["count"] for each in finance["ages"]] == [len(rows) for rows in aged]
    assert sum(map(len, aged)) == len(found)
    assert (finance["assigned"], len(mine), finance["run"]["number"]) == (1, 1, 1)
    assert finance["disputes"] == [{"order": "ORD-1", "respond_by": due, "over": False}]
    assert (finance["disputed"], finance["month"]) == (1, None)
    for link in ("/runs/1", "/breaks?assignee=a%20finance", "/orders?group=never_tried"):
        assert f'href="{link}"' in html


@pytest.mark.parametrize(("role", "seen"), [("support", True), ("viewer", False)])
async def test_now_shows_finance_to_roles_that_read_breaks(
    console_with_breaks: RunningConsole, role: str, seen: bool
) -> None:
    """Only finance reads runs and months."""
    async with console_with_breaks.signed_in(role) as client:
        html = (await client.get("/")).text
    assert ("Assigned to me" in html) == seen
    assert "/runs/1" not in html


async def test_a_search_of_the_banks_texts_goes_on_where_it_stopped(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page says how far back it came, and that nothing is found only after the whole search."""
    await import_bank_and_statement(console)
    monkeypatch.setattr(bank_store, "STRETCH", 1)
    monkeypatch.setattr(bank_store, "STRETCHES", 1)
    async with console.signed_in("finance") as client:
        path, pages = "/find", list[str]()
        while path:
            page = (await client.post(path, data={"text": "no such words"})).text
            pages.append(shown(page))
            on = re.search(r'action="(/find\?before=[^"]+)"', page)
            path = unescape(on[1]) if on else ""
    stopped = ["Bank lines were searched back to" in page for page in pages]
    assert stopped == [True, True, False]
