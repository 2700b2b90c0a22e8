"""Work that is made of pieces is done in transactions that are short by the clock."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from app.finance.staged_rows import Staged, chunks
from app.receiving import pace
from app.receiving.pace import SHORT_S, Pace


def test_as_many_pieces_as_fit_by_the_time_of_the_last() -> None:
    found = Pace(first=100, most=1_000)
    found.learn(100, seconds=SHORT_S * 4)
    assert found.size == 25
    found.learn(25, seconds=SHORT_S * 100)
    assert found.size == 1


def test_a_quick_transaction_makes_the_next_twice_as_large_at_most() -> None:
    found, sizes = Pace(first=100, most=1_000), []
    for _ in range(5):
        sizes.append(found.size)
        found.learn(found.size, seconds=0.0)
    assert sizes == [100, 200, 400, 800, 1_000]


def test_a_few_pieces_that_are_left_over_prove_nothing_of_many() -> None:
    found = Pace(first=100, most=1_000)
    found.learn(50, seconds=0.0)
    assert found.size == 100
    found.learn(51, seconds=0.0)
    assert found.size == 200
    found.learn(2, seconds=SHORT_S)
    assert found.size == 200
    found.learn(2, seconds=SHORT_S * 2)
    assert found.size == 1


def test_rows_of_a_file_are_as_many_at_a_time_as_fit_then_and_no_key_is_parted() -> None:
    staged = Staged(("row", "key"), order=("key", "row"))
    staged.add([(number, f"k{number // 3:03}") for number in range(60)])
    found, parts = Pace(first=7, most=7), []
    for part in chunks(staged, found):
        parts.append([key for (key,) in part])
        found.size = 4 if len(parts) == 2 else 7 if len(parts) == 4 else found.size
    assert [len(part) for part in parts] == [6, 6, 3, 3, *[6] * 7]
    assert all(one[-1] != other[0] for one, other in pairwise(parts))
    assert [key for part in parts for key in part] == sorted(f"k{n // 3:03}" for n in range(60))


class SlowStore:
    """A store with a clock: it waits nine seconds for its turn, and a commit takes twice the
    limit."""

    def __init__(self, *, wanted: bool) -> None:
        self.now = 0.0
        self.writer = SimpleNamespace(is_wanted=wanted)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        self.now += 9.0
        yield
        self.now += SHORT_S * 2


@pytest.mark.parametrize("wanted", [True, False])
async def test_the_wait_is_no_work_the_commit_is_and_others_get_as_long_a_rest(
    monkeypatch: pytest.MonkeyPatch, wanted: bool
) -> None:
    rests: list[float] = []

    async def rest(seconds: float) -> None:
        rests.append(round(seconds, 6))

    store: Any = SlowStore(wanted=wanted)
    monkeypatch.setattr(pace, "perf_counter", lambda: store.now)
    monkeypatch.setattr("app.receiving.pace.anyio.sleep", rest)
    found = Pace(first=100, most=1_000)
    async with found.writing(store, pieces=100):
        pass
    assert found.size in {49, 50}
    assert rests == ([SHORT_S * 2] if wanted else [])


@pytest.mark.parametrize(("wanted", "pieces"), [(True, 25), (False, 100)])
def test_what_never_ends_is_done_in_short_transactions_while_others_wait_for_them(
    wanted: bool, pieces: int
) -> None:
    store: Any = SimpleNamespace(writer=SimpleNamespace(was_wanted=wanted))
    found = Pace(first=100, most=100)
    found.learn(100, seconds=SHORT_S * 4)
    assert found.fitting(store) == pieces
