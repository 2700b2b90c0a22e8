"""Seals what is kept for ever: every delivery, record, revision and deed becomes a leaf of the log.

1 find     some rows without a leaf, on a snapshot
2 hash     their documents, each with a salt, in small portions; the tiles that they complete
3 sign     the new head as a checkpoint
4 write    leaves, hashes, checkpoint, in one transaction, if nobody else added meanwhile
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from app.core.ids import new_salts
from app.evidence.checkpoint import Checkpoint, signed_checkpoint
from app.evidence.keys import EvidenceKey
from app.receiving.context import AppContext
from app.sealing.leaf_store import Leaf, Sealable, leaf_of
from app.sealing.log_queue_store import Found, find_unsealed, sweep_again
from app.sealing.log_store import Growth, SignedHead, grow_log, kept_hashes
from reconcile.transparency.merkle import Tail, tail_ranges

AT_ONCE: Final = 4_096
"""Leaves in one transaction: it holds the writer for some twenty milliseconds."""

PORTION: Final = 128
"""Documents hashed before others have their turn: one or two milliseconds."""

REST_S: Final = 1.0
"""Seconds between two looks where nothing was left to seal, and so between two checkpoints."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Signer:
    """Who signs for this log: see `open_signer`."""

    origin: str
    key: EvidenceKey


class Sealer:
    """Seals one database's rows, beside any number of others that do."""

    def __init__(self, context: AppContext, signer: Signer) -> None:
        self._context = context
        self._signer = signer

    async def seal_some(self) -> int:
        """Seal a batch; 0 where nothing is left, or where another sealer was first."""
        async with self._context.store.reading() as connection:
            found = await find_unsealed(connection, limit=AT_ONCE)
            if not found.anything:
                return 0
            tail = Tail(found.size, await kept_hashes(connection, tail_ranges(found.size)))
        growth = await self._grown(found, tail)
        store = self._context.store
        if not await store.writer.commit(grow_log, growth):
            return 0
        # Marks without rows, and a sweep without a find, are work done too.
        return max(len(growth.leaves), 1)

    async def _grown(self, found: Found, tail: Tail) -> Growth:
        leaves: list[Leaf] = []
        nodes = []
        for start in range(0, len(found.rows), PORTION):
            portion = found.rows[start : start + PORTION]
            for leaf in leaves_for(portion, first=found.size + start):
                nodes += tail.append(leaf.hash)
                leaves.append(leaf)
            await asyncio.sleep(0)
        signed = self._signed(tail) if leaves else None
        return Growth(found=found, leaves=leaves, nodes=nodes, signed=signed)

    def _signed(self, tail: Tail) -> SignedHead:
        checkpoint = Checkpoint(origin=self._signer.origin, size=tail.size, head=tail.head())
        return SignedHead(
            size=checkpoint.size,
            head=checkpoint.head,
            at=self._context.clock.now(),
            note=signed_checkpoint(self._signer.key, checkpoint),
        )


def leaves_for(rows: Sequence[Sealable], *, first: int) -> list[Leaf]:
    """The leaves of some rows, numbered from `first` on."""
    salted = zip(rows, new_salts(len(rows)), strict=True)
    return [leaf_of(row, number=first + n, salt=salt) for n, (row, salt) in enumerate(salted)]


async def anything_unsealed(context: AppContext) -> bool:
    """Whether something may have no leaf yet."""
    async with context.store.reading() as connection:
        return (await find_unsealed(connection, limit=1)).anything


async def seal_all(
    context: AppContext,
    signer: Signer,
    *,
    sweep: bool = False,
    progress: Callable[[int], None] = lambda count: None,
) -> int:
    """Seal until nothing is left, and say how many were. `sweep`: look at every row there is."""
    if sweep:
        async with context.store.writing() as connection:
            await sweep_again(connection)
    sealer, done = Sealer(context, signer), 0
    while sealed := await sealer.seal_some():
        done += sealed
        progress(sealed)
    return done
