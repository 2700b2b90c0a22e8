"""Whatever a file holds, it ends in rows and sentences."""

import json
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from app.finance.files.presets import recognized
from tests.finance.files.reading import book, statement
from tests.finance.files.test_workbooks import workbook
from tests.searching import examples

BOOK = b"reference,amount,currency,placed_at,status,phone,group,kind\n"
STATEMENT = b"payment_reference,gross,fee,net,currency,settled_at,payout,type\n"
WORKBOOK = workbook(["A", 1.5, "KES", "2026-11-01", 254700000001])
PIECES = st.sampled_from([
    b",", b'"', b"\n", b"\r", b"A-1", b"1.00", b"KES", b"2026-11-01", b"paid", b"=", b"\xff", b"\0",
    b"refund", b"{", b"}", b"\xef\xbb\xbf", b"-", b"9" * 40, b"99999-99-99", b"\xe2\x80\xa8",
])  # fmt: skip


SHAPES = (
    'skip_first = 1\nskip_last = 1\nbrackets = "negative"\n[keep]\ncurrency = ["*"]\n',
    '[fold]\nby = "currency"\n[ignore]\ncurrency = ["-"]\n[joined]\n{date} = ["currency"]\n'
    '[amounts.{money}]\nadd = ["{money}"]\nsubtract = ["{money}"]\n',
)
"""Parts of mappings about rows, and about fields that are made of several columns."""


def ends_well(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for read, money, date in (
            (book, "amount", "placed_at"),
            (statement, "gross", "settled_at"),
        ):
            for shape in ("", *SHAPES):
                mapping = shape.replace("{money}", money).replace("{date}", date)
                _, problems = read(content, mapping, folder=Path(folder))
                assert all(sentence and row >= 1 for row, _, sentence in problems)
        assert all(recognized(path) == [] for path in Path(folder).iterdir())


@settings(max_examples=examples(60))
@given(start=st.sampled_from([b"", BOOK, STATEMENT]), pieces=st.lists(PIECES, max_size=40))
def test_text_of_any_kind(start: bytes, pieces: list[bytes]) -> None:
    ends_well(start + b"".join(pieces))


@settings(max_examples=examples(8))
@given(damage=st.lists(
    st.tuples(st.integers(0, len(WORKBOOK) - 1), st.integers(0, 255)), min_size=1, max_size=6
))  # fmt: skip
def test_workbooks_with_any_bytes_changed(damage: list[tuple[int, int]]) -> None:
    content = bytearray(WORKBOOK)
    for place, byte in damage:
        content[place] = byte
    with tempfile.TemporaryDirectory() as folder:
        _, problems = book(bytes(content), folder=Path(folder))
    assert all(sentence and row >= 1 for row, _, sentence in problems)


@settings(max_examples=examples(30))
@given(values=st.lists(st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from([1e300, 0.1]),
    lambda inner: st.lists(inner, max_size=2), max_leaves=3,
), min_size=3, max_size=3))  # fmt: skip
def test_json_lines_of_any_values(values: list[object]) -> None:

    names = ("reference", "amount", "currency")
    ends_well(json.dumps(dict(zip(names, values, strict=True))).encode())
