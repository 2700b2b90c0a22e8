"""Answers of the checkout service: their meaning, and what they must never cause."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.checkout.request import (
    AnswerUnclear,
    Denied,
    Opened,
    RetryLater,
    ServiceReply,
    SessionRefused,
    Verdict,
    judge_reply,
    kept_checkout_url,
)
from app.checkout.session_api import SessionAnswer, SessionApi
from app.core.masking import Mask
from reconcile.instants import parse_instant
from tests.checkout.service import EXPIRES, PHONE, TOKEN
from tests.rows import for_each

MASK = Mask(phone=PHONE, token=TOKEN)
API = SessionApi()
GOOD = {"reference": "cs_1", "checkout_url": "https://pay.test/cs_1", "expires_at": EXPIRES}


def judged(status: int | None, body: Any = b"", api: SessionApi = API, **more: Any) -> Verdict:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    reply = ServiceReply(status=status, body=content, **more)
    return judge_reply(reply, order="ORD-1", api=api, mask=MASK)


def test_an_open_session_is_read_and_kept_verbatim() -> None:
    result = judged(201, b'{"reference": "cs_1",  "expires_at":"2026-11-20T10:30:00Z"}')
    assert result == Opened(
        session="cs_1",
        checkout_url=None,
        expires_at=parse_instant(EXPIRES),
        details='{"reference": "cs_1",  "expires_at":"2026-11-20T10:30:00Z"}',
    )


@for_each(
    ("status", "body", "code"),
    [
        (201, b"", "not_json"),
        (201, b"<html>", "not_json"),
        (201, b"\xff\xfe", "not_json"),
        (201, b'{"reference":"a","reference":"b"}', "not_json"),
        (201, b"[" * 5_000 + b"]" * 5_000, "not_json"),
        (201, [], "no_reference"),
        (201, {"id": "cs_1"}, "no_reference"),
        (201, {"reference": None}, "no_reference"),
        (201, {"reference": 7}, "no_reference"),
        (201, {"reference": ""}, "no_reference"),
        (201, {"reference": "x" * 201}, "no_reference"),
        (201, {"reference": "cs\n1"}, "no_reference"),
        (201, {"reference": "cs\u202e1"}, "no_reference"),
        (201, {"reference": "cs_" + PHONE}, "no_reference"),
        (201, GOOD | {"order": {"reference": "ORD-2"}}, "other_order"),
        (202, GOOD, "status_202"),
        (204, b"", "status_204"),
        (301, GOOD, "status_301"),
        (302, GOOD, "status_302"),
        (308, GOOD, "status_308"),
        (422, {"type": "x", "code": "idempotency_key_reused"}, "key_refused"),
        (400, {"error": {"type": "Idempotency_Error"}}, "key_refused"),
    ],
)
def test_an_answer_that_is_not_understood_is_unclear_and_never_a_refusal(
    status: int, body: Any, code: str
) -> None:
    assert judged(status, body) == AnswerUnclear(code=code)


def test_a_body_that_was_not_read_to_its_end_opens_nothing() -> None:
    assert judged(201, GOOD, problem="too_large") == AnswerUnclear(code="too_large")
    assert judged(200, GOOD, problem="encoded") == AnswerUnclear(code="encoded")


@for_each("status", [408, 409, 425, 429, 500, 502, 503, 504, 599])
def test_trouble_asks_to_come_again(status: int) -> None:
    assert judged(status, GOOD) == RetryLater(code=f"status_{status}")


@for_each("status", [401, 403, 404, 405, 407])
def test_wrong_credentials_and_addresses_tell_nothing_about_the_order(status: int) -> None:
    assert judged(status, {"detail": "no"}) == Denied(status=status)


@for_each(
    ("retry_after", "date", "seconds"),
    [
        ("3", None, 3),
        (" 120 ", None, 120),
        ("Fri, 20 Nov 2026 10:00:30 GMT", "Fri, 20 Nov 2026 10:00:00 GMT", 30),
        ("Fri, 20 Nov 2026 09:00:00 GMT", "Fri, 20 Nov 2026 10:00:00 GMT", 0),
        ("Fri, 20 Nov 2026 10:00:30 GMT", None, 0),
        ("Fri, 20 Nov 2026 10:00:30 -0000", "Fri, 20 Nov 2026 10:00:00 GMT", 0),
        ("-5", None, 0),
        ("1e9", None, 0),
        ("9" * 5_000, None, 0),
        ("٣", None, 0),
        ("Fri, 20 Nov 99999999999999999999 10:00:00 GMT", "Fri, 20 Nov 2026 10:00:00 GMT", 0),
        ("Fri, 20 Nov 2026 10:00:30 +99999999999999", "Fri, 20 Nov 2026 10:00:00 GMT", 0),
    ],
)
def test_the_wait_that_the_service_asks_for(retry_after: str, date: Any, seconds: int) -> None:
    result = judged(503, retry_after=retry_after, date=date)
    assert result == RetryLater(code="status_503", wait_s=seconds)


@for_each(
    ("body", "reason"),
    [
        ({"title": "Bad", "detail": "The amount is too small."}, "The amount is too small."),
        ({"title": "Too small", "detail": " \n"}, "Too small"),
        ({"detail": 7}, "HTTP 422 Unprocessable Content"),
        ([], "HTTP 422 Unprocessable Content"),
        (b"<html>no</html>", "HTTP 422 Unprocessable Content"),
        ({"detail": "x" * 70_000}, "HTTP 422 Unprocessable Content"),
        ({"detail": "a\u0000b\u001b[31mc\u202ed\u2028e\nf"}, "a b [31mc d e f"),
        ({"detail": f"{PHONE} has no wallet"}, "*** has no wallet"),
        ({"detail": "no wallet at +254 712 345-678, call"}, "no wallet at ***, call"),
        ({"detail": "no wallet at 0712345678"}, "no wallet at ***"),
        ({"detail": "no wallet at 2547\u200b12345678"}, "no wallet at ***"),
        ({"detail": f"token {TOKEN} may not"}, "token *** may not"),
        ({"detail": "x" * 400}, "x" * 299 + "…"),
        ({"detail": "x" * 289 + " " + PHONE}, "x" * 289 + " ***"),
    ],
)
def test_a_refusal_keeps_the_services_words_harmless_and_bounded(body: Any, reason: str) -> None:
    result = judged(422, body)
    assert isinstance(result, SessionRefused)
    assert result.reason.replace("Entity", "Content") == reason


def test_an_answer_that_repeats_the_phone_number_is_kept_without_it() -> None:
    body = GOOD | {"customer": {"phone": PHONE}, "phone_number": int(PHONE)}
    result = judged(201, body)
    assert isinstance(result, Opened)
    assert PHONE not in result.details
    assert kept_checkout_url(result.details, API) == GOOD["checkout_url"]


def test_a_long_answer_is_kept_as_what_was_read_of_it() -> None:
    result = judged(201, GOOD | {"terms": "x" * 9_000})
    assert isinstance(result, Opened)
    assert len(result.details) < 200
    assert kept_checkout_url(result.details, API) == GOOD["checkout_url"]


def test_a_checkout_url_with_the_phone_number_is_given_once_and_not_kept() -> None:
    result = judged(201, GOOD | {"checkout_url": f"https://pay.test/?p={PHONE}"})
    assert isinstance(result, Opened)
    assert result.checkout_url == f"https://pay.test/?p={PHONE}"
    assert kept_checkout_url(result.details, API) is None


@for_each("url", ["javascript:alert(1)", "//evil.test", "https://a@b.test/", 7, None])
def test_a_checkout_url_must_be_a_web_address(url: Any) -> None:
    result = judged(201, GOOD | {"checkout_url": url})
    assert isinstance(result, Opened)
    assert result.checkout_url is None


@for_each("text", ["soon", 1_763_632_800, None, "2026-02-30T00:00:00Z"])
def test_an_expiry_that_cannot_be_read_is_none(text: Any) -> None:
    result = judged(201, GOOD | {"expires_at": text})
    assert isinstance(result, Opened)
    assert result.expires_at is None


def test_another_service_is_one_value_of_its_own() -> None:
    def read(answer: Any) -> SessionAnswer:
        data = (answer or {}).get("data", {})
        return SessionAnswer(data.get("id"), data.get("pay"), data.get("ends"), data.get("for"))

    api = SessionApi(accepted=frozenset({202}), read=read)
    data = {"id": "s-9", "pay": "https://pay.test/s-9", "ends": EXPIRES, "for": "ORD-1"}
    result = judged(202, {"data": data}, api)
    assert isinstance(result, Opened)
    assert (result.session, result.checkout_url) == ("s-9", "https://pay.test/s-9")
    assert result.expires_at == parse_instant(EXPIRES)
    assert kept_checkout_url(result.details, api) == "https://pay.test/s-9"
    masked = judged(202, {"data": data, "x": PHONE}, api)
    assert isinstance(masked, Opened)
    assert kept_checkout_url(masked.details, api) == "https://pay.test/s-9"
    assert judged(202, {"data": data | {"for": "ORD-2"}}, api) == AnswerUnclear(code="other_order")


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.just(PHONE) | st.just(TOKEN),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
_NAMES = st.sampled_from(["reference", "detail", "title", "checkout_url", "expires_at", "order"])


@given(st.integers(100, 599), st.dictionaries(_NAMES, _VALUES) | st.binary())
def test_no_answer_raises_or_brings_a_secret_into_what_is_kept(status: int, body: Any) -> None:
    result = judged(status, body)
    kept = [getattr(result, name, "") for name in ("session", "reason", "details", "code")]
    assert not any(secret in "".join(kept) for secret in (PHONE, TOKEN))
    assert isinstance(result, Opened) <= (status in API.accepted)


@for_each(
    ("token", "environment", "foreign"),
    [
        ("live_4f1d", "sandbox", True),
        ("sk_live_4f1d", "sandbox", True),
        ("SK_LIVE_4F1D", "sandbox", True),
        ("live_4f1d", "live", False),
        ("sandbox_4f1d", "live", True),
        ("pk_test_4f1d", "live", True),
        ("sandbox_4f1d", "sandbox", False),
        ("4f1d9c", "live", False),
        ("4f1d9c", "sandbox", False),
        ("olive_4f1d", "sandbox", False),
    ],
)
def test_a_token_of_the_other_environment_is_recognized(
    token: str, environment: str, foreign: bool
) -> None:
    assert API.refuses(token, environment=environment) == foreign
