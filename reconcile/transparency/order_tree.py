"""A Merkle tree of orders by the commitments that name them: how many leaves of a log each has.

An entry's place is its commitment, bit by bit, so an order has one place and a proof shows the only
entry that it has. A node is where commitments part: it is hashed with the number of bits that they
share; where all go the same way there is none. So a tree follows from its entries alone:

    entry   SHA-256(0x00, canonical JSON {"last", "leaves", "of"})
    node    SHA-256(0x01, one byte: how many bits are shared, hash of the side of 0, of that of 1)

Entries are grouped by the first 16 bits of their commitments, groups by the first 8: whoever keeps
the hashes of those hashes anew only what has changed.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from reconcile.transparency.merkle import EMPTY, Hash

BITS: Final = 256
"""Of a commitment."""

GROUPED: Final = 16
"""Bits by which entries are grouped."""

LEVELS: Final = (GROUPED, 8)
"""Bits of the groups of which hashes are kept, the smaller groups first."""

Keyed = tuple[int, Hash]
"""The first bits of some commitments as a number, and the hash of all of their entries."""

Path = Sequence[tuple[int, Hash]]
"""How an entry leads to the root, from below: the bits shared with those of the other side, and
their hash."""


def order_commitment(key: bytes, reference: str) -> bytes:
    """How leaves name an order: HMAC-SHA256 of its reference in UTF-8, under a key of that order
    alone. Who is given the key can check it; where the key is erased, nobody can."""
    return hmac.digest(key, reference.encode("utf-8", "surrogatepass"), "sha256")


class OrderEntry(NamedTuple):
    """The commitment, how many leaves name it, and the number of the newest of them."""

    commitment: bytes
    leaves: int
    last: int


Counted = tuple[bytes, int, int]
"""An OrderEntry, or a plain tuple of what it has: there are a million of them."""


def entry_hash(entry: Counted) -> Hash:
    """The hash of one entry."""
    of, leaves, last = entry
    entry_json = f'\x00{{"last":{last},"leaves":{leaves},"of":"{of.hex()}"}}'
    return sha256(entry_json.encode("ascii")).digest()


_NODE: Final = tuple(b"\x01" + bytes((shared,)) for shared in range(BITS))


def node_hash(shared: int, zeros: Hash, ones: Hash) -> Hash:
    """The hash of two sides, of which the commitments share so many bits."""
    return sha256(_NODE[shared] + zeros + ones).digest()


def keyed(entry: Counted) -> Keyed:
    """An entry with its place."""
    return int.from_bytes(entry[0], "big"), entry_hash(entry)


def group_of(commitment: bytes, bits: int = GROUPED) -> int:
    """The group of a commitment."""
    return int.from_bytes(commitment, "big") >> (BITS - bits)


def folded(items: Sequence[Keyed], *, bits: int) -> Hash:
    """The hash of all of these, which are in the order of their numbers, of so many bits each."""
    hashes: list[Hash] = []
    parted: list[int] = []
    before = 0
    for place, found in items:
        if hashes:
            shared = bits - (before ^ place).bit_length()
            while parted and parted[-1] > shared:
                ones = hashes.pop()
                hashes[-1] = node_hash(parted.pop(), hashes[-1], ones)
            parted.append(shared)
        hashes.append(found)
        before = place
    while parted:
        ones = hashes.pop()
        hashes[-1] = node_hash(parted.pop(), hashes[-1], ones)
    return hashes[0] if hashes else EMPTY


def siblings(items: Iterable[Keyed], place: int, *, bits: int) -> list[tuple[int, Hash]]:
    """The part of a path that leads up from `place` through these, which are in order."""
    sides: dict[int, list[Keyed]] = {}
    for each in items:
        if each[0] != place:
            sides.setdefault(bits - (each[0] ^ place).bit_length(), []).append(each)
    return [(shared, folded(sides[shared], bits=bits)) for shared in sorted(sides, reverse=True)]


def root_by(entry: OrderEntry, path: Path) -> Hash:
    """The root to which an entry leads. Raises ValueError for a path that is none."""
    place, found = keyed(entry)
    last = BITS
    for shared, other in path:
        if not 0 <= shared < last:
            raise ValueError("a path does not lead upwards")
        ones = place >> (BITS - 1 - shared) & 1
        found = node_hash(shared, other, found) if ones else node_hash(shared, found, other)
        last = shared
    return found


class OrderTree:
    """A tree in memory, some 250 bytes for each order, that hashes anew only what has changed."""

    def __init__(self) -> None:
        self.count = 0
        """Orders in it."""
        self._groups: dict[int, dict[bytes, tuple[int, int]]] = {}
        self._hashes: dict[int, dict[int, Hash]] = {bits: {} for bits in LEVELS}
        self._touched: set[int] = set()

    def get(self, commitment: bytes) -> tuple[int, int] | None:
        """How many leaves an order has, and the newest's number."""
        return self._groups.get(group_of(commitment), {}).get(commitment)

    def put(self, entry: OrderEntry) -> None:
        """Put an order in, or another count of it."""
        place = group_of(entry.commitment)
        group = self._groups.setdefault(place, {})
        self.count += entry.commitment not in group
        group[entry.commitment] = (entry.leaves, entry.last)
        self._touched.add(place)

    def root(self) -> Hash:
        """The root of the tree as it is now."""
        for place in self._touched:
            group = sorted(self._groups[place].items())
            items = [keyed(OrderEntry(of, *counts)) for of, counts in group]
            self._hashes[GROUPED][place] = folded(items, bits=BITS)
        upper = LEVELS[1]
        for place in {place >> (GROUPED - upper) for place in self._touched}:
            below = range(place << upper, (place + 1) << upper)
            self._hashes[upper][place] = _folded_groups(self._hashes[GROUPED], below, bits=GROUPED)
        self._touched.clear()
        return _folded_groups(self._hashes[upper], range(1 << upper), bits=upper)

    def hashes(self, bits: int) -> Mapping[int, Hash]:
        """Of each group of a level that has orders, as of the last call of `root`."""
        return self._hashes[bits]


def _folded_groups(hashes: Mapping[int, Hash], places: Iterable[int], *, bits: int) -> Hash:
    return folded(list(_there(hashes, places)), bits=bits)


def _there(hashes: Mapping[int, Hash], places: Iterable[int]) -> Iterator[Keyed]:
    return ((place, hashes[place]) for place in places if place in hashes)
