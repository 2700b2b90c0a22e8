"""The time at which a request was signed: its age in both directions, and invalid timestamps."""

import hashlib
import hmac
from dataclasses import replace
from pathlib import Path

import pytest

from app.providers.request import Incoming, Refusal
from app.providers.source import Source
from reconcile.instants import EARLIEST, MILLISECOND, SECOND, TICK, Instant
from tests.providers.builders import NOW, Request, made, raw, refused
from tests.rows import for_each


@for_each(
    ("seconds", "reason"),
    [
        (-301, "timestamp_too_old"),
        (-300, None),
        (0, None),
        (300, None),
        (301, "timestamp_too_new"),
    ],
)
def test_the_tolerance_is_inclusive_both_ways(seconds: int, reason: str | None) -> None:
    assert Request.signed(at=NOW + seconds * SECOND).reason() == reason


@pytest.mark.parametrize(
    ("microseconds", "reason"),
    [(300_000_001, "timestamp_too_old"), (-300_000_001, "timestamp_too_new")],
)
def test_the_tolerance_ends_at_the_microsecond(microseconds: int, reason: str) -> None:
    assert replace(Request.signed(), now=NOW + microseconds * TICK).reason() == reason


NO_TIMESTAMP = [
    (b"", "is empty"),
    (b"NaN", "not written in digits"),
    (b"Infinity", "not written in digits"),
    (b"hello", "not written in digits"),
    ("\uff11\uff16\uff11\uff14\uff12\uff16\uff15\uff13\uff13\uff10".encode(), "not ASCII"),
    ("\u0661\u0662".encode(), "not ASCII"),
    (b"1614265330\xff", "not ASCII"),
    (b"1614265330.5", "fraction"),
    (b"1.5", "fraction"),
    (b"+1614265330", "sign"),
    (b"-1", "sign"),
    (b"1_614_265_330", "not written in digits"),
    (b"0x6037b5b2", "not written in digits"),
    (b"1.6e9", "not written in digits"),
    (b" 1614265330", "blanks"),
    (b"1614265330 ", "blanks"),
    (b"16142 65330", "blanks"),
    (b"\n", "blanks"),
    (b"1614265330\x00", "not written in digits"),
    (b"1614265330,1614265330", "not written in digits"),
    (b"1234567890123", "more than 12 digits"),
    (b"9" * 13, "more than 12 digits"),
    (b"1614265330000000", "more than 12 digits"),
    (b"1" * 5000, "more than 12 digits"),
]


@for_each(("text", "fault"), NO_TIMESTAMP)
def test_a_signed_text_that_is_not_digits_is_a_missing_timestamp(text: bytes, fault: str) -> None:
    refusal = refused(Request.stamped(text).refusal())
    assert refusal.reason == "timestamp_missing"
    assert fault in refusal.sentence


@for_each(("text", "fault"), NO_TIMESTAMP)
def test_the_signature_is_judged_before_the_timestamp(text: bytes, fault: str) -> None:
    assert Request.signed().having(webhook_timestamp=text).reason() == "signature_mismatch"


def _stamping(folder: Path, **timestamp: object) -> Source:
    """Return a source whose provider signs the header x-time before the body."""
    timestamp = {"where": "header:x-time", **timestamp}
    return made(folder, signature={"signed": "{ts}.{body}"}, timestamp=timestamp)


def _refusal(source: Source, written: bytes, *, now: Instant) -> Refusal | None:
    """Return the verdict on a request that is signed over this timestamp."""
    mac = hmac.new(b"k" * 24, written + b".{}", hashlib.sha256).hexdigest().encode()
    return source.verify(Incoming([(b"x-time", written), (b"x-signature", mac)], b"{}"), now=now)


def test_milliseconds_in_place_of_seconds_are_recognised() -> None:
    refusal = refused(Request.stamped(b"1614265330123").refusal())
    assert refusal.reason == "timestamp_too_new"
    assert "milliseconds where seconds are meant" in refusal.sentence


def test_the_finer_unit_is_recognised_up_to_three_digits_more() -> None:
    year_33658 = EARLIEST + 999_999_999_999 * SECOND
    finer = refused(replace(Request.stamped(b"999999999999000"), now=year_33658).refusal())
    assert "counts milliseconds where seconds are meant" in finer.sentence
    longer = refused(replace(Request.stamped(b"9999999999990000"), now=year_33658).refusal())
    assert "has more than 12 digits" in longer.sentence


def test_microseconds_in_place_of_milliseconds_are_recognised(tmp_path: Path) -> None:
    refusal = refused(_refusal(_stamping(tmp_path, unit="ms"), b"1614265330000000", now=NOW))
    assert "counts microseconds where milliseconds are meant" in refusal.sentence


@pytest.mark.parametrize(
    ("written", "seconds", "fault"),
    [
        (b"2021-02-25T15:02:10Z", 0, None),
        (b"2021-02-25T18:02:10+03:00", 0, None),
        (b"2021-02-25T15:02:10Z", 300, None),
        (b"2021-02-25T15:02:10Z", 301, "is 5 min 1 s old; at most 5 min is allowed"),
        (b"2021-02-25T15:02:10Z", -300, None),
        (b"2021-02-25T15:02:10Z", -301, "lies 5 min 1 s ahead of our clock"),
        (b"2021-02-25T15:02:10", 0, "is no date and time with its zone"),
        (b"1614265330", 0, "is no date and time with its zone"),
        (b"\xff", 0, "is no date and time with its zone"),
    ],
)
def test_a_signed_date_and_time_has_a_zone_and_a_bounded_age(
    written: bytes, seconds: int, fault: str | None, tmp_path: Path
) -> None:
    source = _stamping(tmp_path, unit="iso8601")
    refusal = _refusal(source, written, now=NOW + seconds * SECOND)
    assert (refusal is None) == (fault is None)
    assert (fault or "") in (refusal.sentence if refusal else "")


def test_leading_zeros_of_a_timestamp_are_signed() -> None:
    assert Request.stamped(b"001614265330").refusal() is None
    padded = Request.signed().having(webhook_timestamp=b"001614265330")
    assert padded.reason() == "signature_mismatch"


def test_the_extreme_timestamps_are_too_old_or_too_new() -> None:
    assert Request.stamped(b"0").reason() == "timestamp_too_old"
    assert Request.stamped(b"9" * 12).reason() == "timestamp_too_new"


def test_a_refusal_for_age_says_the_age_and_the_bound() -> None:
    refusal = refused(Request.signed(at=NOW - 3600 * SECOND).refusal())
    assert "1 h old; at most 5 min is allowed" in refusal.sentence


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        (b"1614265330", None),
        (b"1614265330999", None),
        (b"1614265029", "timestamp_too_old"),
        (b"1614265029999", "timestamp_too_old"),
        (b"1614265631001", "timestamp_too_new"),
        (b"161426533000", "timestamp_too_new"),
        (b"1614265330000000", "timestamp_missing"),
    ],
)
def test_thirteen_digits_and_more_are_milliseconds_where_both_are_allowed(
    written: bytes, reason: str | None, tmp_path: Path
) -> None:
    refusal = _refusal(_stamping(tmp_path, unit="s_or_ms"), written, now=NOW)
    assert (refusal and refusal.reason) == reason


@pytest.mark.parametrize(
    ("milliseconds", "reason"),
    [
        (60_000, None),
        (60_001, "timestamp_too_old"),
        (-5_000, None),
        (-5_001, "timestamp_too_new"),
    ],
)
def test_past_and_future_have_their_own_tolerance(
    milliseconds: int, reason: str | None, tmp_path: Path
) -> None:
    source = _stamping(tmp_path, unit="ms", past_s=60, future_s=5)
    signed = source.sign(b"{}", event_id="evt_01", now=NOW)
    assert dict(signed)["x-time"] == "1614265330000"
    now = NOW + milliseconds * MILLISECOND
    refusal = source.verify(Incoming(raw(signed), b"{}"), now=now)
    assert (refusal and refusal.reason) == reason
