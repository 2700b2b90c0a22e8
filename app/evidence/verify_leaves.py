"""Whether rows are still what their leaves sealed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from app.database.engine import Connection
from app.evidence.log_check_store import Content, contents_of
from app.receiving.header_codec import read_headers
from app.receiving.verify import digest_of
from app.sealing.leaf_store import KINDS, Leaf, Members, Sealable
from app.sealing.log_queue_store import rows_to_seal
from reconcile.transparency.merkle import leaf_hash

OWN: Final = frozenset(("kind", "salt"))
"""Members that are the leaf's own."""

INDEXED: Final = frozenset(("event", "verdict"))
"""What `reindex` may correct in a row."""

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

    (1) hash, (2) row, (3) what was sealed of it, but headers that were let go, (4) body.
    """
    name = f"leaf {leaf.number} ({_named(leaf)})"
    sealed = _sealed(leaf)
    if sealed is None:  # 1
        return f"{name} does not have its hash: the leaf was changed"
    if row is None or (row.kind, row.kind) != (leaf.kind, sealed.get("kind")):  # 2
        return f"{name} seals a row that is gone: it was deleted"
    for member in sorted((sealed.keys() | row.members.keys()) - OWN - INDEXED):  # 3
        now = row.members.get(member)
        let_go = member == "headers" and content is not None and content.pruned
        if now != sealed.get(member) and not let_go:
            return f"{name} sealed another {member} than its row has: one of the two was changed"
    return None if content is None else next(_wrong_body(name, content), None)  # 4


def _named(leaf: Leaf) -> str:
    return leaf.subject if ":" in leaf.subject else f"{leaf.kind} {leaf.subject}"


def _sealed(leaf: Leaf) -> Members | None:
    """The leaf's document, if it has the leaf's hash."""
    content = leaf.document.encode("utf-8", "surrogatepass")
    try:
        return leaf.members() if leaf_hash(content) == leaf.hash else None
    except ValueError:
        return None


def _wrong_body(name: str, content: Content) -> Iterator[str]:
    if content.body is not None:
        if digest_of(content.body, read_headers(content.headers).url) != content.digest:
            yield f"{name} has another body than was sealed: it was changed"
    elif content.verdict != "duplicate" and not content.pruned:
        yield f"{name} has lost its body, and was not pruned: it was deleted"


def reread(leaf: Leaf, row: Sealable) -> bool:
    """Whether the row's index says otherwise than the door did: see `reindex`."""
    sealed = leaf.members()
    return any(sealed.get(member) != row.members.get(member) for member in INDEXED & sealed.keys())
