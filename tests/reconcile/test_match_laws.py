"""The laws of matching, on generated worlds. `TALLYHOOK_LONG=1` searches a hundred times longer."""

import os
import pickle
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reconcile.instants import TICK
from reconcile.matching.breaks import Break
from reconcile.matching.control import FAMILIES, Bucket, Control
from reconcile.matching.decide import Decision, Match
from reconcile.matching.funds import Capture
from reconcile.matching.match import Matching
from reconcile.matching.rows import BookRow, StatementRow, TakingRow, ledger_line_row
from reconcile.matching.tally import COUNT, KeepingTally, Tally
from tests.reconcile.books_strategies import World, worlds
from tests.reconcile.books_truth import (
    AS_OF,
    START,
    Case,
    Month,
    Row,
    book_row,
    in_key_order,
    statement_row,
)

pytestmark = pytest.mark.slow

EXAMPLES = 20_000 if os.environ.get("TALLYHOOK_LONG") else 10

search = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="TALLYHOOK_LONG" not in os.environ,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@search
@given(worlds(), st.randoms(use_true_random=False))
def test_the_rows_of_a_place_are_those_that_are_counted_there(
    world: World, chance: random.Random
) -> None:
    """A matching that keeps rows comes to the same without its short way for plain orders."""
    plain = Case("PLAIN-1", 1_500, START).pays().books().settles()
    world = world + World(
        takings=tuple(map(ledger_line_row, plain.takings)),
        book=tuple(map(book_row, plain.book)),
        lines=tuple(map(statement_row, plain.lines)),
    )
    decisions, control = world.decided()
    for line in chance.sample(control.lines, min(3, len(control.lines))):
        keeping = KeepingTally(
            world.rules.currency,
            side=line.side,
            bucket=line.bucket,
            currency=line.currency,
            most=1_000,
        )
        assert world.decided(keeping=keeping) == (decisions, control)
        assert len(keeping.rows) == line.count


@search
@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_of_rows_of_one_key_does_not_matter(world: World, chance: random.Random) -> None:

    def shuffled(rows: Sequence[Row]) -> tuple[Row, ...]:
        return tuple(chance.sample(rows, len(rows)))

    other = replace(
        world,
        takings=shuffled(world.takings),
        book=shuffled(world.book),
        lines=shuffled(world.lines),
    )
    assert repr(other.decided()) == repr(world.decided())


class Watched(Tally):
    """A tally that remembers which rows were placed."""

    def __init__(self, home: str) -> None:
        super().__init__(home)
        self.rows: list[tuple[str, object]] = []

    def place_orders(self, rows: Iterable[TakingRow], bucket: Bucket) -> None:
        rows = list(rows)
        self.rows += [("order", row.order) for row in rows]
        super().place_orders(rows, bucket)

    def place_book(self, rows: Iterable[BookRow], bucket: Bucket) -> None:
        rows = list(rows)
        self.rows += [("line", row.line_id) for row in rows]
        super().place_book(rows, bucket)

    def place_captures(self, captures: Iterable[Capture], bucket: Bucket) -> None:
        captures = list(captures)
        self.rows += [("capture", each) for each in captures]
        super().place_captures(captures, bucket)

    def place_lines(self, rows: Iterable[StatementRow], bucket: Bucket) -> None:
        rows = list(rows)
        self.rows += [("line", row.line_id) for row in rows]
        super().place_lines(rows, bucket)


@search
@given(world=worlds())
def test_every_row_stands_in_exactly_one_bucket_and_the_sums_tie(world: World) -> None:
    """No row is placed twice or forgotten, and every equation holds."""
    with pytest.MonkeyPatch.context() as patch:
        made: list[Watched] = []

        def watched(home: str) -> Watched:
            made.append(Watched(home))
            return made[-1]

        patch.setattr("reconcile.matching.match.Tally", watched)
        _, control = world.decided()
    (tally,) = made
    times = Counter(tally.rows)
    captures = sum(count for (kind, _), count in times.items() if kind == "capture")
    plain = sum(sums[COUNT] for sums in tally.plain.values())
    settled = sum(sums[COUNT] for sums in tally.settled.values())
    assert all(count == 1 for (kind, _), count in times.items() if kind != "capture")
    assert captures + settled == sum(r.count for r in control.read if r.side == "settlement")
    rows = len(world.takings) + len(world.book) + len(world.lines)
    assert times.total() - captures + 2 * plain + settled == rows
    assert control.holds, [tie for tie in control.ties() if not tie.holds]


@search
@given(worlds())
def test_a_line_is_claimed_once_and_an_identity_is_given_once(world: World) -> None:
    decisions, _ = world.decided()
    claimed = Counter(line for each in decisions if isinstance(each, Match) for line in each.lines)
    assert all(count == 1 for count in claimed.values())
    names = Counter(each.identity for each in decisions)
    assert all(count == 1 for count in names.values()), decisions


@search
@given(worlds())
def test_the_breaks_add_up_to_the_totals_of_breaks(world: World) -> None:
    decisions, control = world.decided()
    breaks = [each for each in decisions if isinstance(each, Break)]
    counted = Counter((each.cause, each.money.currency) for each in breaks)
    assert counted == {(each.cause, each.currency): each.count for each in control.breaks}
    assert sum(each.money.minor for each in breaks) == sum(e.minor for e in control.breaks)
    assert all(each.money.minor >= 0 for each in breaks)


@search
@given(worlds())
def test_an_unrelated_order_changes_nothing_else(world: World) -> None:
    plain = _rows(Case("ZZ-77", 77_700, AS_OF).pays().books().settles())
    lonely = _rows(Case("ZZ-88", 88_800, AS_OF - 50 * TICK).books(currency="USD"))
    decisions, _ = world.decided()
    assert _words((world + plain).decided()[0]) == _words(decisions)
    others = [each for each in (world + lonely).decided()[0] if _order(each) != "ZZ-88"]
    assert _words(others) == _words(decisions)


CUTS = st.sampled_from([["a1"], ["a12"], ["a1-2"], ["b"], ["a1", "a1-2", "a12", "b"]])


@search
@given(worlds(), CUTS)
def test_matched_in_parts_is_matched_as_a_whole(world: World, cuts: list[str]) -> None:
    """Ranges of keys, each in a matching of its own, give what one matching gives."""
    assert in_parts(world, cuts) == as_a_whole(world)


@search
@given(worlds(), CUTS, st.integers(0, 2))
def test_so_it_is_where_the_parts_leave_more_than_there_is_room_for(
    world: World, cuts: list[str], room: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reconcile.matching.funds.MOST_LEFT", room)
        whole = as_a_whole(world)
    assert in_parts(world, cuts, room=room) == whole


def as_a_whole(world: World) -> tuple[list[str], Control]:
    decisions, control = world.decided()
    return sorted(_words(decisions)), control


def in_parts(world: World, cuts: list[str], *, room: int = 99) -> tuple[list[str], Control]:
    """Match ranges of keys apart and absorb them. `room`: of the absorbing matching."""
    parts, found = list[bytes](), list[Decision]()
    for first, beyond in pairwise(["", *cuts, "\U0010ffff"]):
        part = world.matching()
        found += part.by_key(
            takings=_between(world.takings, first, beyond),
            book=_between(world.book, first, beyond),
            statements=_between(world.lines, first, beyond),
        )
        parts.append(pickle.dumps(part.part()))
    whole = world.matching()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reconcile.matching.funds.MOST_LEFT", room)
        for each in parts:
            whole.absorb(pickle.loads(each))
        found += whole.rest()
    return sorted(_words(found)), whole.control()


@search
@given(worlds(), st.sampled_from(["a1", "a12", "b"]))
def test_totals_of_parts_add_up(world: World, cut: str) -> None:
    parts = []
    for below in (True, False):
        part = replace(
            world,
            takings=tuple(_range(world.takings, cut, below=below)),
            book=tuple(_range(world.book, cut, below=below)),
            lines=tuple(_range(world.lines, cut, below=below)),
        )
        parts.append(part.decided()[1])
    added = parts[0] + parts[1]
    assert added.holds
    assert added == parts[1] + parts[0]
    _, whole = world.decided()
    assert added.read == whole.read


def test_a_stream_that_is_not_sorted_is_refused() -> None:
    month = Month(orders=40, each=0)
    for name in ("takings", "book", "statements"):
        streams = {each: list(getattr(month, each)()) for each in ("takings", "book", "statements")}
        streams[name][10], streams[name][20] = streams[name][20], streams[name][10]
        matching = World((), (), ()).matching()
        with pytest.raises(ValueError, match="not in the order of their keys"):
            list(matching.decide(**streams))


def test_a_row_that_was_counted_and_not_placed_breaks_the_ties(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    month = Month(orders=100, each=1)
    for name in ("place_orders", "place_book", "place_captures", "place_lines"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Tally, name, lambda self, rows, bucket: None)
            assert not _control(month).holds
    assert _control(month).holds


def test_every_bucket_is_of_one_family() -> None:
    assert set(FAMILIES.values()) == {"matched", "waiting", "break"}


def _control(month: Month) -> Control:
    matching: Matching = World((), (), ()).matching()
    for _ in matching.decide(
        takings=month.takings(), book=month.book(), statements=month.statements()
    ):
        pass
    return matching.control()


def _rows(case: Case) -> World:
    return World(
        takings=tuple(map(ledger_line_row, case.takings)),
        book=tuple(map(book_row, case.book)),
        lines=tuple(map(statement_row, case.lines)),
    )


def _order(decisions: Decision) -> str | None:
    return decisions.order


def _words(decisions: Iterable[Decision]) -> list[str]:
    """Return the reports without candidates, which may be other orders' lines."""
    return [repr(replace(d, candidates=()) if isinstance(d, Break) else d) for d in decisions]


def _between(rows: Iterable[Row], first: str, beyond: str) -> Iterator[Row]:
    return iter([row for row in in_key_order(rows) if first <= row.key < beyond])


def _range(rows: Iterable[Row], cut: str, *, below: bool) -> Iterator[Row]:
    return iter([row for row in in_key_order(rows) if (row.key < cut) == below])
