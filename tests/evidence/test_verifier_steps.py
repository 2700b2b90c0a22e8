"""Steps of the verifier on small values: forms, archives, proofs, and the log's own checks."""

import base64
import json
import re
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from app.core.errors import NotFoundError, UsageError
from app.database.gaps import Gap
from app.evidence import verify, verify_archive, verify_evidence
from app.evidence.keys import public_key_text, write_key
from app.evidence.seal import Checkpoint, signed_checkpoint
from app.evidence.store import Content
from app.evidence.verify_archive import Bundle, _member, pack, redated, unpack
from app.evidence.verify_entries import (
    _own_name,
    checkpoint_of,
    earlier_origins,
    inclusion,
    root_of,
)
from app.evidence.verify_evidence import (
    KeptCheckpoint,
    TrustedWitnesses,
    named_witnesses,
    read_bundle,
    read_kept,
    trusted_key,
)
from app.evidence.verify_forms import (
    Either,
    Wrong,
    canonical,
    clean,
    fault,
    instant,
    read_json,
    whole,
)
from app.evidence.verify_log import (
    Names,
    OrderCounts,
    Tree,
    VerifiedLog,
    misfit,
    reread,
    wrong_content,
)
from app.receiving.verify import digest_of
from app.sealing.departure_store import Departure
from app.sealing.leaf_store import Leaf, Sealable
from app.sealing.log_store import EarlierOrigin, Identity, SignedHead
from app.sealing.order_tree_store import SealedTree
from reconcile.instants import DAY, Instant, format_instant
from reconcile.transparency.commitments import cut_into_parts, sealed_digest
from reconcile.transparency.cosignatures import VerifierKey
from reconcile.transparency.merkle import Frontier, inclusion_spans, leaf_hash, subtree_hash
from reconcile.transparency.order_tree import OrderEntry, OrderTree
from tests.reconcile.build import T
from tests.rows import for_each

# --- forms ----------------------------------------------------------------------------------------


@for_each(
    ("said", "right"),
    [
        ("2026-11-20T10:00:00Z", True),
        ("2026-11-20T10:00:00.001Z", True),
        ("2026-11-20T10:00:00.100Z", True),
        ("2026-11-20T10:00:00.000001Z", True),
        ("2026-11-20T10:00:00.000Z", False),
        ("2026-11-20T10:00:00.001000Z", False),
        ("2026-11-20T10:00:00.1Z", False),
        ("2026-11-20T10:00:00+00:00", False),
        ("2026-11-20T10:00:00z", False),
        ("2026-11-20 10:00:00Z", False),
        ("2026-02-29T10:00:00Z", False),
        ("2026-11-20T24:00:01Z", False),
        ("x2026-11-20T10:00:00Z", False),
        ("2026-11-20T10:00:00Z\n", False),
        ("٢026-11-20T10:00:00Z", False),
        (20261120, False),
        (None, False),
    ],
)
def test_an_instant_is_written_in_one_way(said: Any, right: bool) -> None:
    assert instant(said) is right


@for_each("said", [True, -1, 1 << 53, 1.0, "1", None])
def test_a_natural_number_is_no_other_value(said: Any) -> None:
    assert not whole(said)
    assert whole(0)
    assert whole((1 << 53) - 1)


MONEY: Final = {"amount": str, "currency": str}
OBJECT: Final = {"a": str, "b?": int, re.compile("x.*"): bool}


@for_each(
    ("value", "form", "said"),
    [
        ("x", str, ""),
        (1, str, "it is malformed"),
        (True, int, "it is malformed"),
        (True, True, ""),
        (1, True, "it is malformed"),
        (None, None, ""),
        (0, None, "it is malformed"),
        (3, whole, ""),
        (-3, whole, "it is malformed"),
        ("abc", re.compile("[a-c]+"), ""),
        ("abcd", re.compile("[a-c]+"), "it is malformed"),
        (b"abc", re.compile("[a-c]+"), "it is malformed"),
        ([], [str], ""),
        (["a", "b"], [str], ""),
        (["a", 1, 2], [str], "it is malformed"),
        (("a",), [str], "it is malformed"),
        (["a", 1], (str, int), ""),
        (["a"], (str, int), "it is malformed"),
        (["a", 1, 1], (str, int), "it is malformed"),
        (["a", "1"], (str, int), "it is malformed"),
        (None, Either((str, None)), ""),
        ("x", Either((str, None)), ""),
        (1, Either((str, None)), "it is malformed"),
        ({"a": 1}, Either((None, {"a": str})), "a in it is malformed"),
        ({"a": "x"}, OBJECT, ""),
        ({"a": "x", "b": 1, "x1": True}, OBJECT, ""),
        ({"a": "x", "x1": 1}, OBJECT, "x1 in it is malformed"),
        ({"a": "x", "b": "1"}, OBJECT, "b in it is malformed"),
        ({"b": 1}, OBJECT, "it lacks the member a"),
        ({"a": "x", "c": 1}, OBJECT, "it has an unknown member: c"),
        ({"a": "x", "c": 1}, {"a": str}, "it has an unknown member: c"),
        ([], OBJECT, "it is malformed"),
        ({"amount": "1.00", "currency": "KES"}, MONEY, ""),
        ({"amount": "1", "currency": "JPY"}, MONEY, ""),
        ({"amount": "1.000", "currency": "KWD"}, MONEY, ""),
        ({"amount": "1.0000", "currency": "CLF"}, MONEY, ""),
        ({"amount": "1", "currency": "KES"}, MONEY, "it is not written with the decimals of KES"),
        ({"amount": "1.00", "currency": "JPY"}, MONEY,
         "it is not written with the decimals of JPY"),
        ({"amount": "1"}, {"amount": str}, ""),
    ],
)  # fmt: skip
def test_the_first_deviation_from_a_form_is_named(value: Any, form: Any, said: str) -> None:
    assert fault(value, form, "it") == said


@for_each("text", [b'{"a":1,"a":1}', b'[{"a":{"b":1,"b":2}}]', b"\xff", b"{", b"[" * 100_000])
def test_json_that_could_be_read_in_two_ways_is_refused(text: bytes) -> None:
    with pytest.raises(Wrong, match=r"^x\.json (has an object with a duplicate name|is not JSON)$"):
        read_json(text, "x.json")
    assert read_json(b'{"a":{"a":1}}', "x.json") == {"a": {"a": 1}}


def test_text_from_outside_is_shown_without_characters_that_do_not_print() -> None:
    assert clean("a\x1b[2J\n\u202eb\u2014") == "a?[2J??b\u2014"
    assert clean(None) == "None"


# --- the archive ----------------------------------------------------------------------------------


def test_an_archive_may_be_as_large_and_have_as_many_files_as_the_limits_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    members = {"a.txt": b"1", "b.txt": b"", "c.txt": b"22"}
    archive = pack(members)
    monkeypatch.setattr(verify_archive, "MAX_BYTES", len(archive))
    monkeypatch.setattr(verify_archive, "MAX_MEMBERS", 3)
    assert unpack(archive) == members
    monkeypatch.setattr(verify_archive, "MAX_MEMBERS", 2)
    with pytest.raises(Wrong, match="more than 2 files"):
        unpack(archive)
    monkeypatch.setattr(verify_archive, "MAX_BYTES", len(archive) - 1)
    with pytest.raises(Wrong, match=f"more than {len(archive) - 1} bytes"):
        unpack(archive)


def test_a_file_may_end_where_the_archive_ends() -> None:
    """Its header, too, if it has no name and no bytes."""
    data = pack({"a.txt": b"12"})[: 30 + 5 + 2]
    assert _member(data, 0) == ("a.txt", b"12", 37)
    with pytest.raises(Wrong, match="states more bytes"):
        _member(data[:-1], 0)
    bare = data[:26] + struct.pack("<HH", 0, 0)
    with pytest.raises(Wrong, match="a file named ''"):
        _member(bare, 0)
    with pytest.raises(Wrong, match="header of a file is cut off"):
        _member(bare[:-1], 0)


def test_a_document_is_parsed_once_and_only_if_it_may_be_there() -> None:
    bundle = Bundle({"books.json": b"[]", "x.json": b"[]"}, {})
    first = bundle.document("books.json")
    assert first == []
    assert bundle.document("books.json") is first
    for name, said in (("x.json", "is not allowed"), ("heard.json", "is missing")):
        with pytest.raises(Wrong, match=f"^{name} {said}"):
            bundle.document(name)
    made = [bundle.once(lambda _: object()) for _ in range(2)]
    assert made[0] is not made[1]
    assert bundle.once(list_of) is bundle.once(list_of)


def list_of(bundle: Bundle) -> list[str]:
    return [*bundle.members]


def moved(thing: str, at: int, *, recorded: int | None = None, until: int = 9) -> dict[str, Any]:
    """Return a record that corrects the date of a thing, in seconds after ten."""
    first, second, third = (
        f"2026-11-20T10:00:0{each}Z" for each in (at, at if recorded is None else recorded, until)
    )
    return {"record_id": "r", "kind": "redated", "replaces": thing, "at": first,
            "recorded_at": second, "expires_at": third}  # fmt: skip


def of_records(*records: dict[str, Any]) -> Bundle:
    bundle = Bundle({"history.json": b""}, {})
    bundle._read["history.json"] = {"records": records}
    return bundle


def test_the_earliest_correction_of_a_date_counts() -> None:
    placed = moved("d3", 1) | {"kind": "order_placed"}
    found = redated(
        of_records(moved("d1", 4), moved("d1", 2), placed, moved("d2", 5), moved("d1", 3))
    )
    assert {name: (at - T) // 1_000_000 for name, at in found.items()} == {"d1": 2, "d2": 5}


@for_each("wrong", [moved("d1", 4, recorded=5), moved("d1", 4, until=4), moved("d1", 4, until=3)])
def test_a_correction_is_recorded_at_its_instant_and_is_earlier_than_the_wrong_one(
    wrong: dict[str, Any],
) -> None:
    with pytest.raises(Wrong, match="contradictory times"):
        redated(of_records(wrong))


# --- entries of the log ---------------------------------------------------------------------------

LEAVES: Final = [leaf_hash(bytes([number])) for number in range(9)]


def head_of(leaves: Sequence[bytes]) -> bytes:
    """Return the head of the tree of these leaves."""
    tree = Frontier()
    for each in leaves:
        tree.append(each)
    return tree.head()


def test_a_proof_leads_from_every_leaf_to_the_root_of_every_tree() -> None:
    """With a hash more or less, it does not."""
    for size in range(1, len(LEAVES) + 1):
        root = head_of(LEAVES[:size])
        for index in range(size):
            proof = [head_of(LEAVES[a:b]) for a, b in inclusion_spans(index, size=size)]
            assert root_of(LEAVES[index], index, size, proof) == root
            with pytest.raises(Wrong, match="too long"):
                root_of(LEAVES[index], index, size, [*proof, root])
            if proof:
                with pytest.raises(Wrong, match="too short"):
                    root_of(LEAVES[index], index, size, proof[:-1])


@for_each(("index", "size"), [(0, 0), (1, 1), (-1, 1), (5, 4)])
def test_a_proof_of_a_leaf_beyond_the_log_is_refused(index: int, size: int) -> None:
    with pytest.raises(Wrong, match="beyond the end of the log"):
        root_of(LEAVES[0], index, size, [])


ROOT: Final = base64.b64encode(bytes(range(32))).decode()


def test_a_checkpoint_states_size_and_root() -> None:
    assert checkpoint_of(f"log\n7\n{ROOT}\n\nmore".encode()) == (7, bytes(range(32)))


@for_each(
    "text",
    [
        f"log\n07\n{ROOT}\n", f"log\n7 \n{ROOT}\n", f"log\n{ROOT}\n7\n", "log\n7\n", "log", "",
        f"log\n7\n{ROOT[:-4]}\n", f"log\n7\n{ROOT}!\n",
        f"log\n7\n{base64.b64encode(bytes(33)).decode()}\n", "\udcff",
    ],
)  # fmt: skip
def test_a_text_without_size_or_root_is_no_checkpoint(text: str) -> None:
    with pytest.raises(Wrong, match="does not contain a checkpoint"):
        checkpoint_of(text.encode("utf-8", "surrogateescape"))


def test_an_earlier_origin_is_one_that_has_ended() -> None:
    log = {
        "origins": [
            {"log": "a", "leaves": 0},
            {"log": "b", "leaves": 3},
            {"log": "c", "leaves": None},
        ]
    }
    assert earlier_origins(log) == [("a", 0), ("b", 3)]
    assert earlier_origins({}) == []


@for_each(
    ("leaf", "name"),
    [
        ({"kind": "reading", "delivery": "d1", "id": 3}, "reading:d1:7"),
        ({"kind": "delivery", "id": "d1"}, "d1"),
        ({"kind": "record", "id": "r1"}, "r1"),
        ({"kind": "revision", "id": 3}, "revision:3"),
        ({"kind": "deed", "id": 4}, "deed:4"),
        ({"kind": "orders", "id": 5}, "orders:5"),
    ],
)
def test_a_leafs_own_name_follows_from_its_kind(leaf: dict[str, Any], name: str) -> None:
    assert _own_name(leaf, 7) == name


# --- the whole log --------------------------------------------------------------------------------

SALT: Final = "00" * 16


def leaf_with(number: int, kind: str = "record", **members: Any) -> Leaf:
    """Return a leaf of a row with these members."""
    given = {"kind": kind, "salt": SALT, "id": f"r{number}"} | members
    document = json.dumps(given, sort_keys=True, separators=(",", ":"))
    return Leaf(number, kind, f"r{number}", document, leaf_hash(document.encode()))


def content(body: bytes | None, **more: Any) -> Content:
    digest = digest_of(b"it", "")
    given: Any = {"verdict": "stored", "digest": digest, "headers": "", "pruned": False} | more
    return Content(body=body, **given)


CHANGED: Final = "leaf 1 (record r1) does not match its hash: the leaf was changed"
MISSING: Final = "leaf 1 (record r1) seals a row that is missing: the row was deleted"
OTHER: Final = "leaf 1 (record r1) and its row disagree on {}: one of the two was changed"
BODY: Final = "leaf 1 (record r1) does not match its body: the body was changed"
LOST: Final = (
    "leaf 1 (record r1) has lost its body, although it was not pruned: the body was deleted by hand"
)
ONE: Final = leaf_with(1, headers="h", size=3)
SAME: Final = {"id": "r1", "headers": "h", "size": 3}


def row(kind: str = "record", **members: Any) -> Sealable:
    return Sealable(kind, "r1", SAME | members)


@for_each(
    ("leaf", "sealed", "held", "said"),
    [
        (ONE, row(), None, None),
        (ONE, row(), content(b"it"), None),
        (ONE._replace(hash=bytes(32)), row(), None, CHANGED),
        (ONE._replace(document="{}"), row(), None, CHANGED),
        (Leaf(1, "record", "r1", "[]", leaf_hash(b"[]")), row(), None, CHANGED),
        (Leaf(1, "record", "r1", "no", leaf_hash(b"no")), row(), None, CHANGED),
        (ONE, None, None, MISSING),
        (ONE, row("revision"), None, MISSING),
        (ONE._replace(kind="revision"), row("revision"), None,
         MISSING.replace("record", "revision")),
        (ONE._replace(subject="deed:1"), None, None, MISSING.replace("record r1", "deed:1")),
        (ONE, row(size=4), None, OTHER.format("size")),
        (ONE, row(whole=None), None, None),
        (ONE, row(whole="x"), None, OTHER.format("whole")),
        (ONE, row(headers=None), None, OTHER.format("headers")),
        (ONE, row(headers=None), content(b"it"), OTHER.format("headers")),
        (ONE, row(headers=None), content(None, pruned=True), None),
        (ONE, row(size=4), content(None, pruned=True), OTHER.format("size")),
        (ONE, row(), content(b"another"), BODY),
        (ONE, row(), content(None), LOST),
        (ONE, row(), content(None, verdict="duplicate"), None),
        (ONE, row(), content(None, pruned=True), None),
        (leaf_with(1, headers="h", size=3, of="aa", nth=1, after=None, parts="x"), row(), None,
         None),
    ],
)  # fmt: skip
def test_a_leaf_matches_its_hash_its_row_and_its_body(
    leaf: Leaf, sealed: Sealable | None, held: Content | None, said: str | None
) -> None:
    """Headers are compared until they are deleted."""
    assert misfit(leaf, sealed, held) == said


def test_a_log_that_was_verified_is_told_in_one_sentence() -> None:
    gap = Gap(
        id="g1", kind="database", since=T, until=Instant(T + DAY), deliveries=None, detail="",
        accepted_at=T, accepted_by="Ann", reason="",
    )  # fmt: skip
    assert VerifiedLog(leaves=1, checkpoints=1).sentence() == "1 leaf and 1 checkpoint: all valid."
    found = VerifiedLog(leaves=2, checkpoints=3, waiting=1, reread=2, gaps=[gap])
    found.left = Departure(size=2, way="mail", head=b"", at=T)
    assert found.sentence() == (
        "2 leaves and 3 checkpoints: all valid; 1 row is not sealed yet; 2 deliveries are read "
        "differently since sealing (`db check` compares them with their bodies). Last published: "
        "the checkpoint of 2 leaves, mailed at 20 November 2026, 10:00 UTC. Leaves that were "
        "sealed from 2026-11-20T10:00:00Z to 2026-11-21T10:00:00Z may be lost."
    )
    document = found.document()
    assert document["valid"]
    assert document["gaps"] == [
        {"gap": "g1", "since": format_instant(T), "until": format_instant(Instant(T + DAY))}
    ]
    assert (document["waiting"], document["reread"], document["first"]) == (1, 2, None)
    found.add("wrong")
    assert not found.document()["valid"]
    assert found.first is None
    assert ": 1 problem; 1 row is" in found.sentence()
    assert found.document()["problems"] == ["wrong"]


def placed(number: int, of: str, nth: Any, after: Any) -> Leaf:
    return leaf_with(number, of=of, nth=nth, after=after)


A, B = "aa" * 32, "bb" * 32


def test_each_leaf_of_an_order_follows_the_one_before() -> None:
    counts = OrderCounts([])
    said = [
        counts.append(each)
        for each in (
            placed(0, A, 1, None), leaf_with(1), placed(2, B, 1, None), placed(3, A, 2, 0),
            placed(4, A, 4, 3), placed(5, B, 2, 0), placed(6, A, 4, 4),
        )
    ]  # fmt: skip
    assert [each is None for each in said] == [True, True, True, True, False, False, True]
    assert said[4] == (
        "leaf 4 (r4) is not the next leaf of its order: an earlier leaf was removed or inserted"
    )
    for document in ("no", "[]", '{"of":1}', '{"of":"x"}'):
        assert counts.append(Leaf(7, "record", "r7", document, b"")) is None


def sealed_tree(size: int, tree: OrderTree, **more: Any) -> SealedTree:
    given: Any = {
        "number": 1,
        "at": T,
        "size": size,
        "orders": tree.count,
        "root": tree.root(),
    } | more
    return SealedTree(**given)


def test_a_tree_of_all_orders_is_compared_when_the_log_has_its_size() -> None:
    tree = OrderTree()
    tree.put(OrderEntry(bytes.fromhex(A), 1, 0))
    right = sealed_tree(1, tree)
    for trees, wrong in (
        ([right], 0),
        ([right, sealed_tree(2, tree)], 0),
        ([sealed_tree(1, tree, orders=2)], 1),
        ([sealed_tree(1, tree, root=bytes(32))], 1),
        ([sealed_tree(0, tree), right], 1),
    ):
        counts = OrderCounts(trees)
        counts.append(placed(0, A, 1, None))
        told = [*counts.wrong_trees(1)]
        assert len(told) == wrong
        assert all(
            "the tree of all orders of 2026-11-20T10:00:00Z does not match" in e for e in told
        )
        assert [*counts.wrong_trees(1)] == []


def tree_of(folder: Path, size: int, *, kept: Checkpoint | None = None) -> tuple[Tree, Any]:
    """Return the tree of a log whose origin was another one up to two leaves; and what signs."""
    key = write_key(folder / "key", secret=b"k" * 32)
    known = Identity(
        origin="now", earlier=(EarlierOrigin(origin="first", size=2),),
        keys=(key.public.raw.hex(),), endorsements=(None,),
    )  # fmt: skip
    tree = Tree(known, kept=kept)
    for each in LEAVES[:size]:
        tree.append(each)

    def signed(origin: str, *, of: int = size, head: bytes | None = None) -> SignedHead:
        root = head_of(LEAVES[:size]) if head is None else head
        point = Checkpoint(origin=origin, size=of, head=root)
        return SignedHead(size=size, head=root, at=T, note=signed_checkpoint(key, point))

    return tree, signed


def test_a_checkpoint_is_signed_under_the_origin_of_its_size(tmp_path: Path) -> None:
    for size, right, other in ((2, "first", "now"), (3, "now", "first")):
        tree, signed = tree_of(tmp_path / str(size), size)
        assert tree.sound == 0
        name = f"the checkpoint of {size} leaves"
        assert tree.wrong_head(signed(other)) == (
            f"{name} is not signed by a key of this log: it was changed"
        )
        unsigned = signed(right).note.partition("\n\n")[0] + "\n\n"
        assert "is not signed by" in str(tree.wrong_head(replace(signed(right), note=unsigned)))
        assert "is not a signed note" in str(tree.wrong_head(replace(signed(right), note="x")))
        states = f"{name} states another size or head than its stored row"
        assert str(tree.wrong_head(signed(right, of=size + 1))).startswith(states)
        assert str(tree.wrong_head(replace(signed(right), head=ROOT))).startswith(states)
        assert (tree.wrong_head(signed(right)), tree.sound) == (None, size)


def test_the_first_checkpoint_that_does_not_match_says_where(tmp_path: Path) -> None:
    """Later ones follow from it, and are not listed."""
    tree, signed = tree_of(tmp_path, 4)
    assert tree.wrong_head(signed("now")) is None
    tree.append(LEAVES[5])
    assert tree.size == 5
    wrong = replace(signed("now", of=5), size=5)
    assert tree.wrong_head(wrong) == (
        "the checkpoint of 5 leaves, signed 2026-11-20T10:00:00Z, does not match the leaves: after "
        "it was signed, leaves between 4 and 4 were changed, added or reordered"
    )
    assert (tree.wrong_head(wrong), tree.sound) == (None, 4)


def test_a_kept_checkpoint_is_compared_with_the_leaves_that_it_had(tmp_path: Path) -> None:
    rewritten = "different from the kept checkpoint: the log was rewritten since"
    for origin, of, right, said in (
        ("now", 3, True, ""), ("now", 3, False, f"the first 3 leaves are {rewritten}"),
        ("now", 2, False, ""), ("now", 4, False, ""), ("first", 3, False, ""),
    ):  # fmt: skip
        point = Checkpoint(origin=origin, size=of, head=head_of(LEAVES[:3]) if right else bytes(32))
        tree, _ = tree_of(tmp_path / f"{origin}{of}{right}", 3, kept=point)
        assert (tree.wrong_keep() or "") == said
    tree, _ = tree_of(tmp_path / "none", 3)
    assert tree.wrong_keep() is None
    point = Checkpoint(origin="first", size=2, head=bytes(32))
    tree, _ = tree_of(tmp_path / "ended", 2, kept=point)
    assert tree.wrong_keep() == f"the first 2 leaves are {rewritten}"


def test_a_published_checkpoint_is_compared_with_the_leaves_that_it_had(tmp_path: Path) -> None:
    tree, _ = tree_of(tmp_path, 1)
    left = Departure(size=1, way="mail", head=head_of(LEAVES[:1]), at=T)
    assert tree.wrong_departure(left) is None
    assert tree.wrong_departure(replace(left, head=bytes(32))) == (
        "the first 1 leaf is different from the checkpoint of 1 leaf, mailed at "
        "20 November 2026, 10:00 UTC: the log was rewritten since"
    )


def test_a_stored_hash_is_compared_once_with_the_leaves_below_it(tmp_path: Path) -> None:
    """Only hashes of whole tiles are stored."""
    tree, _ = tree_of(tmp_path, 0)
    leaves = [leaf_hash(str(number).encode()) for number in range(512)]
    for each in leaves:
        tree.append(each)
    right = {(8, place): subtree_hash(leaves[place * 256 : place * 256 + 256]) for place in (0, 1)}
    assert tree.made == right
    assert [*tree.wrong_nodes(right | {(8, 1): bytes(32)})] == [
        (256, "the stored hash of leaves 256 to 511 does not match them: the hash was changed, or "
              "a leaf together with its row")
    ]  # fmt: skip
    assert [*tree.wrong_nodes({})] == []


# --- what the person who verifies gives -----------------------------------------------------------


def test_a_bundle_is_read_up_to_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one byte more, by which it is seen to be too large."""
    monkeypatch.setattr(verify, "MAX_BYTES", 3)
    path = tmp_path / "b.zip"
    for written, found in ((b"12", b"12"), (b"123456", b"1234")):
        path.write_bytes(written)
        assert read_bundle(path) == found
    with pytest.raises(NotFoundError, match=r"there is no file .*/c\.zip$"):
        read_bundle(tmp_path / "c.zip")
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        read_bundle(tmp_path)


def test_a_trusted_key_is_a_line_or_the_file_that_has_it(tmp_path: Path) -> None:
    public = write_key(tmp_path / "key", secret=b"k" * 32).public
    text = public_key_text(public)
    file = tmp_path / "key.pub"
    file.write_text(text)
    for given in (text, text.splitlines()[-1], str(file)):
        assert trusted_key(given) == public
    file.write_text("\n" * 4096 + text)
    for given in (str(file), "no key", str(tmp_path)):
        with pytest.raises(UsageError, match=r"^--key: .*; give the line of minisign's public key"):
            trusted_key(given)


def test_a_kept_checkpoint_is_read_with_its_proof(tmp_path: Path) -> None:
    key = write_key(tmp_path / "key", secret=b"k" * 32)
    note = signed_checkpoint(key, Checkpoint(origin="o", size=3, head=bytes(32)))
    kept, proof = tmp_path / "note", tmp_path / "proof"
    kept.write_text(note)
    assert read_kept(kept, None) == KeptCheckpoint(note=note, path=None)
    for path in ((), (bytes(32), b"\1" * 32)):
        proof.write_text(json.dumps({"path": [each.hex() for each in path]}))
        assert read_kept(kept, proof) == KeptCheckpoint(note=note, path=path)
    proof.write_text(json.dumps({"path": [], "x": "x" * 70_000}))
    with pytest.raises(UsageError, match=r"^--consistency: .* holds no proof of consistency"):
        read_kept(kept, proof)
    with pytest.raises(UsageError, match="proof cannot be read: No such file"):
        read_kept(kept, tmp_path / "no proof")
    for wrong in (b"x", b"\xff", b""):
        kept.write_bytes(wrong)
        with pytest.raises(UsageError, match=r"^--checkpoint: .* is not a checkpoint.*: name a fi"):
            read_kept(kept, None)
    with pytest.raises(UsageError, match="none cannot be read: No such file"):
        read_kept(tmp_path / "none", None)


def test_all_named_witnesses_must_have_cosigned_unless_a_quorum_is_given() -> None:
    given = [VerifierKey(name=f"w{n}.example", kind=4, raw=bytes([n]) * 32).text for n in (1, 2)]
    for quorum, wanted in ((None, 2), (1, 1), (2, 2)):
        found = named_witnesses(given, quorum)
        assert found is not None
        assert (found.quorum, [each.text for each in found.keys]) == (wanted, given)
    with pytest.raises(UsageError, match="at most the number of witnesses"):
        named_witnesses(given, 3)
    assert named_witnesses([], None) is None


@for_each(
    ("left", "cosigned", "said"),
    [
        (8, None, None),
        (7, None, "after the 7 leaves of the checkpoint that you kept: 1 of the 3 leaves in"),
        (1, None, "after the 1 leaf of the checkpoint that you kept: 3 of the 3 leaves in"),
        (0, None, "only a checkpoint that left the shop earlier"),
        (0, (2, None, 0, 1), f"cosigned it at {format_instant(Instant(T + 1))}, and that the"),
        (8, (2, None, 0, 1), None),
    ],
)
def test_what_could_have_been_rewritten_is_what_nothing_outside_covers(
    monkeypatch: pytest.MonkeyPatch, left: int, cosigned: Any, said: str | None
) -> None:
    """Two witnesses must have cosigned it: the second cosignature counts."""
    moments = [(None, None if each is None else T + each) for each in cosigned or ()]
    monkeypatch.setattr(verify_evidence, "_cosigned", lambda *_: moments)
    bundle = Bundle({"log.json": b"", "checkpoint.txt": f"o\n8\n{ROOT}\n\n".encode()}, {})
    bundle._read["log.json"] = {"leaves": [{"index": each} for each in (2, 5, 7)]}
    trusted = None if cosigned is None else TrustedWitnesses(keys=(), quorum=2)
    told = [*verify_evidence._not_anew(bundle, left=left, witnesses=trusted)]
    assert len(told) == (said is not None)
    assert all(said in each for each in told if said)


WITNESS_KEYS: Final = [
    VerifierKey(name=f"w{n}.example", kind=4, raw=bytes([n]) * 32) for n in (1, 2, 3)
]
COSIGNED: Final = (
    "w1.example cosigned it at 2026-11-20T10:00:00Z; w2.example has not cosigned it; w3.example "
    "cosigned it at 2026-11-20T10:00:00.000007Z"
)


def test_as_many_trusted_witnesses_must_have_cosigned_as_the_quorum_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [*zip(WITNESS_KEYS, (T, None, Instant(T + 7)), strict=True)]
    monkeypatch.setattr(verify_evidence, "_cosigned", lambda *_: found)
    for quorum in (1, 2):
        trusted = TrustedWitnesses(keys=WITNESS_KEYS, quorum=quorum)
        told = verify_evidence._witnessed(Bundle({}, {}), trusted)
        assert told == (True, f"The checkpoint is cosigned: {COSIGNED}.")
    with pytest.raises(Wrong) as raised:
        verify_evidence._witnessed(Bundle({}, {}), TrustedWitnesses(keys=WITNESS_KEYS, quorum=3))
    assert str(raised.value) == (
        "the bundle's checkpoint has 2 cosignatures of witnesses that you trust, but must have 3: "
        f"{COSIGNED}"
    )


@for_each(
    ("origin", "size", "said"),
    [
        ("now", 99, None),
        ("first", 3, None),
        ("first", 4, "the bundle's log has only 3 leaves under this name"),
        ("listed", 99, None),
        ("other", 1, "belongs to another log, other"),
    ],
)
def test_a_kept_checkpoint_is_of_an_origin_that_the_log_had_at_its_size(
    origin: str, size: int, said: str | None
) -> None:
    bundle = Bundle({"log.json": b""}, {})
    origins = [{"log": "first", "leaves": 3}, {"log": "listed", "leaves": None}]
    bundle._read["log.json"] = {"origins": origins}
    ours = Checkpoint(origin="now", size=9, head=bytes(32))
    theirs = Checkpoint(origin=origin, size=size, head=bytes(32))
    if said is None:
        verify_evidence._check_origin(bundle, ours, theirs)
        return
    with pytest.raises(Wrong, match=said):
        verify_evidence._check_origin(bundle, ours, theirs)


def test_what_this_program_has_checked_is_not_listed_as_unproven(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begins = [verify.WHOSE, verify.LETTER, verify.READ_AGAIN, verify.COSIGNED]
    stated = [*(f"{each} so" for each in begins), verify.PROFILES, verify.NOT_ANEW, "time limits"]
    monkeypatch.setattr(verify, "unproven", lambda *_: stated)
    monkeypatch.setattr(verify_evidence, "_not_anew", lambda *_, **given: [f"anew {given['left']}"])
    trusted = TrustedWitnesses(keys=(), quorum=1)
    for ours, passed, witnesses, gone in (
        (False, set[str](), None, None), (True, {"signature"}, None, 0),
        (True, {"rendered"}, None, 1), (False, {"bodies"}, None, 2), (False, set(), trusted, 3),
    ):  # fmt: skip
        monkeypatch.setattr(verify_evidence, "_are_of_this_release", lambda _, ours=ours: ours)
        left = [each for number, each in enumerate(stated[:4]) if number != gone]
        profiles = "which profile reads which source (sources.json)" if ours else verify.PROFILES
        told = verify_evidence._not_proven(Bundle({}, {}), passed, left=5, witnesses=witnesses)
        assert [*told] == [*left, profiles, "anew 5", "time limits"]


# --- entries of a bundle --------------------------------------------------------------------------

ORDERS: Final = {
    "kind": "orders", "salt": SALT, "id": 1, "at": 0, "size": 1, "root": "0" * 64,
}  # fmt: skip


def one_entry(*, before: int = 0, entry: str = "orders:1", **log: Any) -> Bundle:
    """Return a bundle with one entry of the log, and with a record that is not sealed yet.

    before  microseconds between the record and a minute before the bundle's instant
    """
    leaf = canonical(ORDERS).decode()
    root = base64.b64encode(leaf_hash(leaf.encode())).decode()
    entries = [{"id": entry, "index": 0, "leaf": leaf, "proof": []}]
    at = format_instant(Instant(T - 60_000_000 - before))
    record = {"record_id": "rec_1", "recorded_at": at, "kind": "order_placed", "at": at}
    manifest = {"as_of": format_instant(T), "files": {}, "left_out": {}, "order": "ORD-1",
                "redacted": False}  # fmt: skip
    bundle = Bundle({"checkpoint.txt": f"o\n1\n{root}\n".encode()}, manifest)
    given = {"leaves": entries, "unsealed": ["rec_1"], "parts": {}} | log
    bundle.members |= dict.fromkeys(("log.json", "history.json", "revisions.json"), b"")
    bundle._read |= {
        "log.json": given, "history.json": {"deliveries": [], "records": [record]},
        "revisions.json": [],
    }  # fmt: skip
    return bundle


def test_evidence_may_wait_for_its_seal_for_a_minute() -> None:
    said = "1 leaf is in the log of 1 leaves; 1 more parts are not sealed yet. The bundle agrees"
    for before in (0, -1):
        passed, told = inclusion(one_entry(before=before))
        assert passed is True
        assert told == f"{said} with the log."
    with pytest.raises(Wrong, match="rec_1 is not sealed, although it arrived long before"):
        inclusion(one_entry(before=1))


@for_each(
    ("changes", "said"),
    [
        ({"leaves": []}, "log.json has no leaf"),
        ({"unsealed": []}, "rec_1 is missing from log.json"),
        ({"entry": "orders:2"}, "the leaf of orders:2 contains another name"),
        ({"parts": {"rec_2": {}}}, "has the salts of rec_2, which is not in the bundle"),
        ({"parts": {"reading:rec_2:1": {}}}, "has the salts of reading:rec_2:1, which"),
    ],
)
def test_the_log_has_an_entry_for_each_part_and_for_nothing_else(
    changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(Wrong, match=said):
        inclusion(one_entry(**changes))
    assert inclusion(one_entry(parts={"rec_1": {}, "reading:rec_1:1": {}}))[0] is True


def test_an_entry_counts_once_and_only_in_its_place() -> None:
    twice = one_entry()
    twice.document("log.json")["leaves"] *= 2
    with pytest.raises(Wrong, match="the leaf of orders:1 is not in the log of the checkpoint, or"):
        inclusion(twice)
    other = one_entry()
    other.members["checkpoint.txt"] = f"o\n1\n{ROOT}\n".encode()
    with pytest.raises(Wrong, match="the leaf of orders:1 is not in the log of the checkpoint, or"):
        inclusion(other)


# --- rows and their sealed content ----------------------------------------------------------------

SECRET: Final = b"s" * 32
PARTS: Final = cut_into_parts({"at": "now", "reason": "why"}, ("reason",))
ROW: Final = Sealable("record", "r1", {}, None, PARTS)


@for_each(
    ("row", "sealed", "secret", "otherwise"),
    [
        (ROW, {}, SECRET, False),
        (ROW, {"parts": None}, SECRET, True),
        (ROW, {"parts": "0" * 64}, SECRET, True),
        (ROW, {"of": "aa"}, SECRET, True),
        (ROW._replace(order="A"), {}, SECRET, True),
        (ROW._replace(said=None), {}, SECRET, True),
        (ROW._replace(said=None), {"parts": None}, SECRET, False),
        (ROW, {}, None, True),
        (ROW, {"parts": None}, None, False),
        (ROW._replace(said=cut_into_parts({"at": {1}}, ())), {}, SECRET, True),
    ],
)
def test_a_row_says_otherwise_than_its_leaf_if_its_order_or_content_differs(
    row: Sealable, sealed: dict[str, Any], secret: bytes | None, otherwise: bool
) -> None:
    """A leaf that seals no content says nothing."""
    written = ROW.written()
    assert written is not None
    digest = sealed_digest(written, secret=SECRET, salt=bytes.fromhex(SALT))
    names = Names(orders={}, erased=set(), secret=secret)
    members = {"salt": SALT, "parts": digest} | sealed
    assert names.says_otherwise(members, row) is otherwise
    assert not names.says_otherwise({"salt": SALT}, row)
    leaf = leaf_with(1, **members)
    what = "order" if row.order or "of" in sealed else "content"
    changed = f"leaf 1 (r1) and its row disagree on the {what}: one of the two was changed"
    assert wrong_content(leaf, row, names) == (changed if otherwise else None)
    assert wrong_content(leaf._replace(kind="delivery"), row, names) is None
    assert reread(leaf._replace(kind="delivery"), row, names) is otherwise
    assert not reread(leaf, row, names)
