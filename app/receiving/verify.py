"""Verification and later reading of a delivery."""

import hashlib
from dataclasses import dataclass
from urllib.parse import unquote_plus

from app.core.reading import Belonging, Reading, Unreadable
from app.providers.request import Incoming
from app.providers.source import ProviderReply, Source
from app.receiving.append_store import Arrival, Envelope
from app.receiving.framing import Received
from app.receiving.header_codec import read_request, write_headers
from app.receiving.unread_values import values_of
from reconcile.instants import Instant
from reconcile.ledger.events import Event


@dataclass(frozen=True, slots=True)
class RefusedDelivery:
    """Reason for a rejection: a verdict, and one sentence for the log."""

    verdict: str
    problem: str


def refusal_of(
    source: Source, incoming: Incoming, *, now: Instant, environment: str
) -> RefusedDelivery | ProviderReply | None:
    """Return the reason to reject a request, or None.

    For a handshake, return a ProviderReply.
    """
    refusal = source.verify(incoming, now=now)  # 3, 4
    if refusal is not None:
        return RefusedDelivery(refusal.reason, refusal.sentence)
    greeting = source.greet(incoming)
    if greeting is not None:
        return greeting
    return _not_ours(source.belonging(incoming), environment=environment)  # 5


def _not_ours(reading: Belonging | Reading | None, *, environment: str) -> RefusedDelivery | None:
    if reading is not None and reading.foreign:
        problem = "the event does not name this source's account where the profile expects it"
        return RefusedDelivery("wrong_account", problem)
    if reading is not None and reading.environment not in (None, environment):
        problem = f"the event is for {reading.environment}, but this instance serves {environment}"
        return RefusedDelivery("wrong_environment", problem)
    if reading is not None and reading.unstated and environment == "live":
        problem = "the event does not state its environment, and this instance serves live"
        return RefusedDelivery("wrong_environment", problem)
    return None


def read_delivery(source: Source | None, received: Received, *, environment: str) -> list[Arrival]:
    """Return an arrival for each event of an accepted request."""
    kept, body = read_request(received.headers), received.body
    private = source is not None and source.private_query
    digest = digest_of(body, "" if private else kept.url)
    reading, problem, values = None, None, frozenset[str]()
    incoming = Incoming(kept.headers, body, kept.method, received.url)
    try:
        if source is None:
            raise Unreadable("no source with this name is configured any more")
        reading = source.read(incoming, digest=digest)
    except Unreadable as why:
        problem, values = str(why), values_of(source, incoming)
    refused = _not_ours(reading, environment=environment)
    if refused is not None:
        reading, problem = None, refused.problem
    arrival = Arrival(
        delivery_id=received.delivery_id,
        received_at=received.received_at,
        source=received.source,
        digest=digest,
        headers=received.headers,
        body=body,
        event=None if reading is None else reading.events[0],
        problem=problem,
        values=values,
        customer=() if reading is None else reading.customer(0),
        asked_about=source is not None and source.asks,
        peer=received.peer,
        lane=received.lane,
    )
    if source is None or reading is None or not reading.raws:
        return [arrival]
    return _several(arrival, reading, source=source, incoming=incoming)


def _several(
    whole: Arrival, reading: Reading, *, source: Source, incoming: Incoming
) -> list[Arrival]:
    return [
        whole._replace(
            delivery_id=f"{whole.delivery_id}-{number}" if number else whole.delivery_id,
            digest=hashlib.sha256(raw).hexdigest(),
            body=raw,
            event=event,
            problem=problem,
            values=values_of(source, incoming, item=raw) if event is None else frozenset(),
            whole=Envelope(whole.digest, whole.body),
            customer=reading.customer(number),
        )
        for number, (raw, event, problem) in enumerate(_parts(reading))
    ]


def _parts(reading: Reading) -> list[tuple[bytes, Event | None, str | None]]:
    read = zip(reading.raws, reading.events, strict=True)
    return [(raw, event, None) for raw, event in read] + [
        (raw, None, why) for raw, why in reading.unread
    ]


def readable_url(source: Source, url: str) -> str:
    """Return a URL without secret values."""
    if not source.private_query:
        return url
    path, _, query = url.partition("?")
    pairs = [pair.partition("=") for pair in query.split("&")]
    secrets = {token.decode("latin-1") for token in source.tokens}
    kept = [
        f"{name}={'' if unquote_plus(value, 'latin-1') in secrets else value}"
        for name, _, value in pairs
    ]
    return f"{path}?{'&'.join(kept)}"


def digest_of(body: bytes, url: str) -> str:
    """Return the SHA-256 of a request's body, or its query."""
    content = body or url.partition("?")[2].encode("latin-1", "replace")
    return hashlib.sha256(content).hexdigest()


def kept_head(
    incoming: Incoming, source: Source | None, private: frozenset[bytes] = frozenset()
) -> str:
    """Return the stored form of headers, method and URL.

    A URL with a possible secret is left out.
    """
    return write_headers(
        incoming.headers,
        method=incoming.method,
        url="" if source is None or source.private_query else incoming.url,
        private=private if source is None else source.private_headers | private,
    )
