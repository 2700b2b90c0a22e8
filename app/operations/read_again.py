"""Reads a stored delivery's bytes again, as its source's profile reads them now."""

from __future__ import annotations

import hashlib
from typing import Protocol

from app.operations.header_text import read_headers
from app.operations.judge_delivery import digest_of
from app.providers.fetched import is_answer
from app.providers.headers import Headers
from app.providers.reading import Reading, Unreadable
from app.store.deliveries import RawDelivery
from reconcile.events import Event


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


def read_bytes_again(source: Reads, delivery: RawDelivery) -> tuple[Event | None, str | None]:
    """Its event, or why there is none. A pruned delivery has no bytes to read."""
    assert delivery.body is not None
    try:
        if is_answer(delivery.headers):
            return source.read_answer(delivery.body, digest=delivery.digest), None
        reading = _reading(source, delivery, delivery.body)
    except Unreadable as unreadable:
        return None, str(unreadable)
    if delivery.whole is None and reading.raws:
        return None, "it was kept as one event, and the profile now finds several in such a body"
    if delivery.whole is None:
        return reading.events[0], None
    for event in reading.events:
        if event.digest == delivery.digest:
            return event, None
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
