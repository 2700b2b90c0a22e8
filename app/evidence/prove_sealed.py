"""Prove that something was sealed and that the log only grew (RFC 9162)."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from app.context.context import AppContext
from app.core.errors import NotFoundError, UsageError
from app.core.masking import UNSHOWN, Masking
from app.core.text import counted
from app.database.engine import Connection
from app.database.statements import run
from app.evidence import verify
from app.evidence.seal import Checkpoint, read_checkpoint
from app.evidence.witnesses import Witnesses, cosigned_size, witnesses_of
from app.sealing import (
    departure_store,
    leaf_store,
    log_queue_store,
    log_store,
    order_store,
    order_tree_store,
)
from reconcile.instants import DAY, HOUR, Duration, Instant
from reconcile.ledger.history import History
from reconcile.transparency import commitments, merkle
from reconcile.transparency.evidence import value_document
from reconcile.transparency.merkle import Hash, computed, consistency_spans, inclusion_spans, needed

LEAF_BYTES: Final = 2_400
"""Bytes that a leaf typically takes in a bundle, with text, proof and salts."""

AT_ONCE: Final = verify.MAX_BYTES * 2 // 3 // LEAF_BYTES
"""Maximum number of leaves proved at a time: two thirds of the largest bundle."""

PATHS_AT_ONCE: Final = 500
"""Number of leaves whose audit paths are computed together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InclusionProof:
    """Proof that one leaf is in the sealed log."""

    subject: str
    kind: str
    number: int
    text: str
    leaf_hash: Hash
    path: Sequence[Hash]

    def document(self) -> dict[str, Any]:
        """Return the proof as JSON values, with hashes in hex."""
        return {
            "id": self.subject,
            "kind": self.kind,
            "number": self.number,
            "leaf": json.loads(self.text),
            "leaf_hash": self.leaf_hash.hex(),
            "path": [each.hex() for each in self.path],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Proofs:
    """Proofs of several leaves at one checkpoint, in the log's order."""

    checkpoint: Checkpoint
    note: str
    proofs: Sequence[InclusionProof]


async def proofs_of(
    connection: Connection,
    subjects: Collection[str],
    *,
    earliest: bool = False,
    witnesses: Witnesses | None = None,
) -> Proofs:
    """Return proofs that these subjects are sealed in the log.

    subjects  ids of deliveries and records, or `revision:N` and `deed:N`
    earliest  whether to use the first checkpoint that covers all subjects

    Raise NotFoundError for an unsealed subject, and UsageError for more than AT_ONCE subjects.
    """
    if len(subjects) > AT_ONCE:
        raise UsageError(f"at most {AT_ONCE:,} leaves are proved at once; ask for fewer")
    leaves = await log_store.leaves_of(connection, subjects)
    missing = sorted(set(subjects) - leaves.keys())
    if missing:
        raise NotFoundError(
            f"{missing[0]} does not exist or is not sealed yet: check the id, or run `tallyhook "
            "log seal`"
        )
    last = max((leaf.number for leaf in leaves.values()), default=0)
    if earliest:
        size = None
        if witnesses is not None:
            size = await departure_store.first_cosigned_over(
                connection, last, witnesses=witnesses.names, quorum=witnesses.quorum
            )
        signed = None if size is None else await log_store.head_of(connection, size)
        signed = signed or await log_store.first_head_over(connection, last)
    else:
        signed = await log_store.newest_head(connection)
    if signed is None or signed.size <= last:
        raise NotFoundError(
            "no checkpoint covers all these leaves; run `tallyhook log verify` to see why"
        )
    ordered = sorted(leaves.values(), key=lambda leaf: leaf.number)
    paths = await paths_to(connection, [leaf.number for leaf in ordered], size=signed.size)
    proofs = [
        InclusionProof(
            subject=leaf.subject,
            kind=leaf.kind,
            number=leaf.number,
            text=leaf.document,
            leaf_hash=leaf.hash,
            path=path,
        )
        for leaf, path in zip(ordered, paths, strict=True)
    ]
    return Proofs(checkpoint=read_checkpoint(signed.note), note=signed.note, proofs=proofs)


async def with_cosignatures(connection: Connection, note: str) -> str:
    """Return the text of a checkpoint, extended by the signature lines of its witnesses."""
    checkpoint = read_checkpoint(note)
    found = await departure_store.cosignatures_of(
        connection, size=checkpoint.size, head=checkpoint.head
    )
    return note + "".join(f"{each.line}\n" for each in found)


async def cosigned_checkpoint(context: AppContext) -> str:
    """Return the newest cosigned checkpoint. Raise NotFoundError without enough cosignatures."""
    async with context.database.reading() as connection:
        head = await log_store.head_of(
            connection, await cosigned_size(connection, witnesses_of(context.settings))
        )
        if head is None:
            raise NotFoundError("no checkpoint was cosigned by enough witnesses yet")
        return await with_cosignatures(connection, head.note)


async def paths_to(
    connection: Connection, numbers: Sequence[int], *, size: int
) -> list[list[Hash]]:
    """Return each leaf's audit path in the tree of `size` leaves."""
    found: list[list[Hash]] = []
    for start in range(0, len(numbers), PATHS_AT_ONCE):
        some = [inclusion_spans(n, size=size) for n in numbers[start : start + PATHS_AT_ONCE]]
        wanted = needed({span for spans in some for span in spans})
        found += merkle.paths(some, await log_store.kept_hashes(connection, wanted))
    return found


async def prove_sealed(context: AppContext, subject: str) -> dict[str, Any]:
    """Return the proof of a subject as JSON values. Raise NotFoundError for an unsealed subject."""
    found = await prove_each(context, [subject], with_texts=True)
    return {**found.pop("proofs")[0], **found}


async def prove_each(
    context: AppContext, subjects: Collection[str], *, with_texts: bool = False
) -> dict[str, Any]:
    """Return proofs with the leaves' texts and salts, as JSON values.

    `with_texts` adds parts that can have personal data. Raise the errors of `proofs_of`.
    """
    async with context.database.reading() as connection:
        found = await proofs_of(connection, subjects)
        rows = await _rows_of(connection, subjects)
        secret = await order_store.log_secret(connection) or b""
    opened = {}
    for each in found.proofs:
        salts = commitments.part_salts(secret, bytes.fromhex(json.loads(each.text)["salt"]))
        row = rows.get(each.subject)
        values = row.said if row is not None and isinstance(row.said, Mapping) else {}
        opened[each.subject] = {
            name: {"salt": salts[name], "value": value}
            for name, value in values.items()
            if with_texts or name == commitments.SAID
        }
    return {
        "proofs": [{**each.document(), "opened": opened[each.subject]} for each in found.proofs],
        "size": found.checkpoint.size,
        "checkpoint": found.note,
    }


async def newest_checkpoint(context: AppContext) -> log_store.SignedHead:
    """Return the newest signed checkpoint. Raises NotFoundError if nothing is signed yet."""
    async with context.database.reading() as connection:
        found = await log_store.newest_head(connection)
    if found is None:
        raise NotFoundError("nothing is sealed yet: run `tallyhook log seal`")
    return found


PUBLISHED: Final = "published"

NOTED_EVERY: Final[Duration] = HOUR
"""Minimum time between two records of published checkpoints."""


async def shown_checkpoint(context: AppContext) -> log_store.SignedHead:
    """Return the newest signed checkpoint, and record its publication. Raise NotFoundError without
    one."""
    head, now = await newest_checkpoint(context), context.clock.now()
    async with context.database.reading() as connection:
        last = await departure_store.last_by(connection, PUBLISHED)
    if last is None or (last.size < head.size and now - last.at >= NOTED_EVERY):
        async with context.database.writing() as connection:
            await departure_store.add_departure(
                connection,
                departure_store.Departure(size=head.size, way=PUBLISHED, head=head.head, at=now),
            )
    return head


async def prove_growth(context: AppContext, *, old: int, new: int) -> dict[str, Any]:
    """Return the proof that a log with `new` leaves extends the log with `old` leaves.

    Raise NotFoundError without such a checkpoint, and UsageError for invalid numbers.
    """
    if not 0 < old <= new:
        raise UsageError("give the sizes of two checkpoints, the smaller one first")
    async with context.database.reading() as connection:
        heads = [await log_store.head_of(connection, size) for size in (old, new)]
        spans = consistency_spans(old, size=new)
        kept = await log_store.kept_hashes(connection, needed(spans))
    notes = [None if head is None else head.note for head in heads]
    if None in notes:
        wrong = old if notes[0] is None else new
        raise NotFoundError(f"there was no checkpoint of {counted(wrong, 'leaf', 'leaves')}")
    path = [computed(span, kept).hex() for span in spans]
    return {"old": notes[0], "new": notes[1], "path": path}


# --- content of a bundle ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderName:
    """Pseudonym of an order in log leaves, in hex."""

    commitment: str
    key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedPart:
    """Commitment to a part of a leaf, with its salt."""

    hash: str
    salt: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InTree:
    """Place of an order in a tree of all orders, with its path to the root."""

    leaf: str
    leaves: int
    last: int
    path: tuple[tuple[int, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedParts:
    """Entries of the sealed log for the content of a bundle."""

    checkpoint: str = ""
    """Signed head of the log. Empty if nothing is sealed yet."""
    leaves: Sequence[InclusionProof] = ()
    unsealed: tuple[str, ...] = ()
    """Ids of rows without a leaf under that head."""
    keys: tuple[str, ...] = ()
    endorsements: tuple[str | None, ...] = ()
    """Each key's endorsement by the previous key in hex, or None."""
    origins: tuple[tuple[str, int | None], ...] = ()
    """The log's origins with their numbers of leaves. Empty for one origin."""
    order: OrderName | None = None
    parts: Mapping[str, Mapping[str, SealedPart]] = field(default_factory=dict)
    said: Mapping[str, commitments.Parts] = field(default_factory=dict)
    tree: InTree | None = None


def masked_parts(
    sealed: SealedParts, masking: Masking, *, known: History, masked: History, full: bool
) -> SealedParts:
    """Mask personal data in the sealed parts of a bundle."""
    said = {
        name: {
            part: _masked(value, masking)
            if part != commitments.SAID and (full or part != "who")
            else value
            for part, value in parts.items()
        }
        | (
            {n: UNSHOWN for n in ("who", "reason") if parts.get(n)}
            if "who" in parts and not full
            else {}
        )
        for name, parts in sealed.said.items()
    }
    events = {each.delivery_id: each.event for each in known.deliveries}
    shown = {each.delivery_id: each.event for each in masked.deliveries}

    def hides(name: str, part: str) -> bool:
        if part == commitments.SAID:
            return False
        if name in said:
            return bool(said[name][part] != sealed.said[name][part])
        delivery = leaf_store.delivery_sealed_by(name)
        return bool(getattr(events[delivery], part) != getattr(shown[delivery], part))

    order = sealed.order
    if order is not None and known.order != masked.order:
        order = replace(order, key=None)
    parts = {
        name: {
            part: replace(found, salt=None) if hides(name, part) else found
            for part, found in each.items()
        }
        for name, each in sealed.parts.items()
    }
    return replace(sealed, parts=parts, said=said, order=order)


def _masked(value: Any, masking: Masking) -> Any:
    if isinstance(value, str):
        return masking.text(value)
    if isinstance(value, list):
        return [_masked(each, masking) for each in value]
    if isinstance(value, dict):
        return {name: _masked(each, masking) for name, each in value.items()}
    return value


def refuse_more(count: int, most: int, what: str) -> None:
    if count > most:
        raise UsageError(
            f"this bundle would have {count:,} {what}, but at most {most:,} are allowed: give an "
            "earlier --as-of"
        )


async def sealed_parts(
    connection: Connection,
    history: History,
    others: Collection[str],
    *,
    as_of: Instant,
    witnesses: Witnesses | None,
) -> SealedParts:
    """Return the log entries for a history and other subjects."""
    deliveries = sorted(each.delivery_id for each in history.deliveries)
    subjects = {*deliveries, *(each.record_id for each in history.records), *others}
    refuse_more(len(subjects), AT_ONCE, "deliveries, records and revisions")
    leaves = await log_store.leaves_of(connection, subjects)
    rows = await _rows_of(connection, subjects.difference(deliveries))
    said = {name: row.said for name, row in rows.items() if isinstance(row.said, Mapping)}
    read = await run(connection, order_store.read_leaves, deliveries)
    secret, parts = await order_store.log_secret(connection), {}
    if secret is not None:
        for name in said.keys() & leaves.keys():
            parts[name] = _opened(said[name], leaves[name], secret)
        for each in history.deliveries:
            for leaf in read[each.delivery_id][-1:]:  # it seals the present reading of the delivery
                event = commitments.cut_into_parts(value_document(each.event), commitments.TEXTS)
                parts[leaf.subject] = _opened(event, leaf, secret)
    leaves |= {leaf.subject: leaf for each in read.values() for leaf in each}
    named = (await order_store.named_orders(connection, [history.order])).get(history.order)
    order, tree = None, None
    if named is not None:
        order = OrderName(commitment=named.commitment.hex(), key=named.key.hex())
        chain = await run(connection, order_store.chain_of, named, known=leaves.values())
        tree = await _in_tree(connection, named, as_of=as_of, chain=chain)
        if tree is not None:
            leaves |= await log_store.leaves_of(connection, [tree.leaf])
        # Every leaf of the order up to the last one that is shown, or that the tree counts.
        shown = [n for n, leaf in enumerate(chain, 1) if leaf.subject in leaves]
        last = max([*shown, 0 if tree is None else tree.leaves])
        more = [leaf for leaf in chain[:last] if leaf.subject not in leaves]
        leaves |= {leaf.subject: leaf for leaf in more}
        read_later = (leaf_store.DELIVERY.name, leaf_store.READING)
        gone = {leaf_store.delivery_sealed_by(e.subject) for e in more if e.kind in read_later}
        read = await run(connection, order_store.read_leaves, gone)  # the present order of each
        leaves |= {leaf.subject: leaf for each in read.values() for leaf in each}
    unsealed = tuple(sorted(subjects - leaves.keys()))
    if not leaves:
        return SealedParts(unsealed=unsealed, said=said)
    refuse_more(len(leaves), AT_ONCE, "leaves of the log")
    proofs = await proofs_of(connection, leaves.keys(), earliest=True, witnesses=witnesses)
    known = await log_store.identity(connection)
    if known is None:
        raise NotFoundError("the log has no origin; run `tallyhook log verify` to see why")
    origins = known.origins if known.earlier else ()
    return SealedParts(
        checkpoint=await with_cosignatures(connection, proofs.note),
        leaves=proofs.proofs,
        unsealed=unsealed,
        keys=known.keys,
        endorsements=known.endorsements,
        origins=tuple((origin, known.size_as(origin)) for origin in origins),
        order=order,
        parts=parts,
        said=said,
        tree=tree,
    )


async def _in_tree(
    connection: Connection,
    named: order_store.NamedOrder,
    *,
    as_of: Instant,
    chain: Sequence[leaf_store.Leaf],
) -> InTree | None:
    newest = await order_tree_store.newest_tree(connection, until=as_of)
    trees = [] if newest is None else [newest]
    if leaf_store.began_before(chain, as_of):
        trees = [each for each in trees if each.at // DAY == as_of // DAY]
        trees += await order_tree_store.all_trees(connection, after=as_of)
    for each in trees:
        leaf = f"{leaf_store.ORDERS.name}:{each.number}"
        entered = await order_tree_store.entry_in(connection, named.commitment, each)
        if entered is not None and await log_store.leaves_of(connection, [leaf]):
            entry, path = entered
            return InTree(leaf=leaf, leaves=entry.leaves, last=entry.last, path=tuple(path))
    return None


async def _rows_of(
    connection: Connection, subjects: Collection[str]
) -> dict[str, leaf_store.Sealable]:
    found: dict[str, leaf_store.Sealable] = {}
    for kind in (leaf_store.RECORD, leaf_store.REVISION, leaf_store.AUDIT_ENTRY):
        own = [each for each in subjects if kind.names(each)]
        found |= await log_queue_store.rows_to_seal(connection, kind, own)
    return found


def _opened(said: commitments.Parts, leaf: leaf_store.Leaf, secret: bytes) -> dict[str, SealedPart]:
    salt = bytes.fromhex(leaf.members()["salt"])
    hashes = commitments.part_hashes(commitments.written_parts(said), secret=secret, salt=salt)
    salts = commitments.part_salts(secret, salt)
    return {name: SealedPart(hash=each, salt=salts[name]) for name, each in hashes.items()}
