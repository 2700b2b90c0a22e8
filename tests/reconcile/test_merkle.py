"""The Merkle tree: published vectors, the RFC's own words as recursion, and changes of anything."""

import hashlib
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.transparency import merkle
from tests.rows import for_each

LEAVES = [
    bytes.fromhex(each)
    for each in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657",
                 "606162636465666768696a6b6c6d6e6f")
]  # fmt: skip
HEADS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
"""Leaves and heads of the tests of google/certificate-transparency (merkletree), which the CT
implementations share; heads of the first 0, 1, 2 … leaves."""

INCLUSION = {
    (0, 1): [],
    (0, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (5, 8): [
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (2, 3): ["fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"],
}
"""Inclusion proofs of the same tests, by the place of a leaf and the size of the tree."""

CONSISTENCY = {
    (1, 1): [],
    (1, 8): INCLUSION[0, 8],
    (6, 8): [
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (2, 5): [
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ],
}


# --- RFC 9162, section 2.1, word for word --------------------------------------------------------


def mth(entries: Sequence[bytes]) -> merkle.Hash:
    """Return the tree's hash (2.1.1)."""
    if not entries:
        return hashlib.sha256(b"").digest()
    if len(entries) == 1:
        return hashlib.sha256(b"\x00" + entries[0]).digest()
    k = split(len(entries))
    return hashlib.sha256(b"\x01" + mth(entries[:k]) + mth(entries[k:])).digest()


def path(m: int, entries: Sequence[bytes]) -> list[merkle.Hash]:
    """Return the inclusion proof of entry m (2.1.3.1)."""
    if len(entries) == 1:
        return []
    k = split(len(entries))
    if m < k:
        return [*path(m, entries[:k]), mth(entries[k:])]
    return [*path(m - k, entries[k:]), mth(entries[:k])]


def subproof(m: int, entries: Sequence[bytes], complete: bool) -> list[merkle.Hash]:
    """Return the consistency proof SUBPROOF(m, D_n, true) (2.1.4.1)."""
    if m == len(entries):
        return [] if complete else [mth(entries)]
    k = split(len(entries))
    if m <= k:
        return [*subproof(m, entries[:k], complete), mth(entries[k:])]
    return [*subproof(m - k, entries[k:], False), mth(entries[:k])]


def split(n: int) -> int:
    k = 1
    while k * 2 < n:
        k *= 2
    return k


# --- ours ----------------------------------------------------------------------------------------


def nodes_of(entries: Sequence[bytes]) -> Callable[[merkle.Node], merkle.Hash]:
    """Return complete subtrees, each computed when it is asked for."""
    hashes = [merkle.leaf_hash(each) for each in entries]
    return lambda node: merkle.subtree_hash(hashes[node[1] << node[0] : (node[1] + 1) << node[0]])


def proven(m: int, entries: Sequence[bytes]) -> list[merkle.Hash]:
    spans = merkle.inclusion_spans(m, size=len(entries))
    return [merkle.span_hash(span, nodes_of(entries)) for span in spans]


def grown(m: int, entries: Sequence[bytes]) -> list[merkle.Hash]:
    spans = merkle.consistency_spans(m, size=len(entries))
    return [merkle.span_hash(span, nodes_of(entries)) for span in spans]


def entries_of(count: int) -> list[bytes]:
    return [number.to_bytes(4) for number in range(count)]


@for_each("count", range(9))
def test_the_published_heads(count: int) -> None:
    entries, frontier = LEAVES[:count], merkle.Frontier()
    for each in entries:
        frontier.append(merkle.leaf_hash(each))
    assert (
        merkle.span_hash((0, count), nodes_of(entries)).hex() == HEADS[count] == mth(entries).hex()
    )
    assert frontier.head().hex() == HEADS[count]


@for_each(("m", "size"), INCLUSION)
def test_the_published_inclusion_proofs(m: int, size: int) -> None:
    proof = [bytes.fromhex(each) for each in INCLUSION[m, size]]
    assert proven(m, LEAVES[:size]) == proof == path(m, LEAVES[:size])
    head, leaf = bytes.fromhex(HEADS[size]), merkle.leaf_hash(LEAVES[m])
    assert merkle.inclusion_holds(leaf, index=m, size=size, proof=proof, head=head)


@for_each(("old", "size"), CONSISTENCY)
def test_the_published_consistency_proofs(old: int, size: int) -> None:
    proof = [bytes.fromhex(each) for each in CONSISTENCY[old, size]]
    assert grown(old, LEAVES[:size]) == proof == subproof(old, LEAVES[:size], True)
    old_head, head = bytes.fromhex(HEADS[old]), bytes.fromhex(HEADS[size])
    assert merkle.consistency_holds(old=old, old_head=old_head, size=size, head=head, proof=proof)


def test_every_proof_of_every_small_tree_is_the_one_that_the_rfc_defines() -> None:
    for size in range(1, 40):
        entries = entries_of(size)
        head = mth(entries)
        for m in range(size):
            proof = proven(m, entries)
            assert proof == path(m, entries)
            leaf = merkle.leaf_hash(entries[m])
            assert merkle.inclusion_holds(leaf, index=m, size=size, proof=proof, head=head)
            grew = grown(m + 1, entries)
            assert grew == subproof(m + 1, entries, True)
            old_head = mth(entries[: m + 1])
            assert merkle.consistency_holds(
                old=m + 1, old_head=old_head, size=size, head=head, proof=grew
            )


SIZES = st.integers(1, 70).flatmap(lambda n: st.tuples(st.integers(0, n - 1), st.just(n)))


def flipped(value: merkle.Hash, bit: int) -> merkle.Hash:
    number = int.from_bytes(value) ^ (1 << bit % (8 * len(value)))
    return number.to_bytes(len(value))


@given(SIZES, st.integers(0, 255), st.data())
def test_an_inclusion_proof_with_any_change_is_refused(
    place: tuple[int, int], bit: int, data: st.DataObject
) -> None:
    m, size = place
    entries = entries_of(size)
    leaf, head, proof = merkle.leaf_hash(entries[m]), mth(entries), proven(m, entries)

    def holds(
        *,
        leaf: merkle.Hash = leaf,
        m: int = m,
        proof: Sequence[merkle.Hash] = proof,
        head: merkle.Hash = head,
    ) -> bool:
        return merkle.inclusion_holds(leaf, index=m, size=size, proof=proof, head=head)

    assert holds()
    assert not holds(leaf=flipped(leaf, bit))
    assert not holds(head=flipped(head, bit))
    assert not holds(m=size)
    assert not holds(m=-1)
    assert not holds(proof=[*proof, head])
    if proof:
        at = data.draw(st.integers(0, len(proof) - 1))
        assert not holds(proof=[*proof[:at], flipped(proof[at], bit), *proof[at + 1 :]])
        assert not holds(proof=[*proof[:at], *proof[at + 1 :]])
        assert not holds(proof=[*proof[:at], proof[at], *proof[at:]])
        assert not holds(m=(m + 1) % size)
    if len(proof) > 1:
        assert not holds(proof=proof[::-1])


@given(SIZES, st.integers(0, 255), st.data())
def test_a_consistency_proof_with_any_change_is_refused(
    place: tuple[int, int], bit: int, data: st.DataObject
) -> None:
    old, size = place[0] + 1, place[1]
    entries = entries_of(size)
    before, after, proof = mth(entries[:old]), mth(entries), grown(old, entries)

    def holds(
        *,
        before: merkle.Hash = before,
        after: merkle.Hash = after,
        proof: Sequence[merkle.Hash] = proof,
    ) -> bool:
        return merkle.consistency_holds(
            old=old, old_head=before, size=size, head=after, proof=proof
        )

    assert holds()
    assert not holds(before=flipped(before, bit))
    assert not holds(after=flipped(after, bit))
    assert not holds(proof=[*proof, after])
    if proof:
        at = data.draw(st.integers(0, len(proof) - 1))
        assert not holds(proof=[*proof[:at], flipped(proof[at], bit), *proof[at + 1 :]])
        assert not holds(proof=[*proof[:at], *proof[at + 1 :]])


def test_what_there_is_no_proof_of() -> None:
    for wrong in (-1, 3):
        with pytest.raises(ValueError, match="not in a tree of 3"):
            merkle.inclusion_spans(wrong, size=3)
    for wrong in (0, 4):
        with pytest.raises(ValueError, match="no proof"):
            merkle.consistency_spans(wrong, size=3)
    head = mth(entries_of(3))
    assert merkle.consistency_holds(old=0, old_head=merkle.EMPTY, size=3, head=head, proof=[])
    assert not merkle.consistency_holds(old=0, old_head=head, size=3, head=head, proof=[])
    assert not merkle.consistency_holds(old=4, old_head=head, size=3, head=head, proof=[head])


# --- what is kept --------------------------------------------------------------------------------


def kept_of(leaves: Sequence[merkle.Hash]) -> dict[merkle.Node, merkle.Hash]:
    kept, tail = {(0, place): each for place, each in enumerate(leaves)}, merkle.Tail(0, {})
    for each in leaves:
        kept.update(tail.append(each))
    return kept


def some(kept: merkle.Kept, ranges: set[tuple[int, int, int]]) -> merkle.Kept:
    """Return only the hashes of these ranges."""
    return {(level, n): kept[level, n] for level, a, b in ranges for n in range(a, b)}


def test_proofs_and_growth_need_only_what_they_name() -> None:
    """Over two stored levels, at sizes around complete tiles."""
    leaves = [
        hashlib.sha256(each).digest()
        for each in entries_of(merkle.WIDTH * merkle.WIDTH + merkle.WIDTH + 3)
    ]
    kept, frontier = kept_of(leaves), merkle.Frontier()
    assert {level for level, _ in kept} == {0, merkle.STEP, 2 * merkle.STEP}
    for size, leaf in enumerate(leaves, 1):
        frontier.append(leaf)
        if size not in (1, 255, 256, 257, 65_535, 65_536, 65_537, len(leaves)):
            continue
        head = frontier.head()
        tail = merkle.Tail(size, some(kept, merkle.tail_ranges(size)))
        assert tail.head() == head
        for m in {0, size // 2, size - 1}:
            spans = merkle.inclusion_spans(m, size=size)
            proof = [merkle.computed(span, some(kept, merkle.needed(spans))) for span in spans]
            assert merkle.inclusion_holds(leaves[m], index=m, size=size, proof=proof, head=head)
        for further in leaves[size : size + 3]:
            tail.append(further)
        wanted = merkle.Frontier()
        for each in leaves[: size + 3]:
            wanted.append(each)
        assert tail.head() == wanted.head()
