"""A provider that goes on whatever it is answered, and what comes of it: what is there afterwards,
how often, and with what effect."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import Any

from app.core.errors import StoreUnavailable
from app.orders.refold import CLAIM, refold_due, refold_until_quiet
from app.receiving.append_store import Arrival
from app.receiving.inbox import Inbox
from reconcile.instants import SECOND, Instant
from reconcile.ledger.events import Event
from reconcile.ledger.fold import fold
from tests.database.builders import arrival, context, histories, keep, opened, quiet, rows, said
from tests.database.contract_ledgers import paid
from tests.postgres.conftest import ask_in_loop
from tests.reconcile.build import DUE, POLICY, seconds
from tests.waiting import LOOK_S, soon

SENDERS = 8
PARTS = 4
"""Events of an order; the last of them pays it."""

_numbers = count()


@dataclass(slots=True)
class Load:
    """Results of the arrivals so far.

    acknowledged  ids of deliveries
    times         when each of them was acknowledged, as the loop counts
    events        ids of their events
    orders        those whose payment is among them
    refused       arrivals that found no server
    kept          events that were refused, and were there all the same when they came again
    gaps          seconds from a server that is there again to the next acknowledgement
    """

    acknowledged: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    events: set[str] = field(default_factory=set)
    orders: set[str] = field(default_factory=set)
    refused: int = 0
    kept: int = 0
    gaps: list[float] = field(default_factory=list)

    async def reach(self, more: int, *, refusals: int = 0) -> None:
        """Wait until so many more are acknowledged, and so many refused."""
        wanted, refused = len(self.acknowledged) + more, self.refused + refusals
        await soon(lambda: len(self.acknowledged) >= wanted and self.refused >= refused)

    async def go_on(self, more: int) -> None:
        """Wait for more acknowledgements from a server that is back: only requests under way may be
        refused."""
        since, before, refused = asyncio.get_running_loop().time(), len(self.times), self.refused
        await self.reach(more)
        self.gaps.append(max(0.0, self.times[before] - since))
        assert self.refused - refused <= SENDERS

    async def lost(self, url: str) -> set[str]:
        """Return the acknowledged ids that are not in the database."""
        found = await ask_in_loop(url, "SELECT id FROM deliveries")
        return set(self.acknowledged) - {row[0] for row in found}

    def __str__(self) -> str:
        silence = max((b - a for a, b in pairwise(self.times)), default=0.0)
        gaps = "".join(f", gap {gap:.2f} s" for gap in self.gaps)
        return (
            f"{len(self.acknowledged):,} acknowledgements, {self.refused:,} refused and sent again,"
            f" {self.kept} of them kept before; silent for {silence:.2f} s at most{gaps}"
        )


@asynccontextmanager
async def under_load(*stores: Inbox) -> AsyncIterator[Load]:
    """Run senders and a worker for each receiver until the block ends. Refused events are sent
    again, and each payment once more when the next order is paid."""
    load, ending = Load(), asyncio.Event()

    async def sent(inbox: Inbox, event: Event) -> bool:
        while not ending.is_set():
            item = arrival(event)
            try:
                (verdict,) = await keep(inbox, item)
            except StoreUnavailable:
                # One that is stalled has its server, which is slow.
                load.refused += inbox.queue.stalled is None
                await asyncio.sleep(0.01)
            else:
                load.acknowledged.append(item.delivery_id)
                load.times.append(asyncio.get_running_loop().time())
                load.kept += verdict == "duplicate" and event.event_id not in load.events
                load.events.add(event.event_id)
                return True
        return False

    async def send(inbox: Inbox) -> None:
        last: list[Event] = []
        while not ending.is_set():
            order = f"O{next(_numbers)}"
            *others, payment = events_of(order)
            for event in (*others, payment, *last):
                if await sent(inbox, event) and event is payment:
                    load.orders.add(order)
            last = [payment]

    async def work(inbox: Inbox) -> None:
        while not ending.is_set():
            with suppress(StoreUnavailable):
                await refold_due(context(inbox, at=1), limit=100)
            await asyncio.sleep(LOOK_S)

    tasks = [asyncio.create_task(send(inbox)) for inbox in stores for _ in range(SENDERS)]
    tasks += [asyncio.create_task(work(inbox)) for inbox in stores]
    try:
        yield load
    finally:
        ending.set()
        await asyncio.gather(*tasks)


async def kept(
    inbox: Inbox, name: str, *, by: Callable[[Inbox, Arrival], Awaitable[object]] = keep
) -> object:
    """Send an event, each time as a new delivery, until it is taken. Return the answer.

    by  `keep`, or `submit` to send it as the receiver does
    """
    answers = list[object]()

    async def taken() -> bool:
        with suppress(StoreUnavailable):
            answers.append(await by(inbox, arrival(said(name, order="A"))))
        return bool(answers)

    await soon(taken)
    return answers[0]


def events_of(order: str) -> list[Event]:
    """Return the events of an order; the last pays."""
    waiting: dict[str, Any] = {"order": order, "payment": f"p-{order}", "order_money": DUE}
    return [*(said(f"{order}-{n}", **waiting) for n in range(PARTS - 1)), paid(order)]


# --- what is there afterwards ---------------------------------------------------------------------

_STORED = (
    "SELECT event_id FROM deliveries WHERE verdict = 'stored' "
    "GROUP BY event_id, source HAVING count(*) > 1 "
    "UNION SELECT event_id FROM events GROUP BY event_id, source HAVING count(*) > 1"
)
_RELEASED = (
    "SELECT order_key, count(*) FROM revisions "
    "WHERE fulfillable = 1 AND coalesce(before_fulfillable, 0) = 0 GROUP BY order_key"
)


async def stored_twice(inbox: Inbox) -> list[str]:
    """Return ids of events that are stored more than once, or were brought by several
    deliveries."""
    return [row[0] for row in await rows(inbox, _STORED)]


async def told_wrongly(inbox: Inbox, orders: Collection[str], *, as_of: Instant) -> list[str]:
    """Return paid orders that were not published once as fulfillable with their money, and any that
    were published so twice."""
    told = {row[0]: row[1] for row in await rows(inbox, _RELEASED)}
    wrong = [order for order in {*told, *orders} if told.get(order) != 1]
    names = sorted(orders)
    for start in range(0, len(names), 500):
        for order, history in (await histories(inbox, names[start : start + 500])).items():
            ledger = fold(history, policy=POLICY, as_of=as_of)
            if [balance.captured for balance in ledger.balances] != [DUE.minor]:
                wrong.append(order)
    return wrong


async def assert_kept_once(url: str, load: Load) -> None:
    """Check that nothing acknowledged is lost, and nothing stored or effective twice."""
    assert await load.lost(url) == set()
    async with opened(url) as inbox:
        later = context(inbox, at=1 + CLAIM // SECOND)
        await refold_until_quiet(later, limit=500, progress=quiet)
        assert await stored_twice(inbox) == []
        assert await told_wrongly(inbox, load.orders, as_of=seconds(60)) == []
