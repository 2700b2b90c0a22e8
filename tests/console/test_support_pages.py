"""Pages for support: a number in full, notes, pins, saved lists, alarms, erasing."""

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
from anyio import BrokenWorkerProcess, to_process
from sqlalchemy import text

from app.access.operators import Proven, register_operator
from app.config.load import load_settings
from app.console.application import build_console
from app.console.setup_pages import service_address
from app.core.errors import UnreachableError, UsageError
from app.finance.match_rules import previewed_rules
from app.monitoring.alarm_messages import forget_owners
from app.monitoring.service_note import note_service
from app.monitoring.watchdog import Watched, alarms
from app.privacy.erase import ErasureRequest, erase
from app.privacy.replay_erasures import ErasureReplay
from app.wiring.serving import BEGUN, UNCHANGED, console_of
from app.wiring.work import ElsewhereOf
from tests.api.driving import environ, event
from tests.console.conftest import (
    AWKWARD,
    PHONE,
    SAME_SITE,
    RunningConsole,
    erasure_proposed,
    of_form,
    send,
    session_for,
)
from tests.console.test_cases import attached
from tests.console.test_pages import shown
from tests.database.contract_gaps import accept_gap
from tests.rows import for_each
from tests.waiting import soon

REASON = "the customer has called"
SET_ASIDE = (
    "INSERT INTO suspects (received_at, tries, aside, orders, record) VALUES (0, 3, 1, '', x'00')"
)


async def test_a_number_and_a_body_are_seen_with_a_reason(console: RunningConsole) -> None:
    """The trail has operator, reason and delivery, but not the number."""
    async with console.signed_in("support") as client:
        none = await send(client, "/do/unmask?order=ORD-1", reason="")
        phone = await send(client, "/do/unmask?order=ORD-1", reason=REASON)
        rows = (await client.get("/deliveries.json")).json()["deliveries"]
        names = [each["delivery"] for each in rows]
        bodies = [await send(client, f"/do/body?delivery={name}", reason=REASON) for name in names]
        named = await send(client, f"/do/body?delivery={names[0]}", reason=f"of +{PHONE}")
    assert none.status_code == 400
    assert f"+{PHONE}" in shown(phone.text)
    assert {json.loads(each.content)["id"] for each in bodies} == {"evt_1", "evt_2", "evt_3"}
    assert all(each.headers["content-disposition"].startswith("attachment") for each in bodies)
    assert "phone number" in shown(named.text)
    seen = console.driver.rows("SELECT subject, reason, facts FROM audit WHERE action='unmasked'")
    assert [each[0] for each in seen] == ["ORD-1", *names]
    assert PHONE[-8:] not in json.dumps(seen)


async def test_a_delivery_of_no_order_is_shown_as_such(console: RunningConsole) -> None:
    """On the page and in its CSV; filtered by order, kind or none."""
    payment = {"reference": "pay_9"}
    await console.driver.send(event("evt_9", order=None, session=None, payment=payment))
    async with console.signed_in("support") as client:
        await soon(
            lambda: console.driver.rows("SELECT 1 FROM events WHERE event_id='evt_9'") == [(1,)]
        )
        page = await client.get("/deliveries?no_order=yes")
        table = await client.get("/deliveries.csv?kind=payment.succeeded")
        of_order = (await client.get("/deliveries.json?order=ORD-1")).json()["deliveries"]
        now = (await client.get("/now.json")).json()["unallocated"]
        first = " ".join(shown((await client.get("/")).text).split())
    held = {"amount": "1500.00", "currency": "KES"}
    assert (now["count"], now["held"], now["unclear"]) == (1, [held], 0)
    assert "1 payment is in no order" in first
    assert "payment.succeeded succeeded none KES 1,500.00" in " ".join(shown(page.text).split())
    rows = {row["event"]: row for row in csv.DictReader(io.StringIO(table.text))}
    assert (rows["evt_9"]["order"], rows["evt_1"]["order"]) == ("none", "ORD-1")
    assert [each["event"] for each in of_order] == ["evt_1"]


async def test_an_orders_page_lists_the_messages_that_cannot_be_read(
    console: RunningConsole,
) -> None:
    answer = await console.driver.send({**event("evt_9"), "occurred_at": "yesterday"})
    async with console.signed_in("support") as client:
        page = await client.get("/orders/ORD-1")
    text = " ".join(shown(page.text).split())
    assert "Messages that cannot be read" in text
    assert "A message came that we cannot read yet; ask again later." in text
    assert f"/deliveries/{answer.json()['delivery']}" in page.text


async def test_a_note_is_added_and_read_by_all(console: RunningConsole) -> None:
    async with console.signed_in("finance") as client:
        named = await send(client, "/do/note?order=ORD-1", reason=f"call {PHONE}")
        noted = await send(client, "/do/note?order=ORD-1", reason="waits for the bank <b>")
    assert named.status_code == 400
    assert noted.headers["location"] == "/orders/ORD-1?done=note"
    async with console.signed_in("viewer") as client:
        notes = (await client.get("/orders/ORD-1.json")).json()["notes"]
        page = (await client.get("/orders/ORD-1")).text
        before = (await client.get("/orders/ORD-1.json?as_of=2030-01-01T00:00:00Z")).json()
    assert [(each["who"], each["note"]) for each in notes] == [
        ("a finance", "waits for the bank <b>")
    ]
    # Written from the right, it changes no place with what stands beside it.
    assert "<bdi>a finance</bdi></strong>: <bdi>waits for the bank &lt;b&gt;</bdi>" in page
    assert before["notes"] == notes


async def test_pins_and_saved_lists_are_ones_own(console: RunningConsole) -> None:
    """Only filters that the list has are saved, in its own form."""
    async with console.signed_in("viewer") as client:
        await send(client, "/do/pin?order=ORD-1")
        await send(client, "/do/save-list?list=orders&outcome=failed&colour=x", label="to call")
        off = await client.get("/do/save-list?list=orders&outcome=lost")
        hidden = await client.get("/do/save-list?list=breaks&state=open")
        unnamed = await send(client, "/do/save-list?list=orders", label=" ")
        mine = (await client.get("/orders.json")).json()
        page = await client.get("/orders")
        assert "unpin" in (await client.get("/orders/ORD-1")).text
    assert (mine["pinned"], mine["saved"]) == (
        ["ORD-1"],
        [{"label": "to call", "query": "outcome=failed"}],
    )
    assert (off.status_code, hidden.status_code, unnamed.status_code) == (400, 400, 400)
    assert 'href="/orders?outcome=failed">to call</a>' in page.text
    async with console.signed_in("support") as client:
        theirs = (await client.get("/orders.json")).json()
    assert (theirs["pinned"], theirs["saved"]) == ([], [])
    async with console.signed_in("viewer") as client:
        await send(client, "/do/unpin?order=ORD-1")
        await send(client, "/do/drop-list?list=orders&label=to+call")
        left = (await client.get("/orders.json")).json()
    assert (left["pinned"], left["saved"]) == ([], [])


async def test_an_alarm_is_taken_until_it_is_over(console: RunningConsole) -> None:
    context = console.context
    async with context.database.writing() as connection:
        await connection.execute(text(SET_ASIDE))
    async with console.signed_in("support") as client:
        assert "Nobody has taken it" in shown((await client.get("/")).text)
        path = "/do/take-alarm?alarm=poisoned"
        assert (await send(client, path, state="asleep", reason=REASON)).status_code == 400
        await send(client, path, state="waiting", reason=REASON)
        (alarm,) = (await client.get("/now.json")).json()["alarms"]
        said = shown((await client.get("/")).text)
        over = await client.get("/do/take-alarm?alarm=silence")
    assert (alarm["owner"]["name"], alarm["owner"]["state"]) == ("a support", "waiting")
    assert "a support waits for somebody else" in said
    assert "This alarm has ended" in shown(over.text)
    lasting = await alarms(Watched(console.context))
    await forget_owners(context, lasting)
    assert console.driver.rows("SELECT alarm, owner FROM alarm_owners") == [
        ("poisoned", "a support")
    ]
    await forget_owners(context, {})
    assert console.driver.rows("SELECT 1 FROM alarm_owners") == []


async def test_an_erasure_looks_first_and_takes_two(console: RunningConsole) -> None:
    """It needs the preview typed once more, a reason and another admin. No page has a number."""
    path, pages = "/do/erase", []
    await register_operator(console.context, name="Bea", role="admin", by="a admin")
    async with console.signed_in("admin") as client:
        by_number = await send(client, path, what="phone", subject=f"+{PHONE}")
        looked = await send(client, path, what="order", subject="ORD-1")
        mark = re.search(r'name="mark" value="([^"]+)"', looked.text)
        assert mark
        form = {
            "what": "order", "mark": mark[1], "again": "ORD-1", "reason": "asked for it",
            "form": await of_form(client, path),
        }  # fmt: skip
        other = await client.post(path, data={**form, "again": AWKWARD})
        told = await client.post(path, data=form)
        proposal = (await client.get("/proposals.json")).json()["proposals"][0]["id"]
        own = await client.get(f"/do/approve?proposal={proposal}")
        pages += [each.text for each in (by_number, looked, other, told)]
        pages += [(await client.get("/privacy")).text, (await client.get("/privacy.json")).text]
        none = await send(client, path, what="order", subject="ORD-404")
        part = await send(client, path, what="phone", subject="0712 345")
        no_address = await send(client, path, what="email", subject="ann at home")
    assert 'name="mark"' in by_number.text
    assert "1 order" in shown(looked.text)
    assert "The number or address differs from the one that you typed before" in shown(other.text)
    assert "Proposed to a second person" in shown(told.text)
    assert "you made this proposal yourself" in shown(own.text).lower()
    assert "Nothing to erase" in shown(none.text)
    assert "A phone number must be one complete number with its country" in shown(part.text)
    assert "Write one complete email address, such as ann@example.com" in shown(no_address.text)
    for again in (part, other, no_address):
        assert 'name="subject"' in again.text
    assert all(PHONE[-8:] not in page for page in pages)
    assert console.driver.rows("SELECT 1 FROM audit WHERE action='erased'") == []
    async with console.client(await session_for(console.context, "Bea"), **SAME_SITE) as client:
        done = await send(client, f"/do/approve?proposal={proposal}", reason="they did ask")
    assert done.status_code == 303
    assert console.driver.rows("SELECT DISTINCT who, reason FROM audit WHERE action='erased'") == [
        ("a admin", "asked for it")
    ]
    bodies = console.driver.rows("SELECT event_id, body IS NULL FROM deliveries ORDER BY event_id")
    assert bodies == [("evt_1", 1), ("evt_2", 0)]


async def test_a_persons_erasure_and_copy_take_two_who_type_the_number(
    console: RunningConsole,
) -> None:
    """The copy first, with an attached PDF: who proposed it types the number to take it. Then who
    approves the erasure types it. No page, proposal or entry of the trail has the number."""
    number, pages = f"+{PHONE}", []
    await register_operator(console.context, name="Bea", role="admin", by="a admin")
    bea = await session_for(console.context, "Bea")
    wanted = {"what": "phone", "subject": number}

    async def proposal_made(client: httpx2.AsyncClient, path: str, **form: str) -> str:
        told = await send(client, path, **form)
        pages.append(told.text)
        assert "Proposed to a second person" in shown(told.text)
        found = (await client.get("/proposals.json")).json()["proposals"]
        return str(next(each["id"] for each in found if each["state"] == "waiting"))

    pdf = b"%PDF-1.7 signed for startxref %%EOF"
    async with console.signed_in("admin") as client:
        await attached(client, "/do/attach?order=ORD-1", pdf, "a.pdf", kind="other")
        whole = wanted | {"attachments": "yes"}
        copy = await proposal_made(client, "/do/copy", **whole, reason="called back")
    async with console.client(bea, **SAME_SITE) as client:
        assert (await send(client, f"/do/approve?proposal={copy}", reason="so")).status_code == 303
    async with console.signed_in("admin") as client:
        take = f"/do/take-copy?proposal={copy}"
        pages += [(await client.get(take)).text, (await client.get(f"/proposals/{copy}")).text]
        other = await send(client, take, again="+254700000009")
        taken = await send(client, take, again=number)
        looked = await send(client, "/do/erase", **wanted)
        mark = re.search(r'name="mark" value="([^"]+)"', looked.text)
        assert mark
        form = {"what": "phone", "mark": mark[1], "again": number, "reason": "asked by letter"}
        erasure = await proposal_made(client, "/do/erase", **form)
    pages += [other.text, looked.text]
    assert "is only for" in shown(other.text)
    assert taken.headers["content-type"] == "application/zip"
    assert PHONE.encode() in taken.content
    assert pdf in taken.content
    async with console.client(bea, **SAME_SITE) as client:
        approve = f"/do/approve?proposal={erasure}"
        asks = await client.get(approve)
        refused = await send(client, approve, reason="letter", typed="+254700000009")
        done = await send(client, approve, reason="letter", typed=number)
        pages += [asks.text, refused.text, (await client.get(f"/proposals/{erasure}")).text]
    assert 'name="typed"' in asks.text
    assert "nothing was erased" in shown(refused.text)
    assert done.status_code == 303
    tables = [console.driver.rows(f"SELECT * FROM {each}") for each in ("proposals", "audit")]
    assert PHONE[3:] not in "".join(pages) + str(tables)
    bodies = console.driver.rows("SELECT event_id, body IS NULL FROM deliveries ORDER BY event_id")
    assert bodies == [("evt_1", 1), ("evt_2", 0)]


async def test_an_erasure_that_is_broken_off_is_not_shown_as_done(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The approval is stored first: the page says that it began, and by which command it is
    finished."""
    await register_operator(console.context, name="Bea", role="admin", by="a admin")
    asked = ErasureRequest(order="ORD-1", reason="asked for it", by=Proven("a admin"))
    proposal = await erasure_proposed(console.context, asked)

    async def broken(*_: object) -> None:
        raise UnreachableError("the disk is full")

    monkeypatch.setattr(ErasureReplay, "carry_out", broken)
    async with console.client(await session_for(console.context, "Bea"), **SAME_SITE) as client:
        await send(client, f"/do/approve?proposal={proposal}", reason="they did ask")
        page = shown((await client.get(f"/proposals/{proposal}")).text)
        found = (await client.get(f"/proposals/{proposal}.json")).json()
        monkeypatch.undo()
        await erase(console.context, replace(asked, by="a admin"), dry_run=False)
        after = shown((await client.get(f"/proposals/{proposal}")).text)
    assert found["state"] == "approved"
    assert "the disk is full" in page
    assert "it was started" in page
    assert "tallyhook erase --order ORD-1 --reason WHY" in page
    assert "and it was done" not in page
    assert "and it was done" in after
    assert "tallyhook erase" not in after


@pytest.mark.parametrize(("approves", "said"), [(True, BEGUN), (False, UNCHANGED)])
async def test_a_killed_job_that_may_have_begun_is_not_said_to_have_changed_nothing(
    approves: bool,
    said: str,
    console: RunningConsole,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    async def killed(*_: object, **__: object) -> None:
        raise BrokenWorkerProcess

    monkeypatch.setattr(to_process, "run_sync", killed)
    elsewhere = ElsewhereOf(load_settings(environ(tmp_path)))
    made = console_of(console.context, host="127.0.0.1", port=8081, elsewhere=elsewhere)
    with pytest.raises(UnreachableError, match=re.escape(said)):
        await (
            made.approve("prp_1", "Ann", "x", "") if approves else made.work(previewed_rules, "")
        )


@for_each(
    "said",
    [
        "http://127.0.0.1:8080/#@elsewhere.example",
        "http://127.0.0.1:8080#x",
        "http://somebody:secret@127.0.0.1:8080",
        "http://@127.0.0.1:8080",
        "http://127.0.0.1:99999",
        "http://127.0.0.1:http",
        "http://127.0.0.1:0",
        "http://[::1",
        "http://127.0.0.1\\@elsewhere.example",
        "http://127.0.0.1:8080?x",
        "http://127.0.0.1:8080/webhooks",
        "http://elsewhere.example",
        "https://127.0.0.1",
        "file://localhost",
        "",
    ],
)
def test_a_test_event_goes_nowhere_else(said: str) -> None:
    with pytest.raises(UsageError, match="TALLYHOOK_PUBLIC_URL"):
        service_address(said, own="https://pay.example")


@for_each(
    ("said", "meant"),
    [
        (" http://127.0.0.1:8080/ ", "http://127.0.0.1:8080"),
        ("http://localhost", "http://localhost"),
        ("http://[::1]:9000", "http://[::1]:9000"),
        ("https://pay.example/", "https://pay.example"),
    ],
)
def test_a_test_event_goes_to_the_service(said: str, meant: str) -> None:
    assert service_address(said, own="https://pay.example") == meant


@pytest.mark.parametrize("grace", ["61", "soon"])
async def test_setting_up_shows_settings_that_are_not_in_force(
    console: RunningConsole, grace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changed or broken since the service was started, whose processes keep the old ones."""
    service = console.driver.service
    for name, value in environ(console.driver.path.parent, GRACE_S=grace).items():
        monkeypatch.setenv(name, value)
    async with console.signed_in("viewer") as client:
        assert (await client.get("/setup.json")).json()["settings"] == []
        await note_service(service.context, address="http://127.0.0.1:1", name=service.name)
        assert "TALLYHOOK_GRACE_S" in shown((await client.get("/setup")).text)


@pytest.mark.usefixtures("folding")
async def test_setting_up_shows_each_source_and_sends_a_test(console: RunningConsole) -> None:
    async with console.signed_in("viewer") as client:
        document = (await client.get("/setup.json")).json()
        page_text = shown((await client.get("/setup")).text)
    (source,) = document["sources"]
    assert source["address"].endswith(f"/webhooks/{source['source']}")
    assert (source["state"], source["since"]) == ("refusing", "2026-11-20T10:00:00Z")
    assert "1 delivery was refused from" in source["means"]
    assert "the secret is not configured here" in source["means"]
    assert source["means"].partition(". Reason of the latest refusal: ")[2] in page_text
    assert source["last_taken"] is not None
    assert source["last_refused"] is not None
    transport = httpx2.ASGITransport(app=console.driver.service.application)
    with_way = replace(console.console, transport=transport)
    there = replace(console, console=with_way, application=build_console(with_way))
    path = f"/do/test-event?source={source['source']}"
    async with there.signed_in("finance") as client:
        form = shown((await client.get(path)).text)
        elsewhere = await send(client, path, event="pending", service="http://192.0.2.1")
        unknown = await send(client, path, event="dividend", service="http://127.0.0.1:8080")
        told = await send(client, path, event="declined", service="http://127.0.0.1:8080")
        text = shown(told.text)
        order = text.partition("of order ")[2].partition(";")[0]
        await soon(lambda: len(console.driver.rows("SELECT 1 FROM ledgers")) == 3)
        found = (await client.get(f"/orders/{order}.json")).json()
    assert "payment.declined (declined)" in form
    assert (elsewhere.status_code, unknown.status_code) == (400, 400)
    assert "The event was accepted" in text
    assert (order[:5], found["ledger"]["outcome"]) == ("TEST-", "failed")


async def test_setting_up_lists_accepted_gaps(console: RunningConsole) -> None:
    async with console.signed_in("support") as client:
        assert "Accepted gaps" not in (await client.get("/setup")).text
        await accept_gap(console.context, since=2, until=8, at=9)
        text = shown((await client.get("/setup")).text)
        (gap,) = (await client.get("/setup.json")).json()["gaps"]
    assert (gap["reason"], gap["held"]) == ("the disk was replaced", 0)
    assert f"{gap['accepted_by']} accepted it at" in text
    assert "the disk was replaced Orders that it still holds: 0" in text
