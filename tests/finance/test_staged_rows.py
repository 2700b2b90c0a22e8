"""Rows that are staged: sorted, grouped and dropped as a list in memory would be, wherever they are
parted, and with a full disk reported as such."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.errors import StoreUnavailable
from app.finance import staged_rows
from app.finance.staged_rows import Staged

COLUMNS = ("number", "key", "kind", "minor", "source", "payment")

Row = tuple[Any, ...]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few rows count as many."""
    for name, size in (("IN_MEMORY", 7), ("IN_BLOCK", 2), ("AT_ONCE", 3)):
        monkeypatch.setattr(staged_rows, name, size)


@st.composite
def tables(draw: st.DrawFn) -> list[Row]:
    """Build rows of COLUMNS, each with a number of its own, in no order."""
    cells = st.tuples(
        st.sampled_from(["a", "b", "ab", "é", "\U0001f600", "\uffff"]),
        st.sampled_from(["order", "entry"]),
        st.sampled_from([None, -1, 0, 2**62]),
        st.sampled_from([None, "s", "t"]),
        st.sampled_from([None, "p", "q"]),
    )
    rows = draw(st.lists(cells, max_size=40))
    return draw(st.permutations([(number, *row) for number, row in enumerate(rows)]))


def staged_of(rows: list[Row]) -> Staged:
    """Stage rows in two additions."""
    found = Staged(COLUMNS, order=("key", "kind", "number"))
    found.add(rows[: len(rows) // 2])
    found.add(iter(rows[len(rows) // 2 :]))
    return found


def flat(batches: Iterator[list[Row]]) -> list[Row]:
    """Return the rows of batches, none of which is too large."""
    found = list(batches)
    assert all(0 < len(batch) <= 3 for batch in found)
    return [row for batch in found for row in batch]


def in_order(rows: list[Row]) -> list[Row]:
    """Sort rows as SQLite's BINARY and PostgreSQL's "C" sort texts."""
    return sorted(rows, key=lambda row: (row[1].encode(), row[2], row[0]))


def crowd(rows: list[Row], places: tuple[int, ...], at_most: int) -> list[Row]:
    """Return the rows of which more are equal, and that have something in each of these columns."""
    said = itemgetter(*places)
    times = Counter(said(row) for row in rows)
    return [row for row in rows if times[said(row)] > at_most and None not in said(row)]


@settings(deadline=None)
@given(tables(), st.sampled_from([1, 2]))
def test_staged_rows_are_grouped_as_a_list_would_group_them(rows: list[Row], at_most: int) -> None:
    with closing(staged_of(rows)) as staged:
        assert staged.count() == len(rows)
        assert flat(staged.in_order()) == flat(staged.in_order()) == in_order(rows)
        negative = [row for row in in_order(rows) if row[3] is not None and row[3] < 0]
        assert flat(staged.negative("minor")) == negative
        having = [row for row in in_order(rows) if row[4] is not None]
        assert flat(staged.having("source")) == having
        for names, places in ((("key", "kind"), (1, 2)), (("source", "payment"), (4, 5))):
            many, said = crowd(rows, places, at_most), itemgetter(*places)
            firsts = {said(row): min(r[0] for r in many if said(r) == said(row)) for row in many}
            found = list(staged.crowded(names, at_most=at_most))
            assert found == sorted((firsts[said(row)], row[0]) for row in many)
        crowds = list(staged.crowds(("key", "kind")))
        assert [row for each in crowds for row in each] == in_order(crowd(rows, (1, 2), 1))
        assert len({each[0][1:3] for each in crowds}) == len(crowds)


@settings(deadline=None)
@given(tables(), st.sets(st.integers(0, 40)))
def test_rows_that_are_dropped_are_gone_and_others_come_after_them(
    rows: list[Row], gone: set[int]
) -> None:
    with closing(staged_of(rows)) as staged:
        staged.drop(gone)
        rows = [row for row in rows if row[0] not in gone]
        assert flat(staged.in_order()) == in_order(rows)
        staged.drop_without("source")
        rows = [row for row in rows if row[4] is not None]
        assert flat(staged.in_order()) == in_order(rows)
        staged.drop_crowded(("key", "kind"), at_most=2)
        many = crowd(rows, (1, 2), 2)
        rows = [row for row in rows if row not in many]
        more = [(100 + number, "b", "order", 1, None, None) for number in range(9)]
        staged.add(more)
        assert flat(staged.in_order()) == in_order(rows + more)
        assert staged.count() == len(rows) + 9


class Full:
    """A disk without room."""

    def seek(self, *_: int) -> int:
        return 0

    def write(self, _: bytes) -> int:
        raise OSError(28, "No space left on device")


def test_a_full_disk_for_temporary_files_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.TemporaryFile", Full)
    staged = Staged(("number",), order=("number",))
    with pytest.raises(StoreUnavailable, match=r"TMPDIR.*No space left on device"):
        staged.add([(number,) for number in range(8)])
