"""Pages: each in its three forms, for those who may, and with what nobody may see left out."""

import io
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import replace
from html import unescape
from pathlib import Path
from unittest.mock import AsyncMock
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

import app.console
from app.access.operators import MAY, MAY_READ, ROLES, Proven
from app.console.application import build_console, split_format
from app.console.orders_pages import order_money
from app.console.page_list import ACTS, PAGES
from app.console.pages import Pages
from app.console.words import address, moment_in
from app.core.alarm import Alarm
from app.finance.imports import ImportRequest, import_statement
from app.finance.match_rules import save_rules
from app.finance.reconcile_period import RunRequest, reconcile_period
from app.orders.customers import UnmaskRequest, propose_unmasking, unmasking_kind
from app.orders.order_facts import OrderFacts, tell_order
from app.orders.shop_facts_store import note_loss
from reconcile.instants import DAY, Instant
from reconcile.money import Money
from tests.api import driving
from tests.api.driving import of_order
from tests.console.conftest import (
    AWKWARD,
    PHONE,
    SAME_SITE,
    RunningConsole,
    of_form,
    rows_of,
    send,
)
from tests.contexts import Here, with_settings
from tests.database.contract_gaps import accept_gap
from tests.finance.deciding import decide
from tests.rows import for_each
from tests.searching import every
from tests.waiting import soon

ABOUT_A_FILE = (
    "detach", "exhibit", "import", "read-as", "discard", "withdraw-import", "save-rules",
    "map-columns", "save-mapping", "drop-mapping", "withdraw-coverage",
    "remove-passkey", "accept-balance-difference",
)  # fmt: skip

LIMITS = '[accept_alone_max]\nKES = "1.00"\nUSD = "1.00"\n'


async def proposed(console: RunningConsole, name: str) -> str:
    """Return the id of a proposal to accept this break."""
    await save_rules(console.context, LIMITS, by="a finance")
    by = Proven("a finance")
    found = await decide(console.context, name, "accepted", reason="it is gone", by=by)
    assert found is not None
    return found.id


async def proposed_numbers(console: RunningConsole) -> str:
    """Return the id of a proposal to see customers' numbers, which support may open."""
    kind = unmasking_kind(console.context)
    asked = UnmaskRequest(
        orders=["ORD-1"], purpose="refund", reason="it came back", by=Proven("a admin")
    )
    return (await propose_unmasking(console.context, kind, asked)).id


LISTS = [page for page in PAGES if "{subject}" not in page.path]


def test_the_rooms_page_has_every_address() -> None:
    """The README's table has every page and no other."""
    readme = (Path(app.console.__file__).parent / "README.md").read_text(encoding="utf-8")
    table = readme.partition("## The pages")[2].partition("\n## ")[0]
    told = {re.sub(r"{\w+}", "{}", path) for path in re.findall(r"`(/[^`?]*)", table)}
    assert told == {page.path.replace("{subject}", "{}") for page in PAGES}


def shown(html: str) -> str:
    """Return a page's text as a person reads it."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


@for_each("role", ROLES)
async def test_every_role_reads_what_the_table_says(console: RunningConsole, role: str) -> None:
    """In the gate each role asks for each page in one of its forms."""
    async with console.signed_in(role) as client:
        for number, page in enumerate(LISTS, ROLES.index(role)):
            allowed = role in MAY_READ[page.reads]
            base = "/now" if page.path == "/" else page.path
            forms = (page.path, f"{base}.json", f"{base}.csv")
            for path in forms[number % every(3) :: every(3)]:
                assert (await client.get(path)).status_code == (200 if allowed else 403)


NAIROBI = ZoneInfo("Africa/Nairobi")


def in_nairobi(console: RunningConsole) -> RunningConsole:
    """Run the same console for a merchant in Nairobi."""
    context = with_settings(console.context, timezone="Africa/Nairobi")
    other = replace(console.console, context=context, makes=Here(context)())
    return replace(console, console=other, application=build_console(other))


async def test_an_alarm_tells_the_times_of_the_zone(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    alarm = Alarm(
        reason="checkpoints_not_cosigned",
        problem="Since 20 November 2026, 10:05 UTC no checkpoint was cosigned",
        do="ask",
        pressing=False,
    )
    monkeypatch.setattr("app.console.orders_pages.alarms", AsyncMock(return_value={"log": alarm}))
    async with in_nairobi(console).signed_in("support") as client:
        page = shown((await client.get("/")).text)
        (told,) = (await client.get("/now.json")).json()["alarms"]
    assert "Since 20 November 2026, 13:05 no checkpoint" in page
    assert told["sentence"] == alarm.sentence


async def test_between_summer_and_winter_time_the_timeline_counts_real_hours(
    console: RunningConsole,
) -> None:
    """Moments are the zone's; durations are real time."""
    happened, reached = "2026-10-14T12:00:00Z", "2026-11-26T19:49:16Z"
    context = with_settings(console.context, timezone="Europe/Berlin")
    berlin = replace(console.console, context=context)
    rows = [{"occurred_at": happened, "received_at": reached}]
    drawn = Pages(berlin, (), {})._timeline(rows, 1)
    told = [(each.day, each.time, each.gap) for each in drawn.columns]
    assert told == [("2026-10-14", "14:00:00", ""), ("2026-11-26", "20:49:16", "43 d 7 h")]


@pytest.mark.usefixtures("folding")
async def test_sentences_of_an_order_tell_the_times_of_the_zone(console: RunningConsole) -> None:
    """Its answer, reasons, findings, attempts, breaks and list row do; JSON is in UTC."""
    driver, nairobi = console.driver, in_nairobi(console)
    context = nairobi.context
    await driver.send(of_order("ORD-7", "evt_7", "pending"))
    await driver.send({**of_order("ORD-8", "evt_8"), "occurred_at": "2026-12-24T21:30:00Z"})
    published = "SELECT 1 FROM revisions WHERE order_key = 'ORD-7'"
    await soon(lambda: bool(driver.rows(published)))
    async with nairobi.signed_in("finance") as client:
        row = shown((await client.get("/orders?outcome=pending")).text)
    late = driver.path.parent / "late.csv"
    late.write_text(
        "payment_reference,gross,currency,settled_at\np8,1.00,KES,2026-11-01\n"
        "p9,1.00,KES,2027-03-01\n"
    )
    driver.clock.put(Instant(driver.clock.now() + 120 * DAY))
    request = ImportRequest(path=late, by="a finance", days=("2026-11-01", "2027-03-01"))
    await import_statement(context, request, source="shop")
    await reconcile_period(context, RunRequest(), progress=lambda _: None)
    async with nairobi.signed_in("finance") as client:
        found = (await client.get("/orders/ORD-7.json")).json()
        page = shown((await client.get("/orders/ORD-7")).text)
        paid_document = (await client.get("/orders/ORD-1.json")).json()
        paid = shown((await client.get("/orders/ORD-1")).text)
        future = shown((await client.get("/orders/ORD-8")).text)
    assert ", but by 20 November 2026, 10:35 UTC nobody" in found["answer"]
    assert ", but by 20 November 2026, 13:35 nobody" in page
    assert "We wait for it until 20 November 2026, 13:35 ." in row
    assert "event for pay-ORD-7 had come by 2026-11-20 13:35 ." in page
    assert "No final event had come by 2026-11-20 13:35 ." in page
    assert "T10:35:00Z" not in page
    assert "dated 25 December 2026, 00:30 , later than it reached us" in future
    assert future.count("dated 2026-12-25 00:30 , after its arrival at 2026-11-20 13:00 .") == 2
    (broken,) = paid_document["breaks"]
    assert "that reaches beyond 2026-11-27T10:00:00Z" in broken["sentence"]
    assert "that reaches beyond 2026-11-27 13:00 contains" in paid


@pytest.mark.parametrize("role", ROLES)
async def test_every_role_does_what_the_table_says(
    console_with_breaks: RunningConsole, role: str
) -> None:
    """A role that may not gets 403 for the form and for what it sends."""
    console = console_with_breaks
    async with console.signed_in("finance") as client:
        name = (await client.get("/breaks.json")).json()["breaks"][0]["id"]
        month = (await client.get("/periods.json")).json()["open"][0]["period"]
        delivery = (await client.get("/deliveries.json")).json()["deliveries"][0]["delivery"]
    till = {"reference": "till-1"}
    await console.driver.send(driving.event("till", order=None, session=None, payment=till))
    proposal = await (proposed_numbers(console) if role == "support" else proposed(console, name))
    async with console.signed_in(role) as client:
        may = {str(word): roles for each in (MAY, MAY_READ) for word, roles in each.items()}
        for act in ACTS:
            about = f"order=ORD-1&break={name}&number=1&operator=a+viewer&token=books"
            about += f"&month={month}&proposal={proposal}&upload=none&delivery={delivery}"
            about += "&import=1&preview=none&list=orders&label=mine&alarm=held&source=shop"
            about += "&attachment=att_0&payment=shop:till-1&mapping=none&rule=limit&session=others"
            path = f"/do/{act.name}?{about}&item=rollback&passkey=none"
            allowed = role in may[act.permission]
            there = 404 if act.name in ABOUT_A_FILE else 200
            assert (await client.get(path)).status_code == (there if allowed else 403)
            if not allowed:
                sent = await client.post(path, data={"form": "x", "reason": "a good one"})
                assert sent.status_code == 403


async def test_the_csv_of_a_list_has_the_rows_of_all_its_pages(
    console_with_breaks: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it is asked for, and however many rows a page has; each time stands as a local one,
    too."""
    several = set()
    async with console_with_breaks.signed_in("admin") as client:
        for path in ("/orders", "/breaks", "/deliveries", "/audit", "/unallocated", "/imports"):
            whole = rows_of(await client.get(f"{path}.csv?skip=1&before=1&after=zz"))
            with monkeypatch.context() as small:
                small.setattr("app.console.view.CSV_PAGE", 1)
                assert rows_of(await client.get(f"{path}.csv")) == whole
            several |= {path} if len(whole) > 1 else set()
            for name, value in ((n, v) for row in whole for n, v in row.items()):
                if f"{name}_local" in whole[0] and value.endswith("Z"):
                    row = next(each for each in whole if each[name] == value)
                    assert row[f"{name}_local"] == value[:19].replace("T", " ")
    assert {"/orders", "/breaks", "/deliveries", "/audit"} <= several


async def test_no_page_waits_for_a_connection_while_it_holds_another(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else as many requests as there are connections would wait for each other until a timeout."""
    held, twice, connect = ContextVar("held", default=False), list[str](), AsyncEngine.connect

    @asynccontextmanager
    async def lent(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
        if held.get():
            twice.append(path)
        held.set(True)
        try:
            async with connect(engine) as connection:
                yield connection
        finally:
            held.set(False)

    monkeypatch.setattr(AsyncEngine, "connect", lent)
    async with console.signed_in("admin") as client:
        for path in (page.path for page in LISTS):
            assert (await client.get(path)).status_code == 200, path
    assert twice == []


async def test_nobody_is_sent_to_sign_in(console: RunningConsole) -> None:
    async with console.client() as client:
        for page in LISTS:
            answer = await client.get(page.path)
            assert answer.status_code == 303
            assert answer.headers["location"].startswith("/sign-in")
        assert (await client.get("/orders.json")).status_code == 401
        assert (await client.get("/live")).status_code == 401
        assert (await client.get("/do/evidence?order=ORD-1")).status_code == 303


async def test_the_page_of_an_order_says_what_its_json_says(console: RunningConsole) -> None:
    async with console.signed_in("support") as client:
        document = (await client.get("/orders/ORD-1.json")).json()
        page = await client.get("/orders/ORD-1")
    text = shown(page.text)
    assert document["answer"] == "Paid in full: KES 1,500.00. The order can be shipped."
    assert document["answer"] in text
    assert document["money"]["due"] == {"amount": "1500.00", "currency": "KES"}
    for sentence in document["sentences"]:
        assert sentence["text"] in text
    for event in document["ledger"]["timeline"]:
        assert event["event"] in text
    assert [each["verdict"] for each in document["refused"]] == ["signature_mismatch"]
    assert "Refused deliveries that may be about this order" in text


@for_each(
    ("gone", "held", "back", "disputed"),
    [
        ({}, "10.00", "0.00", None),
        ({"reversed": "10.00"}, "0.00", "10.00", None),
        ({"lost": "7.00"}, "0.50", "2.50", None),
        ({"lost": "1.00"}, "0.00", "2.50", "6.50"),
        ({"lost": "1.00", "reversed": "1.00"}, None, "3.50", None),
    ],
)
def test_the_money_of_an_order_adds_up(
    gone: dict[str, str], held: str | None, back: str, disputed: str | None
) -> None:
    """Received equals given back, lost, in dispute and held, whatever happened."""

    def kes(amount: str | None) -> dict[str, str] | None:
        return None if amount is None else {"amount": amount, "currency": "KES"}

    refunded = "2.50" if "lost" in gone else "0.00"
    totals = {"expected": kes("10.00"), "captured": kes("10.00"), "refunded": kes(refunded)}
    totals |= {"held": kes(held)} | {name: kes(amount) for name, amount in gone.items()}
    money = order_money({"totals": totals})
    assert (money["given_back"], money["lost"]) == (kes(back), kes(gone.get("lost")))
    assert money["disputed"] == kes(disputed)
    assert money["refunded"] == kes(refunded)


async def test_all_that_is_held_of_a_canceled_order_is_owed_back(console: RunningConsole) -> None:
    """It may have been canceled after it was paid."""
    now = console.context.clock.now()
    price = Money(minor=150_000, currency="KES")
    told = OrderFacts(order="ORD-1", money=price, canceled_at=now)
    async with console.signed_in("support") as client:
        assert (await client.get("/orders/ORD-1.json")).json()["money"]["owed_back"] is None
        await tell_order(console.context, told)
        document = (await client.get("/orders/ORD-1.json")).json()
        page = shown((await client.get("/orders/ORD-1")).text)
    assert document["money"]["owed_back"] == {"amount": "1500.00", "currency": "KES"}
    assert "KES 1,500.00 is to be given back." in page
    assert "Give back KES 1,500.00." in page


async def test_an_order_that_was_shipped_is_not_said_to_be_ready(console: RunningConsole) -> None:
    """Neither its own page nor the list says that it may be shipped, once the shop has."""
    now = console.context.clock.now()
    price = Money(minor=150_000, currency="KES")
    async with console.signed_in("support") as client:
        await tell_order(console.context, OrderFacts(order="ORD-1", money=price))
        assert "may be shipped" in (await client.get("/orders/ORD-1")).text
        await tell_order(console.context, OrderFacts(order="ORD-1", money=price, fulfilled_at=now))
        page, listed = [(await client.get(each)).text for each in ("/orders/ORD-1", "/orders")]
    assert "may be shipped" not in page + listed
    assert "do not ship it again" in shown(page)
    assert '<span class="noship">shipped</span>' in listed


async def test_after_a_restore_no_page_says_that_an_order_may_be_shipped(
    console: RunningConsole,
) -> None:
    """Before the shop has stated whether it was shipped meanwhile."""
    now = console.context.clock.now()
    await tell_order(
        console.context, OrderFacts(order="ORD-1", money=Money(minor=150_000, currency="KES"))
    )
    async with console.context.database.writing() as connection:
        await note_loss(connection, at=now)
    async with console.signed_in("support") as client:
        pages = [(await client.get(each)).text for each in ("/orders/ORD-1", "/orders")]
    assert all("may be shipped" not in each for each in pages)
    assert all('<span class="noship">shipping not known</span>' in each for each in pages)


async def test_what_is_owed_back_leaves_payments_in_doubt_out(
    console_with_breaks: RunningConsole,
) -> None:
    """The order was paid twice, and a third payment is a hundred times the price."""
    async with console_with_breaks.signed_in("support") as client:
        ledger = (await client.get("/orders/ORD-1.json")).json()["ledger"]
        (owed,) = [each["facts"]["owed"] for each in ledger["findings"] if "owed" in each["facts"]]
        assert order_money(ledger)["owed_back"] == owed
        held = {**ledger["totals"], "held": {"amount": "153000.00", "currency": "KES"}}
        assert order_money({**ledger, "totals": held})["owed_back"] == owed


async def test_a_printed_page_says_whose_it_is(console: RunningConsole) -> None:
    """The name is at its end, on paper alone, and only for a signed-in operator."""
    context = with_settings(console.context, merchant="Duka <Bora>")
    there = replace(console, application=build_console(replace(console.console, context=context)))
    async with there.signed_in("viewer") as client:
        page = (await client.get("/orders")).text
    async with there.client() as client:
        outside = (await client.get("/sign-in")).text
    assert '<span class="on-paper">Duka &lt;Bora&gt;. </span>' in page
    assert "Duka" not in outside


async def test_a_list_is_the_same_as_page_json_and_csv(console: RunningConsole) -> None:
    async with console.signed_in("viewer") as client:
        document = (await client.get("/orders.json")).json()
        text = shown((await client.get("/orders")).text)
        lines = rows_of(await client.get("/orders.csv"))
    assert {each["order"] for each in document["orders"]} == {"ORD-1", AWKWARD}
    assert [each["order"] for each in lines] == [each["order"] for each in document["orders"]]
    assert {each["totals_captured_amount"] for each in lines} == {"1500.00", "0.00"}
    for each in document["orders"]:
        assert each["order"] in text
        assert each["plain"] in text


async def test_an_order_whose_reference_ends_as_a_form_does_has_its_page(
    console: RunningConsole,
) -> None:
    async with console.signed_in("viewer") as client:
        page = await client.get(address("orders", AWKWARD))
        assert page.headers["content-type"].startswith("text/html")
        found = (await client.get(address("orders", AWKWARD, "json"))).json()
    assert AWKWARD in shown(page.text)
    assert found["order"] == AWKWARD


@for_each(
    ("subject", "split"),
    [
        ("a", ("a", "html")),
        ("a.json", ("a", "json")),
        ("a.json.html", ("a.json", "html")),
        (".json", (".json", "html")),
        ("a.b", ("a.b", "html")),
    ],
)
def test_a_form_is_told_from_a_name(subject: str, split: tuple[str, str]) -> None:
    assert split_format(subject) == split


async def test_pages_follow_each_other_without_gap_or_double(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.console.view.ROWS", 1)
    seen, path = [], "/orders.json"
    async with console.signed_in("viewer") as client:
        for _ in range(3):
            document = (await client.get(path)).json()
            seen += [each["order"] for each in document["orders"]]
            path = f"/orders.json?before={document['next']}"
            if document["next"] is None:
                break
    assert sorted(seen) == sorted({"ORD-1", AWKWARD})


@for_each(
    ("path", "status", "said"),
    [
        ("/orders?outcome=nothing", 400, "Outcome is none of"),
        ("/orders?before=x", 400, "whole number"),
        ("/orders/ORD-1?as_of=yesterday", 400, "Write a time such as"),
        ("/orders/ORD-9", 404, "Nothing is known of order"),
        ("/deliveries/dlv_0", 404, "There is no delivery"),
        ("/nothing", 404, "There is no such page"),
        ("/do/evidence", 400, "The address lacks the parameter order"),
    ],
)
async def test_what_is_off_becomes_a_page_that_says_so(
    console: RunningConsole, path: str, status: int, said: str
) -> None:
    async with console.signed_in("admin") as client:
        answer = await client.get(path)
    assert answer.status_code == status
    assert said in shown(answer.text)


async def test_where_there_is_no_page_the_menu_shows_those_there_are(
    console: RunningConsole,
) -> None:
    """Only signed-in operators see a menu."""
    async with console.signed_in("viewer") as client:
        page = (await client.get("/nothing")).text
    async with console.client() as client:
        strange = (await client.get("/nothing")).text
    assert "The menu lists" in page
    assert '<nav aria-label="Pages">' in page
    assert "There is no such page." in strange
    assert "menu" not in shown(strange)


async def test_as_of_shows_what_was_known_then(console: RunningConsole) -> None:
    async with console.signed_in("viewer") as client:
        answer = await client.get("/orders/ORD-1?as_of=2020-01-01T00:00:00Z")
    assert answer.status_code == 404
    assert "evidence arrived later" in shown(answer.text)


async def test_a_viewer_sees_no_refused_delivery(console: RunningConsole) -> None:
    async with console.signed_in("support") as client:
        rows = (await client.get("/deliveries.json")).json()["deliveries"]
        refused = next(each for each in rows if each["verdict"] == "signature_mismatch")
        one = (await client.get(f"/deliveries/{refused['delivery']}.json")).json()
    assert one["doctor"]["mistakes"] == []
    assert console.driver.rows("SELECT who FROM audit WHERE action='rejection_read'") == [
        ("a support",)
    ]
    async with console.signed_in("viewer") as client:
        rows = (await client.get("/deliveries.json")).json()["deliveries"]
        assert {each["verdict"] for each in rows} == {"stored"}
        there = await client.get(f"/deliveries/{refused['delivery']}")
        never = await client.get("/deliveries/dlv_0")
        assert (there.status_code, never.status_code) == (404, 404)
        # Else whoever may not know of it would learn that it was refused.
        assert shown(there.text).replace(refused["delivery"], "dlv_0") == shown(never.text)
        order = (await client.get("/orders/ORD-1.json")).json()
    assert order["refused"] == []


async def test_what_a_statement_alone_knows_is_told_where_nothing_is_found(
    console: RunningConsole,
) -> None:
    """The page says what to do and links to the list."""
    settled = console.driver.path.parent / "settled.csv"
    settled.write_text("payment_reference,order_reference,gross,currency\np77,ORD-77,1.00,KES\n")
    await import_statement(
        console.context, ImportRequest(path=settled, by="a finance"), source="shop"
    )
    async with console.signed_in("support") as client:
        page = (await client.post("/find", data={"text": "ORD-77"})).text
    assert "A statement from shop has the payment p77 of ORD-77" in shown(page)
    assert '<a href="/breaks">the list of breaks</a>' in page


async def test_a_phone_is_in_no_page_address_or_log(
    console: RunningConsole, log: io.StringIO
) -> None:
    """It stands in accepted and refused bodies, and is typed into the search."""
    said: list[object] = []
    async with console.signed_in("support") as client:
        found = await client.post("/find", data={"text": f"+{PHONE}"})
        said.append((found.text, found.headers.get("location", "")))
        for path in ("/", "/orders", "/deliveries", "/orders/ORD-1"):
            said.append((await client.get(path)).text)
        for each in (await client.get("/deliveries.json")).json()["deliveries"]:
            for form in ("html", "json", "csv"):
                said.append((await client.get(f"/deliveries/{each['delivery']}.{form}")).text)
    assert found.status_code in (200, 303)
    assert PHONE[-8:] not in json.dumps(said) + log.getvalue()


async def test_a_search_with_one_hit_goes_there(console: RunningConsole) -> None:
    async with console.signed_in("viewer") as client:
        one = await client.post("/find", data={"text": "ORD-1"})
        none = await client.post("/find", data={"text": "unheard of"})
    assert (one.status_code, one.headers["location"]) == (303, "/orders/ORD-1")
    assert "No order was found in orders by reference; payments" in shown(none.text)


async def test_a_payment_of_no_order_is_found_and_links_to_its_page(
    console: RunningConsole,
) -> None:
    """A viewer, who may not open it, is told of it all the same."""
    nameless = driving.event(
        "evt_till", order=None, session=None, payment={"reference": "SJK4H7TR2P"}
    )
    await console.driver.send(nameless)
    pages = []
    for role in ("support", "viewer"):
        async with console.signed_in(role) as client:
            pages.append((await client.post("/find", data={"text": "SJK4H7TR2P"})).text)
    for page in pages:
        assert "We have the payment SJK4H7TR2P of shop, KES 1,500.00" in shown(page)
        assert "No order was found" not in shown(page)
    there = [f'href="{address("unallocated", "shop:SJK4H7TR2P")}"' in page for page in pages]
    assert there == [True, False]


async def test_a_form_does_its_work_once(console: RunningConsole) -> None:
    async with console.signed_in("finance") as client:
        form = {"form": await of_form(client, "/do/note?order=ORD-1"), "reason": "called"}
        first = await client.post("/do/note?order=ORD-1", data=form)
        again = await client.post("/do/note?order=ORD-1", data=form)
    assert (first.status_code, again.status_code) == (303, 409)
    assert console.driver.rows("SELECT who FROM audit WHERE action='note_added'") == [
        ("a finance",)
    ]


async def test_a_download_may_be_taken_again(console: RunningConsole) -> None:
    """The form of an evidence bundle stays on the screen; each download is an audit entry."""
    async with console.signed_in("finance") as client:
        form = {"form": await of_form(client, "/do/evidence?order=ORD-1")}
        answers = [await client.post("/do/evidence?order=ORD-1", data=form) for _ in range(2)]
    for each in answers:
        assert each.headers["content-disposition"].startswith("attachment")
        assert each.content.startswith(b"PK")
    rows = console.driver.rows("SELECT who FROM audit WHERE action='evidence_built'")
    assert rows == [("a finance",)] * 2


async def test_judging_again_asks_for_a_reason_and_previews(console: RunningConsole) -> None:
    async with console.signed_in("support") as client:
        page = await client.get("/do/reverify")
    assert "1 refused delivery is kept" in shown(page.text)
    assert "There is nothing to do" in shown(page.text)


async def test_who_types_is_told_of_orders_that_begin_so(console: RunningConsole) -> None:
    """Only same-site POSTs of signed-in operators are answered; a phone number gets nothing."""
    async with console.signed_in("viewer") as client:
        found = [
            (await client.post("/find/beginning", data={"text": text})).json()["orders"]
            for text in ("ORD-", "ORD-2", "nothing", "", f"+{PHONE}", "ORD-\n")
        ]
        page = (await client.get("/orders")).text
    assert found == [["ORD-1", AWKWARD], [AWKWARD], [], [], [], []]
    assert 'list="beginning"' in page
    async with console.client(**SAME_SITE) as client:
        assert (await client.post("/find/beginning", data={"text": "O"})).status_code == 401
    async with console.client() as client:
        assert (await client.post("/find/beginning", data={"text": "O"})).status_code == 403


def test_a_moment_at_the_end_of_the_calendar_is_shown_in_utc() -> None:
    """The zone has no such time; a session that never ends is awaited until then."""
    shown = moment_in(ZoneInfo("Africa/Nairobi"))("9999-12-31T23:59:59Z")
    assert shown.endswith('<span class="day">9999-12-31</span> 23:59:59</time>')


@pytest.mark.usefixtures("folding")
async def test_now_keeps_an_order_that_needs_a_person_until_it_is_accepted(
    console: RunningConsole,
) -> None:
    """A failed refund of a paid order is one; accepting it takes a reason and the right role."""
    driver = console.driver
    refund = {"reference": "re_1", "amount": 1500.00, "currency": "KES"}
    async with console.signed_in("finance") as client:
        before = (await client.get("/now.json")).json()["groups"]["needs_a_person"]
        await driver.send(driving.event("evt_f", "refund_failed", refund=refund))

        async def needing() -> tuple[int, list[str]]:
            document = (await client.get("/now.json")).json()
            shown_orders = [each["order"] for each in document["waiting"]]
            return document["groups"]["needs_a_person"] - before, shown_orders

        marked = "SELECT 1 FROM ledgers WHERE order_key='ORD-1' AND findings LIKE '%needs_a%'"
        await soon(lambda: bool(driver.rows(marked)))
        count, waiting = await needing()
        assert (count, waiting[0]) == (1, "ORD-1")
        listed = (await client.get("/orders.json?finding=needs_a_person")).json()["orders"]
        assert "ORD-1" in {each["order"] for each in listed}
        path = "/do/accept-finding?order=ORD-1"
        answer = await send(client, path, reason="paid by bank transfer", finding="refund_failed")
        assert answer.status_code == 303, shown(answer.text)[-600:]
        await soon(lambda: not driver.rows(marked))
        assert (await needing())[0] == 0
    assert driver.rows("SELECT reason FROM audit WHERE action='finding_accepted'") == [
        ("paid by bank transfer",)
    ]


async def test_a_held_order_is_released_from_its_page(console: RunningConsole) -> None:
    """Only finance is offered it, and only while the order is held."""
    driver = console.driver
    button, action = "/do/release?order=ORD-1", "SELECT reason FROM audit WHERE action='{}'"
    async with console.signed_in("finance") as client, console.signed_in("support") as other:
        assert button not in (await client.get("/orders/ORD-1")).text
        await accept_gap(driver.context, since=2, until=8, at=9)
        assert button in (await client.get("/orders/ORD-1")).text
        assert button not in (await other.get("/orders/ORD-1")).text
        answer = await send(client, button, reason="looked up", held_for="gap_accepted")
        assert answer.status_code == 303, shown(answer.text)[-600:]
        assert button not in (await client.get("/orders/ORD-1")).text
    assert driver.rows(action.format("orders_released")) == [("looked up",)]


@pytest.mark.usefixtures("folding")
async def test_what_finance_accepts_as_a_break_needs_no_person_any_more(
    console_with_breaks: RunningConsole,
) -> None:
    """The order was paid twice; its break is accepted within the limit of one person."""
    driver = console_with_breaks.driver
    marked = "SELECT 1 FROM ledgers WHERE order_key='ORD-1' AND findings LIKE '%needs_a%'"
    await soon(lambda: bool(driver.rows(marked)))
    async with console_with_breaks.signed_in("finance") as client:
        (name,) = [
            each["id"]
            for each in (await client.get("/breaks.json")).json()["breaks"]
            if (each["cause"], each["order"]) == ("paid_twice", "ORD-1")
        ]
    by = Proven("a finance")
    await decide(console_with_breaks.context, name, "accepted", reason="kept as agreed", by=by)
    assert driver.rows("SELECT reason FROM records WHERE kind='finding_accepted'") == [
        ("paid_twice",)
    ]
    await soon(lambda: not driver.rows(marked))
