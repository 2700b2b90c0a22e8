"""Whether rows are still what their leaves sealed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

from app.operations.header_text import read_headers
from app.operations.judge_delivery import digest_of
from app.store.engine import Connection
from app.store.leaves import KIND_OF, KINDS, Members, Sealable, document, leaf_bytes
from app.store.log_checking import Content, contents_of
from app.store.sealed_log import Leaf
from app.store.unsealed import rows_to_seal
from reconcile.merkle import leaf_hash

INDEXED = frozenset(("event", "verdict"))
"""Kept members that `reindex` may correct in the row."""

Rows = Mapping[str, Sealable]


async def rows_of(connection: Connection, leaves: Sequence[Leaf]) -> Rows:
    """The rows that these leaves sealed, as they are now; none for one that is gone."""
    found: dict[str, Sealable] = {}
    for kind in KINDS:
        own = [leaf.subject for leaf in leaves if leaf.kind == kind.name]
        own = [each for each in own if _is_subject(each, numbered=kind.numbered)]
        if own:
            found |= await rows_to_seal(connection, kind, own)
    return found


def _is_subject(subject: str, *, numbered: bool) -> bool:
    number = subject.rpartition(":")[2]
    return not numbered or (number.isascii() and number.isdigit() and len(number) < 19)


async def contents(connection: Connection, leaves: Sequence[Leaf]) -> Mapping[str, Content]:
    """Bodies and headers of the deliveries among them."""
    ids = [leaf.subject for leaf in leaves if leaf.kind == "delivery"]
    return await contents_of(connection, ids)


def misfit(leaf: Leaf, row: Sealable | None, content: Content | None) -> str | None:
    """Why a leaf and its row do not fit, one sentence; None where they do.

    (1) kind, (2) row, (3) hash, (4) what may be let go, (5) body.
    """
    name = f"leaf {leaf.number} ({_named(leaf)})"
    if leaf.kind not in KIND_OF:  # 1
        return f"{name} is of no kind that is sealed: it was changed, or put in by hand"
    if row is None or row.kind != leaf.kind:  # 2
        return f"{name} seals a row that is gone: it was deleted"
    try:
        kept = leaf.members
    except ValueError:
        return f"{name} has lost what it kept: the leaf was changed"
    if leaf_hash(_bytes(row, leaf, kept)) != leaf.hash:  # 3
        return f"{name} does not have its row's hash: one of the two was changed after sealing"
    for member in sorted(kept.keys() - INDEXED):  # 4
        now = row.kept.get(member)
        if now != kept[member] and not _let_go(member, now, content):
            return f"{name} sealed other {member} than its row has: they were changed"
    return None if content is None else next(_wrong_body(name, content), None)  # 5


def _named(leaf: Leaf) -> str:
    return leaf.subject if ":" in leaf.subject else f"{leaf.kind} {leaf.subject}"


def _bytes(row: Sealable, leaf: Leaf, kept: Members) -> bytes:
    try:
        return leaf_bytes(document(row, salt=leaf.salt, kept=kept))
    except TypeError:  # a value of a kind that was never sealed
        return b""


_NO_TEXT = hashlib.sha256().hexdigest()


def _let_go(member: str, now: object, content: Content | None) -> bool:
    """Whether the row no longer has it, and may: headers with the body, other texts by erasure."""
    if member == "headers":
        return content is not None and content.pruned
    return now is None or now == _NO_TEXT


def _wrong_body(name: str, content: Content) -> Iterator[str]:
    if content.body is not None:
        if digest_of(content.body, read_headers(content.headers).url) != content.digest:
            yield f"{name} has another body than was sealed: it was changed"
    elif content.verdict != "duplicate" and not content.pruned:
        yield f"{name} has lost its body, and was not pruned: it was deleted"


def reread(leaf: Leaf, row: Sealable) -> bool:
    """Whether the row's index says otherwise than the door did: see `reindex`."""
    kept = leaf.members
    return any(kept.get(member) != row.kept.get(member) for member in INDEXED & row.kept.keys())
