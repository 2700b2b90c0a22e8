"""Checks the store against itself, in one of two forms.

    1 the file       SQLite's own check, indexes included, and every object of the schema, which is
                     as the migrations make it; the rest needs a database that can be read
    2 bodies         have the digest and size that their delivery was acknowledged with
    3 index          events, links, contests and verdicts fit deliveries, records and each other
    4 ledgers        whatever is not due has one, by the rules of now, which is what was published
                     last; the counters of orders are what a full count of the ledgers gives
    5 due marks      every order comes up when its ledger changes next
    6 the log        every row has its leaf or waits for one, and every leaf its row
    7 erasures       their journal can be read, is this database's, and was carried out in it

By itself all of it is proved by sets of rows, and no body is read as its profile reads it.
With `again`, each layer is built again from the one that it rests on, as well:

    3 index          is what the bodies give, as in `reindex`; customers whom bodies name are found
                     by their numbers
    4 ledgers        cached and published ones are what the histories give, as in `refold --all`;
                     and takings, where they are cached and not behind

On one snapshot, while the service runs; the file is checked beside it. Orders that are due are not
compared: their mark says that their ledger is behind. None is where orders were folded by another
policy than ours, or are to be folded anew: that is one problem, not one of each order.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from app.core.errors import StorePoisoned
from app.core.text import counted
from app.database.facts import damage
from app.database.statements import run
from app.orders.counter_store import differing_tallies
from app.orders.history_store import gather, ranges
from app.orders.index_store import index_again
from app.orders.policy_version_store import noted_policy, rules_of
from app.orders.published_store import feed_gaps
from app.orders.rebuild import AHEAD, EVENTS_AT_ONCE, in_order
from app.privacy.check_again import Again, Doing, Orders, doing_again, waits_after
from app.privacy.consistency_store import (
    differences,
    ledgers_without_history,
    lonely_duplicates,
    phones_not_noted,
    rows_to_check,
    scratch_index,
)
from app.privacy.layers_store import (
    Step,
    count_bodies,
    count_orders,
    odd_bodies,
    odd_wholes,
    prove_deliveries,
    prove_index,
    prove_log,
    prove_marks,
    prove_orders,
    prove_revisions,
    rows_to_prove,
)
from app.privacy.replay_erasures import journal_state
from app.receiving.context import AppContext
from app.receiving.delivery_log_store import RawDelivery, raw_deliveries
from app.receiving.header_codec import read_headers
from app.receiving.inbox_store import count_set_aside
from app.receiving.verify import digest_of
from reconcile.instants import Instant
from reconcile.ledger.policy import policy_text

AT_ONCE: Final = 500
"""Bodies in memory at a time."""

MAX_PROBLEMS: Final = 50
"""Problems that are told; the others are counted."""

_READ: Final = frozenset(("stored", "duplicate_with_different_body"))
"""Which body of one id was the first can look otherwise by arrival than it was by commit."""


@dataclass(slots=True, kw_only=True)
class Report:
    """What was looked at, and what does not fit: `found` problems, the first of them told.

    deep  whether bodies were read and orders folded again
    """

    deep: bool = False
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
        checked = "read and folded again" if self.deep else "checked"
        return f"{looked} {checked}{gone}: {verdict}"

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "deep": self.deep,
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
    again: Again | None = None,
    phones_go: bool = False,
    progress: Callable[[int], None],
    ahead: Callable[[int], None] = lambda rows: None,
) -> Report:
    """Check everything. Raises ConfigurationError where the source of a delivery is missing.

    again      how every body is read and every order folded again; None: neither is
    phones_go  whether digests of phone numbers are let go by themselves: one that is not there is
               then no problem
    progress   is called with how many rows were checked since it was called last
    ahead      is called once, with about how many there are, before the first is checked
    """
    return await _Check(context, again, progress, ahead, phones_go=phones_go).run()


_OTHER_POLICY: Final = (
    "orders were folded by other settings than these, or are just being set "
    "due for these, so no ledger was compared; `tallyhook serve` folds all by the settings it has"
)


class _Check:
    """One check, layer by layer, on one snapshot."""

    def __init__(
        self,
        context: AppContext,
        again: Again | None,
        progress: Callable[[int], None],
        ahead: Callable[[int], None],
        *,
        phones_go: bool,
    ) -> None:
        self._context = context
        self._ahead = ahead
        self._phones_go = phones_go
        self._again = again
        self._progress = progress
        self._report = Report(deep=again is not None)
        self._others = False
        self._rules = rules_of(policy_text(context.policy))

    async def run(self) -> Report:
        file = asyncio.ensure_future(self._damage())  # 1, in a thread of its own
        try:
            await self._fitting()
        except Exception:
            if not await file:
                raise
        except asyncio.CancelledError:
            file.cancel()
            raise
        damaged = await file
        if damaged:  # what else was found rests on it
            self._report = Report(deep=self._report.deep)
            self._add(damaged)
        return self._report

    async def _fitting(self) -> None:
        self._add(await self._context.store.strange_objects())
        self._add(await self._inbox())
        if self._report.found:
            return
        async with self._context.store.reading() as connection:
            rows = await rows_to_prove(connection)
            # After the snapshot began: what came before it is due by now.
            now = self._context.clock.now()
            if self._again is not None:
                rows += await rows_to_check(connection)
            self._ahead(rows)
            await self._prove(connection, now=now)  # 2 to 5
            if self._again is not None:
                await self._build_again(connection, self._again, now=now)
            self._add(await lonely_duplicates(connection))
            self._add(await odd_wholes(connection))
            async for sentences in prove_revisions(connection):
                self._add(sentences)
            self._add(await feed_gaps(connection))
            self._add(await differing_tallies(connection))
            self._add(await prove_log(connection, limit=MAX_PROBLEMS))  # 6
        await self._erasures()  # 7

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

    # --- by sets of rows --------------------------------------------------------------------------

    async def _prove(self, connection: Any, *, now: Instant) -> None:
        await self._digests(connection)  # 2
        await self._go_through(prove_deliveries(connection))  # 2, 3
        await self._go_through(prove_index(connection))  # 3
        await self._look_at_policy(connection)
        self._add(await prove_marks(connection))  # 5
        if not self._others:
            proving = prove_orders(
                connection, claimed=waits_after(self._context, now), rules=self._rules
            )
            await self._go_through(proving)  # 4, 5
        self._report.bodies, self._report.pruned = await count_bodies(connection)
        self._report.orders = await count_orders(connection)

    async def _digests(self, connection: Any) -> None:
        async for bodies in odd_bodies(connection):
            for odd in bodies:
                if digest_of(odd.body, read_headers(odd.headers).url) != odd.digest:
                    self._report.add(f"the body of {odd.delivery_id} does not have its digest")

    async def _go_through(self, steps: AsyncIterator[Step]) -> None:
        async for rows, sentences in steps:
            self._add(sentences)
            self._progress(rows)

    # --- (2) bodies and (3) index ----------------------------------------------------------------

    async def _build_again(self, connection: Any, again: Again, *, now: Instant) -> None:
        ahead = AHEAD * again.jobs
        async with doing_again(self._context, again) as doing:
            await self._index(connection, doing, ahead, now=now)  # 3
            await self._ledgers(connection, doing, ahead)  # 4

    async def _index(self, connection: Any, doing: Doing, ahead: int, *, now: Instant) -> None:
        async with scratch_index(connection) as scratch:
            bodies = raw_deliveries(connection, at_once=AT_ONCE)
            async for rereads in in_order(bodies, doing.read, ahead=ahead):
                verdicts = await index_again(scratch, rereads, now=now)
                for reread, verdict in zip(rereads, verdicts, strict=True):
                    given = None if reread.event is None else reread.event.event_id
                    self._check_delivery(reread.delivery, verdict, given)
                self._progress(len(rereads))
            async for sentence in differences(connection, scratch, self._progress):
                self._report.add(sentence)
            missing = 0 if self._phones_go else await phones_not_noted(connection, scratch)
        if missing:
            self._report.add(
                f"{counted(missing, 'customer is', 'customers are')} not found by the phone number "
                "that a body names; `tallyhook reindex` notes them"
            )

    def _check_delivery(self, delivery: RawDelivery, verdict: str, event_id: str | None) -> None:
        same = verdict == delivery.verdict or {verdict, delivery.verdict} <= _READ
        if not same or event_id != delivery.event_id:
            self._report.add(f"the verdict of {delivery.delivery_id} is not what its body gives")

    # --- (4) ledgers and (5) due marks -----------------------------------------------------------

    async def _ledgers(self, connection: Any, doing: Doing, ahead: int) -> None:
        if self._others:
            return
        folding = in_order(ranges(connection, events=EVENTS_AT_ONCE), doing.fold, ahead=ahead)
        async for count, problems in folding:
            self._add(problems)
            self._progress(count)
        gone = Orders(self._context)
        async for orders in ledgers_without_history(connection):
            await gone.compare(connection, list((await gather(connection, orders)).values()))
        self._add(gone.problems)

    async def _look_at_policy(self, connection: Any) -> None:
        noted = await noted_policy(connection)
        if noted is not None and noted != policy_text(self._context.policy):
            self._others = True
            self._report.add(_OTHER_POLICY)
