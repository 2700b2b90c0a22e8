"""Deciding about breaks from pages: matched by hand, several at once, and late money."""

import asyncio
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from anyio import to_process
from markupsafe import escape

from app.config.load import load_settings
from app.console.application import build_console
from app.core.errors import UnreachableError, UsageError
from app.finance.break_acts import BreakAct, act_on_breaks
from app.finance.coverage import Declaration, declare_coverage
from app.finance.imports import ImportRequest, import_bank, import_book, import_statement
from app.finance.match_rules import previewed_rules, save_rules
from app.finance.reconcile_period import RunRequest, reconcile_period
from app.finance.rule_text import SETTINGS
from app.wiring.serving import TOO_LONG, console_of
from app.wiring.work import ElsewhereOf
from reconcile.instants import DAY, MINUTE
from tests.api.driving import environ, event
from tests.console.conftest import RunningConsole, hidden_in, of_form, rows_of, send
from tests.console.test_finance_pages import breaks
from tests.console.test_imports import confirm, read
from tests.console.test_pages import shown
from tests.contexts import instead

MISSPELLED = b"""payment_reference,gross,fee,net,currency,settled_at
PAY-I,1500.00,0.00,1500.00,KES,2026-11-21
PAY-Z,10.00,0.00,10.00,KES,2026-12-15
PAY-A,7.00,0.00,7.00,KES,2026-11-19
"""


@pytest.fixture
async def two_halves(console: RunningConsole) -> tuple[RunningConsole, dict[str, Any], str]:
    """Return the break of a payment that no statement has, and a statement line that names no
    payment."""
    async with console.signed_in("finance") as client:
        await confirm(client, (await read(client, MISSPELLED))["upload"])
        console.driver.clock.put(console.driver.clock.now() + 40 * DAY)
        (source,) = {row[0] for row in console.driver.rows("SELECT source FROM statement_lines")}
        all_days = Declaration(
            kind="statement", name=source, first="2026-11-01", last="2026-12-20",
            reason="the file is whole", by="a finance",
        )  # fmt: skip
        await declare_coverage(console.context, all_days)
        await reconcile_period(console.context, RunRequest(), progress=lambda _: None)
    async with console.signed_in("finance") as client:
        found = (await breaks(client))["breaks"]
    assert {each["cause"] for each in found} >= {"not_settled", "settled_never_notified"}, found
    paid = next(each for each in found if each["cause"] == "not_settled")
    return console, paid, paid["candidates"][0]["line"]


async def test_a_line_is_matched_by_hand_and_taken_back(
    two_halves: tuple[RunningConsole, dict[str, Any], str],
) -> None:
    """One click closes both at once, a run keeps them closed, and taking it back opens both."""
    console, paid, line = two_halves
    path = f"/breaks/{paid['id']}"
    ((half,),) = console.driver.rows(
        "SELECT id FROM breaks WHERE subject = '" + line.partition(".")[0] + "'"
    )
    async with console.signed_in("finance") as client:
        page, listed = (await client.get(path)).text, (await client.get("/breaks")).text
        way = re.search(r'action="(/do/match\?[^"]*)".*?name="reason" value="([^"]*)"', page)
        assert way
        form = {"form": await of_form(client, path), "reason": way[2]}
        sent = await client.post(way[1].replace("&amp;", "&"), data=form)
        matched = (await client.get(f"{path}.json")).json()
        left = [each["id"] for each in (await breaks(client))["breaks"]]
        back = await send(client, f"/do/unmatch?break={paid['id']}", line=line, reason="no, wrong")
        again = [(await client.get(f"/breaks/{name}.json")).json() for name in (paid["id"], half)]
        none = shown((await client.get(f"/do/unmatch?break={paid['id']}")).text)
        await client.post(
            way[1].replace("&amp;", "&"), data=form | {"form": await of_form(client, path)}
        )
        console.driver.clock.put(console.driver.clock.now() + MINUTE)
        await send(client, "/do/run", since="", until="", reason="look again")
        closed = (await client.get(f"{path}.json")).json()
    first = paid["candidates"][0]
    assert first["apart"] in page
    assert f"{first['score']} of 100" in page
    assert all(f"{each['points']}: {each['words']}" in page for each in first["reasons"])
    assert first["reasons"][0]["words"] in way[2]
    assert f'form="match-{paid["id"]}"' in listed
    assert (sent.status_code, back.status_code) == (303, 303)
    assert (matched["matched"], matched["state"]) == ([line], "closed")
    assert not {paid["id"], half} & set(left)
    assert [(each["matched"], each["state"]) for each in again] == [([], "open")] * 2
    assert "This break was not matched by hand" in none
    assert closed["state"] == "closed"
    assert closed["because"].startswith("Run 2 no longer found this break")
    rows = console.driver.rows(
        "SELECT action, count(*) FROM audit WHERE action LIKE '%matched' GROUP BY action"
    )
    assert sorted(rows) == [("break_matched", 4), ("break_unmatched", 2)]


BOOK = """reference,amount,currency,status,placed_at
ORD-77,5.00,KES,paid,2026-12-02
ORD-78,2.00,KES,paid,2026-12-02
ORD-79,900.00,KES,paid,2026-12-02
"""
PAID_OUT = "payment_reference,gross,currency,settled_at,payout\np1,5.00,KES,2026-12-01,PO-100200\n"
BOOKED = """booked_at,amount,currency,counterparty,text
2026-12-02,5.00,KES,Provider,PO-100200
2026-12-03,7.00,KES,Wanjiku,
"""


@pytest.fixture
async def transfer(console: RunningConsole) -> tuple[RunningConsole, str]:
    """Return the break of a bank line that two orders explain together."""
    folder = console.driver.path.parent
    console.driver.clock.put(console.driver.clock.now() + 40 * DAY)
    for name, content in (("book", BOOK), ("statement", PAID_OUT), ("bank", BOOKED)):
        (folder / f"{name}.csv").write_text(content)
    days = ("2026-11-25", "2026-12-20")
    book, paid, bank = (
        ImportRequest(path=folder / f"{name}.csv", by="a finance", days=days, account=account)
        for name, account in (("book", ""), ("statement", ""), ("bank", "main"))
    )
    await import_book(console.context, book)
    await import_statement(console.context, paid, source="shop")
    await import_bank(console.context, bank)
    console.driver.clock.put(console.driver.clock.now() + MINUTE)
    await reconcile_period(console.context, RunRequest(), progress=lambda _: None)
    async with console.signed_in("finance") as client:
        (found,) = (await breaks(client, "?cause=bank_line_unknown"))["breaks"]
    return console, found["id"]


async def test_several_lines_are_found_added_up_and_matched_in_four_clicks(
    transfer: tuple[RunningConsole, str],
) -> None:
    """Find and match, tick, match, confirm; it needs no script, and the next run keeps it."""
    console, name = transfer
    async with console.signed_in("finance") as client:
        pages = [(await client.get(path)).text for path in ("/breaks", f"/breaks/{name}")]
        every = (await client.get(f"/match/{name}.json")).json()
        one = (await client.get(f"/match/{name}.json?text=ord-78")).json()
        five = (await client.get(f"/match/{name}.json?amount=5.00")).json()
        wrong = await client.get(f"/match/{name}?amount=lots")
        lines = {each["reference"]: each["line"] for each in every["lines"]}
        query = f"break={name}&line={lines['ORD-77']}&line={lines['ORD-78']}"
        half = (await client.get(f"/match/{name}.json?line={lines['ORD-77']}")).json()
        page = (await client.get(f"/match/{name}?{query}")).text
        sent = await send(client, f"/do/match?{query}", reason="her transfer for both")
        left = [each["order"] for each in (await breaks(client))["breaks"]]
        console.driver.clock.put(console.driver.clock.now() + MINUTE)
        await send(client, "/do/run", since="", until="", reason="look again")
        again = [each["order"] for each in (await breaks(client))["breaks"]]
        closed = (await client.get(f"/breaks/{name}.json")).json()
    assert [f'href="/match/{name}"' in page for page in pages] == [True, True]
    assert {"ORD-77", "ORD-78", "ORD-79"} <= lines.keys()
    assert [each["reference"] for each in one["lines"]] == ["ORD-78"]
    assert [each["reference"] for each in five["lines"]] == ["ORD-77"]
    assert (wrong.status_code, "write the amount in" in shown(wrong.text).lower()) == (
        400,
        True,
    )
    assert half["difference"] == {"amount": "2.00", "currency": "KES"}
    assert [each["reference"] for each in half["lines"]][:2] == ["ORD-77", "ORD-78"]
    assert len(re.findall(r'name="line"[^>]* checked', page)) == 2
    assert "Difference KES 0.00" in shown(page)
    assert sent.status_code == 303
    assert not {"ORD-77", "ORD-78"} & {*left, *again}
    assert "ORD-79" in again
    assert closed["because"].startswith("Run 2 no longer found this break")


async def test_every_number_of_a_run_opens_its_rows(
    transfer: tuple[RunningConsole, str],
) -> None:
    console, _ = transfer
    async with console.signed_in("finance") as client:
        page = (await client.get("/runs/1")).text
        control = (await client.get("/runs/1.json")).json()["control"]
        ways = re.findall(r'href="(/rows/1\?[^"]+)"', page)
        found = [
            (await client.get(way.replace("&amp;", "&").replace("/rows/1", "/rows/1.json"))).json()
            for way in ways
        ]
        sides = {way.partition("side=")[2].partition("&")[0] for way in ways}
        missed = next(way for way in ways if "book_paid_not_received" in way)
        listed = rows_of(await client.get(missed.replace("&amp;", "&").replace("1?", "1.csv?")))
        wrong = await client.get("/rows/1?side=nowhere&bucket=returned")
        none = await client.get("/rows/9?side=book&bucket=returned")
    assert len(ways) == len(control)
    assert {(*each["filters"].values(), each["found"]) for each in found} == {
        (each["side"], each["bucket"], each["currency"], each["count"]) for each in control
    }
    assert sides >= {"book", "takings", "statement", "payouts", "bank"}
    assert {each["name"] for each in listed} == {"ORD-77", "ORD-78", "ORD-79"}
    assert (wrong.status_code, none.status_code) == (400, 404)


async def test_the_trail_is_on_a_page_and_every_page_leads_to_it(
    transfer: tuple[RunningConsole, str],
) -> None:
    console, name = transfer
    async with console.signed_in("finance") as client:
        ways = [f"/breaks/{name}", "/bank", "/orders/ORD-1"]
        pages = [(await client.get(path)).text for path in ways]
        text = shown((await client.get("/trail/PO-100200")).text)
        found = (await client.get("/trail/PO-100200.json")).json()
        none = await client.get("/trail/PO-9")
        searched = [
            (await client.post("/find", data={"text": words})).text
            for words in ("PO-100200", "wanJIKU", "no_such%")
        ]
    async with console.signed_in("support") as client:
        hidden = (await client.post("/find", data={"text": "Wanjiku"})).text
    assert ["Payouts and bank lines" in page for page in searched] == [True, True, False]
    assert [page.count('href="/trail/') for page in searched] == [2, 1, 0]
    assert "bank lines" not in hidden
    assert all('href="/trail/' in page for page in pages), [len(page) for page in pages]
    assert "Provider PO-100200" in text
    assert [each["payment"] for each in found["statement"]] == ["p1"]
    assert none.status_code in (400, 404)


async def test_a_break_shows_what_the_bank_wrote_and_a_rule_is_made_of_it(
    transfer: tuple[RunningConsole, str],
) -> None:
    console, name = transfer
    async with console.signed_in("finance") as client:
        page = (await client.get(f"/breaks/{name}")).text
        ways = re.findall(r'href="(/do/preview-rules\?bank=[^"]+)"', page)
        forms = [(await client.get(each.replace("&amp;", "&"))).text for each in ways]
        orders = (await breaks(client, "?cause=book_paid_not_received"))["breaks"]
        way = f"/match/{orders[0]['id']}?text=Wanjiku"
        seen = (await client.get(way)).text
    async with console.signed_in("support") as client:
        hidden = (await client.get(f"/breaks/{name}")).text
        unseen = (await client.get(way)).text
    assert "<bdi>Wanjiku" in seen
    assert "<bdi>Wanjiku" not in unseen
    assert "Wanjiku" in page
    assert "Wanjiku" not in hidden
    assert [key for form in forms for key in ("other_business", "bank_payers") if key in form] == [
        "other_business", "bank_payers",
    ]  # fmt: skip
    assert all("[&#34;Wanjiku&#34;]" in form for form in forms)


async def test_a_line_that_is_not_left_over_is_not_matched(
    two_halves: tuple[RunningConsole, dict[str, Any], str],
) -> None:
    console, paid, _ = two_halves
    async with console.signed_in("finance") as client:
        path = f"/do/match?break={paid['id']}"
        refused = await send(client, path, line="stl_made_up@1", reason="it looks right")
    assert refused.status_code == 400
    assert "is not an unmatched line" in shown(refused.text)
    assert console.driver.rows("SELECT 1 FROM break_deeds") == []


def chosen(found: list[dict[str, Any]]) -> str:
    return "&".join(f"break={each['id']}" for each in found)


async def test_several_breaks_are_assigned_and_accepted_at_once(
    console_with_breaks: RunningConsole,
) -> None:
    """A preview shows count and money; one confirmation writes an audit entry for each."""
    console = console_with_breaks
    async with console.signed_in("finance") as client:
        found = (await breaks(client))["breaks"]
        page = (await client.get("/breaks")).text
        assert len(found) >= 2
        assert page.count('name="break"') == len(found)
        asked = shown((await client.get(f"/do/accept?{chosen(found)}")).text)
        to = await send(client, f"/do/assign?{chosen(found)}", to="a support")
        mine = await breaks(client, "?assignee=a+support")
        sent = await send(client, f"/do/accept?{chosen(found)}", reason="small sums")
        left = await breaks(client)
    for total in _totals(found):
        assert total in asked
    assert (to.status_code, sent.status_code) == (303, 303)
    assert (len(mine["breaks"]), left["breaks"]) == (len(found), [])
    rows = console.driver.rows(
        "SELECT action, who, count(*) FROM audit WHERE action LIKE 'break%' "
        "GROUP BY action, who ORDER BY action"
    )
    assert rows == [
        ("break_accepted", "a finance", len(found)),
        ("break_assigned", "a finance", len(found)),
    ]


async def test_all_breaks_that_match_filters_are_decided_together(
    console_with_breaks: RunningConsole,
) -> None:
    console = console_with_breaks
    async with console.signed_in("finance") as client:
        found = (await breaks(client))["breaks"]
        assert 'value="currency=KES"' in (await client.get("/breaks?currency=KES")).text
        mine = await breaks(client, "?currency=KES&assignee=a+support")
        those = [each for each in found if each["money"]["currency"] == "KES"]
        assert 0 < len(those) < len(found)
        path = "/do/accept?where=currency%3DKES+age%3C10000"
        asked = shown((await client.get(path)).text)
        sent = await send(client, path, reason="small sums")
        left = (await breaks(client))["breaks"]
        none = shown((await client.get(path)).text)
        wrong = await client.get("/do/assign?where=colour%3Dred")
    (total,) = _totals(those)
    assert mine["where"] == "currency=KES 'assignee=a support'"
    assert total.removeprefix("of ") in asked
    assert sent.status_code == 303
    assert [each["money"]["currency"] for each in left] == ["USD"] * len(left)
    assert "no break is chosen" in none.lower()
    told = shown(wrong.text)
    assert "is not a condition" in told
    assert "--where" not in told
    assert 'action="/do/assign?' not in wrong.text, "the list's own field, and nothing to do"


def _totals(found: list[dict[str, Any]]) -> list[str]:
    sums: dict[str, float] = {}
    for each in found:
        money = each["money"]
        sums[money["currency"]] = sums.get(money["currency"], 0) + float(money["amount"])
    return [f"of {currency} {amount:,.2f}" for currency, amount in sums.items()]


async def test_what_changed_since_it_was_shown_is_not_accepted(
    console_with_breaks: RunningConsole,
) -> None:
    """All are accepted or none, also where one was decided meanwhile."""
    console = console_with_breaks
    async with console.signed_in("finance") as client:
        found = (await breaks(client))["breaks"]
        path = f"/do/accept?{chosen(found)}"
        form = {**hidden_in((await client.get(path)).text), "reason": "small sums"}
        await send(client, f"/do/assign?break={found[0]['id']}", to="a support")
        refused = await client.post(path, data=form)
        late = (await client.get("/late.json")).json()["late"][0]
        unmarked = []
        for one in (f"/do/accept?break={found[1]['id']}", f"/do/settle?break={late['id']}"):
            without = {"form": await of_form(client, one), "action": "refund", "reason": "x"}
            unmarked.append((await client.post(one, data=without)).status_code)
        nothing = await client.get("/do/accept")
    assert [refused.status_code, *unmarked] == [400] * 3
    assert "have changed since you looked" in shown(refused.text).lower()
    assert "No break is chosen" in shown(nothing.text)
    assert 'href="/breaks"' in nothing.text
    assert console.driver.rows("SELECT 1 FROM break_deeds WHERE deed<>'assigned'") == []


async def test_above_the_limit_none_of_several_is_accepted(
    console_with_breaks: RunningConsole,
) -> None:
    """The form says which are to be proposed and offers nothing. A form sent all the same is
    refused with their ids."""
    console = console_with_breaks
    limit = '[accept_alone_max]\nKES = "1.00"\nUSD = "99.00"\n'
    async with console.signed_in("finance") as client:
        found = (await breaks(client))["breaks"]
        path = f"/do/accept?{chosen(found)}"
        form = {**hidden_in((await client.get(path)).text), "reason": "small sums"}
        await save_rules(console.context, limit, by="a finance")
        text = shown((await client.get(path)).text)
        with pytest.raises(UsageError) as refused:
            await act_on_breaks(
                console.context,
                [each["id"] for each in found],
                BreakAct(kind="accepted", by="a finance", reason="small sums"),
                seen=form["seen"],
            )
        sent = await client.post(path, data=form)
        proposals = (await client.get("/proposals.json")).json()["proposals"]
    above = [each["id"] for each in found if each["money"]["currency"] == "KES"]
    free = [each["id"] for each in found if each["money"]["currency"] == "USD"]
    assert above
    assert free
    assert "One person may not accept it alone" in text
    assert "Propose each of them on its own page" in text
    assert "Accept all of them" not in text
    assert sent.status_code == 400
    assert [name in str(refused.value) for name in (*above, *free)] == [
        *[True] * len(above),
        *[False] * len(free),
    ]
    assert (proposals, console.driver.rows("SELECT 1 FROM break_deeds")) == ([], [])


async def test_what_each_may_be_accepted_alone_may_not_be_together(
    console_with_breaks: RunningConsole,
) -> None:
    """The form shows their sum and offers nothing; a form sent all the same is refused."""
    console = console_with_breaks
    for claim in ("pay_c", "pay_d"):
        order, session = {"reference": "ORD-2", "amount": 20}, {"reference": "cs_2"}
        payment = {"reference": claim, "amount": 20}
        paid = event(f"evt_{claim}", order=order, session=session, payment=payment)
        await console.driver.send(paid)
    await reconcile_period(console.context, RunRequest(), progress=lambda _: None)
    async with console.signed_in("finance") as client:
        found = (await breaks(client))["breaks"]
        path = f"/do/accept?{chosen(found)}"
        form = {**hidden_in((await client.get(path)).text), "reason": "small sums"}
        limit = '[accept_alone_max]\nKES = "1500.00"\nUSD = "99.00"\n'
        await save_rules(console.context, limit, by="a finance")
        text = shown((await client.get(path)).text)
        sent = await client.post(path, data=form)
    assert (
        "Together they amount to KES 1,520.00, more than the KES 1,500.00 that one person may "
        "decide about alone in a day. Accept fewer, and propose the others on their own pages."
    ) in text
    assert "Accept all of them" not in text
    assert sent.status_code == 400
    assert "Nothing was done" in shown(sent.text)
    assert console.driver.rows("SELECT 1 FROM break_deeds") == []


async def test_late_money_is_decided_with_a_reason(console_with_breaks: RunningConsole) -> None:
    """It is kept, credited or given back."""
    console = console_with_breaks
    async with console.signed_in("finance") as client:
        first, second = (await client.get("/late.json")).json()["late"]
        page = (await client.get("/late")).text
        assert f"/do/settle?break={first['id']}" in page
        refund = await send(
            client, f"/do/settle?break={first['id']}", action="refund", reason="paid twice"
        )
        without = await send(client, f"/do/settle?break={second['id']}", action="credit", reason="")
        credit = await send(
            client, f"/do/settle?break={second['id']}", action="credit", reason="they asked for it"
        )
        found = {each["id"]: each for each in (await client.get("/late.json")).json()["late"]}
    assert (refund.status_code, without.status_code, credit.status_code) == (303, 400, 303)
    assert found[first["id"]]["state"] == "waits_for_refund"
    assert (found[second["id"]]["state"], found[second["id"]]["decided"]) == ("settled", "credit")
    rows = console.driver.rows("SELECT who FROM audit WHERE action='late_money_settled'")
    assert rows == [("a finance",)] * 2


async def test_above_the_limit_keeping_late_money_is_proposed(
    console_with_breaks: RunningConsole,
) -> None:
    """One person decides to give it back; both decisions count once the second has approved."""
    console = console_with_breaks
    await save_rules(console.context, '[accept_alone_max]\nKES = "1.00"\n', by="a finance")
    async with console.signed_in("finance") as client:
        late = (await client.get("/late.json")).json()["late"]
        name = next(each["id"] for each in late if each["money"]["currency"] == "KES")
        path = f"/do/settle?break={name}"
        text = shown((await client.get(path)).text)
        kept = await send(client, path, action="accept", reason="it is ours")
        assert console.driver.rows("SELECT 1 FROM break_deeds") == []
        proposal = (await client.get("/proposals.json")).json()["proposals"][0]["id"]
    async with console.signed_in("admin") as client:
        await send(client, f"/do/approve?proposal={proposal}", reason="I saw the letter")
    async with console.signed_in("finance") as client:
        back = await send(client, path, action="refund", reason="paid twice")
    assert "you can only propose to keep or credit it" in text
    assert "Proposed to a second person" in shown(kept.text)
    assert back.status_code == 303
    rows = console.driver.rows("SELECT who, second, value FROM break_deeds")
    assert rows == [("a finance", "a admin", "accept"), ("a finance", None, "refund")]


async def test_support_sees_breaks_and_decides_none(console_with_breaks: RunningConsole) -> None:
    async with console_with_breaks.signed_in("support") as client:
        found = (await breaks(client))["breaks"]
        page = (await client.get("/breaks")).text
        one = (await client.get(f"/breaks/{found[0]['id']}")).text
    assert "/do/accept" not in page
    assert "/do/assign" in page
    assert "/do/match" not in one


async def tried(client: httpx2.AsyncClient, rules: str) -> str:
    """Return the form that puts the previewed rules in force."""
    sent = await send(client, "/do/preview-rules", rules=rules)
    path = sent.headers["location"].partition("?")[0]
    page = (await client.get(path)).text
    assert rules.splitlines()[-1] in shown(page)
    found: str = f"/do/save-rules?preview={path.rpartition('/')[2]}"
    assert f'href="{found}"' in page
    return found


async def test_rules_that_were_tried_are_put_in_force(console_with_breaks: RunningConsole) -> None:
    """One person suffices unless a rule says otherwise. Nothing happens where other rules came into
    force since."""
    console = console_with_breaks
    limits = '[accept_alone_max]\nKES = "5.00"\n'
    async with console.signed_in("finance") as client:
        first = await tried(client, limits)
        stale = await tried(client, '[tolerance]\nKES = "9.00"\n')
        alone = shown((await client.get(first)).text)
        done = await send(client, first, reason="as we agreed")
        told = shown((await client.get(stale)).text)
        late = await client.post(stale, data={"form": "once", "reason": "x"})
        second = await tried(
            client, '[tolerance]\nKES = "1.00"\n[accept_alone_max]\nUSD = "2.00"\n'
        )
        by_two = shown((await client.get(second)).text)
        sent = await send(client, second, reason="small change")
        listed = (await client.get("/proposals.json")).json()["proposals"]
        gone = await client.get("/do/save-rules?preview=job_0")
    assert "in your name" in alone
    assert "Propose it" not in alone
    assert "Propose it" in by_two
    assert "accept_alone_max.KES changes from 5.00 to none (dropped" in by_two
    assert done.status_code == 303
    assert console.driver.rows("SELECT toml FROM match_rules") == [(limits,)]
    (saved,) = console.driver.rows(
        "SELECT who, reason, facts FROM audit WHERE action = 'rules_saved'"
    )
    assert saved[:2] == ("a finance", "as we agreed")
    assert '"accept_alone_max.KES":"none to 5.00 (new)"' in saved[2]
    assert "Other rules were put in force since these were tried" in told
    assert late.status_code == 400
    assert "when another operator approves" in by_two
    assert "Proposed to a second person" in shown(sent.text)
    async with console.signed_in("admin") as client:
        name = listed[0]["id"]
        page = (await client.get(f"/proposals/{name}")).text
        assert "KES = &#34;1.00&#34;" in page
        assert "accept_alone_max.KES 5.00 none dropped: it takes a second person" in shown(page)
        assert "tolerance.KES none 1.00" in shown(page)
        await send(client, f"/do/approve?proposal={name}", reason="fine")
    assert len(console.driver.rows("SELECT 1 FROM match_rules")) == 2
    assert gone.status_code == 404


@pytest.mark.parametrize(
    ("rule", "typed", "written"),
    [
        ("limit", {"currency": "kes", "accept_alone_max": "5000"},
         '[accept_alone_max]\nKES = "5000"'),
        ("tolerance", {"currency": "KES", "amount": "1.00"}, '[tolerance]\nKES = "1.00"'),
        ("fee", {"source": "shop", "currency": "KES", "percent": "2.9", "fixed": "0.30"},
         '[[fee]]\nsource = "shop"\ncurrency = "KES"\npercent = "2.9"\nfixed = "0.30"'),
        ("methods", {"outside": "Barzahlung\r\n\r\ncash", "bank": "", "tender": "gift card"},
         '[methods]\ntender = ["gift card"]\nbank = []\noutside = ["Barzahlung", "cash"]'),
    ],
)  # fmt: skip
async def test_a_form_writes_a_common_rule_into_those_in_force(
    console_with_breaks: RunningConsole, rule: str, typed: dict[str, str], written: str
) -> None:
    """A rule is tried first and then put in force, as rules that are written by hand."""
    console, before = console_with_breaks, '# ours\nrefund_margin = "9 days"\n'
    await save_rules(console.context, before, by="a finance")
    async with console.signed_in("finance") as client:
        sent = await send(client, f"/do/add-rule?rule={rule}", **typed)
        path = sent.headers["location"].partition("?")[0]
        page = (await client.get(f"{path}.json")).json()
        name = path.rpartition("/")[2]
        done = await send(client, f"/do/save-rules?preview={name}", reason="as agreed")
        shown_now = shown((await client.get(done.headers["location"])).text)
    assert page["rules"] == f"{before}\n{written}\n"
    assert console.driver.rows("SELECT toml FROM match_rules")[-1] == (page["rules"],)
    assert "Rules 2 are in force" in shown_now


async def test_the_page_of_rules_has_limits_and_every_setting(
    console_with_breaks: RunningConsole,
) -> None:
    console = console_with_breaks
    limit = '[accept_alone_max]\nKES = "10.00"\n'
    await save_rules(console.context, limit, by="a finance")
    async with console.signed_in("finance") as client:
        page = await client.get("/rules")
        form = await client.get("/do/add-rule?rule=limit&currency=KES")
        wrong = await send(client, "/do/add-rule?rule=limit", currency="KSH")
    assert "KES 10.00 10.00 50.00" in shown(page.text)
    assert "Every amount in another currency needs two people" in shown(page.text)
    assert [escape(each.toml) in page.text for each in SETTINGS] == [True] * len(SETTINGS)
    assert 'value="10.00"' in form.text
    assert "is not a currency code" in shown(wrong.text)


async def test_suggested_fees_are_tried_and_proposed_from_their_page(
    console_with_breaks: RunningConsole,
) -> None:
    console = console_with_breaks
    path = console.driver.path.parent / "fees.csv"
    rows = [f"p{n},{100 + 10 * n}.00,{3 + 0.25 * n:.2f},USD,2026-10-0{n + 1}" for n in range(5)]
    path.write_text("\n".join(["payment_reference,gross,fee,currency,settled_at", *rows]))
    asked = ImportRequest(path=path, by="a finance")
    await import_statement(console.context, asked, source="shop")
    days = "from=2026-10-01&to=2026-10-31"
    async with console.signed_in("finance") as client:
        page = await client.get(f"/fees?{days}")
        none = shown((await client.get("/fees?from=2026-09-01&to=2026-09-30")).text)
        form = await client.get(f"/do/preview-rules?{days}")
        turned = await client.get("/fees?from=2026-10-31&to=2026-10-01")
    assert "5 of 5 payments are explained exactly" in shown(page.text)
    assert f"/do/preview-rules?{days.replace('&', '&amp;')}" in page.text
    assert "No statement settled a payment in these days" in none
    assert "percent = &#34;2.5&#34;" in form.text
    assert "first day must not lie after" in shown(turned.text)


async def test_rules_are_tried_and_nothing_is_kept(console_with_breaks: RunningConsole) -> None:
    """The page shows what they would change in money, and a mistake with its key."""
    console = console_with_breaks
    async with console.signed_in("finance") as client:
        wrong = await send(client, "/do/preview-rules", rules="date_window = 5\n")
        same = await send(client, "/do/preview-rules", rules='[tolerance]\nKES = "1.00"\n')
        text = shown((await client.get(same.headers["location"])).text)
        gone = await client.get("/previews/job_0")
    assert wrong.status_code == 400
    assert "date_window" in shown(wrong.text)
    assert same.status_code == 303
    assert "would change no match" in text or "What these rules would change" in text
    assert gone.status_code == 404
    assert console.driver.rows("SELECT 1 FROM match_rules") == []


async def test_rules_are_read_where_they_can_be_ended(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are never parsed in the console's own process, which serves everybody."""

    def read(*_: object, **__: object) -> None:
        raise AssertionError("TOML was read in the console's own process")

    async def preview(rules: str) -> dict[str, Any]:
        raise UnreachableError(TOO_LONG)

    monkeypatch.setattr("app.core.toml_file.tomllib.loads", read)
    work = instead(console.console.reads_rules, previewed_rules, preview)
    other = replace(console.console, reads_rules=work)
    served = replace(console, console=other, application=build_console(other))
    async with served.signed_in("finance") as client:
        told = await send(client, "/do/preview-rules", rules="a" + ".a" * 6_000 + " = 1\n")
    assert told.status_code == 400
    assert "send fewer and shorter rules" in shown(told.text)


@pytest.mark.parametrize("saves", [True, False])
async def test_rules_that_take_too_long_to_read_are_ended(
    saves: bool, console: RunningConsole, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def never(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(to_process, "run_sync", never)
    monkeypatch.setattr("app.wiring.serving.RULES_MOST_S", 0)
    elsewhere = ElsewhereOf(load_settings(environ(tmp_path)))
    made = console_of(console.context, host="127.0.0.1", port=8081, elsewhere=elsewhere)
    used: Any = partial(save_rules, by="Ann") if saves else previewed_rules
    with pytest.raises(UnreachableError, match="send fewer and shorter rules"):
        await made.reads_rules(used, "")


@pytest.mark.parametrize("role", ["support", "viewer"])
async def test_an_order_leads_to_its_breaks(console_with_breaks: RunningConsole, role: str) -> None:
    """Only roles that may see breaks get the link; all see that there is one."""
    async with console_with_breaks.signed_in(role) as client:
        document = (await client.get("/orders/ORD-1.json")).json()
        page = (await client.get("/orders/ORD-1")).text
    (found,) = document["breaks"]
    assert found["sentence"] in shown(page)
    assert (f'href="/breaks/{found["id"]}"' in page) is (role == "support")
