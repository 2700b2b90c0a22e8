"""Webhooks over HTTP: every request gets a verdict, and none can harm the receiver."""

import asyncio
import io
import json
import sqlite3
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Receive

from app.core.errors import StorePoisoned, StoreUnavailable
from reconcile.instants import SECOND
from tests.api.driving import SECRET, Driver, Header, driving, event, of_order, signed
from tests.reconcile.build import T
from tests.searching import every

DEEP = b'{"id": "evt_1", "type": "payment.succeeded", "data": ' + b"[" * 2_000 + b"]" * 2_000 + b"}"
WHOLE = json.dumps(event("evt_1")).encode()


def with_number(text: str) -> bytes:
    """Return the event with this text instead of the paid amount."""
    before = b'"payment": {"reference": "pay_1", "amount": '
    return WHOLE.replace(before + b"1500", before + text.encode())


# Genuinely signed, and not an event: kept whole, acknowledged, marked unreadable.
UNREADABLE = {
    "malformed": b'{"id": "evt_1", ',
    "not an object": b"[1, 2]",
    "a text": b'"event"',
    "duplicate keys": b'{"id": "evt_1", "id": "evt_2", "type": "payment.succeeded"}',
    "NaN": with_number("NaN"),
    "Infinity": with_number("-Infinity"),
    "2,000 levels": DEEP,
    "an integer beyond 64 bits": with_number(str(2**63)),
    "an integer of a million digits": with_number("1" * 500_000),
    "an amount beyond 64 bits of minor units": with_number(str(2**62)),
    "an amount with a huge exponent": with_number("1e999999999"),
    "a negative amount": with_number("-1"),
    "an amount that is a text": with_number('"15,00"'),
    "an amount that is an object": with_number("{}"),
    "an amount that is a list": with_number("[1]"),
    "a currency that is an object": WHOLE.replace(b'"KES"', b"{}"),
    "a currency that is none": WHOLE.replace(b'"KES"', b'"XXZ"'),
    "an id that is a number": WHOLE.replace(b'"evt_1"', b"7"),
    "an id with a line break": WHOLE.replace(b"evt_1", b"evt\\n1"),
    "an order that is a list": WHOLE.replace(b'"ORD-1"', b"[]"),
    "data that is a text": b'{"id": "evt_1", "type": "payment.succeeded", "data": "x"}',
    "a lone surrogate": WHOLE.replace(b"ORD-1", b"\\ud800"),
    "a zero character": WHOLE.replace(b"ORD-1", b"a\\u0000b"),
    "UTF-16": WHOLE.decode().encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf" + WHOLE,
    "bytes that are no UTF-8": WHOLE.replace(b"ORD-1", b"\xff\xfe"),
    "empty": b"",
    "blank": b" \n",
    "a date that is none": WHOLE.replace(b"2026-11-20", b"2026-13-20"),
    "an environment that is none": WHOLE.replace(b'"sandbox"', b'"test"'),
}


@pytest.mark.parametrize("name", list(UNREADABLE)[:: every(3)])
async def test_what_is_genuinely_signed_is_kept_byte_for_byte_whatever_it_says(
    one_driver: Driver, name: str
) -> None:
    driver, body = one_driver, UNREADABLE[name]
    answer = await driver.send(body)
    assert (answer.status_code, answer.json()["verdict"]) == (200, "unreadable")
    ((kept, problem),) = driver.rows(
        "SELECT body, problem FROM deliveries WHERE id = ?", answer.json()["delivery"]
    )
    assert kept == body
    assert problem
    assert await driver.ready()
    after = event(f"evt_after_{[*UNREADABLE].index(name)}")
    assert (await driver.send(after)).json()["verdict"] == "stored"


def having(name: bytes, *values: bytes) -> list[Header]:
    """Return WHOLE's genuine headers with one replaced, repeated or left out."""
    rest = [header for header in signed(WHOLE) if header[0] != name]
    return [*rest, *((name, value) for value in values)]


def stamped(stamp: bytes) -> list[Header]:
    """Return headers genuinely signed over any timestamp text."""
    return signed(WHOLE, stamp=stamp)


(TRUE_SIGNATURE,) = (value for name, value in signed(WHOLE) if name == b"webhook-signature")
NOW_S = T // SECOND

REFUSED: dict[str, tuple[list[Header], str]] = {
    "no header at all": ([], "signature_missing"),
    "no signature": (having(b"webhook-signature"), "signature_missing"),
    "no timestamp": (having(b"webhook-timestamp"), "timestamp_missing"),
    "no id": (having(b"webhook-id"), "signature_missing"),
    "another secret's": (having(b"webhook-signature", b"v1," + b"A" * 43 + b"="),
                         "signature_mismatch"),
    "not base64": (having(b"webhook-signature", b"v1,%%%"), "signature_mismatch"),
    "not ASCII": (having(b"webhook-signature", "v1,ä¹²".encode()), "signature_mismatch"),
    "not ASCII Latin": (having(b"webhook-signature", b"v1,\xff\xfe"), "signature_mismatch"),
    "empty": (having(b"webhook-signature", b""), "signature_missing"),
    "very long": (having(b"webhook-signature", b"v1,A " * 2_000), "signature_mismatch"),
    "another id": (having(b"webhook-id", b"msg_2"), "signature_mismatch"),
    "two ids": (having(b"webhook-id", b"msg_1", b"msg_2"), "signature_mismatch"),
    "two timestamps": (having(b"webhook-timestamp", b"%d" % NOW_S, b"1"), "timestamp_missing"),
    "another timestamp": (having(b"webhook-timestamp", b"%d" % (NOW_S + 1)), "signature_mismatch"),
    "NaN": (stamped(b"NaN"), "timestamp_missing"),
    "full-width digits": (stamped("１７００".encode()), "timestamp_missing"),
    "milliseconds": (stamped(b"%d" % (NOW_S * 1000)), "timestamp_too_new"),
    "a thousand digits": (stamped(b"9" * 1_000), "timestamp_missing"),
    "negative": (stamped(b"-1"), "timestamp_missing"),
    "too old": (stamped(b"%d" % (NOW_S - 301)), "timestamp_too_old"),
    "too new": (stamped(b"%d" % (NOW_S + 301)), "timestamp_too_new"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
async def test_what_is_not_genuine_is_refused_alike_and_kept_with_its_reason(
    one_driver: Driver, name: str
) -> None:
    driver, (headers, expected) = one_driver, REFUSED[name]
    everything = ("SELECT id, verdict, body FROM rejections", "SELECT * FROM deliveries")
    refused, taken = map(driver.rows, everything)
    answer = await driver.send(WHOLE, headers)
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "signature_invalid"
    ((_, verdict, body),) = set(driver.rows(everything[0])) - set(refused)
    assert body == WHOLE
    assert verdict == expected
    assert driver.rows(everything[1]) == taken
    assert await driver.ready()


@pytest.mark.parametrize(
    "headers",
    [
        stamped(b"%d" % (NOW_S - 300)),
        stamped(b"%d" % (NOW_S + 300)),
        having(b"webhook-signature", b"v1,AAAA v1a,x " + TRUE_SIGNATURE),
        having(b"webhook-signature", b"v1,AAAA", TRUE_SIGNATURE),
    ],
    ids=["oldest", "newest", "one of several", "in a repeated header"],
)
async def test_at_the_edges_of_its_age_and_with_one_true_signature_a_request_is_genuine(
    driver: Driver, headers: list[Header]
) -> None:
    assert (await driver.send(WHOLE, headers)).json()["verdict"] == "stored"


async def test_the_four_acknowledged_verdicts_come_with_200_and_the_deliverys_id(
    driver: Driver,
) -> None:
    answers = [
        await driver.send(body)
        for body in (event("e1"), event("e1"), event("e1", "declined"), b"{}")
    ]
    assert [a.status_code for a in answers] == [200] * 4
    assert [a.json()["verdict"] for a in answers] == [
        "stored",
        "duplicate",
        "duplicate_with_different_body",
        "unreadable",
    ]
    assert all(set(a.json()) == {"verdict", "delivery"} for a in answers)
    kept = {row[0] for row in driver.rows("SELECT id FROM deliveries")}
    assert kept == {a.json()["delivery"] for a in answers}


async def test_unknown_kinds_are_kept_as_unrecognized(driver: Driver) -> None:
    for number, data in enumerate(({"order": {"reference": "ORD-1"}}, {"order": 7}, None)):
        body = {"id": f"e{number}", "type": "payment.on_the_moon", "data": data}
        assert (await driver.send(body)).json()["verdict"] == "stored"
    assert driver.rows("SELECT DISTINCT claim FROM events") == [("unrecognized",)]


async def test_another_environment_is_refused_and_kept(driver: Driver) -> None:
    answer = await driver.send(event("e1", environment="live"))
    assert (answer.status_code, answer.json()["code"]) == (403, "wrong_environment")
    assert driver.rows("SELECT verdict FROM rejections") == [("wrong_environment",)]


@pytest.mark.parametrize("source", ["nobody", "SHOP", "shop%20", "x" * 5_000, "%ff%00", "é"])
async def test_an_unknown_source_is_a_404_and_its_name_is_kept_short_and_printable(
    driver: Driver, source: str
) -> None:
    answer = await driver.send(WHOLE, source=source)
    assert (answer.status_code, answer.json()["code"]) == (404, "source_unknown")
    ((name, verdict),) = driver.rows("SELECT source, verdict FROM rejections")
    assert verdict == "source_unknown"
    assert len(name) <= 40
    assert name.isprintable()


async def test_a_slash_at_the_end_is_the_same_address(driver: Driver) -> None:
    """A refused delivery there is recorded like any other."""
    taken = await driver.client.post("/webhooks/shop/", content=WHOLE, headers=signed(WHOLE))
    assert (taken.status_code, taken.json()["verdict"]) == (200, "stored")
    assert (await driver.send(WHOLE)).json()["verdict"] == "duplicate"
    refused = await driver.client.post("/webhooks/shop/", content=WHOLE)
    assert refused.status_code == 401
    unknown = await driver.client.post("/webhooks/nobody/", content=WHOLE)
    assert (unknown.status_code, unknown.json()["code"]) == (404, "source_unknown")
    found = driver.rows("SELECT source, verdict FROM rejections ORDER BY verdict")
    assert found == [("shop", "signature_missing"), ("nobody", "source_unknown")]


@pytest.mark.parametrize(
    "path", ["//webhooks/shop", "/webhook/shop", "/webhooks", "/webhooks/", "/Webhooks/shop",
             "/webhooks//shop", "/webhooks/shop/more"]
)  # fmt: skip
async def test_an_address_that_is_nearly_one_says_how_it_is_written(
    one_driver: Driver, path: str
) -> None:
    answer = await one_driver.client.post(f"http://service{path}", json={})
    assert answer.status_code == 404
    assert "send them to /webhooks/NAME, where NAME" in answer.json()["detail"]


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_only_post_delivers(one_driver: Driver, method: str) -> None:
    answer = await one_driver.client.request(method, "/webhooks/shop")
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "POST"


async def in_chunks(body: bytes) -> AsyncIterator[bytes]:
    """Yield the body without a declared length."""
    for start in range(0, len(body), 100_000):
        yield body[start : start + 100_000]


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_of_10_mb_is_refused_declared_or_in_chunks_and_not_kept(
    driver: Driver, declared: bool
) -> None:
    body = b"x" * 10_000_000
    content = body if declared else in_chunks(body)
    answer = await driver.client.post("/webhooks/shop", content=content, headers=signed(body))
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    ((verdict, kept),) = driver.rows("SELECT verdict, body FROM rejections")
    assert (verdict, kept) == ("body_too_large", b"")
    assert await driver.ready()


@pytest.mark.parametrize("size", [1024 * 1024 - 1, 1024 * 1024, 1024 * 1024 + 1])
async def test_the_size_limit_is_exact(driver: Driver, size: int) -> None:
    body = WHOLE[:-1] + b" " * (size - len(WHOLE)) + b"}"
    for content in (body, in_chunks(body)):
        answer = await driver.client.post("/webhooks/shop", content=content, headers=signed(body))
        assert answer.status_code == (413 if size > 1024 * 1024 else 200)


async def status_of(driver: Driver, body: bytes, receive: Receive) -> int:
    """Return the answer's status for a body as the server hands it over."""
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/webhooks/shop",
        "query_string": b"",
        "headers": signed(body),
    }
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await driver.service.application(scope, receive, send)
    return int(sent[0]["status"])


@pytest.mark.parametrize(("size", "status"), [(1023, 200), (1024, 200), (1025, 413)])
async def test_the_size_limit_is_exact_for_a_body_in_one_piece(
    tmp_path: Path, size: int, status: int
) -> None:
    body = WHOLE[:-1] + b" " * (size - len(WHOLE)) + b"}"

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async with driving(tmp_path, MAX_BODY_BYTES="1024") as driver:
        assert await status_of(driver, body, receive) == status


async def test_a_body_in_tiny_parts_takes_no_more_memory_than_in_one(driver: Driver) -> None:
    body = WHOLE[:-1] + b" " * (20_000 - len(WHOLE)) + b"}"
    places, held = iter(range(0, len(body), 2)), [0]

    async def receive() -> dict[str, Any]:
        at = next(places)
        held[0] = tracemalloc.get_traced_memory()[0]
        part = {"body": body[at : at + 2], "more_body": at + 2 < len(body)}
        return {"type": "http.request", **part}

    tracemalloc.start()
    try:
        assert await status_of(driver, body, receive) == 200
    finally:
        tracemalloc.stop()
    assert held[0] < 2 * len(body)


@pytest.mark.parametrize("encoding", [b"gzip", b"br", b"identity, gzip", b"GZIP", b"x\xff"])
async def test_a_compressed_body_is_refused_by_its_header(driver: Driver, encoding: bytes) -> None:
    answer = await driver.send(WHOLE, [*signed(WHOLE), (b"content-encoding", encoding)])
    assert (answer.status_code, answer.json()["code"]) == (415, "encoding_unsupported")
    plain = await driver.send(WHOLE, [*signed(WHOLE), (b"content-encoding", b"identity")])
    assert plain.status_code == 200


async def test_headers_that_are_too_large_are_refused(driver: Driver) -> None:
    answer = await driver.send(WHOLE, [*signed(WHOLE), (b"x-filler", b"x" * 17_000)])
    assert (answer.status_code, answer.json()["code"]) == (431, "headers_too_large")


@pytest.mark.parametrize("error", [StoreUnavailable("busy"), StorePoisoned("gone")])
async def test_what_cannot_be_stored_is_not_acknowledged(driver: Driver, error: Exception) -> None:
    async def refuse(items: Any) -> None:
        raise error

    driver.service.inbox.queue.submit = refuse  # type: ignore[method-assign,assignment]
    answer = await driver.send(WHOLE)
    assert (answer.status_code, answer.json()["code"]) == (503, "not_stored")
    assert int(answer.headers["retry-after"]) > 0
    assert (await driver.send(WHOLE, [])).status_code == 401


async def test_sixty_four_at_once_are_one_event(driver: Driver) -> None:
    answers = await asyncio.gather(*(driver.send(WHOLE) for _ in range(64)))
    verdicts = [answer.json()["verdict"] for answer in answers]
    assert sorted(verdicts) == ["duplicate"] * 63 + ["stored"]
    assert driver.rows("SELECT count(*) FROM events") == [(1,)]
    (line,) = (await driver.api("GET", "/orders/ORD-1")).json()["timeline"]
    assert line["deliveries"] == 64


async def test_the_ledger_is_the_same_whatever_order_events_arrive_in(driver: Driver) -> None:
    names = ("pending", "declined", "succeeded", "refunded")
    for place, order in enumerate(((0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1))):
        for step in order:
            claim = names[step]
            body = of_order(f"O-{place}", f"e{place}-{claim}", claim)
            assert (await driver.send(body)).status_code == 200
    ledgers = [(await driver.api("GET", f"/orders/O-{n}")).json() for n in range(3)]
    assert {ledger["outcome"] for ledger in ledgers} == {ledgers[0]["outcome"]}
    assert len({json.dumps(ledger["totals"]) for ledger in ledgers}) == 1


async def test_a_read_after_the_acknowledgement_sees_it(driver: Driver) -> None:
    for number in range(25):
        body = event(f"e{number}", "pending" if number % 2 else "declined")
        assert (await driver.send(body)).status_code == 200
        ledger = (await driver.api("GET", "/orders/ORD-1")).json()
        assert f"e{number}" in {line["event"] for line in ledger["timeline"]}


CANARIES = ("254711223344", "CANARY-IN-THE-BODY", "canary-bearer", SECRET, SECRET[6:])


async def test_no_log_line_answer_or_listing_holds_phones_bodies_or_secrets(
    driver: Driver, log: io.StringIO
) -> None:
    private: dict[str, Any] = {"customer": {"phone": CANARIES[0]}, "note": CANARIES[1]}
    broken = [
        event("e1", **private),
        event("e2", payment={"amount": CANARIES[1]}, **private),
        event("e3", payment={"currency": CANARIES[1]}, **private),
        event("e4", occurred_at=CANARIES[1], **private),
        event("e5", environment=CANARIES[1], **private),
        event("e6", environment="live", **private),
        CANARIES[1].encode(),
        b'{"%s": 1, "%s": 2}' % ((CANARIES[1].encode(),) * 2),
    ]
    texts = []
    bearer = (b"authorization", b"Bearer " + CANARIES[2].encode())
    for body in broken:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        for headers in ([*signed(content), bearer], [bearer, (b"cookie", CANARIES[2].encode())]):
            texts.append((await driver.send(content, headers)).text)
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    deliveries = [line for line in lines if line["event"] == "delivery"]
    assert len({line["delivery"] for line in deliveries}) == len(deliveries) == 2 * len(broken)
    shown = driver.rows(
        "SELECT problem, headers, source FROM deliveries "
        "UNION ALL SELECT problem, headers, source FROM rejections"
    )
    assert len(shown) == 2 * len(broken)
    everything = log.getvalue() + "".join(texts) + repr(shown)
    assert [canary for canary in CANARIES if canary in everything] == []


async def test_a_restart_keeps_everything(tmp_path: Path) -> None:
    async with driving(tmp_path) as driver:
        for body in (event("e1"), b"{}", event("e2", environment="live")):
            await driver.send(body)
    async with driving(tmp_path) as driver:
        assert (await driver.send(event("e1"))).json()["verdict"] == "duplicate"
        assert driver.rows("SELECT count(*) FROM deliveries") == [(3,)]
        assert driver.rows("SELECT count(*) FROM rejections") == [(1,)]
    with closing(sqlite3.connect(tmp_path / "t.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
