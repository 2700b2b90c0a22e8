"""Invariants that hold when all is delivered and every deadline has passed.

Each check reads what is stored and yields what is wrong. The last instant is the clock's; earlier
ones come from published revisions.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from app.context.context import AppContext
from app.evidence.seal import open_signer, seal_all
from app.evidence.verify_log import verify_log
from app.orders.history_store import gather
from app.orders.read_feed import Published, read_feed
from app.orders.rebuild import refold_all
from app.privacy.check import check_database
from app.receiving.due_store import count_due
from reconcile.instants import MINUTE, TICK, Instant
from reconcile.ledger.events import Delivery
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Ledger
from reconcile.ledger.policy import Policy
from reconcile.ledger.revise import position_of
from reconcile.money import from_major
from tests.simulation.machine import Down

if TYPE_CHECKING:
    from tests.simulation.world import World

MONEY_MOVED = frozenset(
    (
        *("succeeded", "partially_refunded", "refunded"),
        *("disputed", "charged_back", "unresolved"),
    )
)
"""Outcomes after money came in."""

COMMIT_TIME = MINUTE
"""Longest time from an arrival to its commit, as disks stall for seconds here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """One order as the provider knows it, with money as the sandbox writes it."""

    outcome: str
    captured: dict[str, str]
    refunded: dict[str, str]
    captured_minor: int


def truth_in(document: bytes) -> dict[str, Truth]:
    """Parse the provider's account, by order."""
    names = ("outcome", "captured", "refunded")
    return {
        entry["order"]: Truth(
            **{name: entry[name] for name in names}, captured_minor=_minor(entry["captured"])
        )
        for entry in json.loads(document)
    }


def _minor(money: dict[str, str]) -> int:
    return from_major(Decimal(money["amount"]), money["currency"]).minor


@dataclass(slots=True, kw_only=True)
class Stored:
    """Everything that the checks read."""

    policy: Policy
    histories: dict[str, History]
    ledgers: dict[str, Ledger]
    feed: list[Published]
    substances: list[tuple[str, str]]
    deliveries: dict[str, tuple[str, str | None, str]]
    events: list[tuple[str, str]]
    due: int

    def by_order(self) -> dict[str, list[Published]]:
        """Return the revisions of each order."""
        orders: dict[str, list[Published]] = {}
        for revision in self.feed:
            orders.setdefault(revision.order, []).append(revision)
        return orders


async def problems(world: World) -> list[str]:
    """Return everything that is wrong."""
    try:
        stored = await world.machine.ask(lambda context, _: _read(context))
        published = len(stored.feed)
        found = await world.machine.ask(lambda context, _: _rebuilt(context, published))
        found += await world.machine.ask(lambda context, _: _sealed(context))
    except Down:
        return ["the service does not run when nothing goes wrong any more"]
    except Exception as error:
        return [f"what is stored cannot be checked: {error!r}"]
    for check in (_kept, _once, _as_in_truth, _feed, _chained, _unsaid, _quiet, _one_session):
        found += check(world, stored)
    if stored.due:
        found.append(f"{stored.due} orders are still due")
    return found


async def _read(context: AppContext) -> Stored:
    now = context.clock.now()
    feed = await read_feed(context, after=0, limit=10_000, wait_s=0)
    async with context.database.reading() as connection:
        orders = await _column(connection, "SELECT order_key FROM order_due ORDER BY order_key")
        histories = dict(await gather(connection, [row[0] for row in orders]))
        deliveries = await _column(
            connection, "SELECT id, verdict, event_id, digest FROM deliveries"
        )
        return Stored(
            policy=context.policy,
            histories=histories,
            ledgers={
                order: fold(history, policy=context.policy, as_of=now)
                for order, history in histories.items()
            },
            feed=feed,
            substances=await _column(
                connection, "SELECT order_key, substance FROM revisions ORDER BY seq"
            ),
            deliveries={row[0]: (row[1], row[2], row[3]) for row in deliveries},
            events=await _column(connection, "SELECT event_id, digest FROM events"),
            due=await count_due(connection, now=now, enough=10**6),
        )


async def _column(connection: Any, sql: str) -> list[Any]:
    return [tuple(row) for row in await connection.execute(text(sql))]


async def _rebuilt(context: AppContext, published: int) -> list[str]:
    """Compare the caches with the histories; rebuilding all of them publishes nothing."""
    report = await check_database(context, deep=1, progress=lambda _: None)
    found = [f"the store: {problem}" for problem in report.problems]
    await refold_all(context, progress=lambda _: None)
    again = await read_feed(context, after=published, limit=100, wait_s=0)
    return found + [f"rebuilding published {each.order} {each.outcome}" for each in again]


async def _sealed(context: AppContext) -> list[str]:
    """Seal what waits, and verify the log."""
    await seal_all(context, await open_signer(context))
    log = await verify_log(context, progress=lambda done, total: None)
    return [f"the log: {problem}" for problem in log.problems]


def _kept(world: World, stored: Stored) -> Iterator[str]:
    """Check that every acknowledged delivery is kept under its id, with the event that was sent."""
    for promise in world.inward.promises:
        row = stored.deliveries.get(promise.delivery)
        if row is None:
            yield f"{promise.delivery} ({promise.event}) was acknowledged and is lost"
        elif row[1] not in (promise.event, None):
            yield f"{promise.delivery} brought {promise.event} and is kept as {row[:2]}"


def _once(_: World, stored: Stored) -> Iterator[str]:
    """Check that every event is stored once, by the one delivery that was no duplicate."""
    first: Counter[tuple[str | None, str]] = Counter(
        (event, digest)
        for verdict, event, digest in stored.deliveries.values()
        if verdict != "duplicate"
    )
    kept: Counter[tuple[str | None, str]] = Counter(stored.events)
    for key in sorted(first.keys() | kept.keys(), key=str):
        if (first[key], kept[key]) != (1, 1):
            yield f"event {key[0]} was new {first[key]} times and is kept {kept[key]} times"


def _as_in_truth(world: World, stored: Stored) -> Iterator[str]:
    """Check that each order ends as the provider knows it, to the last minor unit."""
    for order, truth in world.truth().items():
        ledger = stored.ledgers.get(order)
        if ledger is None:
            yield f"{order} is {truth.outcome}, and nobody here has heard of it"
            continue
        if ledger.outcome != truth.outcome:
            yield f"{order} is {truth.outcome}, and the ledger says {ledger.outcome}"
        if ledger.fulfillable and truth.outcome != "succeeded":
            yield f"{order} may be shipped, and is {truth.outcome}"
        if truth.outcome == "unresolved":
            continue
        for name in ("captured", "refunded"):
            stated = getattr(truth, name)
            balances = [each for each in ledger.balances if each.currency == stated["currency"]]
            kept = sum(getattr(each, name) for each in balances)
            if kept != _minor(stated):
                yield f"{order} {name} {stated}, and the ledger has {kept}"
    for revision in stored.feed:
        if revision.fulfillable and not world.is_paid(revision.order):
            yield f"revision {revision.seq}: {revision.order} may be shipped without money"


def _feed(world: World, stored: Stored) -> Iterator[str]:
    """Check that the feed has no gaps, and that the shop has read the same."""
    if [revision.seq for revision in stored.feed] != list(range(1, len(stored.feed) + 1)):
        yield "the feed has gaps"
    if world.shop.heard != stored.feed:
        yield "the shop has read another feed than the one that is stored"


def _chained(_: World, stored: Stored) -> Iterator[str]:
    """Check that each revision begins where the last ended, and the last one is the ledger."""
    for order, revisions in stored.by_order().items():
        first = revisions[0]
        if (first.before_outcome, first.before_fulfillable) != (None, None):
            yield f"revision {first.seq} of {order} is its first and names an earlier one"
        for one, next_ in pairwise(revisions):
            left = (one.outcome, one.fulfillable)
            if (next_.before_outcome, next_.before_fulfillable) != left:
                yield f"revision {next_.seq} of {order} does not begin where {one.seq} ended"
        last, ledger = revisions[-1], stored.ledgers[order]
        if (last.outcome, last.fulfillable) != (ledger.outcome, ledger.fulfillable):
            yield f"{order} was last published as {last.outcome}, and is {ledger.outcome}"
    for order, ledger in stored.ledgers.items():
        if ledger.outcome != "not_attempted" and order not in stored.by_order():
            yield f"{order} is {ledger.outcome} and was never published"


def _unsaid(_: World, stored: Stored) -> Iterator[str]:
    """Check that published money is never forgotten, though it may go back or be doubted."""
    for order, revisions in stored.by_order().items():
        for one, next_ in pairwise(revisions):
            if one.outcome in MONEY_MOVED and next_.outcome not in MONEY_MOVED:
                yield f"revision {next_.seq} of {order} takes {one.outcome} for {next_.outcome}"


def _quiet(world: World, stored: Stored) -> Iterator[str]:
    """Check that a revision says something new, for new evidence or an announced decision.

    The receiver's instants show what was known only if its clock was never set back.
    """
    substance: dict[str, str] = {}
    at: dict[str, Instant] = {}
    for (order, new), revision in zip(stored.substances, stored.feed, strict=True):
        if substance.get(order) == new:
            yield f"revision {revision.seq} of {order} says nothing new"
        history = _without_redeliveries(stored.histories[order])
        stepped = world.trace.counts["clock steps"] > 0
        known = (said for _, said in _could_be_known(history, stored, revision.at))
        if not stepped and new not in known:
            yield f"revision {revision.seq} of {order} is not what was known then"
        if not stepped and order in at:
            before = at[order], substance[order]
            if not _had_reason(history, stored, before=before, now=revision.at):
                yield f"revision {revision.seq} of {order} came without a reason"
        substance[order], at[order] = new, revision.at


def _could_be_known(
    history: History, stored: Stored, instant: Instant
) -> Iterator[tuple[Instant, str]]:
    """Yield what a fold as of this instant may have said, and up to when it knew everything.

    The newest evidence may have been read before it was committed, and a delivery is committed
    elsewhere than a record: either can overtake the other.
    """
    known = history.known_at(instant)
    arrivals = {each.received_at for each in known.deliveries}
    acts = {each.recorded_at for each in known.records}
    ends = [
        [instant, *(at - TICK for at in sorted(times, reverse=True) if at > instant - COMMIT_TIME)]
        for times in (arrivals, acts)
    ]
    for heard, told in product(*ends):
        some = History(
            order=known.order,
            deliveries=known.known_at(heard).deliveries,
            records=known.known_at(told).records,
        )
        ledger = fold(some, policy=stored.policy, as_of=instant)
        yield min(heard, told), position_of(ledger).substance


def _without_redeliveries(history: History) -> History:
    """Return the history without redeliveries, which may change nothing that is published."""
    first: dict[tuple[str, str, str], Delivery] = {}
    for delivery in sorted(history.deliveries, key=lambda d: (d.received_at, d.delivery_id)):
        first.setdefault(delivery.event.key, delivery)
    return History(
        order=history.order, deliveries=frozenset(first.values()), records=history.records
    )


def _had_reason(
    history: History, stored: Stored, *, before: tuple[Instant, str], now: Instant
) -> bool:
    """Return whether evidence came since the last revision, given by instant and substance, or was
    unknown to it, or a decision was announced."""
    then, last = before
    heard = [d.received_at for d in history.deliveries] + [r.recorded_at for r in history.records]
    if any(then <= instant <= now for instant in heard):
        return True
    if any(at < then and said == last for at, said in _could_be_known(history, stored, then)):
        return True
    known = history.known_at(then)
    announced = fold(known, policy=stored.policy, as_of=then).next_decision_at
    return announced is not None and announced <= now


def _one_session(world: World, stored: Stored) -> Sequence[str]:
    """Check that one order has one key and one session, whatever became of the requests."""
    found = []
    sessions = Counter(s.asked.order for s in world.provider.sessions.values())
    for order in world.orders:
        if sessions[order.reference] > 1:
            found.append(f"{order.reference} has {sessions[order.reference]} sessions")
        if len(world.outward.keys.get(order.reference, ())) > 1:
            found.append(f"{order.reference} was asked for with several keys")
    return found
