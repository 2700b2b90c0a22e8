"""A database of a known size, filled without any server.

The provider engine reads every body, and the store appends it as a delivery. There are no
signatures and no ledgers."""

import asyncio
import hashlib
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from app.config.settings import Settings
from app.core.clock import SystemClock
from app.core.ids import new_id
from app.providers.request import Incoming
from app.providers.source import Source
from app.receiving.append_store import Arrival, Ready
from app.receiving.inbox import open_inbox
from reconcile.instants import Instant
from tests.bench.orders import Message, Stretch
from tests.bench.requests import mixed
from tests.contexts import settings_of

BATCH = 2_000
HEADERS = "host: bench\ncontent-type: application/json"


def fill(database: Path, stretch: Stretch, reader: Source) -> None:
    url = f"sqlite+aiosqlite:///{database.absolute()}"
    asyncio.run(_fill(settings_of(url), stretch, reader))


async def _fill(settings: Settings, stretch: Stretch, reader: Source) -> None:
    now, written = SystemClock().now(), 0
    messages = mixed(stretch, now=now)
    async with open_inbox(settings) as inbox:
        while batch := list(arrivals(islice(messages, BATCH), reader, now)):
            await inbox.append([Ready(None, batch)])
            written += len(batch)
            if written % 100_000 == 0:
                print(f"rebuild: {written:,} of {stretch.events:,} written", file=sys.stderr)


def arrivals(messages: Iterator[Message], reader: Source, now: Instant) -> Iterator[Arrival]:
    """Yield a delivery of each message, as its source reads it."""
    for message in messages:
        digest = hashlib.sha256(message.body).hexdigest()
        read = reader.read(Incoming([], message.body), digest=digest)
        yield Arrival(
            delivery_id=new_id("dlv_", now),
            received_at=now,
            source=reader.name,
            digest=digest,
            headers=HEADERS,
            body=message.body,
            event=read.events[0],
            customer=read.customer(0),
        )
