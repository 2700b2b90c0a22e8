"""The few hashes by which a log grows and answers: those of complete subtrees, every eighth level.

A tile is 256 hashes of one level side by side; a complete one becomes one hash, eight levels up.
Level 0 holds the leaves' own hashes. Whatever lies between two kept levels is computed again from
one tile, and what stands in no complete tile is the tail. With 256 leaves for each kept hash, what
is kept besides the leaves is next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from reconcile.transparency.merkle import Hash, Node, Span, span_hash, span_nodes, subtree_hash

STEP: Final = 8
"""Levels between two that are kept."""

WIDTH: Final = 1 << STEP
"""Hashes in a tile."""

Kept = Mapping[Node, Hash]
"""Hashes of kept levels, by level and place."""


def kept_range(node: Node) -> tuple[int, int, int]:
    """The level, first place and place behind the last of the kept hashes that a node covers."""
    level, index = node
    base = level - level % STEP
    width = level - base
    return base, index << width, (index + 1) << width


def kept_hash(node: Node, kept: Kept) -> Hash:
    """A node's hash from the kept ones. Raises KeyError where one is missing."""
    base, start, end = kept_range(node)
    return subtree_hash([kept[base, place] for place in range(start, end)])


def needed(spans: Iterable[Span]) -> set[tuple[int, int, int]]:
    """The ranges of kept hashes from which the spans can be computed."""
    return {kept_range(node) for span in spans for node in span_nodes(span)}


def computed(span: Span, kept: Kept) -> Hash:
    """The hash of a span from the kept hashes that `needed` named."""
    return span_hash(span, lambda node: kept_hash(node, kept))


def tail_ranges(size: int) -> set[tuple[int, int, int]]:
    """The ranges of kept hashes that stand in no complete tile: what `Tail` begins with."""
    found = set()
    level = 0
    while count := size >> level:
        first = count - count % WIDTH
        if first < count:
            found.add((level, first, count))
        level += STEP
    return found


class Tail:
    """The growing end of a log: at most 255 hashes for each kept level."""

    def __init__(self, size: int, kept: Kept) -> None:
        """kept: the hashes that `tail_ranges` named."""
        self.size = size
        self._kept = dict(kept)

    def append(self, leaf: Hash) -> list[tuple[Node, Hash]]:
        """Add a leaf; the hashes of the tiles that it completed, which are to be kept."""
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
        """The head of the log as it is now."""
        return computed((0, self.size), self._kept)
