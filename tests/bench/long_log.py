"""A long log, written straight into its tables, and a process that proves leaves of it.

`python -m tests.bench.long_log DATABASE COUNT SEED` proves COUNT leaves one after the other, and
prints the milliseconds of each and its memory as JSON. Documents of leaves are short, since their
length has no part in a proof.
"""

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from app.core.clock import SystemClock
from app.core.ids import seeded_chance
from app.evidence.prove_sealed import proofs_of
from app.evidence.seal import Checkpoint, signed_checkpoint
from app.receiving.inbox import open_inbox
from app.sealing.leaf_store import Leaf
from reconcile.transparency.merkle import Frontier, Tail, inclusion_holds, leaf_hash
from tests.bench.machine import peak_rss_mib, rss_mib
from tests.contexts import settings_of
from tests.database.builders import SIGNER

AT_ONCE = 50_000
SEED = 20_261_123


@dataclass(frozen=True, slots=True, kw_only=True)
class Proved:
    """Milliseconds of each proof, and MiB of the process before and at most."""

    leaves: int
    ms: list[float]
    before_mib: float
    peak_mib: float
    hold: bool
    database_bytes: int


def leaf_numbered(number: int) -> Leaf:
    document = f'{{"id":{number},"kind":"deed"}}'
    return Leaf(number, "deed", f"deed:{number}", document, leaf_hash(document.encode()))


def write_long_log(path: Path, *, leaves: int) -> None:
    """Make a database with a log of so many leaves and a signed checkpoint of all."""

    async def make() -> None:
        async with open_inbox(settings_of(path)):
            pass

    asyncio.run(make())
    tail, frontier = Tail(0, {}), Frontier()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous=OFF")
        for start in range(0, leaves, AT_ONCE):
            some = [leaf_numbered(n) for n in range(start, min(start + AT_ONCE, leaves))]
            nodes = []
            for leaf in some:
                frontier.append(leaf.hash)
                nodes += [(*node, found) for node, found in tail.append(leaf.hash)]
            connection.execute("BEGIN")
            connection.executemany("INSERT INTO log_leaves VALUES (?, ?, ?, ?, ?)", some)
            connection.executemany("INSERT INTO log_nodes VALUES (?, ?, ?)", nodes)
            connection.execute("COMMIT")
        point = Checkpoint(origin=SIGNER.origin, size=leaves, head=frontier.head())
        row = (leaves, point.head, 0, signed_checkpoint(SIGNER.key, point))
        connection.execute("INSERT INTO log_checkpoints VALUES (?, ?, ?, ?)", row)


def prove_in_a_process(path: Path, *, count: int) -> Proved:
    """Prove leaves of the log in a process of its own, to measure its memory."""
    words = [sys.executable, "-m", "tests.bench.long_log", str(path), str(count), str(SEED)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"proving failed; its last words:\n{done.stderr[-2_000:]}")
    return Proved(**json.loads(done.stdout))


async def _prove(path: Path, numbers: list[int]) -> dict[str, Any]:
    async with open_inbox(settings_of(path), purpose="reading") as inbox:
        context = inbox.context(clock=SystemClock())
        before, times, hold, size = rss_mib(os.getpid()), [], True, 0
        for number in numbers:
            started = perf_counter()
            async with context.database.reading() as connection:
                found = await proofs_of(connection, [f"deed:{number}"])
            times.append((perf_counter() - started) * 1000)
            proof, size = found.proofs[0], found.checkpoint.size
            hold &= inclusion_holds(
                leaf_numbered(number).hash,
                index=number,
                size=size,
                proof=proof.path,
                head=found.checkpoint.head,
            )
    return {
        "leaves": size,
        "ms": times,
        "before_mib": before,
        "peak_mib": peak_rss_mib(os.getpid()),
        "hold": hold,
    }


def main(path: Path, count: int, seed: str) -> None:
    chance = seeded_chance(seed)
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        ((leaves,),) = connection.execute("SELECT max(number) + 1 FROM log_leaves")
    found = asyncio.run(_prove(path, [chance.randrange(leaves) for _ in range(count)]))
    print(json.dumps({**found, "database_bytes": path.stat().st_size}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
