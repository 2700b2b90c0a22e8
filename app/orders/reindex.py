"""Read every stored body again and rebuild the index of events, in one transaction."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from app.config.settings import Settings
from app.context.configured import text_of_profile
from app.context.context import AppContext
from app.core.errors import ConfigurationError
from app.core.jobs import silent
from app.core.reading import Reading, Unreadable
from app.orders import index_store
from app.providers.fetched import NOT_KNOWN, is_answer
from app.providers.profile import shipped_profiles
from app.providers.request import Incoming
from app.providers.source import Source
from app.receiving.confirmation_store import await_again
from app.receiving.delivery_log_store import RawDelivery, raw_deliveries
from app.receiving.header_codec import read_request
from app.receiving.phone_store import drop_other_keys, use_key
from app.receiving.unread_values import values_of
from app.receiving.verify import digest_of
from reconcile.ledger.events import Event


class Reads(Protocol):
    """Object that reads the bodies of deliveries by a provider's profile: a source, or a profile
    alone."""

    def read(self, incoming: Incoming, *, digest: str) -> Reading:
        """Return the content of a genuine request. Raise Unreadable if the profile does not fit the
        body."""
        ...

    def read_answer(self, kept: bytes, *, digest: str, environment: str | None = None) -> Event:
        """Return the event in a provider's answer to our question. Raise Unreadable if the profile
        does not fit the answer."""
        ...


def read_bytes_again(
    source: Reads, delivery: RawDelivery, *, environment: str | None = None
) -> index_store.Reread:
    """Read a delivery's stored body again. Return the event, or the reason why there is none.

    environment  environment that every event must have; None accepts both

    The body must not have been deleted.
    """
    assert delivery.body is not None
    try:
        if is_answer(delivery.headers):
            answer = source.read_answer(
                delivery.body, digest=delivery.digest, environment=environment
            )
            return index_store.Reread(delivery=delivery, event=answer)
        body = delivery.body if delivery.whole is None else delivery.whole
        kept = read_request(delivery.headers, body)
        reading = source.read(kept, digest=digest_of(body, kept.url))
    except Unreadable as unreadable:
        return index_store.Reread(delivery=delivery, problem=str(unreadable))
    if environment is not None and reading.environment not in (None, environment):
        other = f"it is from {reading.environment}, but this database is for {environment}"
        return index_store.Reread(delivery=delivery, problem=other)
    if reading.foreign:
        return index_store.Reread(
            delivery=delivery, problem="the event names another account than its source's"
        )
    if delivery.whole is None and reading.raws:
        problem = "it was stored as one event, but the profile now finds several in its body"
        return index_store.Reread(delivery=delivery, problem=problem)
    for place, event in enumerate(reading.events):
        if delivery.whole is None or event.digest == delivery.digest:
            return index_store.Reread(
                delivery=delivery, event=event, customer=reading.customer(place)
            )
    problem = "the body has no event at the place that the profile names"
    for raw, why in reading.unread:
        if hashlib.sha256(raw).hexdigest() == delivery.digest:
            problem = why
    return index_store.Reread(delivery=delivery, problem=problem)


AT_ONCE = 500
"""Number of deliveries that are indexed at a time. All their bodies are in memory together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reindexed:
    """Numbers of deliveries that were read again. A delivery whose body was deleted keeps its
    earlier reading."""

    read: int
    events: int
    unreadable: int


async def reindex(context: AppContext, *, progress: Callable[[int], None] = silent) -> Reindexed:
    """Rebuild the index of events from all stored bodies. Return how many deliveries were read.

    Raises ConfigurationError, without any change, for an unconfigured source.
    """
    now = context.clock.now()
    read = events = 0
    async with context.database.reading() as reading, context.database.writing() as writing:
        await index_store.drop_index(writing, now=now)
        if context.phone_key is not None:
            await drop_other_keys(writing, context.phone_key.name)
            await use_key(writing, context.phone_key.name)
        async for deliveries in raw_deliveries(reading, at_once=AT_ONCE):
            rereads = [
                renormalize(delivery, context.sources, environment=context.database.environment)
                for delivery in deliveries
            ]
            await index_store.index_again(writing, rereads, now=now)
            read += len(rereads)
            events += sum(reread.event is not None for reread in rereads)
            progress(len(rereads))
        never = [name for name, source in context.sources.items() if not source.asks]
        await index_store.note_readings(writing, _own_readings(context.settings))
        await await_again(writing, now=now, not_known=NOT_KNOWN, never=never)
    context.signals.evidence_arrived.set()
    return Reindexed(read=read, events=events, unreadable=read - events)


def _own_readings(settings: Settings) -> dict[str, str]:
    shipped = shipped_profiles()
    return {
        name: hashlib.sha256(
            repr(
                (
                    each.profile if each.profile in shipped else text_of_profile(settings, name),
                    each.account,
                    sorted(each.only.items()),
                    each.orders,
                    each.link_by,
                    sorted(each.captures),
                )
            ).encode()
        ).hexdigest()
        for name, each in settings.sources.items()
    }


async def note_first_readings(context: AppContext) -> None:
    """Store the present settings of each source for which no settings or no deliveries are stored
    yet."""
    own = _own_readings(context.settings)
    async with context.database.reading() as connection:
        noted = await index_store.noted_readings(connection)
        other = [name for name in own if noted.get(name) != own[name]]
        stored = await index_store.sources_with_deliveries(connection, other)
    new = {name: own[name] for name in other if name not in noted or name not in stored}
    if new:
        async with context.database.writing() as connection:
            await index_store.note_readings(connection, new)


async def sources_read_otherwise(context: AppContext) -> list[str]:
    """Return the sources whose settings have changed since their stored deliveries were read."""
    own = _own_readings(context.settings)
    async with context.database.reading() as connection:
        noted = await index_store.noted_readings(connection)
        other = [name for name in sorted(own) if noted.get(name, own[name]) != own[name]]
        stored = await index_store.sources_with_deliveries(connection, other)
    return [name for name in other if name in stored]


def renormalize(
    delivery: RawDelivery, sources: Mapping[str, Source], *, environment: str | None
) -> index_store.Reread:
    """Read a stored delivery by its source's current settings, or return the earlier reading.

    Raise ConfigurationError if the source is not configured.
    """
    if delivery.body is None or delivery.lone:
        problem = None if delivery.kept is not None else "its body and event were deleted"
        return index_store.Reread(delivery=delivery, event=delivery.kept, problem=problem)
    source = sources.get(delivery.source)
    if source is None:
        raise ConfigurationError(
            [
                f"TALLYHOOK_SOURCES__{delivery.source.upper()}__PROFILE: deliveries of this "
                "source are stored; configure the source so that they can be read again"
            ]
        )
    reread = read_bytes_again(source, delivery, environment=environment)
    if reread.event is not None or delivery.verdict == "unreadable":
        return reread
    whole = delivery.body if delivery.whole is None else delivery.whole
    item = None if delivery.whole is None else delivery.body
    values = values_of(source, read_request(delivery.headers, whole), item=item)
    return replace(reread, values=values)
