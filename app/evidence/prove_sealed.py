"""Proves to strangers that something was sealed, and that a log only grew.

A proof holds the leaf's document, so that whoever has it can take its hash, climb to the head with
the hashes beside the path (RFC 9162, 2.1.3.2) and compare that with a checkpoint that is signed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.core.errors import NotFoundError, UsageError
from app.core.text import counted
from app.database.engine import Connection
from app.evidence.seal import Checkpoint, read_checkpoint
from app.evidence.witnesses import Witnesses, cosigned_size
from app.receiving.context import AppContext
from app.sealing import departure_store, leaf_store, log_store
from reconcile.instants import HOUR, Duration
from reconcile.transparency.merkle import Hash, computed, consistency_spans, inclusion_spans, needed

AT_ONCE: Final = 1_000
"""Leaves proved on one snapshot: an order has some dozens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InclusionProof:
    """That one leaf is in the log. `path`: the hashes beside its way to the head, lowest first."""

    subject: str
    kind: str
    number: int
    leaf: leaf_store.Members
    leaf_hash: Hash
    path: Sequence[Hash]

    def document(self) -> dict[str, Any]:
        """For JSON, hashes in hex."""
        return {
            "id": self.subject,
            "kind": self.kind,
            "number": self.number,
            "leaf": self.leaf,
            "leaf_hash": self.leaf_hash.hex(),
            "path": [each.hex() for each in self.path],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Proofs:
    """Proofs of several leaves against one checkpoint, in the log's order."""

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
    """Proofs of deliveries and records by id, and of `revision:N` and `deed:N`.

    Against the newest checkpoint; with `earliest`, against the first that covers them all, which
    is the same one for ever: the first that enough of the witnesses have cosigned, once one is.
    Raises NotFoundError where one of them is not sealed (yet), and UsageError for more than
    AT_ONCE.
    """
    if len(subjects) > AT_ONCE:
        raise UsageError(f"at most {AT_ONCE} leaves are proved at once; ask for fewer")
    leaves = await log_store.leaves_of(connection, subjects)
    missing = sorted(set(subjects) - leaves.keys())
    if missing:
        raise NotFoundError(f"{missing[0]} is not sealed: `tallyhook log seal` seals what waits")
    last = max((leaf.number for leaf in leaves.values()), default=0)
    signed = await (
        _earliest_head(connection, last, witnesses)
        if earliest
        else log_store.newest_head(connection)
    )
    if signed is None or signed.size <= last:
        raise NotFoundError("no checkpoint covers it; `tallyhook log verify` says what is wrong")
    ordered = sorted(leaves.values(), key=lambda leaf: leaf.number)
    proofs = [
        InclusionProof(
            subject=leaf.subject,
            kind=leaf.kind,
            number=leaf.number,
            leaf=leaf.members(),
            leaf_hash=leaf.hash,
            path=await path_to(connection, leaf.number, size=signed.size),
        )
        for leaf in ordered
    ]
    return Proofs(checkpoint=read_checkpoint(signed.note), note=signed.note, proofs=proofs)


async def _earliest_head(
    connection: Connection, last: int, witnesses: Witnesses | None
) -> log_store.SignedHead | None:
    cosigned = None
    if witnesses is not None:
        size = await departure_store.first_cosigned_over(
            connection, last, witnesses=witnesses.names, quorum=witnesses.quorum
        )
        cosigned = None if size is None else await log_store.head_of(connection, size)
    return await log_store.first_head_over(connection, last) if cosigned is None else cosigned


async def with_cosignatures(connection: Connection, note: str) -> str:
    """A checkpoint's note, with the line of every witness that has cosigned it."""
    said = read_checkpoint(note)
    found = await departure_store.cosignatures_of(connection, size=said.size, head=said.head)
    return note + "".join(f"{each.line}\n" for each in found)


async def cosigned_checkpoint(context: AppContext, witnesses: Witnesses | None) -> str:
    """The newest checkpoint that enough witnesses have cosigned, with their lines. Raises
    NotFoundError while there is none."""
    async with context.store.reading() as connection:
        head = await log_store.head_of(connection, await cosigned_size(connection, witnesses))
        if head is None:
            raise NotFoundError("no checkpoint was cosigned by enough witnesses yet")
        return await with_cosignatures(connection, head.note)


async def path_to(connection: Connection, number: int, *, size: int) -> list[Hash]:
    """The hashes beside a leaf's way to the head of `size` leaves: two queries, no tree."""
    spans = inclusion_spans(number, size=size)
    kept = await log_store.kept_hashes(connection, needed(spans))
    return [computed(span, kept) for span in spans]


async def prove_sealed(context: AppContext, subject: str) -> dict[str, Any]:
    """One proof against the newest checkpoint, for JSON. Raises NotFoundError."""
    async with context.store.reading() as connection:
        found = await proofs_of(connection, [subject])
    proof = found.proofs[0].document()
    return {**proof, "size": found.checkpoint.size, "checkpoint": found.note}


async def prove_each(context: AppContext, subjects: Collection[str]) -> dict[str, Any]:
    """Proofs of several against the newest checkpoint, for JSON. Raises as `proofs_of` does."""
    async with context.store.reading() as connection:
        found = await proofs_of(connection, subjects)
    return {
        "proofs": [each.document() for each in found.proofs],
        "size": found.checkpoint.size,
        "checkpoint": found.note,
    }


async def newest_checkpoint(context: AppContext) -> log_store.SignedHead:
    """The newest checkpoint. Raises NotFoundError while nothing is sealed."""
    async with context.store.reading() as connection:
        found = await log_store.newest_head(connection)
    if found is None:
        raise NotFoundError("nothing is sealed yet; `tallyhook log seal` seals what waits")
    return found


PUBLISHED: Final = "published"

NOTED_EVERY: Final[Duration] = HOUR
"""Between two checkpoints of which is noted that somebody was shown them: strangers may ask for
one every second, and each note is kept for ever."""


async def shown_checkpoint(context: AppContext) -> log_store.SignedHead:
    """The newest checkpoint, for strangers; that it leaves is noted before it does. Raises
    NotFoundError while nothing is sealed."""
    head, now = await newest_checkpoint(context), context.clock.now()
    async with context.store.reading() as connection:
        last = await departure_store.last_by(connection, PUBLISHED)
    if last is None or (last.size < head.size and now - last.at >= NOTED_EVERY):
        async with context.store.writing() as connection:
            await departure_store.add_departure(
                connection,
                departure_store.Departure(size=head.size, way=PUBLISHED, head=head.head, at=now),
            )
    return head


async def prove_growth(context: AppContext, *, old: int, new: int) -> dict[str, Any]:
    """That the log of `new` leaves began with that of `old`, for JSON.

    Raises NotFoundError where there was no checkpoint of such a size, UsageError for old > new.
    """
    if not 0 < old <= new:
        raise UsageError("say the smaller size first; both are sizes of checkpoints")
    async with context.store.reading() as connection:
        heads = [await log_store.head_of(connection, size) for size in (old, new)]
        spans = consistency_spans(old, size=new)
        kept = await log_store.kept_hashes(connection, needed(spans))
    notes = [None if head is None else head.note for head in heads]
    if None in notes:
        wrong = old if notes[0] is None else new
        raise NotFoundError(f"there was no checkpoint of {counted(wrong, 'leaf', 'leaves')}")
    path = [computed(span, kept).hex() for span in spans]
    return {"old": notes[0], "new": notes[1], "path": path}
