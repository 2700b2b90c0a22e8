"""Checks the store against itself, in one of two forms.

    1 the file       SQLite's own check, indexes included, and every object of the schema, which is
                     as the migrations make it; the rest needs a database that can be read
    2 bodies         have the digest and size that their delivery was acknowledged with; attached
                     files have theirs
    3 index          events, links, contests and verdicts fit deliveries, records and each other
    4 ledgers        whatever is not due has one, by the rules of now, which is what was published
                     last; the counters of orders are what a full count of the ledgers gives
    5 due marks      every order comes up when its ledger changes next
    6 the log        every row has its leaf or waits for one, and every leaf its row
    7 people         what they did is as the audit trail says, and every line of an import is as it
                     was imported
    8 erasures       their journal can be read, is this database's, and was carried out in it

By itself all of it is proved by sets of rows, and no body is parsed. With `again`, each layer is
also rebuilt from the one that it rests on:

    3 index          is what the bodies give, as in `reindex`; customers whom bodies name are found
                     by their numbers
    4 ledgers        cached and published ones are what the histories give, as in `refold --all`;
                     and ledger lines, where they are cached and not behind

It runs on one snapshot, while the service runs; the file is checked beside it. Orders that are due
are not compared: their mark says that their ledger is behind. No order is compared where orders
were folded by another policy than ours, or are to be folded anew: that is one problem, not one of
each order.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, fields
from functools import cache, partial
from operator import attrgetter
from typing import Any, Final, TypeVar

from app.context.context import AppContext
from app.core.errors import StorePoisoned
from app.core.phone_key import read_phone_key
from app.core.text import counted
from app.database.facts import damage
from app.database.gaps import ACCEPT
from app.database.mapping import delivery_of, event_row
from app.database.statements import run
from app.finance import import_digest_store, ledger_line_store
from app.finance.reconcile_rows import is_behind
from app.orders import (
    counter_store,
    history_store,
    index_store,
    ledger_store,
    listing_store,
    policy_version_store,
    published_store,
)
from app.orders.rebuild import AHEAD, EVENTS_AT_ONCE, begun_with, in_context, in_order, processes
from app.orders.refold import CLAIM, decided
from app.orders.reindex import renormalize
from app.privacy import consistency_store, fit_journal, layers_store, trail_store
from app.providers.configured import compile_sources
from app.providers.source import Source
from app.receiving import delivery_log_store, due_store, inbox_store
from app.receiving.header_codec import read_request
from app.receiving.inbox import inbox_of
from app.receiving.verify import digest_of
from reconcile.instants import NO_TIME, Instant
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Ledger
from reconcile.ledger.policy import policy_text
from reconcile.ledger.revise import Position
from reconcile.matching.ledger_lines import ledger_line_of

# --- the parts of a deep check that can be done in several processes ------------------------------


Result = TypeVar("Result")


def waits_after(context: AppContext, now: Instant) -> Instant:
    """Return the latest instant of a mark that is due, or may be claimed. Later marks wait. A
    worker's claim moves the mark of a due order to the claim's end."""
    return now + (CLAIM if context.database.shared else NO_TIME)


async def check_orders(context: AppContext, orders: history_store.Range) -> tuple[int, list[str]]:
    """Fold every order of a range, on one snapshot. Return the number of orders, and a sentence for
    each mismatch."""
    count, checking = 0, OrderComparison(context)
    async with context.database.reading() as connection:
        try:
            async for histories in history_store.scan(connection, orders):
                await checking.compare(connection, histories)
                count += len(histories)
        except ValueError as error:  # raised by a changed row
            checking.problems.append(
                f"orders are not compared, since a row cannot be read: {error}"
            )
    return count, checking.problems


@dataclass(slots=True)
class OrderComparison:
    """Compares orders with their histories, and adds each mismatch to `problems`."""

    context: AppContext
    problems: list[str] = field(default_factory=list)

    async def compare(self, connection: Any, histories: Sequence[History]) -> None:
        """Compare orders that are not due. A due order is known to be behind."""
        orders = [history.order for history in histories]
        marks = {mark.order: mark for mark in await due_store.marks_of(connection, orders)}
        cached = await consistency_store.cached_rows(connection, orders)
        published = await ledger_store.latest_positions(connection, orders)
        takings = await ledger_line_store.stored_ledger_lines(connection, orders)
        now = self.context.clock.now()  # after the snapshot began: what came before it is due
        beyond = waits_after(self.context, now)
        for history in histories:
            order = history.order
            mark = marks.get(order)
            if mark is None or (mark.due_at is not None and mark.due_at <= beyond):
                continue
            try:
                instant = history.instant_at(now)
                ledger = fold(history, policy=self.context.policy, as_of=instant)
            except Exception as error:
                name = type(error).__name__
                self.problems.append(f"order {order} cannot be folded ({name})")
                continue
            try:
                self._compare_order(ledger, mark, cached.get(order), published.get(order))
            except ValueError as error:  # amounts without a currency cannot be formatted
                self.problems.append(f"the ledger of {order} cannot be compared: {error}")
                continue
            if order in takings:
                await self._compare_ledger_line(connection, ledger, mark, takings[order])

    def _compare_order(
        self,
        ledger: Ledger,
        mark: due_store.Due,
        cached: tuple[Any, ...] | None,
        published: Position | None,
    ) -> None:
        order = ledger.order
        wanted = decided(
            ledger, published, rules=policy_version_store.rules_of(policy_text(self.context.policy))
        )
        if cached is not None and _without_instant(cached) != _without_instant(
            ledger_store.ledger_row(wanted)
        ):
            self.problems.append(f"the ledger of {order} is not what its history gives")
        if wanted.revision is not None:
            self.problems.append(
                f"what was last published of {order} is not what its history gives"
            )
        if mark.due_at != ledger.next_decision_at:
            self.problems.append(f"the due mark of {order} is not at its history's next decision")

    async def _compare_ledger_line(
        self, connection: Any, ledger: Ledger, mark: due_store.Due, row: tuple[Any, ...]
    ) -> None:
        given = ledger_line_store.FreshLine(
            order=ledger.order,
            generation=mark.generation,
            until=ledger.next_decision_at,
            taking=ledger_line_of(ledger),
        )
        right = given.taking is not None and row == ledger_line_store.row_of(given)
        if not right and not await is_behind(connection, ledger.order):
            self.problems.append(f"the ledger line of {ledger.order} is not what its history gives")


def _without_instant(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a cached row without `as_of`: a ledger is unchanged until its next decision."""
    return (row[0], *row[2:])


# --- in this process or in others -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rebuilder:
    """Functions that read and fold while the worker processes run."""

    read: Callable[[Sequence[delivery_log_store.RawDelivery]], Awaitable[list[index_store.Reread]]]
    fold: Callable[[history_store.Range], Awaitable[tuple[int, list[str]]]]


@asynccontextmanager
async def doing_again(context: AppContext, *, jobs: int) -> AsyncIterator[Rebuilder]:
    """Start this many processes, and end them afterwards; with 1, use this process. Raises
    UnreachableError if one died."""
    environment, sources = context.database.environment, context.sources
    if jobs == 1:

        async def read_here(
            deliveries: Sequence[delivery_log_store.RawDelivery],
        ) -> list[index_store.Reread]:
            return [renormalize(each, sources, environment=environment) for each in deliveries]

        yield Rebuilder(read_here, partial(check_orders, context))
        return
    died = (
        "a process that reads and folds has ended before its time: check again, with --jobs 1 if "
        "memory was short"
    )
    async with processes(context, jobs, died=died) as elsewhere:

        async def read_there(
            deliveries: Sequence[delivery_log_store.RawDelivery],
        ) -> list[index_store.Reread]:
            found = await elsewhere(_read_elsewhere, list(map(_sent, deliveries)), environment)
            return [
                index_store.Reread(
                    delivery=delivery,
                    event=None if row is None else delivery_of(row).event,
                    problem=problem,
                    customer=customer,
                )
                for delivery, (row, problem, customer) in zip(deliveries, found, strict=True)
            ]

        yield Rebuilder(read_there, partial(elsewhere, _fold_elsewhere))


@cache
def _sources() -> Mapping[str, Source]:
    """Compile sources when they are first needed, so that their mistakes are errors of the call."""
    settings, _ = begun_with[0]
    return compile_sources(settings, phone_key=read_phone_key(settings.phone_key_path))


# Processes exchange deliveries and events as tuples: sending each as its own type takes longer than
# reading it.
_FIELDS: Final = tuple(each.name for each in fields(delivery_log_store.RawDelivery))
_sent: Final = attrgetter(*_FIELDS)

RereadRow = tuple[tuple[Any, ...] | None, str | None, tuple[bytes, ...]]
"""Result for one delivery: the row of its event, the problem and the customer, as in `Reread`."""


def _read_elsewhere(sent: Sequence[tuple[Any, ...]], environment: str | None) -> list[RereadRow]:
    sources, found = _sources(), []
    for each in sent:
        delivery = delivery_log_store.RawDelivery(**dict(zip(_FIELDS, each, strict=True)))
        reread = renormalize(delivery, sources, environment=environment)
        row = None
        if reread.event is not None:
            row = event_row(
                reread.event,
                order_key=None,
                delivery_id=delivery.delivery_id,
                received_at=delivery.received_at,
            )
        found.append((row, reread.problem, reread.customer))
    return found


def _fold_elsewhere(orders: history_store.Range) -> tuple[int, list[str]]:
    return in_context(partial(check_orders, orders=orders))


# --- checks the store against itself, in one of two forms -----------------------------------------


AT_ONCE: Final = 500
"""Bodies in memory at a time."""

MAX_PROBLEMS: Final = 50
"""Problems that are listed; the others are only counted."""

_READ: Final = frozenset(("stored", "duplicate_with_different_body", "not_ours"))
"""Verdicts that may be exchanged: which body of an id is first can differ by arrival and by
commit."""


@dataclass(slots=True, kw_only=True)
class CheckReport:
    """Result of a check: how much was checked, and the first of the `found` problems.

    deep  whether bodies were read and orders folded again
    """

    deep: bool = False
    bodies: int = 0
    pruned: int = 0
    orders: int = 0
    found: int = 0
    problems: list[str] = field(default_factory=list)

    def sentence(self) -> str:
        """Describe the result for a person."""
        verdict = counted(self.found, "problem") if self.found else "all is as it should be"
        gone = f", {counted(self.pruned, 'body', 'bodies')} pruned" if self.pruned else ""
        looked = f"{counted(self.bodies, 'body', 'bodies')} and {counted(self.orders, 'ledger')}"
        checked = "read and folded again" if self.deep else "checked"
        return f"{looked} {checked}{gone}: {verdict}"

    def document(self) -> dict[str, Any]:
        """Return its JSON document."""
        return asdict(self)

    def add(self, problem: str) -> None:
        """Count a problem, and keep it if it is among the first."""
        self.found += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)


async def check_database(
    context: AppContext,
    *,
    deep: int | None = None,
    progress: Callable[[int], None],
    ahead: Callable[[int], None] = lambda rows: None,
) -> CheckReport:
    """Check the whole store. Raise ConfigurationError if the source of a delivery is missing.

    deep      processes in which every body is read and every order folded again; None: neither is
    progress  is called with how many rows were checked since it was called last
    ahead     is called once, with about how many there are, before the first is checked
    """
    return await _Check(context, deep, progress, ahead).run()


_OTHER_POLICY: Final = (
    "orders were folded by other settings than these, or are just being set "
    "due for these, so no ledger was compared; `tallyhook serve` folds all by the settings it has"
)


class _Check:
    """One check of all layers in turn, on one snapshot."""

    def __init__(
        self,
        context: AppContext,
        deep: int | None,
        progress: Callable[[int], None],
        ahead: Callable[[int], None],
    ) -> None:
        self._context = context
        self._ahead = ahead
        self._deep = deep
        self._progress = progress
        self._report = CheckReport(deep=deep is not None)
        self._others = False
        self._rules = policy_version_store.rules_of(policy_text(context.policy))

    async def run(self) -> CheckReport:
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
        if damaged:  # later results depend on it
            self._report = CheckReport(deep=self._report.deep)
            self._add(damaged)
        return self._report

    async def _fitting(self) -> None:
        self._add(await self._context.database.strange_objects())
        self._add(await self._inbox())
        if self._report.found:
            return
        async with self._context.database.reading(settled=True) as connection:
            rows = await layers_store.rows_to_prove(connection)
            rows += await import_digest_store.count_lines(connection)
            # After the snapshot began: what came before it is due by now.
            now = self._context.clock.now()
            if self._deep is not None:
                rows += await consistency_store.rows_to_check(connection)
            self._ahead(rows)
            await self._prove(connection, now=now)  # 2 to 5
            if self._deep is not None:
                ahead = AHEAD * self._deep
                async with doing_again(self._context, jobs=self._deep) as doing:
                    await self._index(connection, doing, ahead, now=now)  # 3
                    await self._ledgers(connection, doing, ahead)  # 4
            self._add(await consistency_store.lonely_duplicates(connection))
            self._add(await layers_store.odd_wholes(connection))
            self._add(await layers_store.odd_attachments(connection))
            async for sentences in layers_store.prove_revisions(connection):
                self._add(sentences)
            self._add(await published_store.feed_gaps(connection))
            self._add(await counter_store.differing_tallies(connection))
            self._add(await listing_store.differing_listings(connection))
            self._add(await layers_store.prove_log(connection, limit=MAX_PROBLEMS))  # 6
            self._add(await trail_store.prove_trail(connection, self._progress))  # 7
        await self._erasures()  # 8

    async def _damage(self) -> list[str]:
        try:
            async with self._context.database.reading() as connection:
                return await damage(connection, thorough=True)
        except StorePoisoned as error:  # damage of a kind that ends the file's own check
            return [str(error).partition(";")[0]]

    async def _inbox(self) -> list[str]:
        found = await self._context.inbox.damage()
        gap = await inbox_of(self._context).gap()
        if gap is not None:
            command = "db restored" if self._context.database.shared else "serve"
            found.append(f"{gap.sentence()}; `tallyhook {command} {ACCEPT}` goes on without it")
        async with self._context.database.reading() as connection:
            aside = await run(connection, inbox_store.count_set_aside)
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
        state = await fit_journal.journal_state(self._context)
        if state.problem is not None:
            self._report.add(state.problem)
        if state.pending:
            self._report.add(
                f"{counted(state.pending, 'line')} of the journal of erasures "
                f"{'is' if state.pending == 1 else 'are'} not carried out in this database: "
                f"{'; '.join(state.waits)}"
            )

    # --- by sets of rows --------------------------------------------------------------------------

    async def _prove(self, connection: Any, *, now: Instant) -> None:
        async for bodies in layers_store.odd_bodies(connection):  # 2
            for odd in bodies:
                if digest_of(odd.body, read_request(odd.headers).url) != odd.digest:
                    self._report.add(f"the body of {odd.delivery_id} does not have its digest")
        await self._go_through(layers_store.prove_deliveries(connection))  # 2, 3
        await self._go_through(layers_store.prove_index(connection))  # 3
        noted = await policy_version_store.noted_policy(connection)
        if noted is not None and noted != policy_text(self._context.policy):
            self._others = True
            self._report.add(_OTHER_POLICY)
        self._add(await layers_store.prove_marks(connection))  # 5
        if not self._others:
            proving = layers_store.prove_orders(
                connection, claimed=waits_after(self._context, now), rules=self._rules
            )
            await self._go_through(proving)  # 4, 5
        self._report.bodies, self._report.pruned = await layers_store.count_bodies(connection)
        self._report.orders = await layers_store.count_orders(connection)

    async def _go_through(self, steps: AsyncIterator[layers_store.Step]) -> None:
        async for rows, sentences in steps:
            self._add(sentences)
            self._progress(rows)

    # --- (2) bodies and (3) index ----------------------------------------------------------------

    async def _index(self, connection: Any, doing: Rebuilder, ahead: int, *, now: Instant) -> None:
        async with consistency_store.scratch_index(connection) as scratch:
            bodies = delivery_log_store.raw_deliveries(connection, at_once=AT_ONCE)
            async for rereads in in_order(bodies, doing.read, ahead=ahead):
                verdicts = await index_store.index_again(scratch, rereads, now=now)
                for reread, verdict in zip(rereads, verdicts, strict=True):
                    was = reread.delivery
                    given = None if reread.event is None else reread.event.event_id
                    same = verdict == was.verdict or {verdict, was.verdict} <= _READ
                    if not same or given != was.event_id:
                        self._report.add(
                            f"the verdict of {was.delivery_id} is not what its body gives"
                        )
                self._progress(len(rereads))
            async for sentence in consistency_store.differences(
                connection, scratch, self._progress
            ):
                self._report.add(sentence)
            missing = 0
            if not self._context.settings.deletes_phones:  # one that is gone is no problem then
                missing = await consistency_store.phones_not_noted(connection, scratch)
        if missing:
            self._report.add(
                f"{counted(missing, 'customer is', 'customers are')} not found by the number, "
                "email address, name or id that a body names; `tallyhook reindex` notes them"
            )

    # --- (4) ledgers and (5) due marks -----------------------------------------------------------

    async def _ledgers(self, connection: Any, doing: Rebuilder, ahead: int) -> None:
        if self._others:
            return
        folding = in_order(
            history_store.ranges(connection, events=EVENTS_AT_ONCE), doing.fold, ahead=ahead
        )
        async for count, problems in folding:
            self._add(problems)
            self._progress(count)
        gone = OrderComparison(self._context)
        async for orders in consistency_store.ledgers_without_history(connection):
            await gone.compare(
                connection, list((await history_store.gather(connection, orders)).values())
            )
        self._add(gone.problems)
