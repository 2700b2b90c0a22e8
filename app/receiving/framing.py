"""Content of an inbox row: requests in frames, one after another.

Each frame has the sizes of head and body, the head in JSON, and the body. A delivery's head is
`[id, at, source, headers, url, peer, lane]`. A rejected request's head is `[id, at, source,
headers, verdict, digest, size, problem, count]`.
"""

import json
import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from app.receiving.refusal_store import Rejection
from reconcile.instants import Instant

_HEADS: Final = json.JSONEncoder(separators=(",", ":"))

_SIZES: Final = struct.Struct(">II")


class Received(NamedTuple):
    """Accepted request as received."""

    delivery_id: str
    received_at: Instant
    source: str
    headers: str
    """Headers without credentials, as lines `name: value`."""
    body: bytes
    url: str = ""
    """Path and query without secrets."""
    peer: str = ""
    lane: int = 0
    """Number of the sender's network group, for fair turns in questions."""


Item = Received | Rejection


class DamagedRow(ValueError):
    """Error for an inbox row whose bytes are not valid frames."""


def framed(items: Sequence[Item]) -> bytes:
    """Return the bytes of an inbox row that contains these items."""
    return b"".join([_framed(item) for item in items])


def _framed(item: Item) -> bytes:
    head: list[Any] = [item.delivery_id, item.received_at, item.source, item.headers]
    if isinstance(item, Received):
        head += [item.url, item.peer, item.lane]
    else:
        head += [item.verdict, item.digest, item.size, item.problem, item.count]
    written = _HEADS.encode(head).encode("ascii")
    return _SIZES.pack(len(written), len(item.body)) + written + item.body


def items_in(records: bytes) -> Iterator[Item]:
    """Yield an inbox row's items. Raise DamagedRow for invalid frames."""
    at = 0
    while at < len(records):
        try:
            head_bytes, body_bytes = _SIZES.unpack_from(records, at)
            at += _SIZES.size
            head = json.loads(records[at : at + head_bytes])
            at += head_bytes
            body = records[at : at + body_bytes]
            at += body_bytes
            if at > len(records):
                raise DamagedRow("a record ends beyond its row")
            yield _item(head, body)
        except (struct.error, ValueError, TypeError, KeyError) as error:
            raise DamagedRow("a row of the inbox differs from what was written") from error


def _item(head: list[Any], body: bytes) -> Item:
    delivery_id, received_at, source, headers, *rest = head
    if len(rest) == 3:
        url, peer, lane = rest
        return Received(
            delivery_id=delivery_id,
            received_at=received_at,
            source=source,
            headers=headers,
            body=body,
            url=url,
            peer=peer,
            lane=lane,
        )
    verdict, digest, size, problem, count = rest
    return Rejection(
        delivery_id=delivery_id,
        received_at=received_at,
        source=source,
        verdict=verdict,
        digest=digest,
        size=size,
        headers=headers,
        body=body,
        problem=problem,
        count=count,
    )
