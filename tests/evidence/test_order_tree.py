"""The tree of orders: it follows from its entries alone, and a path shows an order's only one."""

import hashlib
from types import SimpleNamespace
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from app.evidence.verify_entries import _tree as tree_of
from app.evidence.verify_forms import Wrong
from reconcile.transparency.merkle import EMPTY, Hash
from reconcile.transparency.order_tree import (
    BITS,
    OrderEntry,
    OrderTree,
    entry_hash,
    folded,
    keyed,
    root_by,
    siblings,
)

# Some begin alike, so that groups of the kept levels have more than one.
COMMITMENTS = st.builds(
    lambda first, rest: (first + rest)[:32],
    st.sampled_from([b"", b"\x00\x01", b"\x00\x01\x80", b"\xff" * 31]),
    st.binary(min_size=32, max_size=32),
)
ENTRIES = st.dictionaries(COMMITMENTS, st.tuples(st.integers(1, 9), st.integers(0, 99))).map(
    lambda found: [OrderEntry(of, *counts) for of, counts in sorted(found.items())]
)


def by_the_rule(entries: list[OrderEntry], shared: int = 0) -> Hash:
    """Compute the root as the documentation says it, bit by bit."""
    if not entries:
        return EMPTY
    if len(entries) == 1:
        (of, leaves, last) = entries[0]
        entry = rfc8785.dumps({"of": of.hex(), "leaves": leaves, "last": last})
        return hashlib.sha256(b"\x00" + entry).digest()
    sides: tuple[list[OrderEntry], list[OrderEntry]] = ([], [])
    for each in entries:
        sides[int.from_bytes(each.commitment, "big") >> (BITS - 1 - shared) & 1].append(each)
    zeros, ones = (by_the_rule(side, shared + 1) for side in sides)
    if not sides[0] or not sides[1]:
        return zeros if sides[0] else ones
    return hashlib.sha256(b"\x01" + bytes([shared]) + zeros + ones).digest()


@given(ENTRIES)
def test_the_root_is_what_the_rule_gives(entries: list[OrderEntry]) -> None:
    """At once, and grown in two steps with the first ones counted otherwise before."""
    root = by_the_rule(entries)
    assert folded([keyed(each) for each in entries], bits=BITS) == root
    tree = OrderTree()
    for each in entries[::2]:
        tree.put(each._replace(leaves=each.leaves + 1))
    tree.root()
    for each in entries:
        tree.put(each)
    assert (tree.root(), tree.count) == (root, len(entries))


@given(ENTRIES.filter(len), st.data())
def test_a_path_leads_from_an_entry_to_the_root_and_from_no_other(
    entries: list[OrderEntry], data: st.DataObject
) -> None:
    root = by_the_rule(entries)
    entry = data.draw(st.sampled_from(entries))
    items = [keyed(each) for each in entries]
    path = siblings(items, keyed(entry)[0], bits=BITS)
    assert root_by(entry, path) == root
    for other in (
        entry._replace(leaves=entry.leaves + 1),
        entry._replace(last=entry.last + 1),
        entry._replace(commitment=bytes(31) + b"\x07"),
    ):
        assert other == entry or root_by(other, path) != root
    if path:
        with pytest.raises(ValueError, match="upwards"):
            root_by(entry, [*path, path[-1]])


@pytest.mark.parametrize("last", [0x01, 0x80], ids=["last bit", "last byte"])
def test_a_bundles_verifier_follows_the_path_of_an_order_that_differs_late(last: int) -> None:
    """Each branch must be nearer to the root than the one before."""
    alike = b"\xff" * 31
    entries = [OrderEntry(alike + bytes([each]), 2, 5) for each in (0, last)]
    items = [keyed(each) for each in entries]
    path = siblings(items, items[0][0], bits=BITS)
    sealed: dict[str, Any] = {
        "leaf": "tree",
        "last": 5,
        "leaves": 2,
        "path": [(n, h.hex()) for n, h in path],
    }
    shown = {"tree": (7, {"root": folded(items, bits=BITS).hex(), "at": 0})}
    bundle: Any = SimpleNamespace(manifest={"as_of": "2026-11-20T00:00:00Z"})
    of = entries[0].commitment.hex()
    assert tree_of(sealed, of, shown, bundle)[0] == 7
    twice = {**sealed, "path": sealed["path"] * 2}
    with pytest.raises(Wrong, match="out of order"):
        tree_of(twice, of, shown, bundle)


def test_the_vectors_of_the_documentation() -> None:
    one = OrderEntry(bytes.fromhex("00" * 31 + "01"), 3, 7)
    other = OrderEntry(bytes.fromhex("80" + "00" * 31), 1, 8)
    assert entry_hash(one).hex() == ONE
    assert folded([keyed(one), keyed(other)], bits=BITS).hex() == BOTH


ONE = "2bc1758df5728791de801df93852066b58d7275bc817dc3d6b09e46e343e6a19"
BOTH = "7b0082a6336d4e61dad6b6bbc5adbdca0a08f6ae549b3cede6b79d0df5ccb6bf"
