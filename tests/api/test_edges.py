"""Paths, methods, parameters and amounts that are almost valid."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.types import Message, Scope

from app.orders.refold import refold_until_quiet
from reconcile.instants import MINUTE, SECOND, format_instant
from tests.api.described import SCHEMAS, faults
from tests.api.driving import Driver, driving, event, signed
from tests.reconcile.build import T

TOLD = {"amount": "1500.00", "currency": "KES"}


async def test_the_replacement_character_is_a_reference_as_any_other(driver: Driver) -> None:
    path = "/orders/%EF%BF%BD"
    assert (await driver.api("GET", path)).json()["code"] == "order_unknown"
    assert (await driver.api("PUT", path, json=TOLD)).status_code == 200
    assert (await driver.api("GET", path)).json()["order"] == "\ufffd"
    assert (await driver.api("GET", "/orders/%FF")).status_code == 422


@pytest.mark.parametrize("reference", ["A", "2026/11/0042", "%FF"])
@pytest.mark.parametrize("method", ["DELETE", "POST", "PATCH"])
async def test_a_method_that_an_order_does_not_take_is_answered_with_those_it_does(
    one_driver: Driver, method: str, reference: str
) -> None:
    answer = await one_driver.api(method, f"/orders/{reference}")
    assert answer.status_code == answer.json()["status"] == 405
    allowed = set(re.split(r",\s*", answer.headers["allow"]))
    assert allowed - {"HEAD"} == {"GET", "PUT"}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/webhooks/shop//"),
        ("POST", "/webhooks/"),
        ("POST", "/webhooks/shop/more"),
        ("GET", "/livez/"),
        ("GET", "/api/v1/outcomes/"),
    ],
)
async def test_nobody_is_redirected(one_driver: Driver, method: str, path: str) -> None:
    """A provider that follows redirects would deliver to another address."""
    body = b"{}"
    answer = await one_driver.client.request(method, path, content=body, headers=signed(body))
    assert answer.status_code == 404
    assert "location" not in answer.headers
    assert answer.headers["content-type"] == "application/problem+json"


async def test_what_is_refused_by_its_headers_is_counted(driver: Driver) -> None:
    packed = [*signed(b"{}"), (b"content-encoding", b"gzip")]
    large = [*signed(b"{}"), (b"x-filler", b"x" * 100_000)]
    answers = [
        await driver.send(b"{}", packed),
        await driver.send(b"{}", packed),
        await driver.send(b"{}", large),
        await driver.send(b"{}", large, source="made-up-by-the-sender"),
    ]
    assert [answer.status_code for answer in answers] == [415, 415, 431, 431]
    text = (await driver.client.get("/metrics")).text
    counted = dict(re.findall(r"^tallyhook_deliveries_total(\{.*\}) (\S+)$", text, re.MULTILINE))
    assert {labels: float(number) for labels, number in counted.items()} == {
        '{source="shop",verdict="encoding_unsupported"}': 2,
        '{source="shop",verdict="headers_too_large"}': 1,
        '{source="unknown",verdict="headers_too_large"}': 1,
    }
    assert "tallyhook_delivery_seconds_count 4.0" in text
    assert "made-up" not in text


async def test_long_bodies_beyond_the_room_for_all_are_counted_as_not_stored(
    tmp_path: Path,
) -> None:
    """The sender is asked to try again, metrics show the reason, and short bodies are accepted."""
    body = json.dumps(event("e1", note={"filler": "x" * 100_000})).encode()

    async def parts() -> AsyncIterator[bytes]:
        for at in range(0, len(body), 10_000):
            yield body[at : at + 10_000]

    async with driving(tmp_path, with_worker=False, MAX_BODIES_BYTES="1024") as driver:
        answer = await driver.client.post("/webhooks/shop", content=parts(), headers=signed(body))
        assert (answer.status_code, answer.json()["code"]) == (503, "not_stored")
        assert (await driver.send(event("e2"))).status_code == 200
        text = (await driver.client.get("/metrics")).text
    assert 'tallyhook_deliveries_not_stored_total{reason="no_room"} 1.0' in text


@pytest.mark.parametrize(
    "amount", ["١٥", "１５", "15,00", "1_500", " 15", "15 ", "1e3", "+15", "15.", ".5", "", "NaN"]
)
async def test_an_amount_in_other_notation_than_plain_digits_is_refused(
    one_driver: Driver, amount: str
) -> None:
    answer = await one_driver.api("PUT", "/orders/ORD-1", json=TOLD | {"amount": amount})
    assert (answer.status_code, answer.json()["code"]) == (422, "order_invalid")
    assert "amount" in answer.json()["detail"]
    assert one_driver.rows("SELECT * FROM records") == []


async def test_as_of_with_blanks(driver: Driver) -> None:
    """A blank between date and time is RFC 3339's; one before an offset was a plus sign."""
    await driver.send(event("e1", "pending"))
    driver.clock.put(T + 20 * SECOND)
    await driver.send(event("e2"))
    at = format_instant(T + 10 * SECOND)
    spaced = at.replace("T", " ")
    local = at.replace("T10:", "T13:").replace("Z", "+03:00")
    behind = at.replace("T10:", "T07:").replace("Z", "-03:00")
    assert local != at
    for moment in (
        quote(spaced),
        spaced.replace(" ", "+"),  # how forms write a blank
        local,  # its plus sign arrives as a blank
        quote(local),
        local.replace("T", "%20"),
        quote(local.replace("T", " ")),
        behind.replace("T", "%20"),
    ):
        answer = await driver.api("GET", f"/orders/ORD-1?as_of={moment}")
        assert answer.status_code == 200, moment
        assert (answer.json()["outcome"], answer.json()["as_of"]) == ("pending", at)


# --- the feed's reasons ---------------------------------------------------------------------------


async def news(driver: Driver, body: dict[str, Any]) -> list[str]:
    """Return the `because` of the change that a delivery makes."""
    driver.clock.put(driver.clock.now() + MINUTE)
    at = format_instant(driver.clock.now())
    assert (await driver.send(body | {"occurred_at": at})).status_code == 200
    await refold_until_quiet(driver.context, limit=100, progress=lambda count: None)
    page = (await driver.api("GET", "/outcomes")).json()
    because: list[str] = page["outcomes"][-1]["because"]
    assert page["outcomes"][-1]["at"] == at
    return because


async def test_the_feed_tells_of_a_new_attempt_and_a_new_finding(driver: Driver) -> None:
    """Each news is a sentence of its own that cites its ids."""
    await news(driver, event("evt_first"))
    because = await news(driver, event("evt_second", payment={"reference": "pay_2"}))
    attempts = [sentence for sentence in because if "Attempt pay_2:" in sentence]
    findings = [sentence for sentence in because[1:] if "Attempt" not in sentence]
    assert len(attempts) == 1
    assert "evt_second" in attempts[0]
    assert any("evt_first" in each and "evt_second" in each for each in findings)
    assert not any("Attempt pay_1:" in sentence for sentence in because)
    for sentence in because:
        assert re.fullmatch(r"[A-Z].* .*[.)\]]", sentence), sentence
        assert "paid_twice" not in sentence
        assert "|" not in sentence


async def test_a_mistake_of_ours_has_the_form_of_every_problem(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients can parse it, and it shows nothing of the inside."""

    async def broken(*words: Any, **more: Any) -> Any:
        raise AssertionError("what nobody outside must see")

    monkeypatch.setattr("app.api.routes.order_document", broken)
    monkeypatch.setattr("app.receiving.endpoint.receive_delivery", broken)
    asked = await driver.api("GET", "/orders/ORD-1")
    delivered = await driver.client.post("/webhooks/shop", content=b"{}")
    for answer in (asked, delivered):
        assert answer.headers["content-type"] == "application/problem+json"
        assert faults(SCHEMAS["Problem"], answer.json()) == []
        assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
        assert "nobody outside" not in answer.text


async def test_a_mistake_after_an_answer_began_begins_no_second_answer(driver: Driver) -> None:
    """A second start would break the connection's protocol, and hide the mistake from the log."""
    asked: Scope = {
        "type": "http",
        "method": "GET",
        "path": "/webhooks/shop",
        "query_string": b"",
        "headers": [],
        "client": None,
    }
    sent = list[str]()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message["type"])
        if message["type"] == "http.response.body":
            raise AssertionError("no body can be sent")

    with pytest.raises(AssertionError, match="no body can be sent"):
        await driver.service.application(asked, receive, send)
    assert sent == ["http.response.start", "http.response.body"]


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b'{"amount": NaN}', b"\xff", b"9" * 30])
async def test_why_a_body_cannot_be_read_is_a_sentence(one_driver: Driver, body: bytes) -> None:
    answer = await one_driver.api("PUT", "/orders/ORD-1", content=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "json_invalid")
    assert re.fullmatch(r"The body .*[^.]\.", answer.json()["detail"])
