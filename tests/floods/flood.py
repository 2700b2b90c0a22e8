"""Deliveries in a flood: unsigned requests, large bodies and slow clients, all at once.

One process floods, one delivers genuine events at a steady rate from the same address, this one
holds slow connections open and watches the server's memory and files.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from sqlite3 import connect

from app.config.settings import Settings
from app.core.ids import new_secret
from tests.bench.load import Target, send
from tests.bench.machine import rss_mib
from tests.bench.processes import DATABASE, environment, server
from tests.bench.requests import PATH, secret_text
from tests.floods.slow import SlowClients
from tests.floods.steady import Steady
from tests.forking import Started

UNSIGNED = (
    f"POST {PATH} HTTP/1.1\r\nhost: flood\r\ncontent-length: 400\r\n\r\n".encode() + b"x" * 400
)
FLOODERS = 48
WARM_S = 2.0
WATCH_S = 0.25
LONGEST_S = 600
LINGER_S = 25
"""Seconds after the flood, twice the slow clients' deadline: whoever is still there stays."""

RING_BYTES = Settings().rejections_max_bytes
LINE_BYTES = 400
"""A log line at most, in a flood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flooded:
    """Results of a flood.

    quiet, flooded    the genuine deliveries before it and during it
    unsigned, seconds unsigned requests that were answered, and the time they took
    slow, slow_left   slow connections, and those still open at the end, by kind
    slow_gone_s       seconds until the last of them was closed
    grown_mib         the server's peak memory beyond what it had before
    rejections        kept in the ring: how many, and their bodies' and headers' bytes
    written, log      bytes that database and log grew by, genuine deliveries included
    """

    quiet: Steady
    flooded: Steady
    unsigned: int
    seconds: float
    slow: int
    slow_left: dict[str, int]
    slow_gone_s: float
    grown_mib: float
    rejections: tuple[int, int]
    written: int
    log: int

    @property
    def log_bound(self) -> int:
        """Bytes that the budget allows in this time."""
        minutes = 2 + int(self.seconds // 60)
        return minutes * Settings().log_lines_per_minute * LINE_BYTES


@contextmanager
def a_process(module: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run `python -m MODULE WORDS…` until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *words],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def flood(
    folder: Path,
    *,
    unsigned: int,
    slow: int,
    rate: float,
    warm_s: float = 3 * WARM_S,
    start: Callable[..., Started] = subprocess.Popen,
    **more: str,
) -> Flooded:
    """Start a service with `more` settings, flood it, and measure."""
    secret, log = secret_text(new_secret()), folder / "serve.log"
    settings = environment(folder / DATABASE, secret)
    settings |= {f"TALLYHOOK_{name}": value for name, value in more.items()}
    with server(["app", "serve", "--port"], log=log, env=settings, start=start) as target:
        provider = str(target.port), secret, str(rate)
        with a_process("tests.floods.steady", *provider) as genuine:
            time.sleep(warm_s)
            quiet = told(genuine)
        memory, size, lines = rss_mib(target.pid), _size(folder), log.stat().st_size
        peak, seconds, gone_s, left = 0.0, 0.0, float("inf"), dict[str, int]()
        with (
            a_process("tests.floods.steady", *provider, "2") as genuine,
            SlowClients(target.port, slow) as clients,
            a_process("tests.floods.flood", str(target.port), str(unsigned)) as flooding,
        ):
            began, dripped, now = time.monotonic(), 0.0, 0.0
            while now < LONGEST_S:
                peak = max(peak, rss_mib(target.pid))
                now = time.monotonic() - began
                if now - dripped >= 1:
                    clients.drip()
                    dripped = now
                left = clients.still_open()
                if not any(left.values()):
                    gone_s = min(gone_s, now)
                if flooding.poll() is not None:
                    seconds = seconds or now
                    if not any(left.values()) or now - seconds > LINGER_S:
                        break
                time.sleep(WATCH_S)
            if flooding.poll() != 0:
                raise RuntimeError("the flood broke off: the server closed it or did not answer")
            flooded = told(genuine)
        sql = "SELECT count(*), coalesce(sum(length(body) + length(headers)), 0) FROM rejections"
        with closing(connect(folder / DATABASE)) as reading:
            count, kept = reading.execute(sql).fetchone()
        return Flooded(
            quiet=quiet,
            flooded=flooded,
            unsigned=unsigned,
            seconds=seconds,
            slow=slow,
            slow_left=left,
            slow_gone_s=gone_s,
            grown_mib=peak - memory,
            rejections=(count, kept),
            written=_size(folder) - size,
            log=log.stat().st_size - lines,
        )


def told(genuine: subprocess.Popen[str]) -> Steady:
    """End a steady provider and return its results."""
    out, _ = genuine.communicate("", timeout=60)
    return Steady(**json.loads(out))


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob(f"{DATABASE}*"))


def main(words: Sequence[str]) -> None:
    """Send COUNT unsigned requests to PORT, as fast as they are answered."""
    port, count = map(int, words)
    target = Target(port=port, pid=1)
    send([UNSIGNED], target=target, connections=FLOODERS, warm=1, times=count)


if __name__ == "__main__":
    main(sys.argv[1:])
