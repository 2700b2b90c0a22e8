"""Check that the stored data agree.

1 the file    SQLite's own check passes, and the schema fits the migrations
2 bodies      bodies and attached files have the acknowledged digest and size
3 the log     every row has a leaf, and every leaf has a row
4 acts        people's acts agree with the audit trail, and imported lines are unchanged
5 counts      events agree with deliveries; lists and counters with ledgers
6 derived     derived rows follow from the bodies, and ledgers from the histories
7 erasures    the journal is readable, belongs to this database, and was carried out

The quick check does step 6 for a sample only. Due orders are not compared.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import astuple, dataclass, field, fields
from functools import cache, partial
from itertools import starmap
from operator import attrgetter
from typing import Any, Final

from app.context.configured import compile_sources
from app.context.context import AppContext
from app.core.errors import ConfigurationError, StorePoisoned
from app.core.ids import drawn_seed, seeded_chance
from app.core.jobs import silent
from app.core.phone_key import read_phone_key
from app.core.text import counted
from app.database.facts import damage, short_indexes
from app.database.gaps import ACCEPT
from app.database.mapping import delivery_of, event_row
from app.database.statements import run
from app.finance import import_digest_store
from app.finance.ledger_line_store import row_of, stored_ledger_lines
from app.finance.reconcile_rows import is_behind
from app.orders import (
    history_store,
    index_store,
    ledger_store,
    policy_version_store,
    published_store,
)
from app.orders.rebuild import AHEAD, EVENTS_AT_ONCE, begun_with, in_context, in_order, processes
from app.orders.refold import CLAIM, decided
from app.orders.reindex import renormalize
from app.privacy import consistency_store, facts_store, fit_journal, trail_store
from app.providers.source import Source
from app.receiving import delivery_log_store, due_store, inbox_store
from app.receiving.inbox import inbox_of
from reconcile.instants import NO_TIME, Instant
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.policy import policy_text
from reconcile.matching.ledger_lines import ledger_line_of

# --- the parts of a deep check that can be done in several processes ------------------------------


Row = tuple[Any, ...]


def waits_after(context: AppContext, now: Instant) -> Instant:
    """Return the latest due time that a claimed order can have now."""
    return now + (CLAIM if context.database.shared else NO_TIME)


async def check_orders(context: AppContext, orders: history_store.Range) -> tuple[int, list[str]]:
    """Compare stored ledgers with newly folded orders. Return number and differences."""
    checking = OrderComparison(context)
    async with context.database.reading() as connection:
        await checking.compare_all(connection, history_store.scan(connection, orders))
    return checking.count, checking.problems


@dataclass(slots=True)
class OrderComparison:
    """Comparison of orders with their histories. Each mismatch adds a sentence to `problems`."""

    context: AppContext
    count: int = 0
    problems: list[str] = field(default_factory=list)

    async def compare_all(
        self, connection: Any, histories: AsyncIterator[Sequence[History]]
    ) -> None:
        """Compare the orders with their histories."""
        try:
            async for several in histories:
                await self.compare(connection, several)
                self.count += len(several)
        except ValueError as error:  # raised by a changed row
            self.problems.append(f"orders are not compared, because a row cannot be read: {error}")

    async def compare(self, connection: Any, histories: Sequence[History]) -> None:
        """Compare orders that are not due with their histories."""
        orders = [history.order for history in histories]
        marks = {mark.order: mark for mark in await due_store.marks_of(connection, orders)}
        cached = await consistency_store.cached_rows(connection, orders)
        published = await ledger_store.latest_positions(connection, orders)
        lines = await stored_ledger_lines(connection, orders)
        rules = policy_version_store.rules_of(policy_text(self.context.policy))
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
                wanted = decided(ledger, published.get(order), rules=rules)
            except ValueError as error:  # amounts without a currency cannot be formatted
                self.problems.append(f"the ledger of {order} cannot be compared: {error}")
                continue
            row = ledger_store.ledger_row(wanted)
            built = (row[0], *row[2:]) if wanted.known else None
            self._compare(consistency_store.LEDGERS, cached.get(order), built)
            self._compare(
                consistency_store.MARKS, (order, mark.due_at), (order, ledger.next_decision_at)
            )
            was, position = published.get(order), wanted.position
            if wanted.revision is not None or was not in (None, position):
                before = None if was is None else (order, *astuple(was))
                self._compare(consistency_store.PUBLISHED, before, (order, *astuple(position)))
            if order in lines:
                taking, until = ledger_line_of(ledger), ledger.next_decision_at
                line = None if taking is None else row_of(taking, mark.generation, until)
                if line != lines[order] and not await is_behind(connection, order):
                    self._compare(consistency_store.LEDGER_LINES, lines[order], line)

    def _compare(
        self, rows: consistency_store.Derived, stored: Row | None, built: Row | None
    ) -> None:
        if stored != built:
            self.problems += rows.compare([stored] if stored else [], [built] if built else [])


# --- in this process or in others -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rebuilder:
    """Functions that rebuild data for a check."""

    read: Callable[[Sequence[delivery_log_store.RawDelivery]], Awaitable[list[index_store.Reread]]]
    fold: Callable[[history_store.Range], Awaitable[tuple[int, list[str]]]]


@asynccontextmanager
async def doing_again(context: AppContext, *, jobs: int) -> AsyncIterator[Rebuilder]:
    """Yield functions that rebuild data in `jobs` processes."""
    environment = context.database.environment
    if jobs == 1:

        async def read_here(
            deliveries: Sequence[delivery_log_store.RawDelivery],
        ) -> list[index_store.Reread]:
            return [
                renormalize(each, context.sources, environment=environment) for each in deliveries
            ]

        yield Rebuilder(read_here, partial(check_orders, context))
        return
    died = (
        "a process that reads and folds ended unexpectedly: check again, with --jobs 1 if memory "
        "ran out"
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
    settings, _ = begun_with[0]
    return compile_sources(settings, phone_key=read_phone_key(settings.phone_key_path))


# Processes exchange deliveries and events as tuples: sending each as its own type takes longer than
# reading it.
_FIELDS: Final = tuple(each.name for each in fields(delivery_log_store.RawDelivery))
_sent: Final = attrgetter(*_FIELDS)

RereadRow = tuple[tuple[Any, ...] | None, str | None, tuple[bytes, ...]]
"""Result of reading a delivery again: row, problem, `customer`."""


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
"""Number of deliveries whose bodies are in memory at a time."""

MAX_PROBLEMS: Final = 50
"""Maximum number of problems that are listed. Further problems are only counted."""

_READ: Final = frozenset(("stored", "duplicate_with_different_body", "not_ours"))


SAMPLE: Final = 3_000
"""Approximate number of deliveries in a sample."""


@dataclass(slots=True, kw_only=True)
class CheckReport:
    """Result of a check."""

    deep: bool = False
    """True if bodies were read and orders folded again."""
    bodies: int = 0
    pruned: int = 0
    orders: int = 0
    seed: int | None = None
    """Number that chose the sample of deliveries. None without a sample."""
    sampled: int = 0
    unread: str | None = None
    """Reason why no body was read again, or None."""
    found: int = 0
    problems: list[str] = field(default_factory=list)

    def sentence(self) -> str:
        good = "no problem was found"
        gone = f", {counted(self.pruned, 'body', 'bodies')} pruned" if self.pruned else ""
        looked = f"{counted(self.bodies, 'body', 'bodies')} and {counted(self.orders, 'ledger')}"
        checked = "read and folded again" if self.deep else "checked"
        again = counted(self.sampled, "delivery", "deliveries")
        if self.unread is not None:
            good = "no problem was found in this part"
            gone += f", but no delivery was read again ({self.unread})"
        elif self.seed is not None:
            gone += f", {again} read and folded again (--seed {self.seed})"
        verdict = counted(self.found, "problem") if self.found else good
        return f"{looked} {checked}{gone}: {verdict}"

    def add(self, problems: Iterable[str]) -> None:
        """Count the problems, and keep the first MAX_PROBLEMS of them."""
        for problem in problems:
            self.found += 1
            if len(self.problems) < MAX_PROBLEMS:
                self.problems.append(problem)


async def check_database(
    context: AppContext,
    *,
    deep: int | None = None,
    seed: int | None = None,
    progress: Callable[[int], None],
    ahead: Callable[[int], None] = lambda rows: None,
) -> CheckReport:
    """Check the stored data.

    deep      number of processes for a full check; None for a sample
    seed      number that chooses the sample; None for a new one
    progress  called with the number of rows since the last call
    ahead     called once with the approximate number of rows

    Raise ConfigurationError if a deep check lacks a delivery's source.
    """
    return await _Check(context, deep, seed, progress, ahead, CheckReport(deep=bool(deep))).run()


_OTHER_POLICY: Final = (
    "no ledger was compared, because orders were computed with other settings, or are just being "
    "computed again; `tallyhook serve` computes all orders with its own settings"
)


@dataclass(slots=True)
class _Check:
    context: AppContext
    deep: int | None
    seed: int | None
    progress: Callable[[int], None]
    ahead: Callable[[int], None]
    report: CheckReport

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
            self.report = CheckReport(deep=self.report.deep)
            self.report.add(damaged)
        return self.report

    async def _damage(self) -> list[str]:
        try:
            async with self.context.database.reading() as connection:
                found = await damage(connection, thorough=self.report.deep)
                return found or await run(connection, short_indexes)
        except StorePoisoned as error:  # damage of a kind that ends the file's own check
            return [str(error).partition(";")[0]]

    async def _fitting(self) -> None:
        self.report.add(await self.context.database.strange_objects())  # 1
        self.report.add(await self._inbox())
        if self.report.found:
            return
        async with self.context.database.reading(settled=True) as connection:
            digests = await self._sample(connection)
            async for count, sentences in facts_store.check_bodies(connection):  # 2
                self.report.add(sentences)
                self.progress(count)
            self.report.add(await facts_store.odd_wholes(connection))
            self.report.add(await facts_store.odd_attachments(connection))
            self.report.bodies, self.report.pruned = await facts_store.count_bodies(connection)
            self.report.orders = await facts_store.count_orders(connection)
            self.report.add(await facts_store.prove_log(connection, limit=MAX_PROBLEMS))  # 3
            self.report.add(await trail_store.prove_trail(connection, self.progress))  # 4
            self.report.add(await facts_store.check_counts(connection))  # 5
            self.report.add(await facts_store.check_revisions(connection))
            self.report.add(await published_store.feed_gaps(connection))
            self.report.add(await consistency_store.lonely_duplicates(connection))
            self.report.add(await consistency_store.differing_counts(connection))
            async with doing_again(self.context, jobs=self.deep or 1) as doing:  # 6
                orders = await self._index(connection, doing, digests)
                await self._ledgers(connection, doing, orders)
        self.report.add(await self._erasures())  # 7

    async def _sample(self, connection: Any) -> delivery_log_store.DigestRange | None:
        deliveries = await facts_store.count_deliveries(connection)
        rows = deliveries + await import_digest_store.count_lines(connection)
        if self.deep is not None or deliveries <= SAMPLE:
            self.ahead(rows + await consistency_store.rows_to_check(connection))
            return None
        self.ahead(rows)
        self.report.seed = drawn_seed() if self.seed is None else self.seed
        share = SAMPLE / deliveries
        first = seeded_chance(str(self.report.seed)).random() * (1 - share)
        return delivery_log_store.DigestRange(
            *(f"{int(end * 16**12):012x}" for end in (first, first + share))
        )

    async def _inbox(self) -> list[str]:
        found = await self.context.inbox.damage()
        gap = await inbox_of(self.context).gap()
        if gap is not None:
            command = "db restored" if self.context.database.shared else "serve"
            found.append(
                f"{gap.sentence()}; `tallyhook {command} {ACCEPT}` continues without the lost data"
            )
        async with self.context.database.reading() as connection:
            aside = await run(connection, inbox_store.count_set_aside)
        if aside:
            are = "delivery is" if aside == 1 else "deliveries are"
            found.append(
                f"{aside} accepted {are} set aside as unreadable: see the log, then run "
                "`tallyhook deliveries poisoned --retry`"
            )
        return found

    async def _erasures(self) -> list[str]:
        state = await fit_journal.journal_state(self.context)
        found = [] if state.problem is None else [state.problem]
        if state.pending:
            found.append(
                f"{counted(state.pending, 'line')} of the journal of erasures "
                f"{'is' if state.pending == 1 else 'are'} not carried out in this database: "
                f"{'; '.join(state.waits)}"
            )
        return found

    async def _index(
        self, connection: Any, doing: Rebuilder, digests: delivery_log_store.DigestRange | None
    ) -> list[str] | None:
        progress = self.progress if digests is None else silent
        orders = None if digests is None else await consistency_store.orders_of(connection, digests)
        async with consistency_store.scratch_index(connection, sampled=bool(digests)) as scratch:
            try:
                await self._verdicts(connection, scratch, doing, digests)
            except ConfigurationError as error:
                if self.deep is not None:
                    raise
                self.report.unread, self.report.sampled = str(error), 0
                return orders
            except ValueError as error:  # raised by a changed row
                problem = f"deliveries are not compared, because a row cannot be read: {error}"
                self.report.add([problem])
                return orders
            async for sentences in consistency_store.differences(
                connection, scratch, progress, digests=digests
            ):
                self.report.add(sentences)
            missing = 0
            if not self.context.settings.deletes_phones:  # one that is gone is no problem then
                missing = await consistency_store.phones_not_noted(connection, scratch)
            if missing:
                self.report.add(
                    [
                        f"{counted(missing, 'customer is', 'customers are')} missing in the "
                        "search, although a body has their number, email address, name or id; "
                        "`tallyhook reindex` adds them to the search"
                    ]
                )
            return orders

    async def _verdicts(
        self,
        connection: Any,
        scratch: Any,
        doing: Rebuilder,
        digests: delivery_log_store.DigestRange | None,
    ) -> None:
        progress, now = (self.progress if digests is None else silent), self.context.clock.now()
        bodies = delivery_log_store.raw_deliveries(
            connection, at_once=AT_ONCE, digests=digests or delivery_log_store.EVERY_DIGEST
        )
        async for rereads in in_order(bodies, doing.read, ahead=AHEAD * (self.deep or 1)):
            if digests is not None:
                await consistency_store.copy_links(connection, scratch, rereads)
                self.report.sampled += len(rereads)
            verdicts = await index_store.index_again(scratch, rereads, now=now)
            pairs = list(zip(rereads, verdicts, strict=True))
            there = [pair for pair in pairs if not _has_lost_event(pair[0])]
            self.report.add(
                consistency_store.VERDICTS.compare(
                    (_stored_verdict(reread) for reread, _ in there), starmap(_verdict, there)
                )
            )
            self.report.add(
                f"{each.delivery.delivery_id} was pruned, but its event is gone: restore a backup"
                for each in filter(_has_lost_event, rereads)
            )
            progress(len(rereads))

    async def _ledgers(
        self, connection: Any, doing: Rebuilder, orders: Sequence[str] | None
    ) -> None:
        noted = await policy_version_store.noted_policy(connection)
        if noted is not None and noted != policy_text(self.context.policy):
            self.report.add([_OTHER_POLICY])
            return
        if orders is None:
            pieces = history_store.ranges(connection, events=EVENTS_AT_ONCE)
            async for count, problems in in_order(
                pieces, doing.fold, ahead=AHEAD * (self.deep or 1)
            ):
                self.report.add(problems)
                self.progress(count)
            orders = await consistency_store.ledgers_without_history(connection)
        checking = OrderComparison(self.context)
        await checking.compare_all(connection, history_store.gather_all(connection, orders))
        self.report.add(checking.problems)


def _has_lost_event(reread: index_store.Reread) -> bool:
    was = reread.delivery
    pruned = was.pruned_at is not None and was.body is None
    return pruned and reread.event is None and was.verdict in _READ


def _stored_verdict(reread: index_store.Reread) -> tuple[str, str, str | None]:
    was = reread.delivery
    return was.delivery_id, "read" if was.verdict in _READ else was.verdict, was.event_id


def _verdict(reread: index_store.Reread, verdict: str) -> tuple[str, str, str | None]:
    given = None if reread.event is None else reread.event.event_id
    return reread.delivery.delivery_id, "read" if verdict in _READ else verdict, given
