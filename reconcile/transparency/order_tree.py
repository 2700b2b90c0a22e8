"""A Merkle tree with one entry for each order, which states how many log leaves the order has.

The bits of an order's commitment are its entry's path from the root. There is an inner node
wherever commitments diverge:

    entry   SHA-256(0x00, canonical JSON {"last", "leaves", "of"})
    node    SHA-256(0x01, one byte: number of shared bits, hash of the 0 side, hash of the 1 side)

Hashes are stored by the first 16 and 8 bits, so only changed groups are hashed again.
"""

import hmac
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from reconcile.transparency.merkle import EMPTY, Hash

BITS: Final = 256
"""Number of bits of a commitment to an order."""

GROUPED: Final = 16
"""Number of leading bits that the commitments of one group share."""

LEVELS: Final = (GROUPED, 8)
"""Numbers of leading bits by which entries are grouped. The hash of each group is stored. The
smaller groups come first."""

Keyed = tuple[int, Hash]
"""Leading bits of a commitment as a number, and the hash of all entries that begin with these
bits."""

Path = Sequence[tuple[int, Hash]]
"""Steps from an entry to the root: bits shared with the sibling, and the sibling's hash."""


def order_commitment(key: bytes, reference: str) -> bytes:
    """Return the pseudonym of an order in log leaves: the HMAC-SHA256 of its reference.

    Each order has its own key. Once the key is erased, nobody can link the pseudonym to the
    reference.
    """
    return hmac.digest(key, reference.encode("utf-8", "surrogatepass"), "sha256")


class OrderEntry(NamedTuple):
    """Entry of one order: its commitment, and the number and the newest index of its log leaves."""

    commitment: bytes
    leaves: int
    last: int


Counted = tuple[bytes, int, int]
"""Entry of one order, or a plain tuple of its fields.

Tuples save memory when there are a million entries.
"""


def entry_hash(entry: Counted) -> Hash:
    of, leaves, last = entry
    entry_json = f'\x00{{"last":{last},"leaves":{leaves},"of":"{of.hex()}"}}'
    return sha256(entry_json.encode("ascii")).digest()


_NODE: Final = tuple(b"\x01" + bytes((shared,)) for shared in range(BITS))


def branch_hash(shared: int, zeros: Hash, ones: Hash) -> Hash:
    """Return the hash of an inner node.

    shared  number of leading bits that all commitments below share
    zeros   hash of the child whose commitments continue with 0
    ones    hash of the child whose commitments continue with 1
    """
    return sha256(_NODE[shared] + zeros + ones).digest()


def keyed(entry: Counted) -> Keyed:
    """Return the commitment of an entry as a number, and the hash of the entry."""
    return int.from_bytes(entry[0], "big"), entry_hash(entry)


def group_of(commitment: bytes, bits: int = GROUPED) -> int:
    return int.from_bytes(commitment, "big") >> (BITS - bits)


def folded(items: Sequence[Keyed], *, bits: int) -> Hash:
    """Return the hash of the tree over these items, which must be sorted by number.

    bits  length of each number in bits
    """
    hashes: list[Hash] = []
    parted: list[int] = []
    before = 0
    for place, found in items:
        if hashes:
            shared = bits - (before ^ place).bit_length()
            while parted and parted[-1] > shared:
                ones = hashes.pop()
                hashes[-1] = branch_hash(parted.pop(), hashes[-1], ones)
            parted.append(shared)
        hashes.append(found)
        before = place
    while parted:
        ones = hashes.pop()
        hashes[-1] = branch_hash(parted.pop(), hashes[-1], ones)
    return hashes[0] if hashes else EMPTY


def siblings(items: Iterable[Keyed], place: int, *, bits: int) -> list[tuple[int, Hash]]:
    """Return the path from the item numbered `place` to the root of the tree over these items.

    Each step has the number of leading bits that both sides share, and the sibling's hash.

    items  must be sorted by number
    """
    sides: dict[int, list[Keyed]] = {}
    for each in items:
        if each[0] != place:
            sides.setdefault(bits - (each[0] ^ place).bit_length(), []).append(each)
    return [(shared, folded(sides[shared], bits=bits)) for shared in sorted(sides, reverse=True)]


def root_by(entry: OrderEntry, path: Path) -> Hash:
    """Compute the tree's root from one entry and its path. Raises ValueError for a malformed
    path."""
    place, found = keyed(entry)
    last = BITS
    for shared, other in path:
        if not 0 <= shared < last:
            raise ValueError("a path does not lead upwards")
        ones = place >> (BITS - 1 - shared) & 1
        found = branch_hash(shared, other, found) if ones else branch_hash(shared, found, other)
        last = shared
    return found


class OrderTree:
    """Tree of orders in memory, with about 250 bytes an order.

    After a change, only the changed groups are hashed again.
    """

    def __init__(self) -> None:
        self.count = 0
        """Number of orders."""
        self._groups: dict[int, dict[bytes, tuple[int, int]]] = {}
        self._hashes: dict[int, dict[int, Hash]] = {bits: {} for bits in LEVELS}
        self._touched: set[int] = set()

    def get(self, commitment: bytes) -> tuple[int, int] | None:
        """Return the number of log leaves that name an order, and the index of the newest leaf."""
        return self._groups.get(group_of(commitment), {}).get(commitment)

    def put(self, entry: OrderEntry) -> None:
        place = group_of(entry.commitment)
        group = self._groups.setdefault(place, {})
        self.count += entry.commitment not in group
        group[entry.commitment] = (entry.leaves, entry.last)
        self._touched.add(place)

    def root(self) -> Hash:
        for place in self._touched:
            group = sorted(self._groups[place].items())
            items = [keyed(OrderEntry(of, *counts)) for of, counts in group]
            self._hashes[GROUPED][place] = folded(items, bits=BITS)
        upper = LEVELS[1]
        for place in {place >> (GROUPED - upper) for place in self._touched}:
            groups, below = self._hashes[GROUPED], range(place << upper, (place + 1) << upper)
            items = [(each, groups[each]) for each in below if each in groups]
            self._hashes[upper][place] = folded(items, bits=GROUPED)
        self._touched.clear()
        return folded(sorted(self._hashes[upper].items()), bits=upper)

    def hashes(self, bits: int) -> Mapping[int, Hash]:
        """Return the hash of each group of orders whose commitments share `bits` leading bits, as
        of the last call of `root`."""
        return self._hashes[bits]
