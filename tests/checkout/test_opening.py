"""One order gets one key and one session, whatever the service answers."""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest

from app.checkout import open_checkout as operation
from app.checkout.client import LONGEST_HOLD_S, RetrySettings
from app.checkout.request import (
    CheckoutConflictError,
    CheckoutRequestError,
    PaymentNotOverError,
    phone_check,
)
from app.core.errors import UnreachableError
from app.core.http import MAX_ANSWER_BYTES
from app.database.statements import PlainConnection
from app.orders.record_store import order_records
from reconcile.instants import HOUR, MINUTE, parse_instant
from reconcile.ledger.records import Record
from reconcile.money import Money
from tests.checkout.conftest import Shop
from tests.checkout.service import (
    EXPIRES,
    FAST,
    PHONE,
    TOKEN,
    Write,
    answer,
    asked,
    drip,
    drop,
    flood,
    half,
    opened,
    service,
    silence,
)

TROUBLE = answer(503, {"title": "Trouble"})
REFUSED = answer(422, {"title": "Invalid", "detail": f"No wallet for {PHONE}.\u0007"})


async def test_a_session_is_opened_recorded_and_found_again_without_a_request(shop: Shop) -> None:
    async with service(opened()) as pay, pay.client() as client:
        first = await shop.open(client)
        again = await shop.open(client)
    assert (first.state, first.session) == ("opened", "cs_1")
    assert first.checkout_url == "https://pay.test/checkout/cs_1"
    assert first.expires_at == parse_instant(EXPIRES)
    assert again == first
    assert len(pay.seen) == 1
    requested, session = await shop.records()
    assert (requested.kind, session.kind) == ("session_requested", "session_opened")
    assert requested.money == Money(minor=150_000, currency="KES")
    assert requested.key == session.key == first.key == pay.seen[0].key
    assert (session.session, session.source, session.expires_at) == (
        "cs_1",
        "shop",
        first.expires_at,
    )


async def test_the_request_is_what_the_service_documents(shop: Shop) -> None:
    async with service(opened()) as pay, pay.client() as client:
        await shop.open(client)
    (seen,) = pay.seen
    assert seen.line == "POST /api/v1/checkout/sessions HTTP/1.1"
    assert seen.headers["authorization"] == f"Bearer {TOKEN}"
    assert seen.headers["content-type"] == "application/json"
    assert seen.headers["accept-encoding"] == "identity"
    assert b'"amount":1500.00,' in seen.body
    assert seen.document == {
        "order": {"reference": "ORD-1", "amount": 1500, "currency": "KES"},
        "customer": {"phone": PHONE},
        "return_urls": {"success": asked().success_url, "cancel": asked().cancel_url},
    }


RECOVERING: dict[str, Sequence[Write]] = {
    "dropped": [drop, opened()],
    "dropped within the answer": [half, opened()],
    "silent": [silence, opened()],
    "dripping": [drip, opened()],
    "503 twice": [TROUBLE, TROUBLE, opened()],
    "500 and dropped": [answer(500), drop, opened()],
    "409": [answer(409, {"code": "idempotency_key_in_use"}), opened()],
    "429": [answer(429, {}, retry_after="3"), opened()],
}


@pytest.mark.parametrize("script", RECOVERING.values(), ids=RECOVERING.keys())
async def test_after_trouble_the_same_key_and_bytes_are_sent_again(
    shop: Shop, script: Sequence[Write]
) -> None:
    async with service(*script) as pay, pay.client() as client:
        result = await shop.open(client)
    assert result.state == "opened"
    assert len(pay.seen) == len(script)
    assert pay.keys == {result.key}
    assert len({seen.body for seen in pay.seen}) == 1
    assert await shop.kinds() == ["requested", "opened"]
    assert (await shop.ledger()).outcome == "pending"


UNCLEAR: dict[str, tuple[Write, int, str]] = {
    "always dropped": (drop, 4, "connection_failed"),
    "always silent": (silence, 4, "timed_out"),
    "always dripping": (drip, 4, "timed_out"),
    "always 503": (TROUBLE, 4, "status_503"),
    "always 409": (answer(409), 4, "status_409"),
    "waits too long": (answer(429, retry_after="60"), 1, "status_429"),
    "redirects": (answer(307, location="http://127.0.0.1:9/elsewhere"), 1, "status_307"),
    "a gigabyte": (flood, 1, "too_large"),
    "compressed": (answer(201, {"reference": "cs_1"}, content_encoding="gzip"), 1, "encoded"),
    "no JSON": (answer(201, raw=b"<html>"), 1, "not_json"),
    "another shape": (answer(201, {"id": "cs_1"}), 1, "no_reference"),
    "another order": (opened(order={"reference": "ORD-2"}), 1, "other_order"),
    "another key": (answer(422, {"code": "idempotency_key_reused"}), 1, "key_refused"),
}


@pytest.mark.parametrize(("write", "requests", "code"), UNCLEAR.values(), ids=UNCLEAR.keys())
async def test_an_unclear_answer_is_unknown_then_timed_out_and_never_failed(
    shop: Shop, write: Write, requests: int, code: str
) -> None:
    retry = RetrySettings(tries=4, try_s=0.4 if "time" in code else 20.0, total_s=60.0)
    async with service(write) as pay, pay.client(retry) as client:
        result = await shop.open(client)
        again = await shop.open(client)
    assert (result.state, again.state) == ("unknown", "unknown")
    assert f"({code})" in result.sentence
    assert len(pay.slept) == 2 * (requests - 1)
    calls = 1 if code == "status_429" else 2  # the second is held off
    # Where the machine stands still, a request may be given up before it comes there.
    expected = calls * requests
    assert len(pay.seen) == expected or (code == "timed_out" and len(pay.seen) < expected)
    assert pay.keys == {result.key}
    assert await shop.kinds() == ["requested", "unknown"]
    assert json.loads((await shop.details())[1]) == {"code": code}
    assert (await shop.ledger()).outcome == "pending"
    late = await shop.ledger(as_of=shop.clock.now() + HOUR)
    assert late.outcome == "timed_out"
    assert "session_unknown" not in {finding.code for finding in late.findings}, "we still ask"


async def test_an_answer_of_a_gigabyte_is_not_read_to_its_end(shop: Shop) -> None:
    taken = 0

    async def count(writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        writer.write(b"HTTP/1.1 201 Created\r\ncontent-length: 1073741824\r\n\r\n")
        for _ in range(16_384):
            writer.write(b" " * 65_536)
            await writer.drain()
            taken += 65_536

    async with service(count) as pay, pay.client(RetrySettings()) as client:
        await shop.open(client)
    # What the sockets' own buffers take comes on top of our bound.
    assert taken < MAX_ANSWER_BYTES + 32 * 1024 * 1024


async def test_an_unknown_session_is_asked_for_again_and_found(shop: Shop) -> None:
    async with service(drop, drop, drop, drop, opened()) as pay, pay.client() as client:
        unknown = await shop.open(client)
        found = await shop.open(client)
    assert (unknown.state, found.state) == ("unknown", "opened")
    assert pay.keys == {unknown.key} == {found.key}
    assert await shop.kinds() == ["requested", "unknown", "opened"]
    ledger = await shop.ledger()
    assert ledger.outcome == "pending"
    assert "session_unknown" not in {finding.code for finding in ledger.findings}


async def test_a_refusal_is_recorded_in_the_services_words_and_not_asked_again(shop: Shop) -> None:
    async with service(REFUSED) as pay, pay.client() as client:
        result = await shop.open(client)
        again = await shop.open(client)
    assert result.state == "refused"
    assert again == result
    assert len(pay.seen) == 1
    assert (await shop.records())[1].reason == "No wallet for ***."
    assert (await shop.ledger()).outcome == "failed"


PAGE = answer(400, raw=b"<html><h1>400 Bad Request</h1></html>")
"""The answer of a proxy between us and the service."""


@pytest.mark.parametrize("lost", [drop, half, TROUBLE], ids=["no answer", "half of one", "503"])
async def test_after_a_lost_answer_a_proxys_page_is_no_refusal(shop: Shop, lost: Write) -> None:
    """The session may be open and its customer asked to pay."""
    async with service(lost, PAGE, opened()) as pay, pay.client() as client:
        unknown = await shop.open(client)
        with pytest.raises(PaymentNotOverError):
            await shop.open(client, new_payment=True)
        assert await shop.kinds() == ["requested", "unknown"]
        found = await shop.open(client)
    assert (unknown.state, found.state, found.session) == ("unknown", "opened", "cs_1")
    assert "(status_400)" in unknown.sentence
    assert pay.keys == {unknown.key}


async def test_after_an_answer_lost_by_an_earlier_call_a_proxys_page_is_no_refusal(
    shop: Shop,
) -> None:
    async with service(drop, PAGE, opened()) as pay, pay.client(RetrySettings(tries=1)) as client:
        states = [(await shop.open(client)).state for _ in range(3)]
    assert states == ["unknown", "unknown", "opened"]
    assert len(pay.keys) == 1


@pytest.mark.parametrize("script", [(PAGE,), (drop, REFUSED)], ids=["nothing lost", "its own"])
async def test_a_first_answer_and_one_in_the_services_own_form_are_refusals(
    shop: Shop, script: Sequence[Write]
) -> None:
    async with service(*script) as pay, pay.client() as client:
        assert (await shop.open(client)).state == "refused"
    assert await shop.kinds() == ["requested", "refused"]


@pytest.mark.parametrize(("status", "what"), [(401, "token"), (403, "token"), (404, "address")])
async def test_wrong_settings_are_an_error_that_leaves_the_key_for_the_next_call(
    shop: Shop, status: int, what: str
) -> None:
    async with service(answer(status, {"detail": TOKEN}), opened()) as pay, pay.client() as client:
        with pytest.raises(UnreachableError, match=what) as caught:
            await shop.open(client)
        assert await shop.kinds() == ["requested"]
        assert (await shop.ledger()).outcome == "pending"
        result = await shop.open(client)
    assert TOKEN not in str(caught.value)
    assert result.state == "opened"
    assert pay.keys == {result.key}


async def test_another_amount_is_an_error_that_carries_both(shop: Shop) -> None:
    async with service(opened()) as pay, pay.client() as client:
        await shop.open(client)
        with pytest.raises(CheckoutConflictError, match=r"KES 1,500\.00.*USD 1,600\.00") as caught:
            await shop.open(client, amount="1600", currency="USD")
    assert caught.value.before == Money(minor=150_000, currency="KES")
    assert caught.value.asked == Money(minor=160_000, currency="USD")
    assert len(pay.seen) == 1


async def test_another_phone_number_must_not_go_out_under_a_key_whose_answer_is_open(
    shop: Shop,
) -> None:
    async with service(drop, drop, drop, drop, opened()) as pay, pay.client() as client:
        await shop.open(client)
        with pytest.raises(CheckoutConflictError) as caught:
            await shop.open(client, phone="254712345679")
        assert len(pay.seen) == 4
        assert (await shop.open(client)).state == "opened"
        found = await shop.open(client, phone="254712345679")
    assert "2547" not in str(caught.value)
    assert (found.state, found.session, len(pay.seen)) == ("opened", "cs_1", 5)


async def test_another_phone_number_with_the_same_check_must_not_go_out_either(
    shop: Shop,
) -> None:
    twin = next(
        each
        for each in map(str, range(int(PHONE) + 1, int(PHONE) + 100_000))
        if phone_check(each) == phone_check(PHONE)
    )
    async with service(drop, drop, drop, drop, opened()) as pay, pay.client() as client:
        await shop.open(client)
        with pytest.raises(CheckoutConflictError, match="another phone number"):
            await shop.open(client, phone=twin)
        assert len(pay.seen) == 4
        assert (await shop.open(client)).state == "opened"


async def test_another_source_does_not_get_the_key(shop: Shop) -> None:
    async with service(drop) as pay, pay.client() as one, pay.client(source="other") as two:
        await shop.open(one)
        with pytest.raises(CheckoutConflictError, match="source"):
            await shop.open(two)
    assert len(pay.seen) == 4


async def test_a_key_that_the_service_may_have_forgotten_is_not_sent(shop: Shop) -> None:
    async with service(drop) as pay, pay.client() as client:
        first = await shop.open(client)
        shop.clock.put(shop.clock.now() + 24 * HOUR - MINUTE)
        await shop.open(client)
        assert len(pay.seen) == 8
        shop.clock.put(shop.clock.now() + MINUTE)
        last = await shop.open(client)
    assert (last.state, last.key, len(pay.seen)) == ("unknown", first.key, 8)
    assert "Tallyhook does not ask the service again" in last.sentence
    assert "Look the order up" in last.sentence
    assert "ask for a new payment" in last.sentence


async def test_a_wrong_request_is_reported_before_anything_is_recorded(
    shop: Shop,
) -> None:
    async with service(opened()) as pay, pay.client() as client:
        with pytest.raises(CheckoutRequestError):
            await shop.open(client, amount="0", phone="1")
    assert pay.seen == []
    assert await shop.records() == []


async def test_concurrent_calls_for_one_order_make_one_request(shop: Shop) -> None:
    async with service(opened()) as pay, pay.client() as client:
        results = await asyncio.gather(*(shop.open(client) for _ in range(20)))
        assert len(client.flights) == 0
    assert len(pay.seen) == 1
    assert len(set(results)) == 1
    assert await shop.kinds() == ["requested", "opened"]


async def test_concurrent_calls_share_an_unknown_answer(shop: Shop) -> None:
    async with service(drop) as pay, pay.client() as client:
        results = await asyncio.gather(*(shop.open(client) for _ in range(10)))
    assert {result.state for result in results} == {"unknown"}
    assert len(pay.seen) == FAST.tries


async def test_orders_do_not_wait_for_each_other(shop: Shop) -> None:
    async def late(writer: asyncio.StreamWriter) -> None:
        await pay.until(3)
        await opened("cs_late")(writer)

    async with service(late) as pay, pay.client(RetrySettings()) as client:
        await asyncio.gather(*(shop.open(client, order=f"ORD-{n}") for n in range(3)))
    assert len(pay.keys) == 3


async def test_two_processes_send_one_key(shop: Shop) -> None:
    async with service(opened()) as pay, pay.client() as one, pay.client() as two:
        results = await asyncio.gather(shop.open(one), shop.open(two))
    assert len(pay.keys) == 1
    assert {result.session for result in results} == {"cs_1"}
    assert await shop.kinds() == ["requested", "opened"]


async def test_of_two_overlapping_transactions_one_key_remains(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On PostgreSQL both may find no payment; then the id of the intent lets only one commit."""
    blind = 2

    def looks_away(connection: PlainConnection, order: str) -> list[Record]:
        nonlocal blind
        blind -= 1
        return [] if blind >= 0 else order_records(connection, order)

    async with service(drop, drop, drop, drop, opened()) as pay, pay.client() as client:
        first = await shop.open(client)
        monkeypatch.setattr(operation, "order_records", looks_away)
        second = await shop.open(client)
    assert blind < 0
    assert (first.state, second.state) == ("unknown", "opened")
    assert pay.keys == {first.key} == {second.key}


async def test_a_second_session_for_one_key_is_recorded(shop: Shop) -> None:
    """Both sessions can take money, so both must be known."""
    late = asyncio.Event()

    async def slow(writer: asyncio.StreamWriter) -> None:
        await late.wait()
        await opened("cs_slow")(writer)

    async with (
        service(slow, opened("cs_quick")) as pay,
        pay.client(RetrySettings()) as one,
        pay.client() as two,
    ):
        waiting = asyncio.ensure_future(shop.open(one))
        await pay.until(1)
        quick = await shop.open(two)
        late.set()
        slow_result = await waiting
    assert quick.session == slow_result.session == "cs_quick"
    assert {record.session for record in await shop.records()} == {None, "cs_quick", "cs_slow"}


async def test_live_needs_encrypted_return_urls(shop: Shop) -> None:
    shop.inbox.database.environment = "live"
    async with service(opened()) as pay, pay.client() as client:
        with pytest.raises(CheckoutRequestError, match="https"):
            await shop.open(client, success_url="http://shop.test/ok")
    assert pay.seen == []


async def test_the_wait_that_the_service_asks_for_is_kept(shop: Shop) -> None:
    async with service(answer(429, retry_after="3"), opened()) as pay, pay.client() as client:
        await shop.open(client)
    (slept,) = pay.slept
    assert 3 <= slept < 3 + FAST.jitter_s


@pytest.mark.parametrize("status", [429, 503])
async def test_a_wait_that_the_service_asks_for_holds_off_other_orders_too(
    shop: Shop, status: int
) -> None:
    async with service(answer(status, retry_after="60"), opened()) as pay, pay.client() as client:
        assert (await shop.open(client)).state == "unknown"
        other = await shop.open(client, order="ORD-2")
        assert (len(pay.seen), pay.slept) == (1, [])
    assert other.state == "unknown"
    assert "(asked_to_wait)" in other.sentence
    assert await shop.kinds("ORD-2") == ["requested", "unknown"], "it is asked for later"


async def test_a_short_wait_that_the_service_asks_for_is_waited_out_by_other_orders(
    shop: Shop,
) -> None:
    once = replace(FAST, tries=1)
    async with service(answer(429, retry_after="3"), opened()) as pay, pay.client(once) as client:
        assert (await shop.open(client)).state == "unknown"
        assert (await shop.open(client, order="ORD-2")).state == "opened"
    (slept,) = pay.slept
    assert 2 < slept < 3 + FAST.jitter_s


async def test_a_wait_without_end_is_not_kept_for_longer_than_a_quarter_of_an_hour(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = (answer(503, retry_after="999999999"), opened())
    async with service(*script) as pay, pay.client() as client:
        await shop.open(client)
        later = time.monotonic() + LONGEST_HOLD_S
        clock = SimpleNamespace(monotonic=lambda: later)
        monkeypatch.setattr("app.checkout.client.time", clock)
        assert (await shop.open(client, order="ORD-2")).state == "opened"


async def test_each_record_is_dated_by_its_own_step(shop: Shop) -> None:
    async with service(opened()) as pay, pay.client() as client:
        await shop.open(client)
    requested, session = await shop.records()
    assert requested.recorded_at == requested.at < session.recorded_at == session.at
