"""Gathers the leaves that a bundle shows of an order, and what opens what is sealed in them.

Beside the leaves of what is in the bundle these are: leaves that say how a delivery is read later
on, and whatever else the log has of the order before the last of them, so that none is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from app.database.engine import Connection
from app.database.statements import run
from app.evidence.sealed_parts import InTree, OrderName, SealedPart
from app.sealing.leaf_store import ORDERS, READ, Leaf
from app.sealing.log_store import leaves_of
from app.sealing.order_store import chain_of, log_secret, named_orders, read_leaves
from app.sealing.order_tree_store import entry_in, newest_tree
from reconcile.instants import Instant
from reconcile.ledger.events import Event
from reconcile.ledger.history import History
from reconcile.transparency.readings import part_hashes, part_salts, reading_hash


@dataclass(slots=True, kw_only=True)
class BundleLeaves:
    """Leaves by subject; how they name the order, where anybody can tell; by delivery the parts of
    what was read of it, where that was sealed; and what the newest tree of orders counts."""

    leaves: dict[str, Leaf] = field(default_factory=dict)
    order: OrderName | None = None
    readings: Mapping[str, Mapping[str, SealedPart]] = field(default_factory=dict)
    tree: InTree | None = None


async def leaves_for_bundle(
    connection: Connection, history: History, subjects: Collection[str], *, as_of: Instant
) -> BundleLeaves:
    """The leaves for a bundle of these deliveries, records and revisions."""
    found = BundleLeaves(leaves=await leaves_of(connection, subjects))
    deliveries = sorted(each.delivery_id for each in history.deliveries)
    read = await run(connection, read_leaves, deliveries)
    found.leaves |= {leaf.subject: leaf for each in read.values() for leaf in each}
    secret = await log_secret(connection)
    if secret is not None:
        found.readings = {
            each.delivery_id: parts
            for each in sorted(history.deliveries, key=lambda each: each.delivery_id)
            if (parts := _opened(each.event, read[each.delivery_id], secret))
        }
    known = (await named_orders(connection, [history.order])).get(history.order)
    if known is not None:
        named, key = known
        found.order = OrderName(commitment=named.commitment.hex(), key=key.hex())
        await _add_tree(connection, found, named.commitment, as_of)
        await _add_rest(connection, found, await run(connection, chain_of, named))
    return found


async def _add_tree(
    connection: Connection, found: BundleLeaves, commitment: bytes, as_of: Instant
) -> None:
    """How many leaves the order had in the newest tree of all orders by then."""
    tree = await newest_tree(connection, until=as_of)
    if tree is None:
        return
    subject = f"{ORDERS.name}:{tree.number}"
    leaves = await leaves_of(connection, [subject])
    entered = await entry_in(connection, commitment, tree)
    if leaves and entered is not None:
        found.leaves |= leaves
        entry, path = entered
        found.tree = InTree(leaf=subject, leaves=entry.leaves, last=entry.last, path=tuple(path))


async def _add_rest(connection: Connection, found: BundleLeaves, chain: list[Leaf]) -> None:
    """Every leaf of the order up to the last one that is shown, or that the tree counts."""
    last = max((n for n, leaf in enumerate(chain, 1) if leaf.subject in found.leaves), default=0)
    last = max(last, 0 if found.tree is None else found.tree.leaves)
    more = [leaf for leaf in chain[:last] if leaf.subject not in found.leaves]
    found.leaves |= {leaf.subject: leaf for leaf in more}
    gone = [leaf.subject for leaf in more if leaf.kind == "delivery"]
    read = await run(connection, read_leaves, gone)  # of which order each is by now
    found.leaves |= {leaf.subject: leaf for each in read.values() for leaf in each}


def _opened(event: Event, leaves: Collection[Leaf], secret: bytes) -> dict[str, SealedPart]:
    """The parts of an event with what opens them, by the first of these leaves that seals it; none
    where none does."""
    for leaf in leaves:
        said = leaf.members()
        if leaf.kind not in READ or said.get("reading") is None:
            continue
        salt = bytes.fromhex(said["salt"])
        hashes = part_hashes(event, secret=secret, salt=salt)
        if reading_hash(hashes.items()) == said["reading"]:
            salts = part_salts(secret, salt)
            return {name: SealedPart(hash=each, salt=salts[name]) for name, each in hashes.items()}
    return {}
