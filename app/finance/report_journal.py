"""The journal of a period: every movement of its money as balanced entries, as it is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from app.finance.break_store import latest_seen, steps_of
from app.finance.matching_store import in_step, wait_for
from app.finance.reconcile_rows import Snapshot, snapshot_of
from app.finance.report_period import Progress, check_scope, orders_then
from app.finance.reporting_store import accepted_breaks
from app.receiving.context import Desk
from reconcile.reporting.journal import Role, Transaction, transactions, written_off
from reconcile.reporting.report import Scope

AT_ONCE: Final = 500
"""Accepted breaks read at a time."""


@dataclass(slots=True)
class JournalTotals:
    """How much was written: transactions, and debit less credit by role and currency."""

    transactions: int = 0
    sums: Counter[tuple[Role, str]] = field(default_factory=Counter)

    def add(self, transaction: Transaction) -> None:
        """One more."""
        self.transactions += 1
        for posting in transaction.postings:
            self.sums[posting.role, transaction.currency] += posting.minor


async def report_journal(
    desk: Desk, scope: Scope, *, write: Callable[[Transaction], None], progress: Progress
) -> JournalTotals:
    """Hand every transaction of the period to `write`: orders by key, then what was written off,
    or taken back of that, by break.

    Raises UsageError for a period that is none.
    """
    check_scope(scope, now=desk.clock.now())
    totals = JournalTotals()
    async with snapshot_of(desk, scope.as_of, progress) as snapshot:

        def work() -> None:
            for each in chain(_moved(snapshot, scope, progress), _written_off(snapshot, scope)):
                totals.add(each)
                write(each)

        await in_step(snapshot.connection, work)
    return totals


def _moved(snapshot: Snapshot, scope: Scope, progress: Progress) -> Iterator[Transaction]:
    for seen in orders_then(snapshot, scope.as_of, progress):
        yield from transactions(seen, start=scope.start, end=scope.end)


def _written_off(snapshot: Snapshot, scope: Scope) -> Iterator[Transaction]:
    """Of every break that was ever accepted: it may have been taken back in the period only."""
    accepted = wait_for(accepted_breaks(snapshot.connection, as_of=scope.as_of))
    for begin in range(0, len(accepted), AT_ONCE):
        names = accepted[begin : begin + AT_ONCE]
        seen = wait_for(latest_seen(snapshot.connection, names))
        steps = wait_for(steps_of(snapshot.connection, names, as_of=scope.as_of))
        for name in names:
            yield from written_off(seen[name], steps[name], start=scope.start, end=scope.end)
