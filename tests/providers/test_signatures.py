"""Verification: which requests are genuine, and why the others are not."""

import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.providers.request import Incoming
from app.providers.source import Refusal
from reconcile.instants import EARLIEST, SECOND, Instant
from tests.providers.builders import NOW, OTHER_SECRET, SECRET, Request, refused, source
from tests.rows import for_each
from tests.searching import examples

STRANGER = b"v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc="
FIXED = settings(derandomize=True, database=None, max_examples=examples(200))
IDS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=255)


@for_each(
    ("change", "reason"),
    [
        ({"webhook_signature": None}, "signature_missing"),
        ({"webhook_signature": b""}, "signature_missing"),
        ({"webhook_signature": [b"", b""]}, "signature_missing"),
        ({"webhook_signature": STRANGER}, "signature_mismatch"),
        ({"webhook_signature": b"v1,"}, "signature_mismatch"),
        ({"webhook_signature": b"v1"}, "signature_mismatch"),
        ({"webhook_signature": b","}, "signature_mismatch"),
        ({"webhook_signature": b"   "}, "signature_mismatch"),
        ({"webhook_signature": b"v1,\xff\xfe"}, "signature_mismatch"),
        ({"webhook_signature": b"v1,dawfeoifkpqwoekfpqoekf"}, "signature_mismatch"),
        ({"webhook_id": None}, "signature_missing"),
        ({"webhook_id": b"evt_02"}, "signature_mismatch"),
        ({"webhook_id": b""}, "signature_mismatch"),
        ({"webhook_id": [b"evt_01", b"evt_01"]}, "signature_mismatch"),
        ({"webhook_id": [b"evt_01", b"evt_02"]}, "signature_mismatch"),
        ({"webhook_timestamp": None}, "timestamp_missing"),
        ({"webhook_timestamp": [b"1614265330", b"1614265330"]}, "timestamp_missing"),
        ({"webhook_timestamp": b"1614265331"}, "signature_mismatch"),
    ],
)
def test_a_request_with_other_headers_is_refused(change: dict[str, Any], reason: str) -> None:
    assert Request.signed().having(**change).reason() == reason


def test_a_genuine_request_is_refused_with_one_byte_more_or_without_headers() -> None:
    request = Request.signed(b'{"a": 1}')
    assert request.refusal() is None
    assert replace(request, body=b'{"a": 1}\n').reason() == "signature_mismatch"
    assert replace(request, headers=()).reason() == "signature_missing"


@for_each(
    "before",
    [
        b"v1," + b"A" * 43 + b"!",
        b"v1,=",
        b"nonsense",
        b"v1",
        b",,,",
        b"v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg==",
        b"\xff\xff",
        STRANGER,
    ],
)
@for_each("gap", [b" ", b"  ", b"\t"])
def test_no_other_entry_hides_a_good_signature(before: bytes, gap: bytes) -> None:
    request = Request.signed()
    good = request.header("webhook-signature")
    assert request.having(webhook_signature=before + gap + good).refusal() is None
    assert request.having(webhook_signature=good + gap + before).refusal() is None
    assert request.having(webhook_signature=[before, good]).refusal() is None
    assert request.having(webhook_signature=[good, before]).refusal() is None


@for_each("label", [b"v2", b"v1a", b"V1", b"", b"v", b"v11", b"v0"])
def test_the_right_signature_under_another_label_is_refused(label: bytes) -> None:
    request = Request.signed()
    mac = request.header("webhook-signature").removeprefix(b"v1,")
    assert request.having(webhook_signature=label + b"," + mac).reason() == "signature_mismatch"
    assert request.having(webhook_signature=mac).reason() == "signature_mismatch"


@for_each(
    "respell",
    [
        lambda mac: mac.rstrip(b"="),
        lambda mac: mac + b"=",
        lambda mac: mac[:-2] + bytes([mac[-2] + 1]) + b"=",
        lambda mac: mac[:20] + b"\n" + mac[20:],
        lambda mac: mac + b",",
        lambda mac: mac.replace(b"+", b"-").replace(b"/", b"_"),
    ],
)
def test_base64_has_one_spelling(respell: Any) -> None:
    # This body's signature holds both + and /, so that every respelling differs.
    request = Request.signed(b'{"n": 4}')
    mac = request.header("webhook-signature").removeprefix(b"v1,")
    assert b"+" in mac
    assert b"/" in mac
    assert request.having(webhook_signature=b"v1," + respell(mac)).reason() == "signature_mismatch"


def test_any_secret_may_match_any_signature() -> None:
    old, new, both = source(SECRET), source(OTHER_SECRET), source(OTHER_SECRET, SECRET)
    for signer in (old, new, both):
        assert replace(Request.signed(by=signer), source=both).refusal() is None
    assert (
        Request.signed(by=both).source.verify(
            Incoming(Request.signed(by=new).headers, b"{}"), now=NOW
        )
        is None
    )
    assert replace(Request.signed(by=new), source=old).reason() == "signature_mismatch"
    several = Request.signed(by=new).header("webhook-signature") + b" " + STRANGER
    mixed = Request.signed(by=old).having(
        webhook_signature=several + b" " + Request.signed(by=old).header("webhook-signature")
    )
    assert mixed.refusal() is None


def test_a_mismatch_says_how_many_secrets_were_tried() -> None:
    one = refused(replace(Request.signed(), source=source(OTHER_SECRET)).refusal())
    assert " was made with the secret over " in one.sentence
    two = refused(replace(Request.signed(by=source(OTHER_SECRET, SECRET)), body=b"[]").refusal())
    assert " was made with any of the 2 secrets over " in two.sentence


def test_the_newest_secret_signs() -> None:
    request = Request.signed(by=source(OTHER_SECRET, SECRET))
    assert replace(request, source=source(OTHER_SECRET)).refusal() is None
    assert replace(request, source=source(SECRET)).reason() == "signature_mismatch"


@FIXED
@given(body=st.binary(max_size=300), event_id=IDS, seconds=st.integers(0, 10**11))
def test_a_signed_request_verifies_at_its_time(body: bytes, event_id: str, seconds: int) -> None:
    now = EARLIEST + seconds * SECOND
    request = replace(Request.signed(body, at=now, event_id=event_id), now=now)
    assert request.refusal() is None


@FIXED
@given(data=st.data(), body=st.binary(min_size=1, max_size=300), event_id=IDS)
def test_one_flipped_bit_is_refused(data: st.DataObject, body: bytes, event_id: str) -> None:
    request = Request.signed(body, event_id=event_id)
    part = data.draw(st.sampled_from(["body", "webhook_id", "webhook_timestamp"]))
    old = body if part == "body" else request.header(part.replace("_", "-"))
    bit = data.draw(st.integers(0, len(old) * 8 - 1))
    new = bytes(byte ^ (1 << bit % 8 if place == bit // 8 else 0) for place, byte in enumerate(old))
    forged = replace(request, body=new) if part == "body" else request.having(**{part: new})
    assert forged.reason() == "signature_mismatch"


NAMES = st.sampled_from([b"webhook-id", b"webhook-timestamp", b"webhook-signature", b"host"])
VALUES = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(
        [b"v1,", b"v1", b"1614265330", b"NaN", b"", b" ", STRANGER, b"v1,\x00", b"v1,A"]
    ),
)


@pytest.mark.slow
@settings(FIXED, max_examples=examples(500))
@given(
    headers=st.lists(st.tuples(st.one_of(NAMES, st.binary(max_size=20)), VALUES), max_size=8),
    body=st.binary(max_size=50),
    now=st.integers(0, 253_402_300_799_999_999).map(Instant),
)
@example(headers=[(b"webhook-signature", b"\xff" * 9000)], body=b"", now=EARLIEST)
def test_arbitrary_bytes_are_refused_without_an_exception(
    headers: Any, body: bytes, now: Instant
) -> None:
    assert isinstance(source().verify(Incoming(headers, body), now=now), Refusal)


@pytest.mark.parametrize("change", ["webhook_signature", "webhook_id", "webhook_timestamp", "body"])
def test_no_sentence_quotes_the_request_a_secret_or_a_signature(change: str) -> None:
    request = Request.signed(b"planted-body")
    if change == "body":
        forged = replace(request, body=b"planted-other")
    else:
        forged = request.having(**{change: b"planted-header"})
    refusal = forged.refusal()
    assert refusal is not None
    for hidden in ("planted", SECRET, SECRET[6:], request.header("webhook-signature").decode()[3:]):
        assert hidden not in refusal.sentence
    assert refusal.sentence.endswith(".")


def test_sixty_four_kilobytes_of_signatures_are_judged_within_a_second() -> None:
    request = Request.signed()
    flood = b" ".join([STRANGER] * 1400 + [request.header("webhook-signature")])
    began = time.process_time()
    assert request.having(webhook_signature=flood).refusal() is None
    assert time.process_time() - began < 1
