"""What a bundle shows of the log: an order's leaves with their proofs, and what opens what is
sealed in them.

Beside the leaves of what is in the bundle these are: leaves that say how a delivery is read later
on, and whatever else the log has of the order before the last of them, so that none is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from app.core.masking import Masking
from app.database.engine import Connection
from app.database.statements import run
from app.sealing import leaf_store, log_store, order_store, order_tree_store
from reconcile.instants import Instant
from reconcile.ledger.events import Event
from reconcile.ledger.history import History
from reconcile.transparency.readings import TEXTS, part_hashes, part_salts, reading_hash


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


# --- gathered -------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class BundleLeaves:
    """Leaves by subject; how they name the order, where anybody can tell; by delivery the parts of
    what was read of it, where that was sealed; and what the newest tree of orders counts."""

    leaves: dict[str, leaf_store.Leaf] = field(default_factory=dict)
    order: OrderName | None = None
    readings: Mapping[str, Mapping[str, SealedPart]] = field(default_factory=dict)
    tree: InTree | None = None


async def leaves_for_bundle(
    connection: Connection, history: History, subjects: Collection[str], *, as_of: Instant
) -> BundleLeaves:
    """The leaves for a bundle of these deliveries, records and revisions."""
    found = BundleLeaves(leaves=await log_store.leaves_of(connection, subjects))
    deliveries = sorted(each.delivery_id for each in history.deliveries)
    read = await run(connection, order_store.read_leaves, deliveries)
    found.leaves |= {leaf.subject: leaf for each in read.values() for leaf in each}
    secret = await order_store.log_secret(connection)
    if secret is not None:
        found.readings = {
            each.delivery_id: parts
            for each in sorted(history.deliveries, key=lambda each: each.delivery_id)
            if (parts := _opened(each.event, read[each.delivery_id], secret))
        }
    known = (await order_store.named_orders(connection, [history.order])).get(history.order)
    if known is not None:
        named, key = known
        found.order = OrderName(commitment=named.commitment.hex(), key=key.hex())
        await _add_tree(connection, found, named.commitment, as_of)
        await _add_rest(connection, found, await run(connection, order_store.chain_of, named))
    return found


async def _add_tree(
    connection: Connection, found: BundleLeaves, commitment: bytes, as_of: Instant
) -> None:
    """How many leaves the order had in the newest tree of all orders by then."""
    tree = await order_tree_store.newest_tree(connection, until=as_of)
    if tree is None:
        return
    subject = f"{leaf_store.ORDERS.name}:{tree.number}"
    leaves = await log_store.leaves_of(connection, [subject])
    entered = await order_tree_store.entry_in(connection, commitment, tree)
    if leaves and entered is not None:
        found.leaves |= leaves
        entry, path = entered
        found.tree = InTree(leaf=subject, leaves=entry.leaves, last=entry.last, path=tuple(path))


async def _add_rest(
    connection: Connection, found: BundleLeaves, chain: list[leaf_store.Leaf]
) -> None:
    """Every leaf of the order up to the last one that is shown, or that the tree counts."""
    last = max((n for n, leaf in enumerate(chain, 1) if leaf.subject in found.leaves), default=0)
    last = max(last, 0 if found.tree is None else found.tree.leaves)
    more = [leaf for leaf in chain[:last] if leaf.subject not in found.leaves]
    found.leaves |= {leaf.subject: leaf for leaf in more}
    gone = [leaf.subject for leaf in more if leaf.kind == "delivery"]
    read = await run(connection, order_store.read_leaves, gone)  # of which order each is by now
    found.leaves |= {leaf.subject: leaf for each in read.values() for leaf in each}


def _opened(
    event: Event, leaves: Collection[leaf_store.Leaf], secret: bytes
) -> dict[str, SealedPart]:
    """The parts of an event with what opens them, by the first of these leaves that seals it; none
    where none does."""
    for leaf in leaves:
        said = leaf.members()
        if leaf.kind not in leaf_store.READ or said.get("reading") is None:
            continue
        salt = bytes.fromhex(said["salt"])
        hashes = part_hashes(event, secret=secret, salt=salt)
        if reading_hash(hashes.items()) == said["reading"]:
            salts = part_salts(secret, salt)
            return {name: SealedPart(hash=each, salt=salts[name]) for name, each in hashes.items()}
    return {}
