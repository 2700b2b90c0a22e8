"""Seal new rows as leaves of the log.

1 find     some rows without a leaf
2 hash     their documents, each with a salt and its order's pseudonym
3 sign     the new head as a checkpoint
4 write    everything in one transaction, unless another sealer was faster

Once a day the log also seals the root of the tree of all orders.
"""

import asyncio
import base64
import binascii
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from app.access.operators import note_in_trail, permitted
from app.context.context import AppContext
from app.core.clock import CLOCKS_DIFFER
from app.core.errors import ConfigurationError, NotFoundError
from app.core.ids import new_id, new_salts, new_secret
from app.core.private_files import Owner
from app.database.engine import Connection
from app.database.statements import run
from app.evidence.keys import VARIABLE, EvidenceKey, PublicKey, load_key, public_key_line, write_key
from app.receiving.pace import Pace
from app.sealing import (
    departure_store,
    leaf_store,
    log_queue_store,
    log_store,
    order_store,
    order_tree_store,
)
from reconcile.instants import DAY, Instant
from reconcile.transparency import cosignatures, merkle, order_tree

# --- checkpoints of the log as signed notes -------------------------------------------------------


MAX_NOTE_BYTES: Final = 64 * 1024
"""Maximum bytes of a signed note."""


class NotACheckpoint(Exception):
    """Error for a text that is not a checkpoint of this log. The message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Head of a log: the number of leaves, and the hash of the tree's root."""

    origin: str
    size: int
    head: merkle.Hash

    def body(self) -> str:
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.head).decode()}\n"


def key_hash(name: str, public: PublicKey) -> bytes:
    """Return the 4 bytes by which a note's signature names its key."""
    return cosignatures.key_id(name, cosignatures.ED25519, public.raw)


def verifier_key(name: str, public: PublicKey) -> str:
    """Return the key in the format of note verifiers."""
    return cosignatures.VerifierKey(name=name, kind=cosignatures.ED25519, raw=public.raw).text


def signed_note(key: EvidenceKey, *, name: str, body: str) -> str:
    """Return a signed note: a body of whole lines with its signature."""
    line = cosignatures.signature_line(name, key_hash(name, key.public), key.sign(body.encode()))
    return f"{body}\n{line}\n"


def signed_checkpoint(key: EvidenceKey, checkpoint: Checkpoint) -> str:
    """Return a checkpoint as a signed note."""
    return signed_note(key, name=checkpoint.origin, body=checkpoint.body())


def note_holds(note: str, *, name: str, public: PublicKey) -> bool:
    """Check that this key signed the note."""
    body, wanted = cosignatures.body_of(note).encode(), key_hash(name, public)
    own = [
        each.content
        for each in cosignatures.signatures_of(note)
        if (each.name, each.key_id) == (name, wanted)
    ]
    return bool(own) and all(public.verifies(each, body) for each in own)


def read_checkpoint(note: str) -> Checkpoint:
    """Parse a checkpoint without verifying it. Raises NotACheckpoint if it is invalid."""
    body, _, rest = note.partition("\n\n")
    if "\n\n" in f"\n{rest}" or any(c < " " and c != "\n" for c in note):
        raise NotACheckpoint("not a checkpoint: it has an empty line or a control character")
    lines = body.split("\n")
    if len(note) > MAX_NOTE_BYTES or len(lines) < 3 or not cosignatures.is_key_name(lines[0]):
        raise NotACheckpoint("not a checkpoint: it does not have three lines")
    if not re.fullmatch(r"0|[1-9][0-9]{0,18}", lines[1], re.ASCII):
        raise NotACheckpoint("not a checkpoint: its second line is not a number of leaves")
    try:
        head = base64.b64decode(lines[2], validate=True)
    except (binascii.Error, ValueError):
        head = b""
    if len(head) != 32:
        raise NotACheckpoint("not a checkpoint: its third line is not a hash")
    return Checkpoint(origin=lines[0], size=int(lines[1]), head=head)


# --- sealing ----------------------------------------------------------------------------------


AT_ONCE: Final = 4_096
"""Number of leaves in one transaction, which takes some twenty milliseconds."""

PORTION: Final = 128
"""Number of documents hashed before other tasks get a turn."""

REST_S: Final = 1.0

GATHER_S: Final = 0.25
"""Pause after a complete round of sealing, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSigner:
    """Key and origin that sign this log's checkpoints."""

    origin: str
    key: EvidenceKey


class Sealer:
    """Sealer that adds the unsealed rows of one database to the log. Several sealers may run at
    once."""

    def __init__(self, context: AppContext, signer: CheckpointSigner) -> None:
        self._context = context
        self._signer = signer
        self._full = False
        self._pace = Pace(first=AT_ONCE, most=AT_ONCE)

    def rest_s(self, done: int) -> float:
        """Return the number of seconds until the next round."""
        if not done:
            return REST_S
        return 0.0 if self._full else GATHER_S

    async def seal_some(self) -> int:
        """Seal a batch of rows and return their number."""
        async with self._context.database.reading() as connection:
            limit = self._pace.fitting(self._context.database)
            found = await log_queue_store.find_unsealed(connection, limit=limit)
            self._full = found.full
            if not found.anything:
                return 0
            tail = merkle.Tail(
                found.size, await log_store.kept_hashes(connection, merkle.tail_ranges(found.size))
            )
            book = await order_store.order_book(connection, found.rows)
        growth = await self._grown(found, tail, book)
        if not await self._context.database.writer.commit(log_store.grow_log, growth):
            return 0
        self._pace.learn(len(growth.leaves), seconds=self._context.database.writer.held_s)
        # Clearing stale marks, and a sweep that found nothing, also count as work done.
        return max(len(growth.leaves), 1)

    async def _grown(
        self, found: log_queue_store.Unsealed, tail: merkle.Tail, book: order_store.OrderBook
    ) -> log_store.Growth:
        leaves: list[leaf_store.Leaf] = []
        nodes = []
        rows = list(_unsaid(found, book))
        for start in range(0, len(rows), PORTION):
            portion = rows[start : start + PORTION]
            for leaf in leaves_for(portion, first=found.size + start, book=book):
                nodes += tail.append(leaf.hash)
                leaves.append(leaf)
            await asyncio.sleep(0)
        signed = None
        if leaves:
            point = Checkpoint(origin=self._signer.origin, size=tail.size, head=tail.head())
            signed = log_store.SignedHead(
                size=point.size,
                head=point.head,
                at=self._context.clock.now(),
                note=signed_checkpoint(self._signer.key, point),
            )
        return log_store.Growth(found=found, book=book, leaves=leaves, nodes=nodes, signed=signed)


def _unsaid(
    found: log_queue_store.Unsealed, book: order_store.OrderBook
) -> Iterator[leaf_store.Sealable]:
    here = {row.subject for row in found.rows}
    for row in found.rows:
        delivery = row.members.get("delivery") if row.kind == leaf_store.READING else None
        if delivery is None or (
            delivery not in here and not book.says_already(row, found.read.get(delivery, ()))
        ):
            yield row


def leaves_for(
    rows: Sequence[leaf_store.Sealable], *, first: int, book: order_store.OrderBook
) -> list[leaf_store.Leaf]:
    """Build the log leaves of these rows, numbered from `first`."""
    salted = zip(rows, new_salts(len(rows)), strict=True)
    return [book.leaf(row, number=first + n, salt=salt) for n, (row, salt) in enumerate(salted)]


async def anything_unsealed(context: AppContext) -> bool:
    """Check whether there may be rows that are not sealed yet."""
    async with context.database.reading() as connection:
        return (await log_queue_store.find_unsealed(connection, limit=1)).anything


async def seal_all(
    context: AppContext,
    signer: CheckpointSigner,
    *,
    sweep: bool = False,
    progress: Callable[[int], None] = lambda count: None,
) -> int:
    """Seal all rows and return their number. `sweep` includes unmarked rows."""
    if sweep:
        async with context.database.writing() as connection:
            await log_queue_store.sweep_again(connection)
    sealer, done = Sealer(context, signer), 0
    while sealed := await sealer.seal_some():
        done += sealed
        progress(sealed)
    return done


async def open_signer(context: AppContext) -> CheckpointSigner:
    """Load the evidence key for signing. Without a log, begin one and make the key.

    Raise ConfigurationError for a missing or wrong key.
    """
    known, path = await known_log(context), context.settings.evidence_key_path
    key = load_key(path)
    if known is None:
        key, now = key or made_key(path), context.clock.now()
        origin, public = _new_origin(context.database.environment, now), key.public.raw.hex()
        async with context.database.writing() as connection:
            await log_store.begin_log(connection, origin=origin, public=public, now=now)
            known = await log_store.identity(connection)  # another process may have made it first
        assert known is not None
    if key is None:
        raise ConfigurationError(
            [
                f"{VARIABLE}: there is no key at {path}, but this log is signed with "
                f"{fingerprint_of(known.keys[-1])}; restore that key's file, or run `tallyhook "
                "log key --rotate` to continue with a new key"
            ]
        )
    if key.public.raw.hex() != known.keys[-1]:
        raise ConfigurationError(
            [
                f"{VARIABLE}: {path} holds the key {key.public.fingerprint}, but this log is "
                f"signed with {fingerprint_of(known.keys[-1])}; use that key's file: all "
                "receivers of one database share it"
            ]
        )
    return CheckpointSigner(origin=known.origin, key=key)


async def seal_unsealed(context: AppContext) -> None:
    if await anything_unsealed(context):  # otherwise the evidence key may be missing
        await seal_all(context, await open_signer(context))


async def known_log(context: AppContext) -> log_store.Identity | None:
    """Return the log's origin and keys; None if no log has begun."""
    async with context.database.reading() as connection:
        return await log_store.identity(connection)


def _new_origin(environment: str | None, now: Instant) -> str:
    return f"tallyhook.{environment}/{new_id('', now)[-12:]}"


async def begin_origin(
    connection: Connection, *, environment: str | None, at: Instant
) -> str | None:
    """Give the log a new origin, and remove its witnesses. Return the origin.

    No sealer may run during the call. Return None without a log.
    """
    known = await log_store.identity(connection)
    if known is None:
        return None
    origin = _new_origin(environment, at)
    await log_store.change_origin(connection, known, origin=origin)
    await departure_store.forget_witnesses(connection)
    return origin


async def rename_log(context: AppContext, *, by: str | None, reason: str) -> log_store.Identity:
    """Give the log a new origin. Return its origin and keys.

    No other process may use the database. Raise NotFoundError without a log, and UsageError if
    permission is missing.
    """
    now = context.clock.now()
    async with context.database.writing() as connection:
        who = await permitted(connection, by=by, action="log_renamed")
        origin = await begin_origin(connection, environment=context.database.environment, at=now)
        known = await log_store.identity(connection)
        if origin is None or known is None:
            raise NotFoundError("nothing is sealed yet, so the log has no origin to change")
        await note_in_trail(
            connection,
            who,
            action="log_renamed",
            subject=origin,
            at=now,
            reason=reason,
            facts={"before": known.earlier[-1].origin, "leaves": known.earlier[-1].size},
        )
    return known


def made_key(path: Path, *, owner: Owner | None = None) -> EvidenceKey:
    """Make an evidence key, or load another process's new key."""
    try:
        return write_key(path, secret=new_secret(), owner=owner)
    except FileExistsError:
        key = load_key(path)
        assert key is not None
        return key


def fingerprint_of(public: str) -> str:
    return PublicKey(bytes.fromhex(public)).fingerprint


async def rotate_key(context: AppContext, *, by: str | None) -> EvidenceKey:
    """Make a new signing key that the old key endorses.

    Raise ConfigurationError for an unusable log or file, and UsageError if permission is missing.
    """
    async with context.database.reading() as connection:
        await permitted(connection, by=by, action="key_rotated")
    known, path = await known_log(context), context.settings.evidence_key_path
    if known is None:
        raise ConfigurationError([f"{VARIABLE}: the log has no key yet; run `tallyhook log key`"])
    now = context.clock.now()
    before, key = _replaced_key(path, until=known.keys[-1], now=now)
    endorsement = None
    if before is not None:
        # Under each origin of the log: a bundle's proofs may lead to an earlier checkpoint.
        endorsement = "".join(
            before.sign(endorsement_text(origin, before.public, key.public)).hex()
            for origin in known.origins[-MAX_ORIGINS:]
        )
    async with context.database.writing() as connection:
        who = await permitted(connection, by=by, action="key_rotated")
        await log_store.add_key(
            connection, public=key.public.raw.hex(), now=now, endorsement=endorsement
        )
        new = key.public.fingerprint
        await note_in_trail(connection, who, action="key_rotated", subject=new, at=now)
    return key


def _replaced_key(
    path: Path, *, until: str, now: Instant
) -> tuple[EvidenceKey | None, EvidenceKey]:
    files = (path, *sorted(path.parent.glob(f"{path.name}{_ASIDE}*"), reverse=True))
    loaded = filter(None, map(load_key, files))
    before = next((each for each in loaded if each.public.raw.hex() == until), None)
    owner = None  # the service's user must be able to read the new key
    for each in reversed(files):
        with suppress(FileNotFoundError, NotADirectoryError):
            found = each.stat(follow_symlinks=False)
            owner = found.st_uid, found.st_gid
    if load_key(path) is not None:
        try:
            path.rename(path.with_name(f"{path.name}{_ASIDE}{now}"))
        except OSError as error:
            raise ConfigurationError(
                [f"{VARIABLE}: the file of the old key cannot be renamed ({error.strerror})"]
            ) from error
    return before, made_key(path, owner=owner)


_ASIDE: Final = ".until-"


def endorsement_text(origin: str, before: PublicKey, public: PublicKey) -> bytes:
    """Return the text by which a key endorses its successor."""
    return (
        f"tallyhook key endorsement 1\n{origin}\n{before.raw.hex()}\n{public.raw.hex()}\n"
    ).encode()


def endorsed_chain(
    origin: str, keys: Sequence[PublicKey], endorsements: Sequence[str | None]
) -> list[PublicKey]:
    """Return the longest chain of endorsed keys, oldest first."""
    chain = list(keys[-1:])
    for place in range(len(keys) - 1, 0, -1):
        endorsement = endorsements[place] if place < len(endorsements) else None
        before = keys[place - 1]
        text = endorsement_text(origin, before, keys[place])
        try:
            raw = bytes.fromhex((endorsement or "")[: 2 * 64 * MAX_ORIGINS])
        except ValueError:
            break
        if not any(before.verifies(raw[at : at + 64], text) for at in range(0, len(raw), 64)):
            break
        chain.insert(0, before)
    return chain


MAX_ORIGINS: Final = 100
"""Maximum number of signatures in an endorsement, one for each origin of the log."""


def shown_key(signer: CheckpointSigner) -> dict[str, str]:
    """Return the public key in the format of each kind of verifier."""
    public = signer.key.public
    return {
        "log": signer.origin,
        "fingerprint": public.fingerprint,
        "ed25519": public.raw.hex(),
        "note": verifier_key(signer.origin, public),
        "minisign": public_key_line(public),
    }


# --- once a day: the tree of all orders -----------------------------------------------------------

REST_EVERY: Final = 256
"""Number of entries hashed before other tasks get a turn."""

_PACKED: Final = struct.Struct(">32sqq")


@dataclass(slots=True, kw_only=True)
class _Growing:
    size: int
    before: order_tree_store.SealedTree | None
    changed: list[list[bytes]] = field(
        default_factory=lambda: [[] for _ in order_tree_store.ALL_GROUPS]
    )
    others: list[list[bytes]] = field(
        default_factory=lambda: [[] for _ in order_tree_store.ALL_GROUPS]
    )
    orders: int = 0
    groups: dict[int, list[order_tree.Keyed]] = field(
        default_factory=lambda: {bits: [] for bits in order_tree.LEVELS}
    )


async def seal_orders_if_due(context: AppContext) -> bool:
    """Make the day's tree if due. Return whether one was made."""
    now = context.clock.now()
    async with context.database.reading() as connection:
        last = await order_tree_store.newest_tree(connection)
        begun = last or await log_store.first_head_over(connection, 0)
    # A tree dated in the future was made while a clock was ahead.
    ahead = last is not None and last.at > now + CLOCKS_DIFFER
    if begun is None or not (begun.at // DAY < now // DAY or ahead):
        return False
    return await seal_orders(context)


async def seal_orders_for(context: AppContext, order: str) -> bool:
    """Make today's tree if this order needs one. Return whether made."""
    now = context.clock.now()
    async with context.database.reading() as connection:
        named = (await order_store.named_orders(connection, [order])).get(order)
        if named is None:
            return False
        tree = await order_tree_store.newest_tree(connection, until=now)
        if (
            tree is not None
            and tree.at // DAY == now // DAY
            and await order_tree_store.entry_in(connection, named.commitment, tree) is not None
        ):
            return False
        chain = await run(connection, order_store.chain_of, named)
    return leaf_store.began_before(chain, now) and await seal_orders(context)


async def seal_orders(context: AppContext) -> bool:
    """Make a new tree of all orders. Return False without orders or after another sealer."""
    at = context.clock.now()  # leaves sealed from here on may be missing in the tree
    async with context.database.reading() as connection:
        before = await order_tree_store.newest_tree(connection)
        growing = _Growing(size=await log_queue_store.log_size(connection), before=before)
        since = 0 if before is None else before.size
        changed, others, pack = growing.changed, growing.others, _PACKED.pack
        async for rows in order_tree_store.all_entries(connection):
            growing.orders += len(rows)
            for of, leaves, last in rows:
                (changed if last >= since else others)[of[0]].append(pack(of, leaves, last))
            await asyncio.sleep(0)
        if not growing.orders:
            return False
        root = await _hashed(connection, growing)
    writer = context.database.writer
    for group in growing.changed:
        for part in order_tree_store.portions(group):
            await writer.commit(
                order_tree_store.keep_states, growing.size, list(map(_PACKED.unpack, part))
            )
    for bits, hashes in growing.groups.items():
        for some in order_tree_store.portions(hashes):
            await writer.commit(order_tree_store.keep_hashes, growing.size, bits, some)
    tree = order_tree_store.SealedTree(
        number=1 if before is None else before.number + 1,
        at=at,
        size=growing.size,
        orders=growing.orders,
        root=root,
    )
    return await writer.commit(order_tree_store.keep_tree, tree)


async def _hashed(connection: Connection, growing: _Growing) -> merkle.Hash:
    since = -1 if growing.before is None else growing.before.size
    top = dict(
        await order_tree_store.kept_groups(
            connection, order_tree_store.UPPER, order_tree_store.ALL_GROUPS, size=since
        )
    )
    for first in order_tree_store.ALL_GROUPS:
        if not growing.changed[first]:
            continue
        growing.changed[first].sort()  # so that they are stored in order
        below = range(first << order_tree_store.UPPER, (first + 1) << order_tree_store.UPPER)
        groups = dict(
            await order_tree_store.kept_groups(connection, order_tree.GROUPED, below, size=since)
        )
        hashed = 0
        for place, members in _touched(growing, first):
            groups[place] = order_tree.folded(members, bits=order_tree.BITS)
            growing.groups[order_tree.GROUPED].append((place, groups[place]))
            hashed += len(members)
            if hashed >= REST_EVERY:
                hashed = 0
                await asyncio.sleep(0)
        top[first] = _folded(groups, bits=order_tree.GROUPED)
        growing.groups[order_tree_store.UPPER].append((first, top[first]))
        growing.others[first].clear()
    return _folded(top, bits=order_tree_store.UPPER)


def _folded(groups: Mapping[int, merkle.Hash], *, bits: int) -> merkle.Hash:
    return order_tree.folded(sorted(groups.items()), bits=bits)


def _touched(growing: _Growing, first: int) -> Iterator[tuple[int, list[order_tree.Keyed]]]:
    members: list[list[bytes]] = [[] for _ in order_tree_store.ALL_GROUPS]
    for packed in growing.changed[first]:
        members[packed[1]].append(packed)
    for packed in growing.others[first]:
        if group := members[packed[1]]:
            group.append(packed)
    for second, group in enumerate(members):
        if group:
            group.sort()
            yield (
                first << order_tree_store.UPPER | second,
                [order_tree.keyed(_PACKED.unpack(packed)) for packed in group],
            )
