"""Reads every stored body again and rebuilds the index, after a profile was corrected.

One transaction: either the whole index is the corrected one, or it is the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app.core.errors import ConfigurationError
from app.orders.index_store import Reread, drop_index, index_again
from app.orders.renormalize import read_bytes_again
from app.providers.fetched import NOT_KNOWN
from app.providers.source import Source
from app.receiving.confirmation_store import await_again
from app.receiving.context import Desk
from app.receiving.delivery_log_store import RawDelivery, raw_deliveries
from app.receiving.phone_store import drop_other_keys

AT_ONCE = 500
"""Deliveries indexed at a time: their bodies are in memory together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reindexed:
    """How many deliveries were read again, and what came of them. A pruned one counts as what it
    was read as when its body was there."""

    read: int
    events: int
    unreadable: int


async def reindex(
    desk: Desk, *, sources: Mapping[str, Source], progress: Callable[[int], None]
) -> Reindexed:
    """Rebuild the index. Raises ConfigurationError, changing nothing, when a source is missing."""
    now = desk.clock.now()
    read = events = 0
    async with desk.store.reading() as reading, desk.store.writing() as writing:
        await drop_index(writing, now=now)
        if desk.phone_key is not None:
            await drop_other_keys(writing, desk.phone_key.name)
        async for deliveries in raw_deliveries(reading, at_once=AT_ONCE):
            rereads = [
                read_again(delivery, sources, environment=desk.store.environment)
                for delivery in deliveries
            ]
            await index_again(writing, rereads, now=now)
            read += len(rereads)
            events += sum(reread.event is not None for reread in rereads)
            progress(len(rereads))
        never = [name for name, source in sources.items() if not source.asks]
        await await_again(writing, now=now, not_known=NOT_KNOWN, never=never)
    desk.store.evidence_arrived.set()
    return Reindexed(read=read, events=events, unreadable=read - events)


def read_again(
    delivery: RawDelivery, sources: Mapping[str, Source], *, environment: str | None
) -> Reread:
    """One delivery as its source reads it now; without all of its bytes, as it was read before."""
    if delivery.body is None or delivery.lone:
        problem = None if delivery.kept is not None else "its body and its event are gone"
        return Reread(delivery=delivery, event=delivery.kept, problem=problem)
    source = sources.get(delivery.source)
    if source is None:
        raise ConfigurationError(
            [
                f"TALLYHOOK_SOURCES__{delivery.source.upper()}__PROFILE: deliveries of this source "
                "are stored; configure it, or they could not be read again"
            ]
        )
    return read_bytes_again(source, delivery, environment=environment)
