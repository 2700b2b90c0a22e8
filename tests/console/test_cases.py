"""The case page: the checklist, exhibits that are sent, seen and detached, and the letter."""

import re

import httpx2

from reconcile.instants import DAY, HOUR, SECOND, Instant, format_instant
from tests.api.driving import event
from tests.console.conftest import RunningConsole, of_form, send
from tests.console.test_pages import in_nairobi, shown
from tests.reconcile.build import T

PDF = b"%PDF-1.7 signed for startxref %%EOF"
DUE = format_instant(Instant(T + 14 * DAY))


async def attached(
    client: httpx2.AsyncClient, path: str, content: bytes = PDF, file: str = "parcel.pdf",
    **fields: str,
) -> httpx2.Response:  # fmt: skip
    """Send a file by the form."""
    form = {"form": await of_form(client, path), "note": "a porch", **fields}
    return await client.post(path, data=form, files={"file": (file, content, "application/pdf")})


async def test_a_case_is_worked_on_from_its_page(console: RunningConsole) -> None:
    """Deadline and reason are the dispute's; an attached exhibit leaves the checklist."""
    refund = {
        "reference": "dp_1", "amount": 1500, "currency": "KES", "reason": "product_not_received",
        "respond_by": DUE,
    }  # fmt: skip
    body = event("evt_d", refund=refund)
    body["type"] = "payment.disputed"
    await console.driver.send(body)
    async with console.signed_in("support") as client:
        before = (await client.get("/cases/ORD-1.json")).json()
        path = "/do/attach?order=ORD-1"
        sent = await attached(client, path, kind="delivery", carrier="DHL", tracking="JD01")
        wrong = await attached(client, path, b"MZ\0", kind="other")
        after = (await client.get("/cases/ORD-1.json")).json()
        page = (await client.get("/cases/ORD-1")).text
        other = (await client.get("/cases/ORD-1.json?family=duplicate")).json()
        (exhibit,) = after["attachments"]
        about = f"order=ORD-1&attachment={exhibit['attachment']}"
        seen = await send(client, f"/do/exhibit?{about}")
        letter = await send(
            client, "/do/letter?order=ORD-1", ending="pdf", family="not_received", respond_by=DUE
        )
        gone = await send(client, f"/do/detach?{about}", reason="of another order")
        empty = shown((await client.get("/cases/ORD-1")).text)
    assert (before["family"], before["respond_by"]) == ("not_received", DUE)
    assert (sent.status_code, sent.headers["location"]) == (303, "/cases/ORD-1?done=attach")
    assert wrong.status_code == 400
    assert "print the file to a PDF" in shown(wrong.text)
    there = {each["item"] for each in after["items"] if each["there"]}
    assert there >= {"deadline", "delivery", "tracking"}
    assert before["missing"] - after["missing"] == 2
    assert all(each["sentence"] in shown(page) for each in after["items"])
    assert "parcel.pdf a porch DHL JD01" in shown(page)
    assert other["family"] == "duplicate"
    assert seen.content == PDF
    assert "attachment" in seen.headers["content-disposition"]
    assert letter.content.startswith(b"%PDF-")
    assert gone.status_code == 303
    assert "gone since" in empty
    trail = console.driver.rows("SELECT action FROM audit WHERE who = 'a support' ORDER BY number")
    assert [row[0] for row in trail] == [
        "attached", "attachment_read", "letter_taken", "detached",
    ]  # fmt: skip


async def test_a_file_is_attached_to_a_break_and_seen_with_its_order(
    console_with_breaks: RunningConsole,
) -> None:
    async with console_with_breaks.signed_in("finance") as client:
        found = (await client.get("/breaks.json")).json()["breaks"]
        name, order = next((each["id"], each["order"]) for each in found if each["order"])
        sent = await attached(client, f"/do/attach?break={name}", kind="correspondence")
        page = shown((await client.get(f"/breaks/{name}")).text)
        case = (await client.get(f"/cases/{order}.json")).json()
    assert sent.headers["location"].startswith(f"/breaks/{name}")
    assert "parcel.pdf" in page
    assert [each["about"] for each in case["attachments"]] == ["break"]


async def test_an_answer_is_due_while_the_dispute_is_open(console: RunningConsole) -> None:
    """No answer is due for an undisputed order, or once the dispute is decided."""
    async with console.signed_in("support") as client:

        async def page() -> str:
            return shown((await client.get("/cases/ORD-1")).text)

        undisputed = await page()
        due = Instant(console.driver.clock.now() + HOUR)
        refund = {"reference": "dp_1", "amount": 1500, "currency": "KES"}
        opening = refund | {"respond_by": format_instant(due)}
        await console.driver.send(event("evt_d", "disputed", refund=opening))
        opened = await page()
        console.driver.clock.put(Instant(due + SECOND))
        late = await page()
        later = format_instant(Instant(T + SECOND))
        await console.driver.send(event("evt_w", "dispute_won", refund=refund, occurred_at=later))
        decided = await page()
    assert ["Answer due" in each for each in (undisputed, opened, decided)] == [False, True, False]
    why = "for a reason that the bank's own message states."
    assert f"The payment is disputed {why}" in opened
    assert f"The payment was disputed {why}" in decided
    over = "The dispute is decided for the shop. No answer is due."
    assert [over in each for each in (undisputed, opened, decided)] == [False, False, True]
    assert "The deadline has passed: the bank accepted an answer until 2026-11-20 11:" in late
    assert "Ask the payment service today whether it still accepts one" in late


async def test_a_dispute_that_was_won_for_a_part_is_shown_with_what_stays_lost(
    console: RunningConsole,
) -> None:
    told = (("disputed", 1500), ("dispute_lost", 1500), ("dispute_won", 600))
    for number, (kind, amount) in enumerate(told, 1):
        refund = {"reference": "dp_1", "amount": amount, "currency": "KES"}
        at = format_instant(Instant(T + number * SECOND))
        body = event(f"evt_d{number}", kind, refund=refund, occurred_at=at)
        await console.driver.send(body)
    async with console.signed_in("support") as client:
        page = shown((await client.get("/cases/ORD-1")).text)
    assert "won in part: KES 900.00 remains lost" in page
    assert "The dispute is decided for the shop in part: KES 900.00 remains lost" in page


async def test_a_letters_deadline_is_typed_as_the_clocks_of_the_zone_show_it(
    console: RunningConsole,
) -> None:
    """Left as the form shows it, it is the moment in the dispute's message."""
    due = "2026-12-04T10:00:00Z"
    refund = {"reference": "dp_1", "amount": 1500, "currency": "KES", "respond_by": due}
    await console.driver.send(event("evt_d", "disputed", refund=refund))
    async with in_nairobi(console).signed_in("support") as client:
        form = (await client.get("/do/letter?order=ORD-1")).text
        found = re.search(r'name="respond_by" value="([^"]*)"', form)
        assert found is not None
        letter = await send(
            client, "/do/letter?order=ORD-1", ending="html", family="other", respond_by=found[1]
        )
    assert found[1] == "2026-12-04 13:00"
    assert "4 Dec 2026, 13:00:00" in letter.text


async def test_a_viewer_sees_no_case(console: RunningConsole) -> None:
    async with console.signed_in("viewer") as client:
        assert (await client.get("/cases/ORD-1")).status_code == 403
        assert "/cases/" not in (await client.get("/orders/ORD-1")).text
