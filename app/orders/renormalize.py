"""Reads a stored delivery's bytes again, as its source's profile reads them now."""

from __future__ import annotations

import hashlib
from typing import Protocol

from app.core.reading_result import Reading, Unreadable
from app.orders.index_store import Reread
from app.providers.fetched import is_answer
from app.providers.headers import Headers
from app.receiving.delivery_log_store import RawDelivery
from app.receiving.header_codec import read_headers
from app.receiving.verify import digest_of
from reconcile.ledger.events import Event


class Reads(Protocol):
    """Whatever reads bodies as a profile says: a source, or its profile alone."""

    def read(
        self,
        body: bytes,
        *,
        digest: str,
        headers: Headers = (),
        method: str = "POST",
        url: str = "",
    ) -> Reading:
        """What a genuine body says. Raises Unreadable."""
        ...

    def read_answer(self, kept: bytes, *, digest: str) -> Event:
        """What the provider answered when it was asked back. Raises Unreadable."""
        ...


def read_bytes_again(
    source: Reads, delivery: RawDelivery, *, environment: str | None = None
) -> Reread:
    """Its event, or why there is none. A pruned delivery has no bytes to read.

    environment  the store's own: an event that says it is of the other one is none, as at the door.
                 A profile that did not find what the body says of it may have let one in. None:
                 events of either.
    """
    assert delivery.body is not None
    try:
        if is_answer(delivery.headers):
            answer = source.read_answer(delivery.body, digest=delivery.digest)
            return Reread(delivery=delivery, event=answer)
        reading = _reading(source, delivery, delivery.body)
    except Unreadable as unreadable:
        return Reread(delivery=delivery, problem=str(unreadable))
    if environment is not None and reading.environment not in (None, environment):
        other = f"it is of {reading.environment}, and this database is of {environment}"
        return Reread(delivery=delivery, problem=other)
    if reading.foreign:
        return Reread(delivery=delivery, problem="it names another account than its source's")
    place, problem = _place(reading, delivery)
    if place is None:
        return Reread(delivery=delivery, problem=problem)
    return Reread(delivery=delivery, event=reading.events[place], customer=reading.customer(place))


def _place(reading: Reading, delivery: RawDelivery) -> tuple[int | None, str | None]:
    """Which of the events is the delivery's, or why none is."""
    if delivery.whole is None and reading.raws:
        return None, "it was kept as one event, and the profile now finds several in such a body"
    if delivery.whole is None:
        return 0, None
    for place, event in enumerate(reading.events):
        if event.digest == delivery.digest:
            return place, None
    for raw, why in reading.unread:
        if hashlib.sha256(raw).hexdigest() == delivery.digest:
            return None, why
    return None, "the body has no such event where the profile says that its events are"


def _reading(source: Reads, delivery: RawDelivery, own: bytes) -> Reading:
    body = own if delivery.whole is None else delivery.whole
    kept = read_headers(delivery.headers)
    return source.read(
        body,
        digest=digest_of(body, kept.url),
        headers=kept.headers,
        method=kept.method,
        url=kept.url,
    )
