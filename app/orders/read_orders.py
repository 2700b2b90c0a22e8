"""Read orders' ledgers, always computed from current evidence.

The cache only lists orders. A hold that the worker will record is shown already.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Final, Literal, NamedTuple, TypedDict, cast

from app.context.context import AppContext
from app.core.errors import NotFoundError
from app.core.jobs import computed
from app.core.masking import DOT, is_code
from app.core.text import counted
from app.database.engine import Connection
from app.database.gaps import Gap, gaps_until, spans_of
from app.database.statements import PlainConnection, compute, run
from app.orders import ledger_store, shop_facts_store
from app.orders.counter_store import finding_counts, outcome_counts
from app.orders.holds import as_judged, judged_histories
from app.orders.listing_store import last_numbers, listed_with
from app.orders.published_store import Published
from app.orders.record_store import order_records
from app.orders.retention_store import Pruned, pruned_among
from app.orders.unallocated_store import PaymentKey, key_of, other_shops_key_naming
from app.orders.unheard import unheard_of
from app.receiving.caught_up import Patience, behind_s, spoken_age
from app.receiving.restrictions import Restriction, RestrictionDocument, restricted_orders
from app.receiving.source_state_store import arrivals_by_source, not_kept_in
from app.receiving.unread_store import UnreadMessage, messages_with
from reconcile.documents import Count, InstantText, NextText
from reconcile.instants import DAY, Instant, format_instant
from reconcile.ledger.correlate import made_by
from reconcile.ledger.explain import ledger_document, ledger_summary, window_document
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Ledger
from reconcile.ledger.ledger_documents import PlainLedgerDocument, SummaryDocument, WindowDocument
from reconcile.ledger.plain import staff_answer, with_plain
from reconcile.ledger.shops import Aside, judge_shops
from reconcile.ledger.unheard import (
    LostSpanDocument,
    PaymentOfNoOrderDocument,
    Unheard,
    UnreadMessageDocument,
    unheard_document,
)
from reconcile.transparency.evidence import value_document

NotItsOwn = Aside | Literal["standalone"]


class PrunedDocument(TypedDict):
    """Facts about the deleted bodies of an order's deliveries, if any. The fingerprint excludes
    them."""

    deliveries: Count
    last_at: InstantText
    sentence: str


class RefusingDocument(TypedDict):
    source: str
    since: InstantText
    refused: Count


class LedgerDocument(
    PlainLedgerDocument, shop_facts_store.ShopFactsDocument, WindowDocument, total=False
):
    restricted: RestrictionDocument
    pruned: PrunedDocument
    unread: Annotated[
        list[UnreadMessageDocument],
        "Unreadable messages of its payment service that may be about the order; missing if there "
        "are none. One that does not name the order has no readable value. The fingerprint does "
        "not cover it.",
    ]
    unallocated: Annotated[
        list[PaymentOfNoOrderDocument],
        "Payments without an order that may be for this one: each names the order but may not be "
        "linked by that, or its amount is still due and its payer has this customer's phone "
        "number. Missing if there are none. The fingerprint does not cover it.",
    ]
    refusing: Annotated[
        list[RefusingDocument],
        "The order's sources whose deliveries have all been refused since some time; missing if "
        "there are none. The fingerprint does not cover it.",
    ]
    gaps: Annotated[
        list[LostSpanDocument],
        "Accepted gaps in the order's time, in which messages and statements may be lost. "
        "`looked_at` is set if its providers were asked since, or a person released it. Missing "
        "if there are none. The fingerprint does not cover it.",
    ]
    behind_s: Annotated[
        Count,
        "For how many seconds the oldest accepted delivery has been unread. Missing if none is; "
        "otherwise `fulfillable` is false.",
    ]


class OrderRowDocument(SummaryDocument, shop_facts_store.ShopFactsDocument, WindowDocument):
    staff: Annotated[
        list[str],
        "As in the order's own document, but without its members on unread and missing data.",
    ]


class OrderPageDocument(TypedDict):
    orders: list[OrderRowDocument]
    next: NextText


FOLDS_IN_A_ROW: Final = 25
"""Number of orders whose ledgers are computed before other requests get a turn. Computing 25
ledgers takes about a millisecond."""


class _Explained(NamedTuple):
    ledger: Ledger
    facts: shop_facts_store.ShopFacts
    pruned: Pruned | None
    behind_s: int
    unheard: Unheard
    restricted: Restriction | None
    deliveries: int


async def explain_order(context: AppContext, order: str, *, as_of: Instant | None = None) -> Ledger:
    """Return one order's ledger as of an instant, by default now. Raise NotFoundError if nothing
    was known of the order then."""
    return (await _explained(context, order, as_of)).ledger


async def order_document(
    context: AppContext,
    order: str,
    *,
    as_of: Instant | None = None,
    patience: Patience = "long",
) -> LedgerDocument:
    """Return an order's ledger as JSON values, with the sentences for a customer and for staff.

    patience  how long to wait for unread deliveries

    Raises NotFoundError if nothing was known of the order at the instant.
    """
    found = await _explained(context, order, as_of, patience=patience)
    return await computed(partial(_document, found), size=found.deliveries)


def _document(found: _Explained) -> LedgerDocument:
    ledger, pruned = found.ledger, found.pruned
    unheard, missed = found.unheard, unheard_document(found.unheard)
    explained = with_plain(
        ledger_document(ledger),
        ledger,
        behind_s=found.behind_s,
        unheard=unheard,
        forgotten=found.facts.fulfilled_at == shop_facts_store.UNKNOWN,
    )
    # cast: to the type checker, a spread mapping may have further members
    document = cast(
        LedgerDocument, {**explained, **found.facts.document(), **window_document(ledger.window)}
    )
    if missed["unread"]:
        document["unread"] = missed["unread"]
    if missed["unallocated"]:
        document["unallocated"] = missed["unallocated"]
    if unheard.refusing:
        document["refusing"] = [
            {
                "source": each.source,
                "since": format_instant(each.refusing_since),
                "refused": each.refused,
            }
            for each in unheard.refusing
            if each.refusing_since is not None
        ]
    if missed["gaps"]:
        document["gaps"] = missed["gaps"]
    if pruned is not None:
        last = format_instant(pruned.last_at)
        count = counted(pruned.deliveries, "delivery", "deliveries")
        document["pruned"] = {
            "deliveries": pruned.deliveries,
            "last_at": last,
            "sentence": f"The bodies and headers of {count} were deleted, the last one at {last}; "
            "their digests, dates, amounts and references are kept.",
        }
    if found.restricted is not None:
        document["restricted"] = found.restricted.document()
    if found.behind_s:
        document["fulfillable"] = False
        document["behind_s"] = found.behind_s
    return document


async def merchant_records(
    context: AppContext, order: str, *, as_of: Instant | None = None
) -> list[dict[str, Any]]:
    """Return the records of an order that the merchant's side stated, each with its author."""
    records = await context.database.on_snapshot(order_records, order)
    return [value_document(each) for each in records if as_of is None or each.recorded_at <= as_of]


async def _explained(
    context: AppContext, order: str, as_of: Instant | None, *, patience: Patience = "long"
) -> _Explained:
    def read(connection: PlainConnection) -> _Explained:
        history = judged_histories(connection, [order], policy=context.policy)[order]
        instant = history.instant_at(now) if as_of is None else as_of
        known = history.known_at(instant)
        if not spoken_of(known):
            message = next(iter(messages_with(connection, [order])), None)
            refusing = next(
                (
                    (source, each.refusing_since)
                    for source, each in arrivals_by_source(connection, context.sources).items()
                    if each.refusing_since is not None
                ),
                None,
            )
            lost = not_kept_in(connection, context.sources, since=instant - DAY, until=instant)
            raise nothing_known(
                history,
                as_of,
                behind_s=behind,
                message=message,
                refusing=refusing,
                not_kept=lost,
                gaps=gaps_until(connection, instant),
                aside=of_another_shop(connection, known, until=instant),
            )
        restricted = restricted_orders(connection, [order]).get(order)
        if restricted is not None:
            known = without_words(known)
        count = len(known.deliveries)
        folding = partial(fold, known, policy=context.policy, as_of=instant)
        ledger = compute(connection, folding, size=count)
        facts = shop_facts_store.shop_facts(connection, [order], as_of=as_of)[order]
        pruned = pruned_among(connection, [each.delivery_id for each in history.deliveries])
        unheard = unheard_of(connection, known, ledger, sources=context.sources)
        return _Explained(ledger, facts, pruned, behind, unheard, restricted, count)

    behind = await behind_s(context, as_of=as_of, patience=patience)
    now = context.clock.now()
    return await context.database.on_snapshot(read)


def without_words(history: History) -> History:
    """Return the history without failure reasons in words, because such a reason may contain a
    name. An erasure removes the same reasons."""
    deliveries = [
        each
        if each.event.reason is None or is_code(each.event.reason)
        else replace(each, event=replace(each.event, reason=DOT))
        for each in history.deliveries
    ]
    return replace(history, deliveries=frozenset(deliveries))


def nothing_known(
    history: History,
    as_of: Instant | None,
    *,
    behind_s: int = 0,
    message: UnreadMessage | None = None,
    refusing: tuple[str, Instant] | None = None,
    not_kept: int = 0,
    gaps: Sequence[Gap] = (),
    aside: tuple[NotItsOwn, str] | None = None,
) -> NotFoundError:
    """Return the error for an order of which nothing was known at an instant.

    behind_s  age in seconds of unread deliveries that can be about the order
    message   an unreadable message that names the order
    refusing  a source whose deliveries are all rejected, and since when
    not_kept  number of the last day's unsigned requests above a limit
    gaps      accepted gaps before the instant
    aside     reason and id of a payment that names the order but does not belong to it
    """
    if message is not None:
        return NotFoundError(
            f"nothing is known yet of order {history.order!r}: a message from {message.source} "
            f"names it but is unreadable: see `tallyhook deliveries show {message.delivery_id}`",
            behind_s=behind_s,
        )
    if behind_s:
        return NotFoundError(
            f"nothing is known yet of order {history.order!r}: accepted deliveries up to "
            f"{spoken_age(behind_s)} old have not been read yet; ask again later",
            behind_s=behind_s,
        )
    if refusing is not None and not spoken_of(history):
        source, since = refusing
        return NotFoundError(
            f"nothing is known of order {history.order!r}, and every delivery of {source} has been "
            f"refused since {format_instant(since)}: `tallyhook doctor` says why"
        )
    if not_kept and not spoken_of(history):
        return NotFoundError(
            f"nothing is known yet of order {history.order!r}: within a day {not_kept:,} unsigned "
            "requests were not stored, and its callback may be among them; look the payment up "
            "at the provider"
        )
    if aside is not None:
        why, payment = aside
        whose = (
            "belongs to another shop or seller on the same account"
            if why == "other"
            else "may belong to another shop on the same account"
            if why == "unknown"
            else "is a standalone refund, and a refund alone starts no order"
        )
        return NotFoundError(
            f"nothing is known of order {history.order!r}: the payment {payment} names it, but "
            f"{whose}; `tallyhook unallocated show {payment}` shows the payment"
        )
    if gaps and not spoken_of(history):
        return NotFoundError(
            f"nothing is known of order {history.order!r}; data received {spans_of(gaps)} may be "
            "lost, perhaps with this order: look it up at the provider, and state it again"
        )
    if as_of is None or not spoken_of(history):
        return NotFoundError(f"nothing is known of order {history.order!r}")
    return NotFoundError(
        f"nothing is known of order {history.order!r} as of {format_instant(as_of)}; evidence "
        "arrived later"
    )


def spoken_of(history: History) -> bool:
    """Return whether a history proves that its order exists.

    Events of others, and refunds without a known payment, are no proof.
    """
    aside = judge_shops([delivery.event for delivery in history.deliveries]).aside
    made = bool(made_by(history))
    return any(record.kind != "redated" for record in history.records) or any(
        delivery.event.order in (None, history.order)
        and delivery.event.key not in aside
        and (made or not (delivery.event.standalone and delivery.event.order))
        for delivery in history.deliveries
    )


def of_another_shop(
    connection: PlainConnection, history: History, *, until: Instant
) -> tuple[NotItsOwn, str] | None:
    """Return why a payment that names this order does not belong to it, and its id, or None.

    Payments of other shops come first, then refunds without a payment, then payments of unknown
    shops.
    """
    events = sorted((delivery.event for delivery in history.deliveries), key=lambda each: each.key)
    aside = judge_shops(events).aside
    naming = [each for each in events if each.order == history.order]
    found: dict[NotItsOwn, PaymentKey] = {
        aside[each.key]: key_of(each) for each in naming if each.key in aside
    }
    alone = [key_of(each) for each in naming if each.standalone]
    if alone and not made_by(history):
        found["standalone"] = alone[0]
    if stated := other_shops_key_naming(connection, history.order, until=until):
        found["other"] = stated
    why = min(found, default=None)
    return None if why is None else (why, ":".join(found[why]))


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
    """Return ledgers of orders, computed as of now and sorted by reference.

    after         reference after which the orders begin
    since, until  only orders with a publication from `since` to before `until`

    An order that is just due can be listed under its earlier outcome.
    """
    now = context.clock.now()
    async with context.database.reading() as connection:
        orders = await ledger_store.listed_orders(
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
        folding = partial(fold, history, policy=context.policy, as_of=history.instant_at(now))
        ledgers.append(await computed(folding, size=len(history.deliveries)))
        if count % FOLDS_IN_A_ROW == 0:
            await asyncio.sleep(0)  # a long page must not keep deliveries waiting
    return ledgers


def order_row(ledger: Ledger, facts: shop_facts_store.ShopFacts) -> OrderRowDocument:
    """Return an order's row for a list: the summary, what staff must do, the shop's facts and the
    payment window."""
    forgotten = facts.fulfilled_at == shop_facts_store.UNKNOWN
    return {
        **ledger_summary(ledger),
        "staff": list(staff_answer(ledger, forgotten=forgotten)),
        **facts.document(),
        **window_document(ledger.window),
    }


async def listed_documents(
    context: AppContext, ledgers: Sequence[Ledger]
) -> list[OrderRowDocument]:
    """Return the rows of a list of orders as JSON values, with the shop's present facts."""
    async with context.database.reading() as connection:
        facts = await shop_facts_store.facts_of_orders(connection, [each.order for each in ledgers])
    return [order_row(each, facts[each.order]) for each in ledgers]


class Changed(NamedTuple):
    """Current ledger of an order, the facts that the shop stated about it, and the number and time
    of its last revision."""

    ledger: Ledger
    facts: shop_facts_store.ShopFacts
    seq: int
    at: Instant


async def newest_orders(
    context: AppContext,
    *,
    before: int | None = None,
    limit: int = 50,
    outcomes: Sequence[str] = (),
    finding: str | None = None,
) -> list[Changed]:
    """Return orders with their current ledgers, the one that changed last first.

    before             only orders whose last revision has a smaller number
    outcomes, finding  only orders published with one of these outcomes, and with this finding
    """
    async with context.database.reading() as connection:
        found = [
            each
            for outcome in outcomes or (None,)
            for each in await ledger_store.latest_orders(
                connection, before=before, limit=limit, outcome=outcome, finding=finding
            )
        ]
        found = sorted(found, key=lambda each: -each.seq)[:limit]
        judged = await _judged(context, connection, found)
    return await _changed(context, found, judged)


async def untried_orders(context: AppContext, *, after: str, limit: int) -> list[Changed]:
    """Return orders that nobody has tried to pay, with their current ledgers, by reference.

    An unpublished order has the revision number 0.

    after  reference after which the orders begin
    """
    async with context.database.reading() as connection:
        orders = await ledger_store.listed_orders(
            connection, after=after, limit=limit, outcome="not_attempted"
        )
        numbers = await run(connection, last_numbers, orders)
        now = context.clock.now()
        found = [
            ledger_store.LastRevision(order=each, seq=numbers.get(each, 0), at=now)
            for each in orders
        ]
        judged = await _judged(context, connection, found)
    return await _changed(context, found, judged)


_Judged = tuple[Mapping[str, History], Mapping[str, shop_facts_store.ShopFacts]]


async def _judged(
    context: AppContext, connection: Connection, found: Sequence[ledger_store.LastRevision]
) -> _Judged:
    orders = [each.order for each in found]
    histories = await as_judged(connection, orders, policy=context.policy)
    return histories, await shop_facts_store.facts_of_orders(connection, orders)


async def _changed(
    context: AppContext, found: Sequence[ledger_store.LastRevision], judged: _Judged
) -> list[Changed]:
    histories, facts = judged
    whole = [histories[each.order] for each in found]
    ledgers = await _folded(context, whole, context.clock.now())
    return [
        Changed(ledger, facts[each.order], each.seq, each.at)
        for ledger, each in zip(ledgers, found, strict=True)
    ]


async def counted_outcomes(context: AppContext) -> dict[str, int]:
    """Return the number of published orders for each outcome."""
    async with context.database.reading() as connection:
        return await outcome_counts(connection)


async def counted_listed(context: AppContext) -> int:
    """Return the length of the list of all orders. An order that was placed but never published is
    not in the list."""
    async with context.database.reading() as connection:
        counts = await outcome_counts(connection)
        untried = await listed_with(connection, "not_attempted")
    return sum(counts.values()) - counts.get("not_attempted", 0) + untried


async def counted_findings(context: AppContext, words: Sequence[str]) -> dict[str, int]:
    """Return the number of published orders for each finding code, or for NEEDS_A_PERSON."""
    async with context.database.reading() as connection:
        return await finding_counts(connection, words)


async def head_of_feed(context: AppContext) -> int:
    """Return the number of the newest revision in the feed."""
    async with context.database.reading() as connection:
        return await ledger_store.last_revision(connection)


async def published_of_order(
    context: AppContext, order: str, *, as_of: Instant | None = None, limit: int = 50
) -> list[Published]:
    """Return an order's revisions as of an instant, by default now, newest first."""
    until = context.clock.now() if as_of is None else as_of
    async with context.database.reading() as connection:
        return await ledger_store.revisions_of_order(connection, order, until=until, limit=limit)


class JudgedDeliveryDocument(TypedDict):
    delivery: str
    received_at: InstantText
    source: str
    event: str
    kind: str


async def arrivals_of(
    context: AppContext, order: str, *, as_of: Instant | None = None
) -> list[JudgedDeliveryDocument]:
    """Return the deliveries on which an order's ledger rests, sorted by arrival.

    as_of  only deliveries that had arrived by then; None for all
    """
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
