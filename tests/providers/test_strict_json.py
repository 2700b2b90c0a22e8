"""JSON is read exactly or not at all."""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.reading import Unreadable
from app.core.strict_json import MAX_DEPTH, NumberText, parse, parse_written

FIXED = settings(derandomize=True, database=None)


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"", "empty"),
        (b" \r\n\t", "empty"),
        (b"{", "not JSON"),
        (b'{"a": 1} x', "not JSON"),
        (b"{'a': 1}", "not JSON"),
        (b'{"a": 1,}', "not JSON"),
        (b'{"a": 01}', "not JSON"),
        (b'{"a": .5}', "not JSON"),
        (b'{"a": +5}', "not JSON"),
        (b'{"a": 0x1}', "not JSON"),
        (b'{"a": "\n"}', "not JSON"),
        (b'{"a": "\x00"}', "not JSON"),
        (b'{"a": "\\x41"}', "not JSON"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b"a=1&b=2", "not JSON"),
        (b"<xml/>", "not JSON"),
        ("{}".encode("utf-16-le"), "not JSON"),
        ("{}".encode("utf-16"), "not UTF-8"),
        ("{}".encode("utf-32"), "not UTF-8"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b'{"a": "\xed\xa0\x80"}', "not UTF-8"),
        (b'{"a": "\xc0\x80"}', "not UTF-8"),
        (b'{"a": 1, "a": 1}', "same key twice"),
        (b'{"a": 1, "\\u0061": 2}', "same key twice"),
        (b'{"x": [{"a": 1, "b": 2, "a": 3}]}', "same key twice"),
        (b'{"a": NaN}', "NaN"),
        (b"[Infinity]", "NaN or Infinity"),
        (b'{"a": -Infinity}', "NaN or Infinity"),
        (b'{"a": 9223372036854775808}', "64 bits"),
        (b'{"a": -9223372036854775809}', "64 bits"),
        (b"1" * 100_000, "64 bits"),
        (b'{"a": 1e99999999999999999999}', "exponent"),
        (b"0." + b"1" * 99, "more than 100 characters"),
        (b"[" * 33 + b"]" * 33, "deeper than 32"),
        (b"[" * 1_000_000, "deeper than 32"),
        (b'{"a":' * 1_000_000, "deeper than 32"),
        (b'"' + b"[" * 40 + b'" ' + b"[" * 33, "deeper than 32"),
    ],
)
def test_an_ambiguous_or_malformed_body_is_unreadable(body: bytes, fault: str) -> None:
    with pytest.raises(Unreadable, match=fault):
        parse(body)


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"{}", {}),
        (b' [1, -2, true, null, "x"] \n', [1, -2, True, None, "x"]),
        (b"1500.00", Decimal("1500.00")),
        (b"0.1", Decimal("0.1")),
        (b"1e3", Decimal("1e3")),
        (b"9223372036854775807", 2**63 - 1),
        (b"-9223372036854775808", -(2**63)),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'{"a": {"b": 1}, "b": {"a": 1}}', {"a": {"b": 1}, "b": {"a": 1}}),
        (b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, json.loads("[" * 32 + "]" * 32)),
        (b'"' + b"[{" * 500 + b'"', "[{" * 500),
        (b'"' + b'\\"[' * 500 + b'"', '"[' * 500),
        (b"[" + b"[]," * 500 + b"[]]", [[]] * 501),
        (b"[" * 31 + b"[],[]" + b"]" * 31, json.loads("[" * 31 + "[],[]" + "]" * 31)),
    ],
)
def test_exact_json_is_read(body: bytes, value: object) -> None:
    parsed = parse(body)
    assert parsed == value
    assert repr(parsed) == repr(value)


@pytest.mark.parametrize(("body", "place"), [(b"x", 1), (b'{"a": 1,}', 9), (b"{} x", 4)])
def test_the_sentence_says_where_the_json_breaks(body: bytes, place: int) -> None:
    with pytest.raises(Unreadable, match=rf"breaks at character {place}$"):
        parse(body)


def test_numbers_are_kept_as_they_are_written() -> None:
    numbers = ["2.00", "-0", "1e3", "9" * 40, "1." + "1" * 98]
    parsed = parse_written(f"[{', '.join(numbers)}]".encode())
    assert parsed == numbers
    assert all(type(number) is NumberText for number in parsed)
    for number in ("1" * 101, "1." + "1" * 99):
        with pytest.raises(Unreadable, match="more than 100 characters"):
            parse_written(number.encode())


def test_depth_is_refused_before_the_interpreters_recursion_limit() -> None:
    deep = sys.getrecursionlimit() * 2
    with pytest.raises(Unreadable, match="deeper"):
        parse(b"[" * deep + b"]" * deep)


@pytest.mark.parametrize(
    "body",
    [
        b"1" * 2**20,
        b"[" + b"9" * 2**20 + b"]",
        b"1." + b"1" * 2**20,
        b"[]" * 33 + b'"' + b'\\"' * 2**18 + b"\\",
        b'"' * 2**20,
        b"[" * 20 + b'"\\' * 2**19,
        b'{"a":"' + b"{" * 2**20,
        b" " * 2**20,
    ],
    ids=["integer", "nested integer", "fraction", "escapes", "quotes", "pairs", "string", "blanks"],
)
def test_a_hostile_megabyte_is_refused_in_linear_time(body: bytes) -> None:
    began = time.process_time()
    with pytest.raises(Unreadable):
        parse(body)
    assert time.process_time() - began < 2


@FIXED
@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_unreadable(body: bytes) -> None:
    with suppress(Unreadable):
        parse(body)


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@FIXED
@given(ANY_JSON)
def test_json_of_the_standard_library_is_read_back_as_it_was(value: object) -> None:
    assert parse(json.dumps(value).encode()) == value


def test_no_sentence_quotes_the_body() -> None:
    for body in (b'{"planted": 1, "planted": 2}', b'{"planted": planted}', b'{"a": "planted'):
        with pytest.raises(Unreadable) as caught:
            parse(body)
        assert "planted" not in str(caught.value)
