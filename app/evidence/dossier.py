"""Everything that goes into a bundle, as values: gathered by operations, written by `files`.

Leaves out: the store, the clock and the key. Equal dossiers give equal bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.core.masking import Masking
from app.evidence.dossier_store import Arrived
from app.orders.published_store import Published
from reconcile.instants import Instant
from reconcile.ledger.history import History
from reconcile.ledger.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """What is known again of a delivery's signature.

    scheme       the profile's word for it, such as `hmac-sha256`
    signed       the profile's template of what is signed; None where code says it
    where        where the signature stands in the request
    key          fingerprint of the key that makes it genuine; None where none does now
    public       that key in PEM, where it is a public one
    content      the signed bytes, where they can be told without a secret
    signed_at    when the request says that it was signed
    sentence     all of this for a person
    """

    sentence: str
    scheme: str | None = None
    signed: str | None = None
    where: str | None = None
    key: str | None = None
    public: bytes | None = None
    content: bytes | None = field(default=None, repr=False)
    signed_at: Instant | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One delivery: what was kept of it, and what can be proved with that.

    body     the event's own bytes, which an earlier arrival may hold; None where they were let go
    method   and `url`: how the request came
    headers  as lines of `name: value`
    """

    arrived: Arrived
    body: bytes | None = field(repr=False)
    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    proven: Proven


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """A source and the profile that reads it now. `text` is the profile's file, without secrets;
    `orders`: whether its orders are `shared` with other sources or its `own`."""

    source: str
    profile: str
    orders: str
    text: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One entry of the log with its proof. `text` is what was hashed; None where that may not be
    shown. `subject` names what it is of: an id, or `revision:7`."""

    index: int
    subject: str
    text: str | None
    hash: bytes
    proof: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """What the log says of what is in the bundle.

    checkpoint  the signed head that all proofs lead to; empty where nothing was sealed yet
    unsealed    ids of what has no leaf under that head
    keys        every public key that has signed for the log, in hex, the newest last
    """

    checkpoint: str = ""
    leaves: tuple[Leaf, ...] = ()
    unsealed: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Dossier:
    """One order as of an instant.

    history  what was known then; in a redacted bundle with numbers of customers masked in its texts
    details  by record id: the text that is kept beside a record, such as the service's answer
    lines    lines of order books and statements that are of this order, as JSON values
    phones   its customers' numbers, as far as bodies that are kept name them
    full     whether bodies and headers go in as they came
    """

    history: History
    policy: Policy
    as_of: Instant
    told: tuple[Told, ...]
    details: Mapping[str, str]
    revisions: tuple[Published, ...]
    profiles: tuple[Profiled, ...]
    lines: tuple[Mapping[str, Any], ...]
    sealed: Sealed
    masking: Masking
    phones: frozenset[str] = field(default=frozenset(), repr=False)
    full: bool
