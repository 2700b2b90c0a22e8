"""Verify the whole sealed log from its rows, while the service runs.

1 leaves       the numbers have no gaps; each leaf is the hash of its document and agrees with
               its row
2 hashes       every stored hash is the hash of the leaves below
3 heads        every checkpoint is the head of its leaves, signed by a key of the log
4 rows         every row has a leaf, or waits to be sealed
orders         the leaves of each order and each day's trees are numbered without gaps
the key        the newest key that signs is this machine's key
5 departures   every published or cosigned checkpoint is a head of this log
6 kept         a checkpoint that was kept elsewhere is a head of this log
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypedDict

from app.context.context import AppContext
from app.core.document_of import document_of
from app.core.errors import NotFoundError, UsageError
from app.core.text import LEAF, counted
from app.database.engine import Connection
from app.database.gaps import Gap, accepted_gaps, spans_of
from app.database.statements import run
from app.evidence import keys, seal, store, witnesses
from app.receiving.header_codec import read_request
from app.receiving.verify import digest_of
from app.sealing import (
    departure_store,
    leaf_store,
    log_queue_store,
    log_store,
    order_store,
    order_tree_store,
)
from reconcile.documents import Count, InstantText
from reconcile.instants import format_instant
from reconcile.transparency.commitments import sealed_digest
from reconcile.transparency.cosignatures import read_cosigner
from reconcile.transparency.merkle import STEP, Frontier, Hash, Node, Tail, leaf_hash
from reconcile.transparency.order_tree import LEVELS, OrderEntry, OrderTree, order_commitment

OWN: Final = frozenset(("kind", "salt", "of", "nth", "after", "parts"))
"""Members of a leaf that its row does not have."""

Rows = Mapping[str, leaf_store.Sealable]

_NUMBERED: Final = re.compile(r"\w+:[0-9]{1,18}", re.ASCII)


async def log_rows(connection: Connection, leaves: Sequence[leaf_store.Leaf]) -> Rows:
    """Return the rows that these leaves seal, by subject."""
    found: dict[str, leaf_store.Sealable] = {}
    for kind in leaf_store.KINDS:
        own = [leaf.subject for leaf in leaves if leaf.kind == kind.name]
        if kind.numbered:  # a changed leaf may have any name
            own = [each for each in own if _NUMBERED.fullmatch(each)]
        if own:
            found |= await log_queue_store.rows_to_seal(connection, kind, own)
    again = [
        leaf.subject for leaf in leaves if leaf.kind == leaf_store.READING and ":" in leaf.subject
    ]
    return found | (await log_queue_store.readings_to_seal(connection, again) if again else {})


async def contents(
    connection: Connection, leaves: Sequence[leaf_store.Leaf]
) -> Mapping[str, store.Content]:
    ids = [leaf.subject for leaf in leaves if leaf.kind == "delivery"]
    return await store.contents_of(connection, ids)


def misfit(
    leaf: leaf_store.Leaf, row: leaf_store.Sealable | None, content: store.Content | None
) -> str | None:
    """Return the reason why a leaf contradicts its row."""
    subject = leaf.subject if ":" in leaf.subject else f"{leaf.kind} {leaf.subject}"
    name = f"leaf {leaf.number} ({subject})"
    sealed = None
    with suppress(ValueError):
        if leaf_hash(leaf.document.encode("utf-8", "surrogatepass")) == leaf.hash:
            sealed = leaf.members()
    if sealed is None:  # 1
        return f"{name} does not match its hash: the leaf was changed"
    if row is None or (row.kind, row.kind) != (leaf.kind, sealed.get("kind")):  # 2
        return f"{name} seals a row that is missing: the row was deleted"
    for member in sorted((sealed.keys() | row.members.keys()) - OWN):  # 3
        now = row.members.get(member)
        deleted = member == "headers" and content is not None and content.pruned
        if now != sealed.get(member) and not deleted:
            return f"{name} and its row disagree on {member}: one of the two was changed"
    if content is not None and content.body is not None:  # 4
        if digest_of(content.body, read_request(content.headers).url) != content.digest:
            return f"{name} does not match its body: the body was changed"
    elif content is not None and content.verdict != "duplicate" and not content.pruned:
        return f"{name} has lost its body, although it was not pruned: the body was deleted by hand"
    return None


def reread(leaf: leaf_store.Leaf, row: leaf_store.Sealable, names: Names) -> bool:
    """Check whether a delivery was read again after sealing, with a different result."""
    return leaf.kind == leaf_store.DELIVERY.name and names.says_otherwise(leaf.members(), row)


class Tree:
    """Tree of the log's leaves, for comparison with stored hashes and signed heads."""

    def __init__(self, known: log_store.Identity, *, kept: seal.Checkpoint | None) -> None:
        self._known = known
        self._keys = [keys.PublicKey(bytes.fromhex(each)) for each in known.keys]
        self._kept = kept
        self._tail, self._frontier = Tail(0, {}), Frontier()
        self.sound = 0
        """Number of leaves of the largest matching checkpoint so far."""
        self._wrong_heads = 0
        self.made: dict[Node, Hash] = {}
        """Hashes of the tiles completed since the last call of `wrong_nodes`."""

    @property
    def size(self) -> int:
        """Return the number of leaves so far."""
        return self._frontier.size

    def append(self, leaf: Hash) -> None:
        self._frontier.append(leaf)
        self.made.update(self._tail.append(leaf))

    def signed(self, note: str, *, origin: str) -> bool:
        """Check whether a key of the log signed this note under this origin."""
        return any(seal.note_holds(note, name=origin, public=key) for key in self._keys)

    def wrong_nodes(self, stored: Mapping[Node, Hash]) -> Iterator[tuple[int, str]]:
        """Yield a sentence and first leaf for each wrong hash."""
        for (level, place), found in self.made.items():
            if stored.get((level, place)) != found:
                first, end = place << level, (place + 1) << level
                yield (
                    first,
                    f"the stored hash of leaves {first} to {end - 1} does not match them: the "
                    "hash was changed, or a leaf together with its row",
                )
        self.made.clear()

    def wrong_head(self, head: log_store.SignedHead) -> str | None:
        """Return the reason why a checkpoint contradicts the tree."""
        name = f"the checkpoint of {counted(head.size, 'leaf', 'leaves')}"
        try:
            stated = seal.read_checkpoint(head.note)
        except seal.NotACheckpoint:
            return f"{name} is not a signed note: it was changed"
        origin = self._known.origin_at(head.size)
        if not self.signed(head.note, origin=origin) or stated.origin != origin:
            return f"{name} is not signed by a key of this log: it was changed"
        if (stated.size, stated.head) != (head.size, head.head):
            return (
                f"{name} states another size or head than its stored row: one of the two was "
                "changed"
            )
        if head.head == self._frontier.head():
            self.sound = head.size
            return None
        self._wrong_heads += 1
        if self._wrong_heads > 1:
            return None
        return (
            f"{name}, signed {format_instant(head.at)}, does not match the leaves: after it was "
            f"signed, leaves between {self.sound} and {head.size - 1} were changed, added or "
            "reordered"
        )

    def wrong_departure(self, left: departure_store.Departure) -> str | None:
        """Return the reason why a published checkpoint contradicts the tree."""
        if left.line is not None:
            origin = self._known.origin_at(left.size)
            body = seal.Checkpoint(origin=origin, size=left.size, head=left.head).body()
            at = None
            with suppress(ValueError, witnesses.WrongCosignature):
                at = witnesses.cosigned_at(f"{body}\n{left.line}\n", read_cosigner(left.way))
            if at is None:
                sentence = witnesses.departure_sentence(left)
                return f"{sentence}, is not signed by that witness: it was changed"
        if left.head == self._frontier.head():
            return None
        return (
            f"the first {counted(left.size, 'leaf is', 'leaves are')} different from "
            f"{witnesses.departure_sentence(left)}: the log was rewritten since"
        )

    def wrong_keep(self) -> str | None:
        """Return the reason why the kept checkpoint contradicts the tree."""
        if self._kept is None or self._kept.size != self.size:
            return None
        had = self._known.size_as(self._kept.origin)
        if had is not None and self.size > had:  # reported with the kept checkpoint
            return None
        if self._kept.head == self._frontier.head():
            return None
        return (
            f"the first {counted(self.size, 'leaf is', 'leaves are')} different from the kept "
            "checkpoint: the log was rewritten since"
        )


AT_ONCE: Final = 1_000

BODIES_AT_ONCE: Final = 50
"""Number of bodies in memory at a time."""

MAX_PROBLEMS: Final = 50


class GapDocument(TypedDict):
    gap: str
    since: InstantText
    until: InstantText


class VerifiedLogDocument(TypedDict):
    valid: bool
    leaves: Count
    checkpoints: Count
    waiting: Count
    reread: Count
    found: Count
    first: Count | None
    left: witnesses.DepartureDocument | None
    gaps: list[GapDocument]
    problems: list[str]


@dataclass(slots=True, kw_only=True)
class VerifiedLog:
    """Result of verifying the log."""

    tell: int = MAX_PROBLEMS
    """Maximum number of listed problems; `found` counts all."""

    leaves: int = 0
    checkpoints: int = 0
    waiting: int = 0
    reread: int = 0
    """Number of deliveries with a different event after sealing."""
    found: int = 0
    first: int | None = None
    left: departure_store.Departure | None = None
    """The largest checkpoint that is known to be published."""
    gaps: list[Gap] = field(default_factory=list)
    """Accepted gaps of the database, in which leaves can be lost."""
    problems: list[str] = field(default_factory=list)

    def add(self, problem: str, *, leaf: int | None = None) -> None:
        """Count a problem, and store it if fewer than `tell` problems are stored."""
        self.found += 1
        if leaf is not None:
            self.first = leaf if self.first is None else min(leaf, self.first)
        if len(self.problems) < self.tell:
            self.problems.append(problem)

    def sentence(self) -> str:
        verdict = counted(self.found, "problem", "problems") if self.found else "all valid"
        more = ""
        if self.waiting:
            more = f"; {counted(self.waiting, 'row is', 'rows are')} not sealed yet"
        if self.reread:
            read = counted(self.reread, "delivery is", "deliveries are")
            more += (
                f"; {read} read differently since sealing (`db check` compares them with their "
                "bodies)"
            )
        looked = counted(self.leaves, *LEAF)
        left = (
            ""
            if self.left is None
            else f" Last published: {witnesses.departure_sentence(self.left)}."
        )
        lost = f" Leaves that were sealed {spans_of(self.gaps)} may be lost." if self.gaps else ""
        checkpoints = counted(self.checkpoints, "checkpoint")
        return f"{looked} and {checkpoints}: {verdict}{more}.{left}{lost}"

    def document(self) -> VerifiedLogDocument:
        left = None if self.left is None else witnesses.departure_document(self.left)
        gaps = [document_of(GapDocument, each, gap=each.id) for each in self.gaps]
        return document_of(VerifiedLogDocument, self, valid=not self.found, left=left, gaps=gaps)


async def verify_log(
    context: AppContext,
    *,
    against: str | None = None,
    own: keys.PublicKey | None = None,
    tell: int = MAX_PROBLEMS,
    progress: Callable[[int, int], None],
) -> VerifiedLog:
    """Verify the whole log.

    against   text of a checkpoint that was kept elsewhere
    tell      maximum number of listed problems
    progress  called with the numbers of verified and of all leaves

    Raise NotFoundError without a log, and UsageError for an invalid `against`.
    """
    async with context.database.reading() as connection:
        known = await log_store.identity(connection)
        if known is None:
            raise NotFoundError("nothing is sealed yet; run `tallyhook log seal`")
        kept = None
        if against is not None:
            try:
                kept = seal.read_checkpoint(against)
            except seal.NotACheckpoint as error:
                raise UsageError(
                    f"{error}; name a file that `tallyhook log checkpoint` printed"
                ) from error
            if kept.origin not in known.origins:
                raise UsageError(
                    f"the kept checkpoint belongs to the log {kept.origin}, but this log is "
                    f"{known.origin}"
                )
        trees = await order_tree_store.all_trees(connection)
        verification = _Verification(connection, Tree(known, kept=kept), trees, tell=tell)
        verified = await verification.run(progress=progress)
        if own is not None and own.raw.hex() != known.keys[-1]:
            verified.add(
                f"the signing key, {seal.fingerprint_of(known.keys[-1])}, is not the key of this "
                f"machine, {own.fingerprint}: somebody may have rewritten the log with their own "
                "key, or the key was replaced on another machine"
            )
        if against is not None and kept is not None:  # 6
            verification.check_keep(against, kept, known)
        return verified


async def verify_own_log(context: AppContext) -> VerifiedLog:
    """Verify the whole log with this machine's key. Raises the errors of `verify_log`."""
    return await verify_log(
        context, own=keys.own_key(context.settings), progress=lambda _done, _of: None
    )


class _Verification:
    def __init__(
        self,
        connection: Connection,
        tree: Tree,
        trees: Sequence[order_tree_store.SealedTree],
        *,
        tell: int,
    ) -> None:
        self._connection = connection
        self._tree = tree
        self._heads: deque[log_store.SignedHead] = deque()
        self._orders = OrderCounts(trees)
        self._erased: set[str] = set()
        self._left: deque[departure_store.Departure] = deque()
        self._whole = True
        self.verified = VerifiedLog(tell=tell)

    async def run(self, *, progress: Callable[[int, int], None]) -> VerifiedLog:
        size, after = await log_queue_store.log_size(self._connection), 0
        await self._more_heads(0)
        await self._more_left(0, "")
        self._erased = await order_store.erased_orders(self._connection)
        while leaves := await log_store.leaves_after(self._connection, after, limit=AT_ONCE):
            await self._check_rows(leaves)  # 1
            for leaf in leaves:
                await self._grow(leaf)
            ranges = [(level, place, place + 1) for level, place in self._tree.made]
            stored = await log_store.kept_hashes(self._connection, ranges)
            for number, problem in self._tree.wrong_nodes(stored):  # 2
                self.verified.add(problem, leaf=number)
            after = leaves[-1].number + 1
            progress(after, size)
        await self._check_end()
        if self._whole:
            for problem in await self._orders.wrong_counts(self._connection):
                self.verified.add(problem)
        await self._check_unsealed()  # 4
        gaps = await run(self._connection, accepted_gaps)
        self.verified.gaps = [gap for gap in gaps if gap.kind == "database"]
        return self.verified

    async def _check_rows(self, leaves: Sequence[leaf_store.Leaf]) -> None:
        rows = await log_rows(self._connection, leaves)
        names = await names_of(self._connection, rows.values(), erased=self._erased)
        for first in range(0, len(leaves), BODIES_AT_ONCE):
            some = leaves[first : first + BODIES_AT_ONCE]
            bodies = await contents(self._connection, some)
            for leaf in some:
                row = rows.get(leaf.subject)
                problem = misfit(leaf, row, bodies.get(leaf.subject))
                if problem is None and row is not None:
                    problem = wrong_content(leaf, row, names)
                if problem is not None:
                    self.verified.add(problem, leaf=leaf.number)
                elif row is not None and reread(leaf, row, names):
                    self.verified.reread += 1

    async def _grow(self, leaf: leaf_store.Leaf) -> None:
        self.verified.leaves += 1
        if not self._whole:
            return
        if leaf.number != self._tree.size:
            gone = self._tree.size
            self.verified.add(f"leaf {gone} is missing: it was deleted", leaf=gone)
            self._whole = False
            return
        self._tree.append(leaf.hash)
        if (problem := self._orders.append(leaf)) is not None:
            self.verified.add(problem, leaf=leaf.number)
        for problem in (
            *self._orders.wrong_trees(self._tree.size),
            *await self._orders.wrong_kept(self._connection, self._tree.size),
        ):
            self.verified.add(problem)
        while self._heads and self._heads[0].size == self._tree.size:  # 3
            head, sound = self._heads.popleft(), self._tree.sound
            self.verified.checkpoints += 1
            if (problem := self._tree.wrong_head(head)) is not None:
                self.verified.add(problem, leaf=sound)
            if not self._heads:
                await self._more_heads(head.size)
        while self._left and self._left[0].size == self._tree.size:  # 5
            left, last = self._left.popleft(), self.verified.left
            if last is None or (last.size, last.at) < (left.size, left.at):
                self.verified.left = left
            if (problem := self._tree.wrong_departure(left)) is not None:
                self.verified.add(problem)
            if not self._left:
                await self._more_left(left.size, left.way)
        if (problem := self._tree.wrong_keep()) is not None:
            self.verified.add(problem)

    async def _more_heads(self, size: int) -> None:
        self._heads.extend(await log_store.heads_after(self._connection, size, limit=AT_ONCE))

    async def _more_left(self, size: int, way: str) -> None:
        self._left.extend(
            await departure_store.departures_after(self._connection, size, way, limit=AT_ONCE)
        )

    async def _check_end(self) -> None:
        if not self._whole:
            return
        size = self._tree.size
        if self._heads:
            most = counted(self._heads[0].size, *LEAF)
            self.verified.add(
                f"the checkpoint of {most} covers more than the {size:,} existing leaves: the "
                "end of the log was cut off, or a checkpoint was inserted"
            )
        if self._left:
            self.verified.left = self._left[0]
            self.verified.add(
                f"{witnesses.departure_sentence(self._left[0])}, covers more than the {size:,} "
                "existing leaves: the end of the log was cut off",
                leaf=size,
            )
        newest = await log_store.newest_head(self._connection)
        if size and (newest is None or newest.size < size):
            signed = 0 if newest is None else newest.size
            self.verified.add(
                f"no checkpoint covers the leaves from {signed} on: they were added by hand, or a "
                "checkpoint was deleted",
                leaf=signed,
            )
        wanted = sum(size >> level for level in range(STEP, 64, STEP))
        if await store.node_count(self._connection) > wanted:
            self.verified.add("hashes are stored for leaves that do not exist")

    async def _check_unsealed(self) -> None:
        for subject in await store.strays(self._connection, limit=self.verified.tell):
            self.verified.add(
                f"{subject} has no leaf and is not queued for sealing: it was inserted by hand, "
                "or its leaf was cut off; `tallyhook log seal` seals it in its present state"
            )
        async for rows in store.whole_bodies(self._connection):
            for digest, body in rows:
                if hashlib.sha256(body).hexdigest() != digest:
                    self.verified.add(f"the stored request with the digest {digest} was changed")
        self.verified.waiting = await log_queue_store.count_unsealed(self._connection)

    def check_keep(self, note: str, kept: seal.Checkpoint, known: log_store.Identity) -> None:
        if not self._tree.signed(note, origin=kept.origin):
            self.verified.add("the kept checkpoint is not signed by a key of this log")
        elif (had := known.size_as(kept.origin)) is not None and kept.size > had:
            self.verified.add(
                f"the kept checkpoint of the log {kept.origin} has {counted(kept.size, *LEAF)}, "
                f"but this log has only {counted(had, *LEAF)} under this name: a backup was "
                "restored in between",
                leaf=had,
            )
        elif self._whole and kept.size > self._tree.size:
            self.verified.add(
                f"the log has {counted(self._tree.size, *LEAF)}, but the kept checkpoint has "
                f"{kept.size:,}: the end of the log was cut off, from leaf {self._tree.size} on",
                leaf=self._tree.size,
            )


# --- how the leaves name their orders -------------------------------------------------------------

SURE: Final = frozenset(("record", "revision", "deed"))
"""Kinds of leaves whose rows never change their content or their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Present pseudonyms of some orders in log leaves."""

    orders: Mapping[str, order_store.NamedOrder]
    erased: set[str]
    secret: bytes | None

    def fits(self, of: str | None, order: str | None) -> bool:
        """Check whether a leaf can belong to this order."""
        if of is None or order is None:
            return of is order is None
        if of in self.erased:
            return True
        if order not in self.orders:
            return False
        named = self.orders[order]
        return of == named.commitment.hex() == order_commitment(named.key, order).hex()

    def says_otherwise(self, sealed: leaf_store.Members, row: leaf_store.Sealable) -> bool:
        """Check whether a row's content or order differs from its sealed leaf."""
        if "parts" not in sealed:
            return False
        if not self.fits(sealed.get("of"), row.order):
            return True
        salt = bytes.fromhex(sealed["salt"])
        try:
            written = row.written()
            if written is None or self.secret is None:
                return sealed["parts"] is not None
            return bool(sealed["parts"] != sealed_digest(written, secret=self.secret, salt=salt))
        except (TypeError, ValueError):  # no currency, or no canonical form: the row was changed
            return True


async def names_of(
    connection: Connection, rows: Iterable[leaf_store.Sealable], *, erased: set[str]
) -> Names:
    """Return the pseudonyms of these rows' orders."""
    return Names(
        orders=await order_store.named_orders(connection, {row.order for row in rows if row.order}),
        erased=erased,
        secret=await order_store.log_secret(connection),
    )


def wrong_content(leaf: leaf_store.Leaf, row: leaf_store.Sealable, names: Names) -> str | None:
    """Return the difference between a leaf's content and its row."""
    if leaf.kind not in SURE:
        return None
    sealed = leaf.members()
    what = "order" if not names.fits(sealed.get("of"), row.order) else "content"
    if what == "content" and not names.says_otherwise(sealed, row):
        return None
    return (
        f"leaf {leaf.number} ({leaf.subject}) and its row disagree on the {what}: one of the two "
        "was changed"
    )


class OrderCounts:
    """Number of leaves and newest leaf of each order, counted while the log is read."""

    def __init__(self, trees: Sequence[order_tree_store.SealedTree]) -> None:
        self._tree = OrderTree()
        self._trees = deque(trees)
        self._newest = trees[-1] if trees else None

    def append(self, leaf: leaf_store.Leaf) -> str | None:
        """Count a leaf. Return a sentence if out of order."""
        try:
            sealed: dict[str, Any] = leaf.members()
            of = bytes.fromhex(sealed["of"]) if "of" in sealed else None
        except (TypeError, ValueError):
            return None  # its hash is wrong: reported with its row
        if of is None:
            return None
        count, last = self._tree.get(of) or (0, None)
        self._tree.put(OrderEntry(of, count + 1, leaf.number))
        if (sealed.get("nth"), sealed.get("after")) == (count + 1, last):
            return None
        return (
            f"leaf {leaf.number} ({leaf.subject}) is not the next leaf of its order: an earlier "
            "leaf was removed or inserted"
        )

    def wrong_trees(self, size: int) -> Iterator[str]:
        """Yield a sentence for each wrong tree of all orders."""
        while self._trees and self._trees[0].size <= size:
            tree = self._trees.popleft()
            if (tree.size, tree.orders, tree.root) != (size, self._tree.count, self._tree.root()):
                yield (
                    f"the tree of all orders of {format_instant(tree.at)} does not match the "
                    f"log's first {counted(tree.size, 'leaf', 'leaves')}: the tree or a leaf was "
                    "changed"
                )

    async def wrong_kept(self, connection: Connection, size: int) -> list[str]:
        """Return a sentence for each table that contradicts the tree."""
        if self._newest is None or self._newest.size != size:
            return []
        self._tree.root()
        kept: list[str] = []
        for bits in LEVELS:
            found = await order_tree_store.kept_groups(
                connection, bits, range(1 << bits), size=size
            )
            kept += ["order_nodes"] if found != self._tree.hashes(bits) else []
        states = 0
        async for rows in order_tree_store.kept_states(connection, size=size):
            states += sum(self._tree.get(bytes(of)) == (leaves, last) for of, leaves, last in rows)
        kept += ["order_states"] if states != self._tree.count else []
        return [
            f"the stored tree of all orders of {format_instant(self._newest.at)} does not match "
            f"its leaves: a row of {table} was changed or deleted, so the next tree would be "
            "wrong"
            for table in sorted(set(kept))
        ]

    async def wrong_counts(self, connection: Connection) -> list[str]:
        """Return a sentence for each order whose stored number of leaves is wrong."""
        problems = [
            f"the tree of all orders of {format_instant(tree.at)} covers "
            f"{counted(tree.size, 'leaf', 'leaves')}, more than exist: the end of the log was "
            "cut off"
            for tree in self._trees
        ]
        known = 0
        async for number, commitment, leaves, last in order_store.kept_counts(connection):
            found = self._tree.get(bytes(commitment))
            known += found is not None
            if found != (leaves, last):
                problems.append(
                    f"the stored number of leaves of the log's order {number} does not match its "
                    "leaves: the stored row was changed"
                )
        if known != self._tree.count:
            problems.append(
                f"the log has leaves of {counted(self._tree.count, 'order')}, but {known:,} of "
                "them are stored: a row of order_keys was deleted or changed"
            )
        return problems
