"""Opening sessions: tokens, keys, fields, and what the interface promises of each refusal."""

import json
from typing import Any

import anyio
import httpx2
import pytest

from app.core.references import RULE, is_reference
from tests.rows import for_each
from tests.sandbox.harness import URL, session_body, world


def problem(answer: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    """Check the form of a problem document, and return it."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    assert (document["status"], document["code"]) == (status, code)
    assert document["title"]
    assert document["detail"]
    return document


async def test_a_session_is_opened_as_the_interface_says() -> None:
    async with world(session_lifetime_units=20.0) as w:
        answer = await w.open()
        page = await w.client.get(answer.json()["checkout_url"].replace("127.0.0.1:8090", "x"))
    assert answer.status_code == 201
    assert answer.headers["content-type"] == "application/json"
    assert "idempotent-replayed" not in answer.headers
    session = answer.json()
    assert session == {
        "reference": session["reference"],
        "status": "open",
        "checkout_url": f"http://127.0.0.1:8090/checkout/{session['reference']}",
        "expires_at": "2026-11-20T10:00:20.143Z",
    }
    assert session["reference"].startswith("cs_")
    assert page.status_code == 200
    assert "Scenario 01, success" in page.text
    assert "254700000001" not in page.text


async def test_the_page_escapes_what_the_merchant_wrote() -> None:
    async with world() as w:
        session = (await w.open(reference="<b>&{order}")).json()
        page = await w.client.get(f"/checkout/{session['reference']}")
    assert "<strong>&lt;b&gt;&amp;{order}</strong>" in page.text
    assert page.headers["content-security-policy"] == "default-src 'none'"


@for_each(
    ("authorization", "status", "code"),
    [
        (None, 401, "unauthenticated"),
        ("Bearer wrong", 401, "unauthenticated"),
        ("Bearer sandbox_tokeé", 401, "unauthenticated"),
        ("Basic sandbox_token_0001", 401, "unauthenticated"),
        ("Bearer live_abc", 403, "live_token"),
        ("Bearer sk_live_abc", 403, "live_token"),
        ("bearer  SK_LIVE_abc", 403, "live_token"),
        ("Bearer olive_abc", 401, "unauthenticated"),
        ("Bearer sk_live", 401, "unauthenticated"),
    ],
)
async def test_tokens(authorization: str | None, status: int, code: str) -> None:
    async with world() as w:
        del w.client.headers["authorization"]
        headers = [(b"idempotency-key", b"k")]
        if authorization is not None:
            headers.append((b"authorization", authorization.encode("latin-1")))
        answer = await w.client.post(URL, json=session_body(), headers=headers)
    problem(answer, status, code)
    assert (answer.headers.get("www-authenticate") == "Bearer") == (status == 401)


@for_each("key", [None, "", "k" * 256, b"k\xe9y"])
async def test_without_a_usable_key_the_answer_is_400(key: Any) -> None:
    async with world() as w:
        headers = {} if key is None else {"Idempotency-Key": key}
        answer = await w.client.post(URL, json=session_body(), headers=headers)
    problem(answer, 400, "idempotency_key_missing")


async def test_a_key_of_255_characters_is_taken() -> None:
    async with world() as w:
        assert (await w.open(key="k" * 255)).status_code == 201


async def test_the_same_key_and_body_get_the_same_answer_replayed() -> None:
    async with world() as w:
        first, second = await w.open(key="k"), await w.open(key="k")
        other = await w.open(key="k2")
        state = await w.get("/sandbox/state")
    assert (second.status_code, second.content) == (201, first.content)
    assert second.headers["idempotent-replayed"] == "true"
    assert other.json()["reference"] != first.json()["reference"]
    assert state["sessions"] == 2


async def test_bodies_are_compared_by_meaning_and_not_by_writing() -> None:
    async with world() as w:
        headers = {"Idempotency-Key": "k", "Content-Type": "application/json; charset=utf-8"}
        body = session_body(amount=1500)
        answers = [
            await w.client.post(URL, content=text, headers=headers)
            for text in (
                json.dumps(body),
                json.dumps(dict(reversed(body.items())), indent=2),
                json.dumps(body).replace("1500", "15.00e2"),
                json.dumps(body).replace("1500", "1500.01"),
            )
        ]
    assert [a.status_code for a in answers] == [201, 201, 201, 422]
    problem(answers[3], 422, "idempotency_key_reused")


async def test_while_the_first_request_runs_its_key_answers_409() -> None:
    running, go_on = anyio.Event(), anyio.Event()

    async def sleep(_: float) -> None:
        running.set()
        await go_on.wait()

    answers: list[httpx2.Response] = []
    async with world(sleep=sleep) as w, anyio.create_task_group() as tasks:

        async def first() -> None:
            answers.append(await w.open(key="k"))

        tasks.start_soon(first)
        await running.wait()
        again = await w.open(key="k")
        problem(again, 409, "idempotency_key_in_use")
        assert again.json()["detail"].endswith("repeat it soon.")
        problem(await w.open(key="k", amount="2.00"), 422, "idempotency_key_reused")
        go_on.set()
    assert [a.status_code for a in answers] == [201]


async def test_service_trouble_is_503_twice_and_then_accepts_the_key() -> None:
    async with world(retry_after_s=7) as w:
        answers = [await w.open("254700000016") for _ in range(4)]
        state = await w.get("/sandbox/state")
    assert [a.status_code for a in answers] == [503, 503, 201, 201]
    assert "idempotent-replayed" not in answers[2].headers
    assert answers[3].headers["idempotent-replayed"] == "true"
    problem(answers[0], 503, "temporarily_unavailable")
    assert answers[1].headers["retry-after"] == "7"
    assert state["sessions"] == 1


async def test_after_no_answer_the_repeat_gets_the_kept_one() -> None:
    async with world() as w:
        with pytest.raises(ConnectionAbortedError):
            await w.open("254700000015")
        opened = (await w.get("/sandbox/truth"))[0]["session"]
        repeat = await w.open("254700000015")
    assert repeat.status_code == 201
    assert repeat.headers["idempotent-replayed"] == "true"
    assert repeat.json()["reference"] == opened


@for_each(
    ("body", "content_type", "status", "code"),
    [
        (b"{}", "text/plain", 415, "unsupported_media_type"),
        (b"{", "application/json", 400, "not_json"),
        (b"\xff", "application/json", 400, "not_json"),
        (b'{"a": 1, "a": 2}', "application/json", 400, "not_json"),
        (b'{"a": NaN}', "application/json", 400, "not_json"),
        (b"[" * 60_000, "application/json", 400, "not_json"),
        (b"[" * 20 + b"]" * 20, "application/json", 400, "not_json"),
        (b'{"a": 1e99999999999999999999}', "application/json", 400, "not_json"),
        (b" " * 70_000, "application/json", 413, "body_too_large"),
        (b"{}", "application/json", 422, "invalid_fields"),
        (b'{"a": 1e999999999}', "application/json", 422, "invalid_fields"),
        (b"[]", "application/json", 422, "invalid_fields"),
    ],
)
async def test_bodies_that_are_no_request(
    body: bytes, content_type: str, status: int, code: str
) -> None:
    async with world() as w:
        headers = {"Idempotency-Key": "k", "Content-Type": content_type}
        answer = await w.client.post(URL, content=body, headers=headers)
        assert (await w.get("/sandbox/state"))["sessions"] == 0
    problem(answer, status, code)


async def test_all_problems_of_the_fields_are_reported_at_once() -> None:
    body = {
        "order": {"reference": "", "amount": "-1", "currency": "XAU"},
        "customer": {"phone": "0700"},
        "return_urls": {"success": "/relative", "cancel": "javascript:alert(1)"},
    }
    async with world() as w:
        answer = await w.client.post(URL, json=body, headers={"Idempotency-Key": "k"})
        right = await w.open(key="k")
    refused = problem(answer, 422, "invalid_fields")
    problems = refused["problems"]
    assert refused["detail"] == " ".join(f"{p['field']}: {p['sentence']}" for p in problems)
    assert [p["field"] for p in problems] == [
        "order.reference",
        "order.amount",
        "order.currency",
        "customer.phone",
        "return_urls.success",
        "return_urls.cancel",
    ]
    assert all(p["sentence"].endswith(".") for p in problems)
    assert right.status_code == 201, "a refused request does not use up its key"


@for_each(
    "reference",
    ["r" * 129, "é" * 200, " 7 ", "a\u00a0b", "a\u202eb", "\ufffd", "", " ", "r" * 201, "a\nb"],
)
async def test_an_order_that_tallyhook_takes_the_sandbox_takes(reference: str) -> None:
    """And no other."""
    async with world() as w:
        answer = await w.open(reference=reference)
    assert answer.status_code == (201 if is_reference(reference) else 422)
    if not is_reference(reference):
        assert RULE in problem(answer, 422, "invalid_fields")["detail"]


@for_each(
    ("amount", "currency", "right"),
    [
        ("0.01", "KES", True),
        ("0.001", "KES", False),
        (0.5, "JPY", False),
        (1, "JPY", True),
        ("1.234", "KWD", True),
        ("0.00", "KES", False),
        (0, "KES", False),
        (-5, "KES", False),
        (True, "KES", False),
        (None, "KES", False),
        ("1_000", "KES", False),
        (" 1", "KES", False),
        ("1e3", "KES", False),
        (1e300, "KES", False),
        ("92233720368547758.07", "KES", True),
        ("92233720368547758.08", "KES", False),
        ("1", "kes", False),
        ("1", 404, False),
    ],
)
async def test_amounts_must_be_positive_and_exact_in_their_currency(
    amount: Any, currency: Any, right: bool
) -> None:
    async with world() as w:
        answer = await w.open(amount=amount, currency=currency)
    assert answer.status_code == (201 if right else 422)


@for_each(
    ("phone", "right"),
    [
        ("12345678", True),
        ("+254700000001", True),
        ("123456789012345", True),
        ("1234567", False),
        ("1234567890123456", False),
        ("２５４７００００", False),
        ("12345678a", False),
        (254700000001, False),
    ],
)
async def test_phones_have_8_to_15_digits(phone: Any, right: bool) -> None:
    async with world() as w:
        body = session_body() | {"customer": {"phone": phone}}
        answer = await w.client.post(URL, json=body, headers={"Idempotency-Key": "k"})
    assert answer.status_code == (201 if right else 422)


@for_each(
    "url",
    [
        "shop.test/ok",
        "//shop.test/ok",
        "ftp://shop.test/",
        "https://",
        "http://[::1",
        "http://shop.test:port/",
        "http://shop.test/\t",
        "http://shop.test/" + "x" * 2048,
        7,
    ],
)
async def test_return_urls_are_absolute(url: Any) -> None:
    async with world() as w:
        body = session_body() | {"return_urls": {"success": url, "cancel": "http://shop.test/"}}
        answer = await w.client.post(URL, json=body, headers={"Idempotency-Key": "k"})
    refused = problem(answer, 422, "invalid_fields")
    problems = refused["problems"]
    assert refused["detail"] == " ".join(f"{p['field']}: {p['sentence']}" for p in problems)
    assert [p["field"] for p in problems] == ["return_urls.success"]


async def test_a_session_needs_no_more_than_an_order() -> None:
    async with world() as w:
        body = {"order": session_body()["order"]}
        answer = await w.client.post(URL, json=body, headers={"Idempotency-Key": "k"})
        page = await w.client.get(f"/checkout/{answer.json()['reference']}")
    assert (answer.status_code, page.status_code) == (201, 200)


async def test_a_full_sandbox_answers_503_and_still_replays() -> None:
    async with world(max_sessions=2) as w:
        answers = [await w.open(key=key) for key in ("a", "b", "c", "a")]
    assert [a.status_code for a in answers] == [201, 201, 503, 201]
    problem(answers[2], 503, "sandbox_full")


@for_each(
    ("method", "path", "status"),
    [("GET", "/nowhere", 404), ("GET", "/checkout/cs_none", 404), ("GET", URL, 405)],
)
async def test_other_errors_are_problems_too(method: str, path: str, status: int) -> None:
    async with world() as w:
        answer = await w.client.request(method, path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status
