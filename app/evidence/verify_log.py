"""Recomputes the log from the ground up, on one snapshot, while the service runs.

    1 leaves       numbers without gaps; each is the hash of its row, and the row has its contents
    2 hashes       every kept hash is that of the leaves beneath it
    3 heads        every checkpoint is the head of its leaves, as it was signed, by a key of ours
    4 rows         every row has a leaf, or waits for one
    5 the keeper   a checkpoint that was kept elsewhere is a head of this log

Each layer is compared with the one it rests on, so that one change is told once, and where it is.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from app.core.errors import NotFoundError, UsageError
from app.core.text import LEAF, counted
from app.database.engine import Connection
from app.evidence.checkpoint import Checkpoint, NotACheckpoint, read_checkpoint
from app.evidence.log_check_store import node_count, strays, whole_bodies
from app.evidence.verify_leaves import contents, misfit, reread, rows_of
from app.evidence.verify_tree import Tree
from app.receiving.context import Desk
from app.sealing.leaf_store import Leaf
from app.sealing.log_queue_store import count_unsealed, log_size
from app.sealing.log_store import (
    Identity,
    SignedHead,
    heads_after,
    identity,
    kept_hashes,
    leaves_after,
    newest_head,
)
from reconcile.transparency.merkle_tiles import STEP

AT_ONCE: Final = 1_000
"""Leaves in memory at a time, with the bodies of their deliveries."""

MAX_PROBLEMS: Final = 50
"""Problems that are told; the others are counted."""


@dataclass(slots=True, kw_only=True)
class Verified:
    """What was recomputed, and what does not fit.

    waiting  rows that wait for a leaf
    reread   deliveries whose verdict or event id was corrected since they were sealed
    first    number of the first leaf that does not fit
    tell     problems that are kept; the others are counted
    """

    tell: int = MAX_PROBLEMS

    leaves: int = 0
    checkpoints: int = 0
    waiting: int = 0
    reread: int = 0
    found: int = 0
    first: int | None = None
    problems: list[str] = field(default_factory=list)

    def add(self, problem: str, *, leaf: int | None = None) -> None:
        """Count a problem, the first some of which are kept."""
        self.found += 1
        if leaf is not None:
            self.first = leaf if self.first is None else min(leaf, self.first)
        if len(self.problems) < self.tell:
            self.problems.append(problem)

    def sentence(self) -> str:
        """For a person."""
        verdict = counted(self.found, "does not fit", "do not fit") if self.found else "all fit"
        more = ""
        if self.waiting:
            more = f", {counted(self.waiting, 'row waits', 'rows wait')} to be sealed"
        if self.reread:
            read = counted(self.reread, "delivery is", "deliveries are")
            more += f", {read} read otherwise by now (`db check` compares them with their bodies)"
        looked = counted(self.leaves, *LEAF)
        return f"{looked} and {counted(self.checkpoints, 'checkpoint')}: {verdict}{more}."

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "valid": not self.found,
            "leaves": self.leaves,
            "checkpoints": self.checkpoints,
            "waiting": self.waiting,
            "reread": self.reread,
            "found": self.found,
            "first": self.first,
            "problems": self.problems,
        }


async def verify_log(
    desk: Desk,
    *,
    against: str | None = None,
    tell: int = MAX_PROBLEMS,
    progress: Callable[[int, int], None],
) -> Verified:
    """Verify everything. `against`: the text of a checkpoint that was kept elsewhere; `tell`: how
    many problems are told, not only counted.

    Raises NotFoundError where no log has begun, UsageError where `against` is no checkpoint of it.
    """
    async with desk.store.reading() as connection:
        known = await identity(connection)
        if known is None:
            raise NotFoundError("nothing is sealed yet; `tallyhook log seal` seals what waits")
        kept = None if against is None else _kept_elsewhere(against, known)
        verification = _Verification(connection, Tree(known, kept=kept), tell=tell)
        return await verification.run(against, kept, progress=progress)


def _kept_elsewhere(note: str, known: Identity) -> Checkpoint:
    try:
        kept = read_checkpoint(note)
    except NotACheckpoint as error:
        raise UsageError(f"{error}; name a file that `tallyhook log checkpoint` printed") from error
    if kept.origin != known.origin:
        raise UsageError(f"that checkpoint is of {kept.origin}, and this log is {known.origin}")
    return kept


class _Verification:
    """One pass over the log; what it found is `verified`."""

    def __init__(self, connection: Connection, tree: Tree, *, tell: int) -> None:
        self._connection = connection
        self._tree = tree
        self._heads: deque[SignedHead] = deque()
        self._whole = True
        self.verified = Verified(tell=tell)

    async def run(
        self,
        note: str | None,
        kept: Checkpoint | None,
        *,
        progress: Callable[[int, int], None],
    ) -> Verified:
        """Verify layer by layer."""
        size, after = await log_size(self._connection), 0
        await self._more_heads(0)
        while leaves := await leaves_after(self._connection, after, limit=AT_ONCE):
            await self._check_rows(leaves)  # 1
            for leaf in leaves:
                await self._grow(leaf)
            await self._check_nodes()  # 2
            after = leaves[-1].number + 1
            progress(after, size)
        await self._check_end()
        await self._check_unsealed()  # 4
        if note is not None and kept is not None:  # 5
            self._check_keep(note, kept)
        return self.verified

    async def _check_rows(self, leaves: Sequence[Leaf]) -> None:
        rows = await rows_of(self._connection, leaves)
        bodies = await contents(self._connection, leaves)
        for leaf in leaves:
            row = rows.get(leaf.subject)
            problem = misfit(leaf, row, bodies.get(leaf.subject))
            if problem is not None:
                self.verified.add(problem, leaf=leaf.number)
            elif row is not None and reread(leaf, row):
                self.verified.reread += 1

    async def _grow(self, leaf: Leaf) -> None:
        """Add a leaf to the tree, and compare the heads of that size. Behind a gap there is no
        tree to compare: its leaves are compared with their rows alone."""
        self.verified.leaves += 1
        if not self._whole:
            return
        if leaf.number != self._tree.size:
            gone = self._tree.size
            self.verified.add(f"leaf {gone} is missing: it was deleted", leaf=gone)
            self._whole = False
            return
        self._tree.append(leaf.hash)
        while self._heads and self._heads[0].size == self._tree.size:  # 3
            await self._check_head(self._heads.popleft())
        problem = self._tree.wrong_keep()
        if problem is not None:
            self.verified.add(problem)

    async def _check_head(self, head: SignedHead) -> None:
        self.verified.checkpoints += 1
        sound = self._tree.sound
        problem = self._tree.wrong_head(head)
        if problem is not None:
            self.verified.add(problem, leaf=sound)
        if not self._heads:
            await self._more_heads(head.size)

    async def _more_heads(self, size: int) -> None:
        self._heads.extend(await heads_after(self._connection, size, limit=AT_ONCE))

    async def _check_nodes(self) -> None:
        ranges = [(level, place, place + 1) for level, place in self._tree.made]
        stored = await kept_hashes(self._connection, ranges)
        for leaf, problem in self._tree.wrong_nodes(stored):
            self.verified.add(problem, leaf=leaf)

    async def _check_end(self) -> None:
        """Nothing is kept or signed of leaves that are not there, and all that are, are signed."""
        if not self._whole:
            return
        size = self._tree.size
        if self._heads:
            said = counted(self._heads[0].size, *LEAF)
            self.verified.add(
                f"the checkpoint of {said} says more than the {size:,} that there are: the end of "
                "the log was cut off, or a checkpoint put in"
            )
        newest = await newest_head(self._connection)
        if size and (newest is None or newest.size < size):
            signed = 0 if newest is None else newest.size
            self.verified.add(f"leaves from {signed} on are in no checkpoint: they were added by "
                              "hand, or a checkpoint was deleted", leaf=signed)  # fmt: skip
        wanted = sum(size >> level for level in range(STEP, 64, STEP))
        if await node_count(self._connection) > wanted:
            self.verified.add("hashes are kept of leaves that are not there")

    async def _check_unsealed(self) -> None:
        for subject in await strays(self._connection, limit=self.verified.tell):
            self.verified.add(
                f"{subject} has no leaf, and nothing waits to seal it: it was put in by hand, or "
                "its leaf was cut off; `tallyhook log seal` seals it as it is now"
            )
        async for rows in whole_bodies(self._connection):
            for digest, body in rows:
                if hashlib.sha256(body).hexdigest() != digest:
                    self.verified.add(f"the whole body {digest} was changed")
        self.verified.waiting = await count_unsealed(self._connection)

    def _check_keep(self, note: str, kept: Checkpoint) -> None:
        if not self._tree.signed(note):
            self.verified.add("the kept checkpoint is not signed by a key of this log")
        elif self._whole and kept.size > self._tree.size:
            self.verified.add(
                f"the log has {counted(self._tree.size, *LEAF)}, and the kept checkpoint is of "
                f"{kept.size:,}: what came last was cut off, from leaf {self._tree.size} on",
                leaf=self._tree.size,
            )
