"""Compute and verify a Merkle tree over leaf hashes (RFC 9162, section 2.1), for a log that only
grows.

A proof is a list of spans of leaves; a span consists of complete subtrees. A subtree (level, index)
covers the 2**level leaves from index * 2**level.

    head of n leaves        span_hash((0, n), nodes)
    inclusion of leaf m     [span_hash(s, nodes) for s in inclusion_spans(m, size=n)]
    n grew from m           [span_hash(s, nodes) for s in consistency_spans(m, size=n)]
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

Hash = bytes

Span = tuple[int, int]
"""Span of leaves: the first index, and the index after the last leaf."""

Node = tuple[int, int]
"""Complete subtree: its level, and its index within the level."""

Nodes = Callable[[Node], Hash]

EMPTY: Final[Hash] = hashlib.sha256().digest()


def leaf_hash(data: bytes) -> Hash:
    """Return the hash of one log entry, as in RFC 9162, 2.1.1.

    The byte 0x00 in front of the entry distinguishes leaves from inner nodes.
    """
    return hashlib.sha256(b"\x00" + data).digest()


def node_hash(left: Hash, right: Hash) -> Hash:
    """Return the hash of two adjacent subtrees, as in RFC 9162, 2.1.1."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def subtree_hash(hashes: Sequence[Hash]) -> Hash:
    """Return the hash of a complete subtree.

    hashes  hashes of the subtrees of one level from which the subtree is built. Their number must
            be a power of two
    """
    level = list(hashes)
    while len(level) > 1:
        pairs = iter(level)
        level = [node_hash(left, right) for left, right in zip(pairs, pairs, strict=True)]
    return level[0]


# --- spans ---------------------------------------------------------------------------------------


def span_nodes(span: Span) -> list[Node]:
    """Return the complete subtrees that make up a span of leaves, from left to right, ever smaller.

    The span must be one of a proof's spans.
    """
    start, end = span
    found = []
    while start < end:
        level = (end - start).bit_length() - 1
        found.append((level, start >> level))
        start += 1 << level
    return found


def span_hash(span: Span, nodes: Nodes) -> Hash:
    """Return the hash over a span of leaves.

    nodes  function that returns the hash of a complete subtree
    """
    return _joined([nodes(node) for node in span_nodes(span)])


def _joined(subtrees: list[Hash]) -> Hash:
    if not subtrees:
        return EMPTY
    *others, found = subtrees
    for left in reversed(others):
        found = node_hash(left, found)
    return found


def inclusion_spans(index: int, *, size: int) -> list[Span]:
    """Return the spans that prove that a leaf is in the tree of the first `size` leaves.

    The span nearest to the leaf comes first (RFC 9162, 2.1.3.1). Raises ValueError for an index
    outside the tree.
    """
    if not 0 <= index < size:
        raise ValueError(f"leaf {index} is not in a tree of {size} leaves")
    start, end = 0, size
    spans: list[Span] = []
    while end - start > 1:
        middle = start + _split(end - start)
        if index < middle:
            spans.append((middle, end))
            end = middle
        else:
            spans.append((start, middle))
            start = middle
    return spans[::-1]


def consistency_spans(old: int, *, size: int) -> list[Span]:
    """Return the spans that prove that a tree of `size` leaves extends the tree of its first `old`
    leaves.

    See RFC 9162, 2.1.4.1. Raises ValueError unless 0 < old <= size.
    """
    if not 0 < old <= size:
        raise ValueError(f"a tree of {size} leaves has no proof for its first {old}")
    start, end = 0, size
    spans: list[Span] = []
    while old != end:
        middle = start + _split(end - start)
        if old <= middle:
            spans.append((middle, end))
            end = middle
        else:
            spans.append((start, middle))
            start = middle
    if start > 0:  # else the verifier has this hash: it is the old head itself
        spans.append((start, end))
    return spans[::-1]


def _split(count: int) -> int:
    return 1 << ((count - 1).bit_length() - 1)


# --- verifying -----------------------------------------------------------------------------------


def inclusion_holds(
    leaf: Hash, *, index: int, size: int, proof: Sequence[Hash], head: Hash
) -> bool:
    """Check whether a proof shows that a leaf is at `index` of the tree with this head.

    See RFC 9162, 2.1.3.2.
    """
    if not 0 <= index < size:
        return False
    here, last, found = index, size - 1, leaf
    for each in proof:
        if last == 0:
            return False
        if here & 1 or here == last:
            found = node_hash(each, found)
            here, last = _past_left_edge(here, last)
        else:
            found = node_hash(found, each)
        here, last = here >> 1, last >> 1
    return last == 0 and found == head


def consistency_holds(
    *, old: int, old_head: Hash, size: int, head: Hash, proof: Sequence[Hash]
) -> bool:
    """Check whether a proof shows that a tree extends an older tree, as in RFC 9162, 2.1.4.2.

    Every tree extends the empty tree and itself. Both cases need an empty proof.
    """
    if old == 0 or old == size:
        return not proof and (old_head == EMPTY if old == 0 else old_head == head)
    if not 0 < old < size:
        return False
    path = [old_head, *proof] if old & (old - 1) == 0 else list(proof)
    if not path:
        return False
    here, last = old - 1, size - 1
    while here & 1:
        here, last = here >> 1, last >> 1
    old_found = found = path[0]
    for each in path[1:]:
        if last == 0:
            return False
        if here & 1 or here == last:
            old_found, found = node_hash(each, old_found), node_hash(each, found)
            here, last = _past_left_edge(here, last)
        else:
            found = node_hash(found, each)
        here, last = here >> 1, last >> 1
    return last == 0 and (old_found, found) == (old_head, head)


def _past_left_edge(here: int, last: int) -> tuple[int, int]:
    """Return the index of the nearest ancestor that is a right child, and the last index of its
    level.

    If there is no such ancestor, the index is 0.
    """
    while here and not here & 1:
        here, last = here >> 1, last >> 1
    return here, last


# --- growing -------------------------------------------------------------------------------------


class Frontier:
    """State from which a growing tree's head is computed.

    The state has one subtree hash for each bit of the tree's size that is 1.
    """

    def __init__(self) -> None:
        self.size = 0
        self._subtrees: list[Hash] = []

    def append(self, leaf: Hash) -> None:
        carried, found = self.size, leaf
        while carried & 1:
            found = node_hash(self._subtrees.pop(), found)
            carried >>= 1
        self._subtrees.append(found)
        self.size += 1

    def head(self) -> Hash:
        return _joined(self._subtrees)


# --- stored hashes -------------------------------------------------------------------------------


STEP: Final = 8
"""Number of tree levels from one stored level to the next."""

WIDTH: Final = 1 << STEP
"""Number of hashes in a tile, the unit in which hashes are stored."""

Kept = Mapping[Node, Hash]
"""Stored hashes of the tree. The keys are level and index."""


def kept_range(node: Node) -> tuple[int, int, int]:
    """Return which stored hashes a subtree covers: their level, the first index, and the index
    after the last hash."""
    level, index = node
    base = level - level % STEP
    width = level - base
    return base, index << width, (index + 1) << width


def kept_hash(node: Node, kept: Kept) -> Hash:
    """Compute a subtree's hash from stored hashes. Raises KeyError if a stored hash is missing."""
    base, start, end = kept_range(node)
    return subtree_hash([kept[base, place] for place in range(start, end)])


def needed(spans: Iterable[Span]) -> set[tuple[int, int, int]]:
    """Return the ranges of stored hashes from which the spans' hashes are computed."""
    return {kept_range(node) for span in spans for node in span_nodes(span)}


def computed(span: Span, kept: Kept) -> Hash:
    """Compute the hash of a span from the stored hashes that `needed` lists."""
    return span_hash(span, lambda node: kept_hash(node, kept))


def paths(spans: Sequence[Sequence[Span]], kept: Kept) -> list[list[Hash]]:
    """Compute the proofs of several leaves, each given as spans.

    Shared spans are computed once. Raises KeyError if a stored hash is missing.
    """
    known: dict[Node, Hash] = {}

    def node_of(node: Node) -> Hash:
        level, index = node
        if level % STEP == 0:
            return kept[node]
        if node not in known:
            halves = (level - 1, 2 * index), (level - 1, 2 * index + 1)
            known[node] = node_hash(*map(node_of, halves))
        return known[node]

    distinct = {span for each in spans for span in each}
    hashes = {span: span_hash(span, node_of) for span in distinct}
    return [[hashes[span] for span in each] for each in spans]


def tail_ranges(size: int) -> set[tuple[int, int, int]]:
    """Return the ranges of stored hashes that are not in complete tiles, for creating a `Tail`."""
    found = set()
    level = 0
    while count := size >> level:
        first = count - count % WIDTH
        if first < count:
            found.add((level, first, count))
        level += STEP
    return found


class Tail:
    """The growing end of a log: the hashes that are not in complete tiles yet.

    These are up to 255 hashes for each stored level.
    """

    def __init__(self, size: int, kept: Kept) -> None:
        self.size = size
        self._kept = dict(kept)

    def append(self, leaf: Hash) -> list[tuple[Node, Hash]]:
        """Append a leaf, and return the hashes of the tiles that it completed, so that they can be
        stored."""
        self._kept[0, self.size] = leaf
        self.size += 1
        made = []
        level, count = 0, self.size
        while count % WIDTH == 0:
            places = range(count - WIDTH, count)
            tile = [self._kept.pop((level, place)) for place in places]
            level, count = level + STEP, count // WIDTH
            node = (level, count - 1)
            self._kept[node] = subtree_hash(tile)
            made.append((node, self._kept[node]))
        return made

    def head(self) -> Hash:
        return computed((0, self.size), self._kept)
