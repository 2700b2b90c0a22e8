"""Pages of finance: breaks, late money, runs, periods and reports, and what is done from them."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

import httpx2
import pytest

from app.console.words import BREAK_STATES, CAUSES, STEPS
from app.finance.match_rules import save_rules
from reconcile.matching.breaks import BREAK_CAUSES, DEEDS, STATES
from tests.console.conftest import ORIGIN, Desk
from tests.console.test_pages import shown


async def of_form(client: httpx2.AsyncClient, path: str) -> str:
    """The once-only id of a form."""
    found = re.search(r'name="form" value="([^"]+)"', (await client.get(path)).text)
    assert found, path
    return found[1]


async def send(client: httpx2.AsyncClient, path: str, **fields: str) -> httpx2.Response:
    """Open a form and send it."""
    return await client.post(path, data={"form": await of_form(client, path), **fields})


async def breaks(client: httpx2.AsyncClient, query: str = "") -> dict[str, Any]:
    """The document of the worklist."""
    found: dict[str, Any] = (await client.get(f"/breaks.json{query}")).json()
    return found


def test_every_word_of_a_break_has_a_sentence() -> None:
    assert set(CAUSES) == set(BREAK_CAUSES)
    assert set(STATES) <= set(BREAK_STATES)
    assert set(DEEDS) <= set(STEPS)


async def test_without_a_run_the_page_says_what_to_do(desk: Desk) -> None:
    async with desk.signed_in("finance") as client:
        text = shown((await client.get("/breaks")).text)
        assert (await client.get("/breaks/brk_0")).status_code == 404
    assert "Nothing has been reconciled yet" in text
    assert "Start a run" in text


async def test_the_worklist_is_ordered_and_added_up(desk_with_breaks: Desk) -> None:
    """The most money of each currency first, or the oldest; totals are of all that fit."""
    async with desk_with_breaks.signed_in("support") as client:
        found = await breaks(client)
        text = shown((await client.get("/breaks")).text)
        lines = list(csv.DictReader(io.StringIO((await client.get("/breaks.csv")).text)))
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
    desk_with_breaks: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with desk_with_breaks.signed_in("finance") as client:
        whole = [each["id"] for each in (await breaks(client))["breaks"]]
        monkeypatch.setattr("app.console.breaks_pages.ROWS", 1)
        seen, skip = [], 0
        while skip is not None:
            found = await breaks(client, f"?skip={skip}")
            seen += [each["id"] for each in found["breaks"]]
            skip = found["next"]
    assert seen == whole
    assert len(seen) >= 2


async def test_a_break_is_assigned_noted_and_accepted(desk_with_breaks: Desk) -> None:
    """Each in the name of who is signed in; accepted, it leaves what is to be done."""
    desk = desk_with_breaks
    async with desk.signed_in("finance") as client:
        name = (await breaks(client))["breaks"][0]["id"]
        assigned = await send(client, f"/do/assign?break={name}", to="a support")
        assert (assigned.status_code, assigned.headers["location"]) == (
            303,
            f"/breaks/{name}?done=assign",
        )
        mine = await breaks(client, "?assignee=a+support&state=assigned")
        assert [each["id"] for each in mine["breaks"]] == [name]
        noted = await send(client, f"/do/comment?break={name}", reason="asked the provider")
        accepted = await send(client, f"/do/accept?break={name}", reason="refunded by hand")
        assert (noted.status_code, accepted.status_code) == (303, 303)
        page = shown((await client.get(accepted.headers["location"])).text)
        left = await breaks(client)
        done = await breaks(client, "?state=accepted")
    assert "It was accepted" in page
    assert "“asked the provider”" in page
    assert name not in {each["id"] for each in left["breaks"]}
    assert [each["id"] for each in done["breaks"]] == [name]
    rows = desk.driver.rows("SELECT who, action FROM audit WHERE action LIKE 'break%' ORDER BY at")
    assert sorted(rows) == [
        ("a finance", "break_accepted"),
        ("a finance", "break_assigned"),
        ("a finance", "break_commented"),
    ]


async def test_a_form_sent_twice_accepts_once(desk_with_breaks: Desk) -> None:
    async with desk_with_breaks.signed_in("finance") as client:
        name = (await breaks(client))["breaks"][0]["id"]
        path = f"/do/accept?break={name}"
        form = {"form": await of_form(client, path), "reason": "less than a cent"}
        first, again = await client.post(path, data=form), await client.post(path, data=form)
    assert (first.status_code, again.status_code) == (303, 409)
    assert len(desk_with_breaks.driver.rows("SELECT 1 FROM break_deeds")) == 1


async def test_a_post_from_another_site_does_nothing(desk_with_breaks: Desk) -> None:
    async with desk_with_breaks.signed_in("finance") as client:
        name = (await breaks(client))["breaks"][0]["id"]
        path = f"/do/accept?break={name}"
        form = {"form": await of_form(client, path), "reason": "less than a cent"}
        elsewhere = {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}
        answer = await client.post(path, data=form, headers=elsewhere)
    assert answer.status_code == 403
    assert ORIGIN not in str(answer.headers)
    assert desk_with_breaks.driver.rows("SELECT 1 FROM break_deeds") == []


async def test_above_the_limit_a_second_person_is_needed(desk_with_breaks: Desk) -> None:
    """The form says so, and how; what is sent all the same is refused."""
    desk = desk_with_breaks
    rules = '[accept_alone_max]\nKES = "1.00"\n'
    await save_rules(desk.context, rules, by="a finance", second=None)
    async with desk.signed_in("finance") as client:
        found = (await breaks(client, "?currency=KES"))["breaks"][0]["id"]
        path = f"/do/accept?break={found}"
        text = shown((await client.get(path)).text)
        sent = await client.post(path, data={"form": "made up", "reason": "it is mine"})
        free = (await breaks(client, "?currency=USD"))["breaks"][0]["id"]
        alone = await send(client, f"/do/accept?break={free}", reason="no limit in dollars")
    assert "more than the KES 1.00 that one person may accept" in text
    assert "--second NAME" in text
    assert "Accept it" not in text
    assert sent.status_code == 400
    assert alone.status_code == 303
    assert desk.driver.rows("SELECT break_id FROM break_deeds") == [(free,)]


async def test_a_break_goes_to_an_operator_only(desk_with_breaks: Desk) -> None:
    async with desk_with_breaks.signed_in("support") as client:
        name = (await breaks(client))["breaks"][0]["id"]
        sent = await send(client, f"/do/assign?break={name}", to="nobody we know")
        without = await send(client, f"/do/comment?break={name}", reason=" ")
    assert (sent.status_code, without.status_code) == (400, 400)
    assert desk_with_breaks.driver.rows("SELECT 1 FROM break_deeds") == []
