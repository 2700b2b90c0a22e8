"""Ids are given once, by threads and by processes that were forked off."""

import re
import subprocess
import sys
from collections.abc import Iterable

import pytest

from app.core.ids import first_id, new_id
from reconcile.instants import MILLISECOND, TICK
from tests.reconcile.build import T
from tests.waiting import PATIENCE_S

MANY = 1_000
"""Several times what is drawn at once."""

FORKING = """
import os
from app.core.ids import new_id

def tell():
    print("\\n".join(new_id("", 0) for _ in range(300)), flush=True)

tell()
for _ in range(3):
    child = os.fork()
    if not child:
        tell()
        os._exit(0)
    os.waitpid(child, 0)
tell()
"""


def test_ids_of_one_millisecond() -> None:
    ids = [new_id("dlv_", T + 999 * TICK) for _ in range(MANY)]
    assert len(set(ids)) == MANY
    assert all(re.fullmatch("dlv_[0-9a-f]{30}", each) for each in ids)
    assert min(ids) >= first_id("dlv_", T)


def test_ids_sort_by_their_milliseconds() -> None:
    ids = [new_id("", T + number * MILLISECOND) for number in range(MANY)]
    assert ids == sorted(ids)


class Raided(list[str]):
    """List from which other threads take everything at once."""

    def extend(self, drawn: Iterable[str]) -> None:
        pass


def test_other_threads_take_all_that_was_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.core.ids._chances", Raided())
    assert len({new_id("", T) for _ in range(9)}) == 9


def test_processes_that_are_forked_off_give_ids_of_their_own() -> None:
    """Parent and children begin with ids drawn but not yet given."""
    process = subprocess.run(
        [sys.executable, "-c", FORKING],
        capture_output=True, check=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    ids = process.stdout.split()
    assert len(set(ids)) == len(ids) == 5 * 300
