"""The way of a delivery, from the socket's bytes to a durable row. It never folds, never calls out.

1 source      4 age           7 journal: committed together with many others
2 size        5 environment   8 acknowledgement
3 signature   6 identify

Each step either hands on or ends in a verdict. A rejection is kept in the ring, with its reason and
its bytes up to a bound; what is signed but cannot be read is kept whole and acknowledged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from app.clock import Clock
from app.errors import StorePoisoned, StoreUnavailable
from app.ids import new_id
from app.logs import Line
from app.operations.rejection_rate import RejectionRate
from app.providers.places import Headers
from app.providers.reading import Unreadable
from app.providers.source import Source
from app.store.intake import Arrival
from app.store.journal import Journal
from app.store.rejections import Rejection
from reconcile.events import Event
from reconcile.instants import MILLISECOND, Instant

log = structlog.get_logger()

_log_delivery = Line(
    "delivery",
    *("delivery", "source", "verdict", "event_id", "kind", "order", "digest", "duration_ms"),
)

_UNSTORED: Final = ("authorization", "cookie", "proxy-authorization")
"""Headers that may hold credentials; their values are never kept."""

_REFUSED_STATUS: Final = {"source_unknown": 404, "body_too_large": 413, "wrong_environment": 403}
"""Every other rejection is a matter of signature or age: 401, and the sender is not told which."""

_log_rejection = Line("delivery", "delivery", "source", "verdict", "digest")

RETRY_AFTER_S: Final = 5
"""When a sender should come again after a 503: by then a restart is over, usually."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the sender is told. `verdict` is None where nothing was decided (503)."""

    status: int
    verdict: str | None
    delivery_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Everything that receiving needs. `rejected_body_bytes` is kept of one refused body, if
    `rejection_rate` says that it is kept."""

    sources: Mapping[str, Source]
    journal: Journal
    clock: Clock
    environment: str
    rejected_body_bytes: int
    rejection_rate: RejectionRate


@dataclass(frozen=True, slots=True)
class Incoming:
    """One request as it came. `body` is None where it went over the size limit; `address` is the
    sender's, as the proxies that are believed tell it."""

    source: str
    headers: Headers
    body: bytes | None
    url: str = ""
    address: str = ""


async def receive_delivery(door: Door, incoming: Incoming) -> Answer:
    """Judge one request and keep it. Returns only after the commit; raises nothing of its own."""
    now = door.clock.now()
    delivery_id = new_id("dlv_", now)
    body = incoming.body
    source = door.sources.get(incoming.source)
    if source is None:  # 1
        refusal = ("source_unknown", "no source of this name is configured")
        return await _reject(door, incoming, refusal, now=now, delivery_id=delivery_id)
    if body is None:  # 2
        refusal = ("body_too_large", "the body is larger than TALLYHOOK_MAX_BODY_BYTES")
        return await _reject(door, incoming, refusal, now=now, delivery_id=delivery_id)
    refused = source.verify(incoming.headers, body, now=now, url=incoming.url)  # 3, 4
    if refused is not None:
        refusal = (refused.reason, refused.sentence)
        return await _reject(door, incoming, refusal, now=now, delivery_id=delivery_id)
    digest = hashlib.sha256(body).hexdigest()
    event, environment, problem = _read(source, incoming.headers, body, digest)  # 6
    if environment is not None and environment != door.environment:  # 5
        refusal = ("wrong_environment", f"the event is of {environment}, this is another")
        return await _reject(door, incoming, refusal, now=now, delivery_id=delivery_id)
    arrival = Arrival(
        delivery_id=delivery_id,
        received_at=now,
        source=source.name,
        digest=digest,
        headers=_header_text(incoming.headers),
        body=body,
        event=event,
        problem=problem,
    )
    return await _keep(door, arrival, source.acknowledgement_status)  # 7, 8


def _read(
    source: Source, headers: Headers, body: bytes, digest: str
) -> tuple[Event | None, str | None, str | None]:
    """The event, the environment it names, and why there is no event if there is none."""
    try:
        reading = source.read(body, digest=digest, headers=headers)
    except Unreadable as unreadable:
        return None, None, str(unreadable)
    return reading.events[0], reading.environment, None


async def _keep(door: Door, arrival: Arrival, acknowledgement: int) -> Answer:
    try:
        verdict = await door.journal.submit(arrival)
    except (StoreUnavailable, StorePoisoned) as error:
        log.warning(
            "delivery not stored",
            delivery=arrival.delivery_id,
            source=arrival.source,
            error_class=type(error).__name__,
        )
        return Answer(503, None, arrival.delivery_id)
    event = arrival.event
    _log_delivery(
        arrival.delivery_id,
        arrival.source,
        verdict,
        None if event is None else event.event_id,
        None if event is None else event.kind,
        None if event is None else event.order,
        arrival.digest,
        (door.clock.now() - arrival.received_at) // MILLISECOND,
    )
    return Answer(acknowledgement, verdict, arrival.delivery_id)


async def _reject(
    door: Door, incoming: Incoming, refusal: tuple[str, str], *, now: Instant, delivery_id: str
) -> Answer:
    """Keep a rejection and answer. That it could not be kept does not change the answer."""
    verdict, problem = refusal
    fate = door.rejection_rate.fate(incoming.address)
    if fate == "too_many":
        return Answer(429, "too_many_rejections", delivery_id)
    status = _REFUSED_STATUS.get(verdict, 401)
    if fate == "counted":
        return Answer(status, verdict, delivery_id)
    body = incoming.body or b""
    rejection = Rejection(
        delivery_id=delivery_id,
        received_at=now,
        source=_shown_source(incoming.source),
        verdict=verdict,
        digest=hashlib.sha256(body).hexdigest(),
        size=len(body),
        headers=_header_text(incoming.headers),
        body=body[: door.rejected_body_bytes],
        problem=problem,
    )
    try:
        await door.journal.submit(rejection)
    except (StoreUnavailable, StorePoisoned) as error:
        log.warning("rejection not kept", delivery=delivery_id, error_class=type(error).__name__)
    _log_rejection(delivery_id, rejection.source, verdict, rejection.digest)
    return Answer(status, verdict, delivery_id)


def _shown_source(name: str) -> str:
    """A name from the path as it may be kept: short and printable."""
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in name[:40])


def _header_text(headers: Headers) -> str:
    """`name: value` lines as received (Latin-1 keeps every byte), credentials left out."""
    lines = []
    for name, value in headers:
        text = name.decode("latin-1")
        if text in _UNSTORED:
            value = b"(left out)"
        lines.append(f"{text}: {value.decode('latin-1')}")
    return "\n".join(lines)
