"""`signature check` keeps each promise of its description, line by line."""

import base64
import hmac
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.providers.check_signatures import MAX_LINE_BYTES, check_lines, request_lines
from reconcile.instants import EARLIEST, SECOND, Instant
from tests.providers.builders import MINIMAL, profile_file
from tests.rows import for_each
from tests.searching import examples

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NOW = 1_614_265_330
# The published example of Standard Webhooks.
GOOD: dict[str, Any] = {
    "name": "published",
    "profile": "checkout",
    "secret": SECRET,
    "headers": {
        "Webhook-Id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": str(NOW),
        "WEBHOOK-SIGNATURE": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    },
    "body": '{"test": 2432232314}',
    "now": NOW,
}


def verdicts(
    *lines: object, profile: str | None = None, now: Instant = EARLIEST
) -> list[dict[str, Any]]:
    """Return the verdicts on these lines."""
    written = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in lines]
    return [json.loads(line) for line in check_lines(written, profile=profile, now=now)]


def verdict(**change: Any) -> dict[str, Any]:
    """Return the verdict on the published line with members replaced. ... removes one."""
    line = {key: value for key, value in {**GOOD, **change}.items() if value is not ...}
    (only,) = verdicts(line)
    return only


def reason(**change: Any) -> str | None:
    return verdict(**change).get("reason")


def test_a_valid_line_has_its_name_and_nothing_more() -> None:
    assert verdict() == {"name": "published", "valid": True}
    assert verdict(name=...) == {"name": None, "valid": True}


def test_an_invalid_line_has_a_reason_and_a_sentence() -> None:
    seen = verdict(body="{}")
    assert seen.pop("sentence").endswith(".")
    assert seen == {"name": "published", "valid": False, "reason": "signature_mismatch"}


PAIRS = [[name, value] for name, value in GOOD["headers"].items()]


@for_each(
    "change",
    [
        {"headers": PAIRS},
        {"headers": [["Webhook-Signature", "v1,AAAA"], *PAIRS]},
        {"headers": {**GOOD["headers"], "webhook-timestamp": NOW}},
        {"body": ..., "body_b64": base64.b64encode(GOOD["body"].encode()).decode()},
        {"secret": [SECRET]},
        {"secret": ["", "whsec_AAAA", "not base64!", SECRET]},
        {"secret": {"any": SECRET}},
        {"now": NOW + 300, "method": "POST", "url": "https://shop.example/x"},
        {"now": NOW + 299.9, "tolerance": 300},
        {"now": NOW + 10**6, "tolerance": 10**6},
        {"now": NOW - 10**6, "tolerance": 10**6},
        {"name": None, "method": None, "url": None, "tolerance": None},
    ],
)
def test_a_request_may_be_written_in_each_documented_way(change: dict[str, Any]) -> None:
    assert reason(**change) is None


@for_each(
    ("change", "expected"),
    [
        ({"headers": {}}, "signature_missing"),
        ({"headers": ...}, "signature_missing"),
        ({"headers": [*PAIRS, ["webhook-timestamp", "1"]]}, "timestamp_missing"),
        ({"now": NOW + 301}, "timestamp_too_old"),
        ({"now": NOW - 301}, "timestamp_too_new"),
        ({"now": NOW + 6, "tolerance": 5}, "timestamp_too_old"),
        ({"now": NOW - 6, "tolerance": 5}, "timestamp_too_new"),
        ({"secret": ""}, "signature_mismatch"),
        ({"secret": []}, "signature_mismatch"),
        ({"secret": "whsec_" + "A" * 32}, "signature_mismatch"),
        ({"body": GOOD["body"] + "\n"}, "signature_mismatch"),
        ({"headers": {**GOOD["headers"], "webhook-signature": "v1,\u00e9\uff11"}}, None),
    ],
)
def test_each_reason_is_that_of_the_receiver(change: dict[str, Any], expected: str | None) -> None:
    assert reason(**change) == expected


@pytest.mark.parametrize(
    ("after_s", "tolerance", "expected"),
    [
        (60, ..., None),
        (61, ..., "timestamp_too_old"),
        (-60, ..., None),
        (-61, ..., "timestamp_too_new"),
        (900, 900, None),
        (901, 900, "timestamp_too_old"),
        (-900, 900, None),
        (-901, 900, "timestamp_too_new"),
        (6, 5, "timestamp_too_old"),
        (-6, 5, "timestamp_too_new"),
        (10**8, None, None),
        (-(10**8), None, None),
    ],
)
def test_a_lines_tolerance_replaces_the_age_of_a_named_scheme(
    tmp_path: Path, after_s: int, tolerance: Any, expected: str | None
) -> None:
    base = {
        **{name: MINIMAL[name] for name in ("event", "amounts", "claims")},
        "signature": {"mac": "named:covered_headers"},
        "signature.options": {"past_s": 60, "future_s": 60},
    }
    own, body = profile_file(tmp_path, base=base), "{}"
    mac = hmac.digest(b"k" * 32, f"{NOW}...{body}".encode(), "sha256").hex()
    change = {
        "profile": own,
        "secret": "k" * 32,
        "headers": {"x-hook0-signature": f"t={NOW},h=,v1={mac}"},
        "body": body,
        "now": NOW + after_s,
        "tolerance": tolerance,
    }
    assert reason(**change) == expected


@for_each(
    "line",
    [
        b"",
        b"\n",
        b"{",
        b"\xff",
        b"[" * 100_000,
        b'{"now": ' + b"9" * 5000 + b"}",
        [],
        "text",
        None,
        {**GOOD, "profile": 1},
        {**GOOD, "profile": "nobody"},
        {**GOOD, "profile": "/no/such/file.toml"},
        {**GOOD, "profile": "\x00/x"},
        {**GOOD, "secret": None},
        {**GOOD, "secret": 7},
        {**GOOD, "secret": [7]},
        {**GOOD, "secret": {"a": None}},
        {**GOOD, "secret": "\ud800"},
        {**GOOD, "secret": ["x"] * 101},
        {**GOOD, "headers": "x"},
        {**GOOD, "headers": [["a"]]},
        {**GOOD, "headers": {"a": None}},
        {**GOOD, "body": None},
        {**GOOD, "body": 5},
        {**GOOD, "body": "\ud800"},
        {**GOOD, "body_b64": ""},
        {**GOOD, "body": None, "body_b64": "%%%"},
        {**GOOD, "now": "soon"},
        {**GOOD, "now": True},
        {**GOOD, "now": -1},
        {**GOOD, "now": 1e300},
        {**GOOD, "tolerance": -1},
        {**GOOD, "method": 5},
        {**GOOD, "url": []},
        b'{"profile": "checkout", "secret": "x", "body": "", "now": NaN}',
    ],
)
def test_a_line_that_is_no_request_does_not_stop_the_run(line: object) -> None:
    before, seen, after = verdicts(GOOD, line, GOOD)
    assert before["valid"]
    assert after["valid"]
    assert (seen["valid"], seen["reason"]) == (False, "not_a_request")
    assert seen["sentence"].endswith(".")


@pytest.mark.parametrize("profile", ["stripe", "bitso"])
def test_a_deeply_nested_secret_does_not_stop_the_run(profile: str) -> None:
    """It looks like a JSON Web Key; a shared secret may look so too."""
    line = {**GOOD, "profile": profile, "secret": '{"a":' + "[" * 100_000}
    before, seen, after = verdicts(GOOD, line, GOOD)
    assert (before["valid"], seen["valid"], after["valid"]) == (True, False, True)


def test_a_missing_member_is_reported_by_its_name() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"profile": ...}, "profile is missing"),
        ({"secret": ...}, "secret is missing"),
        ({"secret": None}, "secret is missing"),
        ({"body": ...}, "give either body or body_b64"),
    ]
    for change, said in cases:
        found = verdict(**change)
        assert (found["name"], found["reason"]) == ("published", "not_a_request")
        assert found["sentence"] == f"Not a request: {said}."


@pytest.mark.parametrize("profile", ["pesapal", "mtn_momo"])
def test_an_unsigned_profile_needs_no_secret(profile: str) -> None:
    assert reason(profile=profile, secret=...) is None


def test_profile_and_time_of_the_command_hold_for_lines_without_them() -> None:
    bare = {key: value for key, value in GOOD.items() if key not in ("profile", "now")}
    (seen,) = verdicts(bare, profile="checkout", now=EARLIEST + NOW * SECOND)
    assert seen["valid"]
    assert verdicts(bare)[0]["reason"] == "not_a_request"


def test_a_path_is_accepted_as_a_profile(tmp_path: Path) -> None:
    path = profile_file(tmp_path)
    mac = hmac.digest(b"k", b"{}", "sha256").hex()
    line = {"profile": path, "secret": "k", "headers": {"x-signature": mac}, "body": "{}"}
    assert verdicts(line) == [{"name": None, "valid": True}]
    broken = tmp_path / "other.toml"
    broken.write_text("[signature]\nmac = 'x'\n")
    sentence = verdicts({**line, "profile": str(broken)})[0]["sentence"]
    assert f"{broken}:2: signature.mac" in sentence
    assert "event.id" in sentence


def test_no_sentence_shows_a_secret() -> None:
    for secret in ("planted", "whsec_planted!", ["planted", ""], {"a": "planted"}):
        assert "planted" not in json.dumps(verdict(secret=secret))


@pytest.mark.slow
def test_an_overlong_line_is_skipped() -> None:
    size = 2 * MAX_LINE_BYTES + 7
    stream = io.BytesIO(b"x" * size + b"\n{}\n[]")
    assert list(request_lines(stream)) == [b"", b"{}\n", b"[]"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@settings(derandomize=True, database=None, max_examples=examples(200))
@given(key=st.sampled_from(sorted(GOOD)), value=JSON)
def test_no_value_of_a_member_stops_the_run(key: str, value: object) -> None:
    assert isinstance(verdict(**{key: value})["valid"], bool)


@settings(derandomize=True, database=None, max_examples=examples(200))
@given(lines=st.lists(st.binary(max_size=40), max_size=4))
def test_no_bytes_stop_the_run(lines: list[bytes]) -> None:
    assert len(verdicts(*lines)) == len(lines)
