"""Reads ledgers: always folded from what is stored now, never from the cache.

An order that the fold worker is going to hold is read as held before the worker has come to it.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from app.context.context import AppContext
from app.core.errors import NotFoundError
from app.core.text import counted
from app.database.statements import PlainConnection
from app.orders.counter_store import outcome_counts
from app.orders.holds import as_judged, judged_histories
from app.orders.ledger_store import (
    last_revision,
    latest_orders,
    listed_orders,
    revisions_of_order,
)
from app.orders.published_store import Published
from app.orders.record_store import order_records
from app.orders.retention_store import Pruned, pruned_among
from app.receiving.caught_up import behind_s
from reconcile.instants import Instant, format_instant
from reconcile.ledger.explain import ledger_document
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Ledger
from reconcile.ledger.plain import with_plain
from reconcile.ledger.policy import Policy
from reconcile.transparency.evidence import value_document

FOLDS_IN_A_ROW: Final = 25
"""About a millisecond of folding, between which other requests have their turn."""


async def explain_order(context: AppContext, order: str, *, as_of: Instant | None = None) -> Ledger:
    """One order's ledger as of an instant, by default now.

    Raises NotFoundError for an order of which nothing was known by then.
    """
    return (await _explained(context, order, as_of)).ledger


async def order_document(
    context: AppContext,
    order: str,
    *,
    as_of: Instant | None = None,
    patient: bool = True,
) -> dict[str, Any]:
    """The same as JSON values, and `plain`, the same in words for a customer, also of each finding.
    Where any of the order's deliveries has been deleted, `pruned` says so. The fingerprint covers
    every member but `as_of`, `plain` (also the findings') and `pruned`. Where what was accepted
    before could not all be read in time, `behind_s` says for how many seconds the oldest of it has
    waited, and `fulfillable` is false whatever the fingerprint covers; `patient` as in `behind_s`.
    Raises as `explain_order` does."""
    found = await _explained(context, order, as_of, patient=patient)
    ledger = found.ledger
    document = with_plain(ledger_document(ledger), ledger, behind_s=found.behind_s)
    if found.pruned is not None:
        document["pruned"] = _pruned_document(found.pruned)
    if found.behind_s:
        document |= {"fulfillable": False, "behind_s": found.behind_s}
    return document


async def merchant_records(
    context: AppContext, order: str, *, as_of: Instant | None = None
) -> list[dict[str, Any]]:
    """What the merchant's side did or said of an order, each record with its author."""
    records = await context.database.on_snapshot(order_records, order)
    return [value_document(each) for each in records if as_of is None or each.recorded_at <= as_of]


class _Explained(NamedTuple):
    ledger: Ledger
    pruned: Pruned | None
    behind_s: int


async def _explained(
    context: AppContext, order: str, as_of: Instant | None, *, patient: bool = True
) -> _Explained:
    behind = await behind_s(context, patient=patient)
    now = context.clock.now()
    history, pruned = await context.database.on_snapshot(_kept_of, order, policy=context.policy)
    instant = history.instant_at(now) if as_of is None else as_of
    known = history.known_at(instant)
    if not spoken_of(known):
        raise nothing_known(history, as_of)
    return _Explained(fold(known, policy=context.policy, as_of=instant), pruned, behind)


def _kept_of(
    connection: PlainConnection, order: str, *, policy: Policy
) -> tuple[History, Pruned | None]:
    history = judged_histories(connection, [order], policy=policy)[order]
    return history, pruned_among(connection, [each.delivery_id for each in history.deliveries])


def nothing_known(history: History, as_of: Instant | None) -> NotFoundError:
    """The refusal of an order of which nothing was known by then; whether something is by now."""
    if as_of is None or not spoken_of(history):
        return NotFoundError(f"nothing is known of order {history.order!r}")
    return NotFoundError(
        f"nothing is known of order {history.order!r} as of {format_instant(as_of)}; what is known "
        "of it came later"
    )


def _pruned_document(pruned: Pruned) -> dict[str, Any]:
    last = format_instant(pruned.last_at)
    count = counted(pruned.deliveries, "delivery", "deliveries")
    return {
        "deliveries": pruned.deliveries,
        "last_at": last,
        "sentence": f"The bodies and headers of {count} were deleted, the last at {last}; their "
        "digests, dates, amounts and references are kept.",
    }


def spoken_of(history: History) -> bool:
    """Whether anything but another order's events is there."""
    return bool(history.records) or any(
        delivery.event.order in (None, history.order) for delivery in history.deliveries
    )


async def list_orders(
    context: AppContext,
    *,
    after: str = "",
    limit: int = 100,
    outcome: str | None = None,
    finding: str | None = None,
    since: Instant | None = None,
    until: Instant | None = None,
) -> Sequence[Ledger]:
    """Ledgers of orders in the order of their references, folded as of now; with `since` or
    `until`, of those of which a change was published from then on, or before then.

    Which orders match is taken from the ledger cache, so an order that became due within the last
    moments may still be listed under its earlier outcome; the ledger returned is always current.
    """
    now = context.clock.now()
    async with context.database.reading() as connection:
        orders = await listed_orders(
            connection,
            after=after,
            limit=limit,
            outcome=outcome,
            finding=finding,
            since=since,
            until=until,
        )
        histories = await as_judged(connection, orders, policy=context.policy)
    return await _folded(context, [histories[order] for order in orders], now)


async def _folded(context: AppContext, histories: Sequence[History], now: Instant) -> list[Ledger]:
    ledgers = []
    for count, history in enumerate(histories, 1):
        ledgers.append(fold(history, policy=context.policy, as_of=history.instant_at(now)))
        if count % FOLDS_IN_A_ROW == 0:
            await asyncio.sleep(0)  # a long page must not keep deliveries waiting
    return ledgers


class Changed(NamedTuple):
    """An order's ledger of now, and what was last published of it: its number and when."""

    ledger: Ledger
    seq: int
    at: Instant


async def newest_orders(
    context: AppContext,
    *,
    before: int | None = None,
    limit: int = 50,
    outcome: str | None = None,
    finding: str | None = None,
) -> list[Changed]:
    """Orders by when something was last published of them, the newest first; of those before a
    revision, of one outcome, with one finding as they were published. Each is folded as of now."""
    now = context.clock.now()
    async with context.database.reading() as connection:
        found = await latest_orders(
            connection, before=before, limit=limit, outcome=outcome, finding=finding
        )
        orders = [each.order for each in found]
        histories = await as_judged(connection, orders, policy=context.policy)
    ledgers = await _folded(context, [histories[order] for order in orders], now)
    return [Changed(ledger, each.seq, each.at) for ledger, each in zip(ledgers, found, strict=True)]


async def counted_outcomes(context: AppContext) -> dict[str, int]:
    """How many orders have each outcome, as it was published."""
    async with context.database.reading() as connection:
        return await outcome_counts(connection)


async def head_of_feed(context: AppContext) -> int:
    """The number of what was last published."""
    async with context.database.reading() as connection:
        return await last_revision(connection)


async def published_of_order(
    context: AppContext, order: str, *, as_of: Instant | None = None, limit: int = 50
) -> list[Published]:
    """What was published of an order, the newest first."""
    until = context.clock.now() if as_of is None else as_of
    async with context.database.reading() as connection:
        return await revisions_of_order(connection, order, until=until, limit=limit)


async def arrivals_of(
    context: AppContext, order: str, *, as_of: Instant | None = None
) -> list[dict[str, Any]]:
    """The deliveries that an order's ledger rests on, by arrival."""
    async with context.database.reading() as connection:
        history = (await as_judged(connection, [order], policy=context.policy))[order]
    known = [d for d in history.deliveries if as_of is None or d.received_at <= as_of]
    return [
        {
            "delivery": each.delivery_id,
            "received_at": format_instant(each.received_at),
            "source": each.event.source,
            "event": each.event.event_id,
            "kind": each.event.kind,
        }
        for each in sorted(known, key=lambda each: (each.received_at, each.delivery_id))
    ]
