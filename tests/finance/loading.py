"""Two ways to put a month into a database: through the door, or straight through the journal.

Through the door each webhook is signed, sent and judged, and the shop asks the API: for small
months. Straight, bodies are read by the provider engine and committed by the journal, thousands
at a time: for large ones. A test holds them equal.
"""

import hashlib
import json
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from app.core.clock import SetClock
from app.core.ids import new_id
from app.database.database import Database
from app.finance.coverage_store import CoverageLine, add_coverage
from app.finance.imports import ImportKind, ImportRequest, import_statement
from app.orders.record_store import add_records
from app.providers.profile import load_profile
from app.providers.request import Incoming
from app.providers.source import Source
from app.receiving.append_store import Arrival, Ready
from app.receiving.inbox import Inbox
from reconcile.instants import EARLIEST, HOUR, LATEST, Instant, format_instant
from reconcile.ledger.records import Record
from reconcile.money import Money
from tests.api.driving import SECRET, Driver, signed
from tests.database.builders import opened
from tests.finance.month import CLOSED_AT, Month
from tests.finance.story import Arrived, ShopSaid, Story, major

STORIES_AT_ONCE = 1_000
ARRIVALS_AT_ONCE = 2_000
READER = Source(name="shop", profile=load_profile("checkout"), secrets=[SECRET])


# --- through the door ----------------------------------------------------------------------------


async def through_the_door(driver: Driver, month: Month) -> None:
    """Send every signed webhook and every report of the shop, each at its own moment."""
    said: list[Arrived | ShopSaid] = []
    for story in month.stories():
        said += [*story.said, *story.arrivals]
    for each in sorted(said, key=lambda one: one.at):
        driver.clock.put(each.at)
        if isinstance(each, Arrived):
            await send(driver, each)
        else:
            await _tell(driver, each)


async def send(driver: Driver, arrived: Arrived) -> str:
    """Send a webhook, signed for the moment of its arrival. Returns the verdict."""
    headers = signed(arrived.body, at=arrived.at, event_id=arrived.event_id)
    answer = await driver.send(arrived.body, headers)
    assert answer.status_code == 200, answer.text
    verdict: str = answer.json()["verdict"]
    return verdict


async def _tell(driver: Driver, said: ShopSaid) -> None:
    document = {
        "amount": major(said.minor, said.currency),
        "currency": said.currency,
        "placed_at": format_instant(said.placed_at),
    }
    if said.canceled_at is not None:
        document["canceled_at"] = format_instant(said.canceled_at)
    answer = await driver.api("PUT", f"/orders/{said.order}", content=json.dumps(document))
    assert answer.status_code == 200, answer.text


# --- straight through the journal ----------------------------------------------------------------


async def into_store(url: str, month: Month) -> None:
    """Fill a database; nothing is folded."""
    async with opened(url) as inbox:
        stories = month.stories()
        while some := list(islice(stories, STORIES_AT_ONCE)):
            await keep_records(inbox, [said for story in some for said in story.said])
            await keep_arrivals(inbox, in_time(some))


async def month_in(folder: Path, month: Month) -> None:
    """Fill a folder's database, to be copied."""
    await into_store(f"sqlite+aiosqlite:///{folder}/t.db", month)


async def settled_month_in(folder: Path, month: Month) -> None:
    """Fill a folder's database with a month whose statement is imported, and whose bank account is
    covered, so that it can be closed."""
    await month_in(folder, month)
    async with opened(f"sqlite+aiosqlite:///{folder}/t.db") as inbox:
        await settle(inbox, month)


async def settle(inbox: Inbox, month: Month) -> None:
    """Import the month's statement shortly before the month can be closed, and cover it."""
    at = Instant(CLOSED_AT - 34 * HOUR)
    context = inbox.context(clock=SetClock(at))
    with TemporaryDirectory() as folder:
        path = month.write_statement(Path(folder) / "statement.csv")
        done = await import_statement(context, ImportRequest(path=path), source="shop")
    assert not done.problems
    await cover(inbox.database, at=at, until=at)


async def cover(database: Database, *, at: Instant, until: Instant) -> None:
    """Declare at an instant that statements cover all until another, and the bank all."""
    ends: list[tuple[ImportKind, str, Instant]]
    ends = [("statement", "shop", until), ("bank", "main", LATEST)]
    async with database.writing() as connection:
        await add_coverage(
            connection,
            [
                CoverageLine(kind=kind, name=name, since=EARLIEST, until=end, who="x", at=at)
                for kind, name, end in ends
            ],
        )


def in_time(stories: Iterable[Story]) -> list[Arrived]:
    """Return what came of these stories before the month was closed, in order of arrival."""
    return sorted((each for story in stories for each in story.arrivals), key=lambda e: e.at)


async def keep_records(inbox: Inbox, said: Iterable[ShopSaid]) -> None:
    """Store what the shop said."""
    async with inbox.database.writing() as connection:
        await add_records(connection, [_record(each) for each in said])


async def keep_arrivals(inbox: Inbox, arrivals: Iterable[Arrived]) -> None:
    """Commit webhooks in this order, as verified."""
    waiting = iter(arrivals)
    while some := [_arrival(each) for each in islice(waiting, ARRIVALS_AT_ONCE)]:
        await inbox.append([Ready(None, some)])


def _record(said: ShopSaid) -> Record:
    canceled = said.canceled_at is not None
    return Record(
        record_id=new_id("rec_", said.at),
        recorded_at=said.at,
        kind="order_canceled" if canceled else "order_placed",
        order=said.order,
        at=said.at,
        money=None if canceled else Money(minor=said.minor, currency=said.currency),
    )


def _arrival(arrived: Arrived) -> Arrival:
    digest = hashlib.sha256(arrived.body).hexdigest()
    return Arrival(
        delivery_id=new_id("dlv_", arrived.at),
        received_at=arrived.at,
        source=READER.name,
        digest=digest,
        headers="host: bench\ncontent-type: application/json",
        body=arrived.body,
        event=READER.read(Incoming([], arrived.body), digest=digest).events[0],
    )
