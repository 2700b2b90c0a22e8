"""Salted commitments to the content of a log leaf: an event, a record, a revision or an audit
entry.

Every text that can be personal is a separate part, so that it can be hidden later while the others
can still be proved. All other content is in the part `said`.
"""

import hashlib
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, Final

from reconcile.canonical import canonical_json

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
"""Members of an event that each become a separate part, unless they are None."""

RECORD_TEXTS: Final = ("author", "key", "order", "payment", "reason", "replaces", "session")
REVISION_TEXTS: Final = ("because", "substance")
AUDIT_TEXTS: Final = ("facts", "reason", "subject", "who")
"""Members of an audit entry that each become a separate part."""

Parts = Mapping[str, Any]
"""Values of a document's parts. The keys are the parts' names, sorted."""

Written = Mapping[str, str]
"""Canonical JSON of each part of a document. The keys are the parts' names, sorted."""

_SALT: Final = 32
"""Number of hex digits of a part's salt, which has 16 bytes."""

_NAMES: Final = sorted({SAID, *TEXTS, *RECORD_TEXTS, *REVISION_TEXTS, *AUDIT_TEXTS})
_SALTED: Final = {name: slice(n * _SALT, (n + 1) * _SALT) for n, name in enumerate(_NAMES)}
_SALTS_BYTES: Final = len(_SALTED) * _SALT // 2


def part_salts(secret: bytes, salt: bytes) -> dict[str, str]:
    """Derive the salt of each part, in hex, from our secret and the leaf's salt.

    A disclosed salt reveals no other salt.
    """
    drawn = hashlib.shake_256(secret + salt).hexdigest(_SALTS_BYTES)
    return {name: drawn[place] for name, place in _SALTED.items()}


def cut_into_parts(document: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Cut a document into parts, so that single parts can be hidden later.

    Each of `names` that the document contains becomes a part. Everything else becomes the part
    `said`.
    """
    parts = {name: document[name] for name in names if name in document}
    parts[SAID] = {name: value for name, value in document.items() if name not in parts}
    return dict(sorted(parts.items()))


def document_of_parts(parts: Parts) -> dict[str, Any]:
    """Rebuild the document that was cut into these parts."""
    return {**parts[SAID], **{name: value for name, value in parts.items() if name != SAID}}


def written_parts(parts: Parts) -> Written:
    """Return the canonical JSON of each part that is not None.

    Raises TypeError for a value that has no canonical JSON.
    """
    return {
        name: canonical_json(value).decode() for name, value in parts.items() if value is not None
    }


def part_hashes(written: Written, *, secret: bytes, salt: bytes) -> dict[str, str]:
    """Return the commitment to each part in hex. The keys are the parts' names, sorted."""
    drawn = hashlib.shake_256(secret + salt).hexdigest(_SALTS_BYTES)
    hashes = {}
    for name, value in written.items():
        part_json = f'{{"part":"{name}","salt":"{drawn[_SALTED[name]]}","value":{value}}}'
        hashes[name] = sha256(part_json.encode("utf-8", "backslashreplace")).hexdigest()
    return hashes


def parts_digest(hashes: Mapping[str, str]) -> str:
    """Return the SHA-256, in hex, of the canonical JSON of the commitments, which must be sorted by
    name."""
    members = ",".join([f'"{name}":"{found}"' for name, found in hashes.items()])
    return sha256(f"{{{members}}}".encode()).hexdigest()


def sealed_digest(written: Written, *, secret: bytes, salt: bytes) -> str:
    """Return the digest that a log leaf has for its content under this salt."""
    return parts_digest(part_hashes(written, secret=secret, salt=salt))
