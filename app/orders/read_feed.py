"""Outcome feed: all revisions of orders' ledgers in publishing order, without gaps. Readers can
wait for news."""

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Annotated, Final, NotRequired, TypedDict

from app.context.context import AppContext
from app.orders.ledger_store import feed, superseded, windows_of_orders
from app.orders.published_store import Published, head_of, place_to_read_from
from app.orders.shop_facts_store import ShopFacts, ShopFactsDocument, facts_of_orders
from reconcile.documents import Count, InstantText, Keywords, OrderReference
from reconcile.instants import format_instant
from reconcile.ledger.explain import window_document
from reconcile.ledger.ledger import Outcome, PaymentWindow
from reconcile.ledger.ledger_documents import WindowDocument

__all__ = ["Published", "outcome_documents", "read_feed", "read_from", "superseded_of"]

LOOK_AGAIN_S: Final = 0.2
"""Seconds between two checks for news while a reader waits. A check costs one indexed read."""


async def read_feed(
    context: AppContext,
    *,
    after: int,
    limit: int,
    wait_s: float,
    gone: Callable[[], bool] = lambda: False,
) -> list[Published]:
    """Return revisions from the feed after a cursor, after up to `wait_s` seconds for the first.

    gone  returns whether the reader has disconnected
    """
    ends = monotonic() + wait_s
    while True:
        async with context.database.reading() as connection:
            found = await feed(connection, after=after, limit=limit)
        left = ends - monotonic()
        if found or left <= 0 or context.signals.closing.is_set() or gone():
            return found
        await asyncio.sleep(min(LOOK_AGAIN_S, left))


async def superseded_of(context: AppContext, page: Sequence[Published]) -> list[int]:
    """Return the numbers of the page's revisions whose order has a later revision.

    A late reader could ship a refunded order without them.
    """
    if not page:
        return []
    async with context.database.reading() as connection:
        return await superseded(connection, [each.seq for each in page])


async def read_from(context: AppContext, *, after: int) -> int | None:
    """Return the cursor from which to continue if `after` is beyond the feed's end, or None.

    That happens if an older database replaced this one; the reader would wait for numbers that
    never come.
    """
    async with context.database.reading() as connection:
        if after <= await head_of(connection):
            return None
        return await place_to_read_from(connection)


class BeforeDocument(TypedDict):
    outcome: Outcome
    fulfillable: bool


class OutcomeDocument(ShopFactsDocument, WindowDocument):
    """Entry of the outcome feed, as published except for five current members.

    These are `fulfilled_at`, `canceled_at`, `expected_by`, `method_class` and `revocable_until`.
    """

    id: Annotated[int, Keywords(minimum=1), "Increases with each change; never given twice."]
    order: OrderReference
    outcome: Outcome
    fulfillable: bool
    before: Annotated[BeforeDocument | None, "The outcome published before; null for the first."]
    because: list[str]
    at: InstantText


class OutcomePageDocument(TypedDict):
    outcomes: list[OutcomeDocument]
    cursor: Annotated[Count, "Send it as `after` to get the next page."]
    superseded: Annotated[
        NotRequired[list[Count]],
        "The ids of changes on this page whose order has a newer outcome in the feed: do not "
        "ship because of these changes. Missing if there are none.",
    ]
    alarms: Annotated[
        NotRequired[list[str]],
        "Sentences about problems that no outcome shows, such as that verified events have "
        "stopped arriving. Missing if there are none.",
    ]


async def outcome_documents(
    context: AppContext, page: Sequence[Published]
) -> list[OutcomeDocument]:
    """Return entries of the feed as JSON values. What the shop stated about the orders, and their
    payment windows, are current."""
    orders = {each.order for each in page}
    async with context.database.reading() as connection:
        facts = await facts_of_orders(connection, orders)
        windows = await windows_of_orders(connection, orders)
    return [outcome_document(each, facts[each.order], window=windows[each.order]) for each in page]


def outcome_document(
    published: Published, facts: ShopFacts, *, window: PaymentWindow
) -> OutcomeDocument:
    """Return one entry of the feed as JSON values. The shop's notifications contain the entry in
    this form, too."""
    before: BeforeDocument | None = None
    if published.before_outcome is not None:
        before = {
            "outcome": published.before_outcome,
            "fulfillable": bool(published.before_fulfillable),
        }
    return {
        "id": published.seq,
        "order": published.order,
        "outcome": published.outcome,
        "fulfillable": published.fulfillable,
        "before": before,
        "because": list(published.because),
        "at": format_instant(published.at),
        **facts.document(),
        **window_document(window),
    }
