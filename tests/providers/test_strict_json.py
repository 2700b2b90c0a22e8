"""JSON is read exactly or not at all."""

import json
import sys
import time
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.reading import Unreadable
from app.core.strict_json import NumberText, parse, parse_written
from tests.rows import for_each

FIXED = settings(derandomize=True, database=None)


@pytest.mark.parametrize(("body", "place"), [(b"x", 1), (b'{"a": 1,}', 9), (b"{} x", 4)])
def test_the_sentence_says_where_the_json_breaks(body: bytes, place: int) -> None:
    with pytest.raises(Unreadable, match=rf"at character {place}$"):
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


@for_each(
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
