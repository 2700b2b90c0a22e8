"""Checks the store against itself: each layer is built again from the one that it rests on.

    1 the file       SQLite's own check, indexes included, and every object of the schema, which is
                     as the migrations make it; the rest needs a database that can be read
    2 bodies         have the digest and size that their delivery was acknowledged with
    3 index          events, links, contests and verdicts are what the bodies give, as in `reindex`;
                     customers whom bodies name are found by their numbers
    4 ledgers        cached and published ones are what the histories give, as in `refold --all`;
                     and takings, where they are cached and not behind; the counters of orders
                     are what a full count of the ledgers gives
    5 due marks      every order comes up when its ledger changes next
    6 erasures       their journal can be read, is this database's, and was carried out in it

On one snapshot, while the service runs. Orders that are due are not compared: their mark says that
their ledger is behind. None is where orders were folded by another policy than ours, or are to be
folded anew: that is one problem, not one of each order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from app.core.errors import StorePoisoned
from app.core.text import counted
from app.database.facts import damage
from app.database.statements import run
from app.finance.ledger_line_store import Fresh, row_of, stored_takings
from app.finance.ledger_lines import is_behind
from app.orders.counter_store import differing_tallies
from app.orders.history_store import gather, scan
from app.orders.index_store import index_again
from app.orders.ledger_store import latest_positions, ledger_row
from app.orders.policy_version_store import noted_policy, rules_of
from app.orders.published_store import feed_gaps
from app.orders.refold import CLAIM, decided
from app.orders.reindex import read_again
from app.privacy.consistency_store import (
    cached_rows,
    differences,
    ledgers_without_history,
    lonely_duplicates,
    phones_not_noted,
    rows_to_check,
    scratch_index,
)
from app.privacy.replay_erasures import journal_state
from app.providers.source import Source
from app.receiving.context import AppContext
from app.receiving.delivery_log_store import RawDelivery, raw_deliveries
from app.receiving.due_store import Due, marks_of
from app.receiving.header_codec import read_headers
from app.receiving.inbox_store import count_set_aside
from app.receiving.verify import digest_of
from reconcile.instants import Instant
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Ledger
from reconcile.ledger.policy import policy_text
from reconcile.ledger.revise import Position
from reconcile.matching.ledger_lines import taking

AT_ONCE: Final = 500
"""Bodies in memory at a time."""

MAX_PROBLEMS: Final = 50
"""Problems that are told; the others are counted."""

_READ: Final = frozenset(("stored", "duplicate_with_different_body"))
"""Which body of one id was the first can look otherwise by arrival than it was by commit."""


@dataclass(slots=True, kw_only=True)
class Report:
    """What was looked at, and what does not fit: `found` problems, the first of them told."""

    bodies: int = 0
    pruned: int = 0
    orders: int = 0
    found: int = 0
    problems: list[str] = field(default_factory=list)

    def sentence(self) -> str:
        """For a person."""
        verdict = counted(self.found, "problem") if self.found else "all is as it should be"
        gone = f", {counted(self.pruned, 'body', 'bodies')} pruned" if self.pruned else ""
        looked = f"{counted(self.bodies, 'body', 'bodies')} and {counted(self.orders, 'ledger')}"
        return f"{looked} checked{gone}: {verdict}"

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "bodies": self.bodies,
            "pruned": self.pruned,
            "orders": self.orders,
            "found": self.found,
            "problems": self.problems,
        }

    def add(self, problem: str) -> None:
        """Count a problem; the first some are kept."""
        self.found += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)


async def check_database(
    context: AppContext,
    *,
    sources: Mapping[str, Source],
    phones_go: bool = False,
    progress: Callable[[int], None],
    ahead: Callable[[int], None] = lambda rows: None,
) -> Report:
    """Check everything. Raises ConfigurationError where the source of a delivery is missing.

    phones_go  whether digests of phone numbers are let go by themselves: one that is not there is
               then no problem
    progress   is called with how many rows were checked since it was called last
    ahead      is called once, with about how many there are, when the file has been checked
    """
    return await _Check(context, sources, progress, ahead, phones_go=phones_go).run()


_OTHER_POLICY: Final = (
    "orders were folded by other settings than these, or are just being set "
    "due for these, so no ledger was compared; `tallyhook serve` folds all by the settings it has"
)


class _Check:
    """One check, layer by layer, on one snapshot."""

    def __init__(
        self,
        context: AppContext,
        sources: Mapping[str, Source],
        progress: Callable[[int], None],
        ahead: Callable[[int], None],
        *,
        phones_go: bool,
    ) -> None:
        self._context = context
        self._ahead = ahead
        self._phones_go = phones_go
        self._sources = sources
        self._progress = progress
        self._report = Report()
        self._others = False
        self._rules = rules_of(policy_text(context.policy))
        self._now: Instant = context.clock.now()
        # An order that a worker has claimed is due, though its mark stands at the claim's end.
        self._claimed = self._now + (CLAIM if context.store.shared else 0)

    async def run(self) -> Report:
        self._add(await self._damage() or await self._context.store.strange_objects())  # 1
        self._add(await self._inbox())
        if not self._report.found:
            async with self._context.store.reading() as connection:
                self._ahead(await rows_to_check(connection))
                await self._index(connection)  # 2, 3
                await self._ledgers(connection)  # 4, 5
            await self._erasures()  # 6
        return self._report

    async def _damage(self) -> list[str]:
        try:
            async with self._context.store.reading() as connection:
                return await damage(connection, thorough=True)
        except StorePoisoned as error:  # damage of a kind that ends the file's own check
            return [str(error).partition(";")[0]]

    async def _inbox(self) -> list[str]:
        store = self._context.store
        file = store.inbox_file
        found = await file.damage() if file is not None and file.is_there() else []
        async with store.reading() as connection:
            aside = await run(connection, count_set_aside)
        if aside:
            are = "delivery is" if aside == 1 else "deliveries are"
            found.append(
                f"{aside} accepted {are} set aside, which nothing could read: see the log, then "
                "`tallyhook deliveries poisoned --retry`"
            )
        return found

    def _add(self, problems: Sequence[str]) -> None:
        for problem in problems:
            self._report.add(problem)

    async def _erasures(self) -> None:
        state = await journal_state(self._context)
        if state.problem is not None:
            self._report.add(state.problem)
        if state.pending:
            self._report.add(
                f"{counted(state.pending, 'erasure')} of the journal of erasures "
                f"{'is' if state.pending == 1 else 'are'} not carried out in this database; stop "
                "the service and run `tallyhook db restored`"
            )

    # --- (2) bodies and (3) index ----------------------------------------------------------------

    async def _index(self, connection: Any) -> None:
        environment = self._context.store.environment
        async with scratch_index(connection) as scratch:
            async for deliveries in raw_deliveries(connection, at_once=AT_ONCE):
                rereads = [
                    read_again(delivery, self._sources, environment=environment)
                    for delivery in deliveries
                ]
                verdicts = await index_again(scratch, rereads, now=self._now)
                for reread, verdict in zip(rereads, verdicts, strict=True):
                    given = None if reread.event is None else reread.event.event_id
                    self._check_delivery(reread.delivery, verdict, given)
                self._progress(len(deliveries))
            async for sentence in differences(connection, scratch, self._progress):
                self._report.add(sentence)
            missing = 0 if self._phones_go else await phones_not_noted(connection, scratch)
        if missing:
            self._report.add(
                f"{counted(missing, 'customer is', 'customers are')} not found by the phone number "
                "that a body names; `tallyhook reindex` notes them"
            )
        for delivery in await lonely_duplicates(connection, limit=MAX_PROBLEMS):
            self._report.add(f"{delivery} is a redelivery of an event that is not in the index")

    def _check_delivery(self, delivery: RawDelivery, verdict: str, event_id: str | None) -> None:
        name, body = delivery.delivery_id, delivery.body
        if body is None:
            self._report.pruned += 1
            if delivery.pruned_at is None:
                self._report.add(f"the body of {name} is gone, and was not pruned")
            elif delivery.kept is None and delivery.verdict != "unreadable":
                self._report.add(f"{name} was pruned, and its event is gone")
        else:
            self._report.bodies += 1
            if digest_of(body, read_headers(delivery.headers).url) != delivery.digest:
                self._report.add(f"the body of {name} does not have its digest")
        same = verdict == delivery.verdict or {verdict, delivery.verdict} <= _READ
        if not same or event_id != delivery.event_id:
            self._report.add(f"the verdict of {name} is not what its body gives")

    # --- (4) ledgers and (5) due marks -----------------------------------------------------------

    async def _ledgers(self, connection: Any) -> None:
        noted = await noted_policy(connection)
        if noted is not None and noted != policy_text(self._context.policy):
            self._others = True
            self._report.add(_OTHER_POLICY)
        async for histories in scan(connection):
            await self._compare(connection, histories)
        async for orders in ledgers_without_history(connection):
            await self._compare(connection, list((await gather(connection, orders)).values()))
        self._add(await feed_gaps(connection))
        self._add(await differing_tallies(connection))

    async def _compare(self, connection: Any, histories: Sequence[History]) -> None:
        orders = [history.order for history in histories]
        marks = {mark.order: mark for mark in await marks_of(connection, orders)}
        cached = await cached_rows(connection, orders)
        published = await latest_positions(connection, orders)
        takings = await stored_takings(connection, orders)
        for history in histories:
            order = history.order
            mark = marks.get(order)
            if mark is None:
                self._report.add(f"order {order} has no due mark")
            elif not self._others and (mark.due_at is None or mark.due_at > self._claimed):
                self._check_order(history, mark, cached.get(order), published.get(order))
                if order in takings:
                    await self._check_taking(connection, history, mark, takings[order])
        self._report.orders += len(orders)
        self._progress(len(orders))

    def _check_order(
        self,
        history: History,
        mark: Due,
        cached: tuple[Any, ...] | None,
        published: Position | None,
    ) -> None:
        order = history.order
        ledger = self._folded(history)
        if ledger is None:
            return
        wanted = decided(ledger, published, rules=self._rules)
        if cached is None:
            self._report.add(f"the ledger of {order} is not cached, and nothing is due")
        elif _without_instant(cached) != _without_instant(ledger_row(wanted)):
            self._report.add(f"the ledger of {order} is not what its history gives")
        if wanted.revision is not None:
            self._report.add(f"what was last published of {order} is not what its history gives")
        if mark.due_at != ledger.next_decision_at:
            self._report.add(f"the due mark of {order} is not at its ledger's next decision")

    async def _check_taking(
        self, connection: Any, history: History, mark: Due, row: tuple[Any, ...]
    ) -> None:
        ledger = self._folded(history)
        if ledger is None:
            return
        given = Fresh(
            order=history.order,
            generation=mark.generation,
            until=ledger.next_decision_at,
            taking=taking(ledger),
        )
        right = given.taking is not None and row == row_of(given)
        if not right and not await is_behind(connection, history.order):
            self._report.add(f"the taking of {history.order} is not what its history gives")

    def _folded(self, history: History) -> Ledger | None:
        try:
            return fold(history, policy=self._context.policy, as_of=history.instant_at(self._now))
        except Exception as error:
            self._report.add(f"order {history.order} cannot be folded ({type(error).__name__})")
            return None


def _without_instant(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A cached row without `as_of`: a ledger stays what it is until its next decision."""
    return (row[0], *row[2:])
