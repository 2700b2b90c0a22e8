"""Everything is reported and exported while deliveries come: all are accepted, and the receiver,
which does not do that work, does not grow."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.core.clock import SystemClock
from app.core.ids import new_secret
from reconcile.instants import DAY, format_instant
from tests.bench.dataset import fill
from tests.bench.machine import rss_mib
from tests.bench.orders import Stretch
from tests.bench.processes import DATABASE, environment, server
from tests.bench.requests import secret_text, source
from tests.floods.flood import a_process, told
from tests.floods.steady import Steady
from tests.forking import start

RATE = 150
"""Deliveries a second."""

GROWTH_MIB = 50
LOOK_S = 0.25
LONGEST_S = 3_600


@dataclass(frozen=True, slots=True)
class Export:
    """One command: its exit code, seconds, output, and the receiver's peak memory."""

    words: tuple[str, ...]
    code: int
    seconds: float
    written: int
    receiver_mib: float


def exports(folder: Path) -> Iterator[tuple[str, ...]]:
    """Yield the commands that read all orders."""
    now = SystemClock().now()
    period = ("--from", format_instant(now - 9 * DAY), "--to", format_instant(now + DAY))
    yield "orders", "list", "--limit", "100000", "--format", "csv"
    yield "report", "period", *period, "--format", "json"
    yield "report", "period", *period, "--format", "xlsx", "-o", str(folder / "report.xlsx")
    yield "report", "journal", *period


def run(words: Sequence[str], folder: Path, settings: Mapping[str, str], pid: int = 0) -> Export:
    """Run a command in a process of its own, beside the receiver with this pid."""
    out, began, peak = folder / "out", time.monotonic(), 0.0
    with out.open("wb") as file:
        process = start(
            [sys.executable, "-m", "app", *words],
            env=os.environ | settings, stdout=file, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            while process.poll() is None and time.monotonic() - began < LONGEST_S:
                peak = max(peak, rss_mib(pid)) if pid else 0.0
                time.sleep(LOOK_S)
        finally:
            process.kill()
            code = process.wait()
    seconds = time.monotonic() - began
    return Export(tuple(words[:2]), code, seconds, out.stat().st_size, peak)


def exported(folder: Path, *, orders: int, warm_s: float) -> tuple[float, list[Export], Steady]:
    """Return the receiver's memory before, each export, and the deliveries meanwhile."""
    secret = secret_text(new_secret())
    settings = environment(folder / DATABASE, secret)
    fill(folder / DATABASE, Stretch(seed=9, first=0, count=orders), source(secret))
    assert run(("refold",), folder, settings).code == 0
    with server(["app", "serve", "--port"], log=folder / "serve.log", env=settings) as target:
        provider = ("tests.floods.steady", str(target.port), secret, str(RATE))
        with a_process(*provider) as quiet:
            time.sleep(warm_s)
            told(quiet)
        before = rss_mib(target.pid)
        with a_process(*provider, "2") as genuine:
            done = [run(words, folder, settings, target.pid) for words in exports(folder)]
            return before, done, told(genuine)


@pytest.mark.soak
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize(("orders", "warm_s"), [(2_000, 5.0), (200_000, 120.0)])
def test_all_are_taken_meanwhile(orders: int, warm_s: float, tmp_path: Path) -> None:
    before, done, steady = exported(tmp_path, orders=orders, warm_s=warm_s)
    grown = max(each.receiver_mib for each in done) - before
    print(f"{orders:,} orders: {steady}, receiver {before:.0f} MiB and +{grown:.1f}")
    for each in done:
        print(f"  {' '.join(each.words)}: {each.seconds:.1f} s, {each.written:,} bytes")
    assert [each.code for each in done] == [0] * len(done)
    assert done[0].written > orders // 2 * 40
    assert steady.acknowledged == steady.sent > 0
    assert grown < GROWTH_MIB
