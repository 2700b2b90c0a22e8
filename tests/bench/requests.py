"""Signed HTTP requests made of messages, byte for byte as a connection carries them."""

import base64
import random
from collections.abc import Iterable, Iterator

from app.providers.profile import load_profile
from app.providers.source import Source
from reconcile.instants import Instant
from tests.bench.orders import Message, Stretch

SOURCE = "shop"
PATH = f"/webhooks/{SOURCE}"
ORDERS_MIXED = 1_000
"""Orders under way at a time: their messages are sent in a random order, as from many customers."""


def secret_text(raw: bytes) -> str:
    """Return a secret as a configuration has it."""
    return "whsec_" + base64.b64encode(raw).decode()


def source(secret: str) -> Source:
    return Source(name=SOURCE, profile=load_profile("checkout"), secrets=[secret])


def signed_request(signer: Source, message: Message, *, now: Instant) -> bytes:
    headers = signer.sign(message.body, event_id=message.event_id, now=now)
    lines = [
        f"POST {PATH} HTTP/1.1",
        "host: bench",
        "user-agent: provider/1.0",
        "content-type: application/json",
        f"content-length: {len(message.body)}",
        *(f"{name}: {value}" for name, value in headers),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + message.body


def mixed(stretch: Stretch, *, now: Instant) -> Iterator[Message]:
    """Yield all messages of the stretch, with those of neighboring orders shuffled together."""
    waiting: list[Message] = []
    for number, messages in enumerate(stretch.messages(ended_at=now), 1):
        waiting += messages
        if number % ORDERS_MIXED == 0:
            yield from _shuffled(waiting, stretch.seed + number)
            waiting = []
    yield from _shuffled(waiting, stretch.seed)


def _shuffled(messages: Iterable[Message], seed: int) -> list[Message]:
    found = list(messages)
    random.Random(seed).shuffle(found)
    return found
