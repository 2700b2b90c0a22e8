"""The pieces that measure sealing, at a tiny size."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from app.receiving import append_store
from app.sealing.leaf_store import DELIVERY
from tests.bench.load import Leg
from tests.bench.long_log import Proved, prove_in_a_process, write_long_log
from tests.bench.sealing import (
    Beside,
    Sealed,
    alone,
    alone_figures,
    proof_figures,
    ratio_figure,
)
from tests.bench.unsealed import nothing

LEG = Leg(sent=9, counted=9, refused=[], seconds=1.0, p50_ms=1.0, p99_ms=2.0, generator_cpu=0.1,
          server_cpu=0.2)  # fmt: skip


def test_leaves_of_a_long_log_are_proved_and_a_changed_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "long.db"
    write_long_log(path, leaves=600)
    proved = prove_in_a_process(path, count=20)
    assert (proved.leaves, len(proved.ms), proved.hold) == (600, 20, True)
    assert all(figure.holds for figure in proof_figures(proved))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE log_nodes SET hash = zeroblob(32)")
        connection.commit()
    assert not prove_in_a_process(path, count=20).hold


def test_the_sealer_alone_seals_all_and_that_verifies(tmp_path: Path) -> None:
    done = alone(tmp_path, orders=20)
    assert (done.leaves, done.fits) == (80, True)
    assert not alone_figures(replace(done, fits=False))[0].holds


def test_the_ratio_is_of_medians_and_wants_everything_sealed() -> None:
    slow = Sealed(leg=replace(LEG, seconds=2.0), waiting=3, settling=0.5)
    done = Beside(sealing=[slow] * 3, without=[LEG] * 3)
    assert ratio_figure(done).value == pytest.approx(0.5)
    fast = Beside(sealing=[replace(slow, leg=LEG)] * 3, without=[LEG] * 3)
    assert ratio_figure(fast).holds
    assert not ratio_figure(replace(fast, unsealed=1)).holds


def test_proofs_are_judged_by_the_slow_ones() -> None:
    ms = [1.0] * 90 + [60.0] * 10
    proved = Proved(leaves=9, ms=ms[::-1], before_mib=1, peak_mib=2, hold=True, database_bytes=1)
    time, memory = proof_figures(proved)
    assert (time.value, time.holds, memory.value) == (60.0, False, 1)


def test_the_side_without_sealing_puts_nothing_in_the_place_of_marks() -> None:
    assert callable(append_store.mark_unsealed)  # type: ignore[attr-defined] # what it replaces
    nothing("a connection", DELIVERY, ["dlv_1"])
