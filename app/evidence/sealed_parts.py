"""What a bundle shows of the log: leaves with their proofs, and what opens what they seal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from app.core.masking import Masking
from reconcile.ledger.events import Event
from reconcile.ledger.history import History
from reconcile.transparency.readings import TEXTS


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenLeaf:
    """One entry of the log with its proof. `text` is what was hashed; None where that may not be
    shown. `subject` names what it is of: an id, or `revision:7`."""

    index: int
    subject: str
    text: str | None
    hash: bytes
    proof: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderName:
    """How leaves name an order, in hex: the commitment, and the key that opens it; None where the
    reference is masked, which could be guessed with it."""

    commitment: str
    key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedPart:
    """One part of what was read of a delivery: the commitment to it, and the salt that opens it,
    both in hex; no salt of what is masked."""

    hash: str
    salt: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InTree:
    """An order in a tree of all orders.

    leaf    which leaf seals the tree's root
    leaves  how many the order had then, and last: the number of the newest of them
    path    from below: bits shared with the commitments on the other side, and their hash
    """

    leaf: str
    leaves: int
    last: int
    path: tuple[tuple[int, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedParts:
    """What the log says of what is in the bundle.

    checkpoint  the signed head that all proofs lead to; empty where nothing was sealed yet
    unsealed    ids of what has no leaf under that head
    keys        every public key that has signed for the log, in hex, the newest last
    endorsements of each of them what the one before it signed of it, in hex; None where nothing
    order       how leaves name the order; None where none does that anybody can tell
    readings    by delivery: each part of what was read of it, and the salt that it is sealed with
    tree        the order in the newest tree of all orders; None before there was one
    """

    checkpoint: str = ""
    leaves: tuple[ProvenLeaf, ...] = ()
    unsealed: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    endorsements: tuple[str | None, ...] = ()
    order: OrderName | None = None
    readings: Mapping[str, Mapping[str, SealedPart]] = field(default_factory=dict)
    tree: InTree | None = None


def masked_leaves(sealed: SealedParts, masking: Masking) -> SealedParts:
    """The proofs; of a leaf whose text holds a customer's number only the hash, which is salted."""
    leaves = tuple(
        replace(each, text=None) if each.text is None or masking.touches(each.text) else each
        for each in sealed.leaves
    )
    return replace(sealed, leaves=leaves)


def masked_readings(sealed: SealedParts, *, known: History, masked: History) -> SealedParts:
    """The proofs; of what is masked in the history the commitments, and not what opens them."""
    shown = {each.delivery_id: each.event for each in masked.deliveries}
    hidden = {
        each.delivery_id: _masked_texts(each.event, shown[each.delivery_id])
        for each in known.deliveries
    }
    readings = {
        delivery: {
            name: replace(part, salt=None) if name in hidden[delivery] else part
            for name, part in parts.items()
        }
        for delivery, parts in sealed.readings.items()
    }
    order = sealed.order
    if order is not None and known.order != masked.order:
        order = replace(order, key=None)
    return replace(sealed, readings=readings, order=order)


def _masked_texts(whole: Event, shown: Event) -> set[str]:
    return {name for name in TEXTS if getattr(whole, name) != getattr(shown, name)}
