"""Seals what is kept for ever: every delivery, record, revision and deed becomes a leaf of the log.

1 find     some rows without a leaf, on a snapshot
2 hash     their documents, each with a salt, in small portions; the tiles that they complete
3 sign     the new head as a checkpoint
4 write    leaves, hashes, checkpoint, in one transaction, if nobody else added meanwhile
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from app.core.ids import new_salts
from app.evidence.keys import EvidenceKey, PublicKey
from app.receiving.context import AppContext
from app.sealing.leaf_store import Leaf, Sealable, leaf_of
from app.sealing.log_queue_store import Found, find_unsealed, sweep_again
from app.sealing.log_store import Growth, SignedHead, grow_log, kept_hashes
from reconcile.transparency.merkle import Hash, Tail, tail_ranges

# --- checkpoints of the log as signed notes -------------------------------------------------------


MAX_NOTE_BYTES: Final = 64 * 1024
"""Of a note that is read: ours have some 250; others may have added signatures."""

_ED25519: Final = b"\x01"
_MARK: Final = "— "
_NAME = re.compile(r"[^\s+]+")


class NotACheckpoint(Exception):
    """A text is no checkpoint, or none of this log's; says why in one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The head of a log of so many leaves."""

    origin: str
    size: int
    head: Hash

    def body(self) -> str:
        """The three lines that are signed."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.head).decode()}\n"


def key_hash(name: str, public: PublicKey) -> bytes:
    """The 4 bytes by which a note's signature names its key."""
    return hashlib.sha256(f"{name}\n".encode() + _ED25519 + public.raw).digest()[:4]


def verifier_key(name: str, public: PublicKey) -> str:
    """The key as note verifiers take it: name, key hash, and kind and key in base64."""
    encoded = base64.b64encode(_ED25519 + public.raw).decode()
    return f"{name}+{key_hash(name, public).hex()}+{encoded}"


def signed_note(key: EvidenceKey, *, name: str, body: str) -> str:
    """A body of whole lines, and its signature."""
    signature = key_hash(name, key.public) + key.sign(body.encode())
    return f"{body}\n{_MARK}{name} {base64.b64encode(signature).decode()}\n"


def signed_checkpoint(key: EvidenceKey, checkpoint: Checkpoint) -> str:
    """A checkpoint as a signed note."""
    return signed_note(key, name=checkpoint.origin, body=checkpoint.body())


def note_holds(note: str, *, name: str, public: PublicKey) -> bool:
    """Whether one of the note's signatures is this key's, and right. Others' are passed over."""
    body, found, signatures = note.rpartition("\n\n")
    if not found or not signatures.endswith("\n"):
        return False
    body += "\n"
    wanted = key_hash(name, public)
    for line in signatures[:-1].split("\n"):
        said, raw = _signature_in(line)
        if said == name and raw[:4] == wanted and public.verifies(raw[4:], body.encode()):
            return True
    return False


def _signature_in(line: str) -> tuple[str, bytes]:
    name, _, encoded = line.removeprefix(_MARK).partition(" ")
    try:
        return (name if line.startswith(_MARK) else ""), base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return "", b""


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None and text.isprintable()


def read_checkpoint(note: str) -> Checkpoint:
    """What a note says, whoever signed it. Raises NotACheckpoint for another text."""
    lines = note.partition("\n\n")[0].split("\n")
    if len(note) > MAX_NOTE_BYTES or len(lines) < 3 or not _is_name(lines[0]):
        raise NotACheckpoint("this is no checkpoint: it has not its three lines")
    if not re.fullmatch(r"0|[1-9][0-9]{0,18}", lines[1], re.ASCII):
        raise NotACheckpoint("this is no checkpoint: its second line is no number of leaves")
    try:
        head = base64.b64decode(lines[2], validate=True)
    except (binascii.Error, ValueError):
        head = b""
    if len(head) != 32:
        raise NotACheckpoint("this is no checkpoint: its third line is no hash")
    return Checkpoint(origin=lines[0], size=int(lines[1]), head=head)


def verified_checkpoint(note: str, *, origin: str, public: PublicKey) -> Checkpoint:
    """What a note says that this key signed for this log. Raises NotACheckpoint for another."""
    checkpoint = read_checkpoint(note)
    if checkpoint.origin != origin:
        raise NotACheckpoint(f"this checkpoint is of another log: {checkpoint.origin}")
    if not note_holds(note, name=origin, public=public):
        raise NotACheckpoint("this checkpoint is not signed by the log's key")
    return checkpoint


# --- seals what is kept for ever ------------------------------------------------------------------


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
