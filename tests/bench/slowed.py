"""A worker that sleeps, so that few cores stand for many: decoding and folding take ten times as
long, and each commit that wrote waits 10 ms with its locks held, as for a standby.

`python -m tests.bench.slowed worker`"""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

from asyncpg.transaction import Transaction

from app.cli.main import run
from app.orders import refold
from app.receiving import reader
from app.receiving.verify import read_delivery
from reconcile.ledger.fold import fold

SLOWER: Final = 10
COMMIT_S: Final = 0.010

SLEEP_S: Final = 0.002
"""Shortest sleep; a shorter one would be longer than it says."""


class _Slowed:
    """A function that sleeps for what it has worked, `SLOWER` times in all."""

    owed_s = 0.0

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *args: Any, **words: Any) -> Any:
        began = time.thread_time()
        try:
            return self._function(*args, **words)
        finally:
            self.owed_s += (SLOWER - 1) * (time.thread_time() - began)
            if self.owed_s >= SLEEP_S:
                before = time.perf_counter()
                time.sleep(self.owed_s)
                self.owed_s -= time.perf_counter() - before


@contextmanager
def late_commits() -> Iterator[list[float]]:
    """Have each transaction that may write wait before its commit, with its locks. Yields a list
    that gets the length of each wait."""
    commit, waits = Transaction.commit, list[float]()

    async def late(transaction: Any) -> None:
        if not transaction._readonly:
            waits.append(COMMIT_S)
            await asyncio.sleep(COMMIT_S)
        await commit(transaction)

    with patch.object(Transaction, "commit", late):
        yield waits


if __name__ == "__main__":
    with (
        patch.object(reader, "read_delivery", _Slowed(read_delivery)),
        patch.object(refold, "fold", _Slowed(fold)),
        late_commits(),
    ):
        sys.exit(run(sys.argv[1:]))
