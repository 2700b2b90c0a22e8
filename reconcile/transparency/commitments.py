"""Salted commitments to the content of a leaf: an event, a record, a revision or an audit entry.

Each document is cut into parts. A part can be hidden later while the others can still be proved.
The part `said` is never redacted; every text that may hold something personal is a separate part.
`parts_digest` is the digest of all commitments. Every delivery is sealed with one, so an event's
canonical JSON is assembled by hand for speed. A test compares it with an independent RFC 8785
encoder.
"""

import hashlib
from collections.abc import Iterable, Mapping
from hashlib import sha256
from json.encoder import encode_basestring
from typing import Any, Final

from reconcile.canonical import canonical_json
from reconcile.instants import format_instant
from reconcile.ledger.events import Event
from reconcile.money import Money, major_text
from reconcile.transparency.event_members import part_document, state_document

SAID: Final = "said"

TEXTS: Final = (
    "agreement",
    "capture",
    "event_id",
    "movement",
    "order",
    "payment",
    "reason",
    "session",
    "suggested",
)
"""Texts of an event that are a part each. A text that is None has no part."""

RECORD_TEXTS: Final = ("author", "key", "order", "payment", "reason", "replaces", "session")
REVISION_TEXTS: Final = ("because", "substance")
AUDIT_TEXTS: Final = ("facts", "reason", "subject", "who")
"""Members of a record, a revision and an audit entry that are a part each."""

Parts = Mapping[str, Any]
"""Values of the parts of a document, by name, sorted by name."""

_SALT: Final = 32
"""Hex digits of a part's salt: 16 bytes."""

_NAMES: Final = sorted({SAID, *TEXTS, *RECORD_TEXTS, *REVISION_TEXTS, *AUDIT_TEXTS})
_SALTED: Final = {name: n * _SALT for n, name in enumerate(_NAMES)}
_SALTS_BYTES: Final = len(_SALTED) * _SALT // 2

_AT: Final = ',"occurred_at":"'
_END: Final = '"'
_EXPECTED: Final = ',"expected_by":"'
_METHOD: Final = ',"method":'
_REVOCABLE: Final = ',"revocable_days":'
_SHOP: Final = ',"shop":"'
_STANDALONE: Final = ',"standalone":true'
_STATED_AT: Final = ',"stated_at":"'
_UNCLEAR: Final = ',"unclear":'


def part_salts(secret: bytes, salt: bytes) -> dict[str, str]:
    """Derive each part's salt in hex from our secret and the salt of the leaf.

    Disclosing some salts reveals nothing about the others.
    """
    drawn = hashlib.shake_256(secret + salt).hexdigest(_SALTS_BYTES)
    return {name: drawn[start : start + _SALT] for name, start in _SALTED.items()}


def cut_into_parts(document: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the parts of a document.
    Each of the named members that it has is a part. `said` is the object of all other members."""
    parts = {name: document[name] for name in names if name in document}
    parts[SAID] = {name: value for name, value in document.items() if name not in parts}
    return dict(sorted(parts.items()))


def document_of_parts(parts: Parts) -> dict[str, Any]:
    """Rebuild the document that was cut into these parts."""
    return {**parts[SAID], **{name: value for name, value in parts.items() if name != SAID}}


def part_hashes(said: Event | Parts, *, secret: bytes, salt: bytes) -> dict[str, str]:
    """Return the commitment to each part in hex, by name, sorted by name.
    Raises TypeError for a value without canonical form."""
    drawn = hashlib.shake_256(secret + salt).hexdigest(_SALTS_BYTES)
    hashes = {}
    for name, value in _of_event(said) if isinstance(said, Event) else said.items():
        if value is None:
            continue
        if type(value) is str:
            written = encode_basestring(value)
        elif isinstance(value, Event):
            written = _said_json(value)
        else:
            written = canonical_json(value).decode()
        start = _SALTED[name]
        part_json = f'{{"part":"{name}","salt":"{drawn[start : start + _SALT]}","value":{written}}}'
        hashes[name] = sha256(part_json.encode("utf-8", "backslashreplace")).hexdigest()
    return hashes


def _of_event(event: Event) -> tuple[tuple[str, str | Event | None], ...]:
    """Return the parts of an event, sorted by name; `said` is the event itself."""
    return (
        ("agreement", event.agreement),
        ("capture", event.capture),
        ("event_id", event.event_id),
        ("movement", event.movement),
        ("order", event.order),
        ("payment", event.payment),
        ("reason", event.reason),
        (SAID, event),
        ("session", event.session),
        ("suggested", event.suggested),
    )


def _said_json(event: Event) -> str:
    """Return the canonical JSON of the part `said`, which is the event except its texts."""
    at, money, price, refunded = (
        event.occurred_at, event.money, event.order_money, event.refunded_total,
    )  # fmt: skip
    expected, method, days = event.expected_by, event.method, event.revocable_days
    stated_at = event.stated_at
    parts = [part_document(each) for each in event.parts]
    states = [state_document(each) for each in event.states]
    return (
        f'{{"claim":"{event.claim}","digest":"{event.digest}"'
        f"{'' if expected is None else _EXPECTED + format_instant(expected) + _END}"
        f',"kind":{encode_basestring(event.kind)}'
        f"{'' if method is None else _METHOD + encode_basestring(method)}"
        f"{'' if money is None else _money_json('money', money)}"
        f"{'' if at is None else _AT + format_instant(at) + _END}"
        f"{'' if price is None else _money_json('order_money', price)}"
        f"{_array('parts', parts) if parts else ''}"
        f"{'' if refunded is None else _money_json('refunded_total', refunded)}"
        f"{'' if days is None else _REVOCABLE + str(days)}"
        f"{'' if event.shop is None else _SHOP + event.shop + _END}"
        f',"source":{encode_basestring(event.source)}'
        f"{_STANDALONE if event.standalone else ''}"
        f',"standing":"{event.standing}"'
        f"{'' if stated_at is None else _STATED_AT + format_instant(stated_at) + _END}"
        f"{_array('states', states) if states else ''}"
        f"{'' if event.unclear is None else _UNCLEAR + encode_basestring(event.unclear)}}}"
    )


def _array(name: str, documents: list[dict[str, Any]]) -> str:
    return f',"{name}":{canonical_json(documents).decode()}'


def _money_json(name: str, money: Money) -> str:
    return f',"{name}":{{"amount":"{major_text(money)}","currency":"{money.currency}"}}'


def parts_digest(hashes: Iterable[tuple[str, str]]) -> str:
    """Return the digest of parts in hex: SHA-256 of the canonical JSON of their commitments.

    hashes  name and commitment, sorted by name
    """
    members = ",".join(f'"{name}":"{found}"' for name, found in hashes)
    return sha256(f"{{{members}}}".encode()).hexdigest()


def sealed_digest(said: Event | Parts, *, secret: bytes, salt: bytes) -> str:
    """Return the digest of a leaf's content under this salt."""
    return parts_digest(part_hashes(said, secret=secret, salt=salt).items())
