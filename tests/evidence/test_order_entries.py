"""Entries of the log that name an order, and events that equal their entries, on small values."""

import base64
import hashlib
from typing import Any, Final

import pytest

from app.evidence.verify_archive import Bundle
from app.evidence.verify_entries import Chain, Readings, inclusion, order_chain, readings_of
from app.evidence.verify_forms import MASKED, Wrong, canonical
from reconcile.instants import DAY, SECOND, format_instant
from reconcile.transparency.order_tree import order_commitment
from tests.reconcile.build import T
from tests.rows import for_each

KEY: Final = bytes(range(32))
OURS: Final = order_commitment(KEY, "ORD-1").hex()
OTHER: Final = "bb" * 32
SALT: Final = "00" * 16


def logged(index: int, name: str, leaf: dict[str, Any]) -> dict[str, Any]:
    """Return a leaf as log.json lists it."""
    return {"id": name, "index": index, "leaf": canonical(leaf).decode(), "proof": []}


def entry(index: int, name: str, nth: int, after: int | None, **more: Any) -> dict[str, Any]:
    """Return an entry of the log about a record of the order, unless `more` says otherwise."""
    leaf = {"kind": "record", "id": name, "salt": SALT, "at": T, "parts": "0" * 64,
            "of": OURS, "nth": nth, "after": after} | more  # fmt: skip
    return logged(index, name, leaf)


def reading(index: int, delivery: str, nth: int, after: int | None, of: str) -> dict[str, Any]:
    leaf = {"kind": "reading", "delivery": delivery, "salt": SALT, "parts": None,
            "of": of, "nth": nth, "after": after}  # fmt: skip
    return logged(index, f"reading:{delivery}:{index}", leaf)


def orders(size: int, *, leaves: int, last: int, at: int = T) -> tuple[dict[str, Any], Any]:
    """Return the entry that seals the tree of this order alone, and the order's proof in it."""
    root = hashlib.sha256(b"\0" + canonical({"last": last, "leaves": leaves, "of": OURS}))
    leaf = {"kind": "orders", "id": 1, "salt": SALT, "at": at, "size": size,
            "root": root.hexdigest()}  # fmt: skip
    return logged(8, "orders:1", leaf), {
        "leaf": "orders:1",
        "leaves": leaves,
        "last": last,
        "path": [],
    }


def bundle_of(
    *entries: dict[str, Any], held: str = "a b c", reference: str = "ORD-1", **log: Any
) -> Bundle:
    """Return a bundle that contains records with these names, and these entries of the log."""
    manifest = {"as_of": format_instant(T), "files": {}, "left_out": {}, "order": reference,
                "redacted": False}  # fmt: skip
    names = ("log.json", "history.json", "revisions.json")
    bundle = Bundle(dict.fromkeys(names, b""), manifest)
    records = [{"record_id": name, "recorded_at": format_instant(T)} for name in held.split()]
    given = {"leaves": entries, "unsealed": [], "parts": {}, "tree": None,
             "order": {"commitment": OURS, "key": KEY.hex()}} | log  # fmt: skip
    bundle._read |= {
        "log.json": given, "history.json": {"deliveries": [], "records": records},
        "revisions.json": [],
    }  # fmt: skip
    return bundle


FIRST, SECOND_, THIRD = entry(2, "a", 1, None), entry(5, "b", 2, 2), entry(7, "c", 3, 5)
THREE: Final = [(2, "a"), (5, "b"), (7, "c")]
LATE: Final = {"at": T + 1}
AT: Final = format_instant(T)


@for_each(
    ("entries", "held", "log", "found"),
    [
        ((FIRST, SECOND_, THIRD), "a b c", {}, Chain(THREE, [], [], None)),
        ((THIRD, FIRST, SECOND_), "a b c", {}, Chain(THREE, [], [], None)),
        ((FIRST, SECOND_), "a b z y", {"unsealed": ["y"]}, Chain(THREE[:2], ["z"], [], None)),
        ((FIRST, entry(3, "z", 1, None, of=OTHER)), "a z", {}, Chain(THREE[:1], ["z"], [], None)),
        ((), "a", {"unsealed": ["a"]}, Chain([], [], [], None)),
        ((FIRST, entry(5, "b", 2, 2, **LATE), THIRD), "a c", {}, Chain(THREE, [], [], None)),
        ((FIRST, entry(5, "b", 2, 2, at=T)), "a b", {}, Chain(THREE[:2], [], [], None)),
        ((FIRST, SECOND_, reading(6, "b", 1, None, OTHER)), "a", {},
         Chain(THREE[:2], [], ["b"], None)),
    ],
)  # fmt: skip
def test_entries_of_an_order_are_listed_by_their_index(
    entries: Any, held: str, log: Any, found: Chain
) -> None:
    assert order_chain(bundle_of(*entries, held=held, **log)) == found


@for_each(
    ("entries", "held", "log", "said"),
    [
        ((FIRST, THIRD), "a c", {}, "entry 7 of the log does not follow this order's"),
        ((FIRST, entry(5, "b", 2, 1)), "a b", {}, "entry 5 of the log does not follow this"),
        ((entry(2, "a", 1, 0),), "a", {}, "entry 2 of the log does not follow this"),
        ((FIRST, SECOND_, THIRD), "a c", {}, "the log has the entry b of this order, but the"),
        ((FIRST, SECOND_, entry(7, "c", 3, 5, **LATE)), "a b", {},
         "the newest entry of this order is newer than the time of the bundle"),
        ((), "a", {}, "no entry in log.json has the order's pseudonym"),
        ((FIRST, SECOND_, reading(6, "b", 3, 5, OURS)), "a", {},
         "the log has the entry b of this order"),
        ((FIRST,), "a", {"order": {"commitment": OURS, "key": "00" * 32}},
         "the order's key does not produce the order's pseudonym"),
        ((FIRST,), "a", {"order": {"commitment": OURS, "key": None}},
         "the key that proves the order's pseudonym in the log is missing"),
    ],
)  # fmt: skip
def test_an_entry_that_is_missing_inserted_or_too_new_is_refused(
    entries: Any, held: str, log: Any, said: str
) -> None:
    with pytest.raises(Wrong, match=f"^{said}"):
        order_chain(bundle_of(*entries, held=held, **log))


def test_a_masked_reference_needs_no_key() -> None:
    order = {"commitment": OURS, "key": None}
    found = order_chain(bundle_of(FIRST, held="a", reference=f"O{MASKED}", order=order))
    assert found == Chain(THREE[:1], [], [], None)


@for_each(
    ("size", "leaves", "last", "right"),
    [
        (8, 3, 7, True),
        (7, 2, 5, True),
        (6, 2, 5, True),
        (5, 1, 2, True),
        (8, 2, 5, False),
        (7, 3, 7, False),
        (8, 3, 5, False),
        (8, 2, 7, False),
        (8, 1, 7, False),
    ],
)
def test_the_tree_of_all_orders_counts_the_entries_before_its_size(
    size: int, leaves: int, last: int, right: bool
) -> None:
    sealed, tree = orders(size, leaves=leaves, last=last)
    bundle = bundle_of(FIRST, SECOND_, THIRD, sealed, tree=tree)
    if right:
        assert order_chain(bundle) == Chain(THREE, [], [], (8, AT))
        return
    with pytest.raises(Wrong, match="differ from those in the tree of all orders"):
        order_chain(bundle)


@for_each(
    ("days", "tree_days", "right"),
    [(0, None, True), (1, None, False), (0, 0, True), (1, 0, True), (1, 1, False), (0, 1, True)],
)
def test_an_order_of_an_earlier_day_must_be_in_the_tree_of_this_day(
    days: int, tree_days: int | None, right: bool
) -> None:
    """Each is so many days before the bundle's own."""
    first = entry(2, "a", 1, None, at=T - days * DAY)
    sealed, tree = orders(8, leaves=1, last=2, at=T - (tree_days or 0) * DAY)
    given = (first,) if tree_days is None else (first, sealed)
    bundle = bundle_of(*given, held="a", tree=None if tree_days is None else tree)
    if right:
        assert order_chain(bundle).entries == THREE[:1]
        return
    with pytest.raises(Wrong, match="lacks this order, although the order is older"):
        order_chain(bundle)


def test_a_tree_that_is_newer_than_the_bundle_is_dated_by_the_bundle() -> None:
    for seconds, at in ((-1, format_instant(T - SECOND)), (1, AT)):
        sealed, tree = orders(8, leaves=1, last=2, at=T + seconds * SECOND)
        assert order_chain(bundle_of(FIRST, sealed, held="a", tree=tree)).tree == (8, at)


# --- readings -------------------------------------------------------------------------------------

EVENT: Final = {"kind": "paid", "payment": "p1"}


def hashes_of(document: dict[str, Any], *names: str) -> dict[str, str]:
    """Return the hash of each part of a document: of these members, and of all others together."""
    parts = {name: document[name] for name in names}
    parts["said"] = {name: document[name] for name in document if name not in names}
    return {
        name: hashlib.sha256(canonical({"part": name, "salt": SALT, "value": value})).hexdigest()
        for name, value in parts.items()
    }


def digest_of(hashes: dict[str, str]) -> str:
    return hashlib.sha256(canonical(hashes)).hexdigest()


def delivered(index: int, name: str, parts: str | None) -> dict[str, Any]:
    leaf = {"kind": "delivery", "id": name, "salt": SALT, "at": T, "source": "shop", "size": 1,
            "body": "0" * 64, "headers": None, "whole": None, "parts": parts}  # fmt: skip
    return logged(index, name, leaf)


def read_again(index: int, name: str, parts: str | None) -> dict[str, Any]:
    leaf = {"kind": "reading", "delivery": name, "salt": SALT, "parts": parts}
    return logged(index, f"reading:{name}:{index}", leaf)


SALTS: Final = {"said": {"salt": SALT}, "payment": {"salt": SALT}}
HASHED: Final = {"said": {"salt": SALT}, "payment": {"hash": "cc" * 32}}
RIGHT: Final = digest_of(hashes_of(EVENT, "payment"))
HIDDEN: Final = {"kind": "paid", "payment": f"p{MASKED}"}


def with_event(*entries: Any, event: Any = EVENT, redacted: bool = False, **log: Any) -> Bundle:
    """Return a bundle with a delivery of this event."""
    bundle = bundle_of(*entries, held="", **log)
    bundle.manifest["redacted"] = redacted
    arrived = {"delivery_id": "d1", "received_at": AT, "event": event}
    bundle.document("history.json")["deliveries"].append(arrived)
    return bundle


@for_each(
    ("entries", "log", "found"),
    [
        ([delivered(1, "d1", RIGHT)], {"parts": {"d1": SALTS}}, Readings(["d1"], [], [], [])),
        ([], {"unsealed": ["d1"]}, Readings([], [], ["d1"], [])),
        ([delivered(1, "d1", "0" * 64), read_again(4, "d1", RIGHT)],
         {"parts": {"reading:d1:4": SALTS}}, Readings(["d1"], [], [], ["d1"])),
        ([delivered(1, "d1", RIGHT), read_again(4, "d1", RIGHT)],
         {"parts": {"reading:d1:4": SALTS}}, Readings(["d1"], [], [], [])),
        ([delivered(1, "d1", None), read_again(4, "d1", RIGHT)],
         {"parts": {"reading:d1:4": SALTS}}, Readings(["d1"], [], [], [])),
    ],
)  # fmt: skip
def test_events_are_grouped_by_how_well_the_log_proves_them(
    entries: Any, log: Any, found: Readings
) -> None:
    bundle = with_event(*entries, **log)
    assert readings_of(bundle) == found


def test_a_masked_event_is_compared_by_the_hashes_of_its_masked_parts() -> None:
    """In a redacted bundle alone."""
    sealed = delivered(1, "d1", digest_of(hashes_of(HIDDEN, "payment") | {"payment": "cc" * 32}))
    bundle = with_event(sealed, event=HIDDEN, redacted=True, parts={"d1": HASHED})
    assert readings_of(bundle) == Readings([], ["d1"], [], [])
    for event, redacted in ((HIDDEN, False), (EVENT, True)):
        bundle = with_event(sealed, event=event, redacted=redacted, parts={"d1": HASHED})
        with pytest.raises(Wrong, match="lacks the salt of a document's part payment"):
            readings_of(bundle)


def test_only_a_reference_or_a_text_may_be_masked() -> None:
    """All other members are compared together, so they need their salt."""
    event = {"kind": MASKED, "payment": "p1"}
    salts = {"said": {"hash": "cc" * 32}, "payment": {"salt": SALT}}
    sealed = delivered(1, "d1", digest_of(hashes_of(event, "payment") | {"said": "cc" * 32}))
    bundle = with_event(sealed, event=event, redacted=True, parts={"d1": salts})
    with pytest.raises(Wrong, match="lacks the salt of a document's part said"):
        readings_of(bundle)


@for_each(
    ("entries", "parts", "said"),
    [
        ([delivered(1, "d1", "0" * 64)], {"d1": SALTS},
         "the event that was read from d1 differs from its leaf in the log"),
        ([delivered(1, "d1", RIGHT), read_again(4, "d1", RIGHT)], {"d1": SALTS},
         "log.json must have the salts of the last leaf of d1, and no others of d1"),
        ([delivered(1, "d1", RIGHT), read_again(4, "d1", RIGHT)],
         {"d1": SALTS, "reading:d1:4": SALTS},
         "log.json must have the salts of the last leaf of d1, and no others of d1"),
        ([delivered(1, "d1", RIGHT)], {},
         "log.json must have the salts of the last leaf of d1, and no others of d1"),
        ([delivered(1, "d1", RIGHT)], {"d1": {"said": {"salt": SALT}}},
         "log.json has salts for other parts than the document has"),
        ([delivered(1, "d1", RIGHT)], {"d1": {"said": {}, "payment": {"salt": SALT}}},
         "log.json lacks the salt of a document's part said"),
    ],
)  # fmt: skip
def test_an_event_that_its_last_entry_does_not_prove_is_refused(
    entries: Any, parts: Any, said: str
) -> None:
    bundle = with_event(*entries, parts=parts)
    with pytest.raises(Wrong, match=f"^{said}$"):
        readings_of(bundle)


# --- records and their entries --------------------------------------------------------------------

RECORD: Final = {
    "record_id": "a",
    "recorded_at": AT,
    "kind": "note",
    "reason": "why",
    "author": "A",
}
NAMES: Final = ("reason", "author")


def sealed_parts(record: dict[str, Any], *masked: str) -> tuple[str, dict[str, Any]]:
    """Return the digest of a record's parts, and what opens them: salts, or hashes if masked."""
    hashes = hashes_of(record, *NAMES)
    opened = {name: {"hash": hashes[name]} if name in masked else {"salt": SALT} for name in hashes}
    return digest_of(hashes), opened


def with_record(
    record: dict[str, Any], leaf: dict[str, Any], opened: Any, *, redacted: bool = False
) -> Bundle:
    """Return a bundle with a record and its entry, which is the only one in the log."""
    bundle = bundle_of(leaf, held="", parts={} if opened is None else {"a": opened})
    bundle.document("history.json")["records"].append(record)
    bundle.manifest["redacted"] = redacted
    root = base64.b64encode(hashlib.sha256(b"\0" + leaf["leaf"].encode()).digest()).decode()
    bundle.members["checkpoint.txt"] = f"o\n1\n{root}\n".encode()
    return bundle


AGREES: Final = "1 leaf is in the log of 1 leaves. The bundle agrees with the log"


@for_each("masked", [(), ("reason",), ("reason", "author")])
def test_a_record_agrees_with_its_entry_except_for_its_masked_parts(masked: Any) -> None:
    digest, opened = sealed_parts(RECORD, *masked)
    shown = RECORD | dict.fromkeys(masked, MASKED)
    leaf = entry(0, "a", 1, None, parts=digest)
    found = inclusion(with_record(shown, leaf, opened, redacted=bool(masked)))
    more = f", except for {len(masked)} masked parts, which cannot be compared" if masked else ""
    assert found == (None if masked else True, f"{AGREES}{more}.")


@for_each(
    ("record", "leaf", "salts", "said"),
    [
        (RECORD | {"kind": "other"}, {}, True, "the content of a differs from its leaf in the log"),
        (RECORD | {"reason": "x"}, {}, True, "the content of a differs from its leaf in the log"),
        (RECORD, {"at": T + 1}, True, "a differs from its leaf in the log: at"),
        (RECORD, {}, False, "log.json lacks the salts of a"),
    ],
)
def test_a_record_that_differs_from_its_entry_is_refused(
    record: dict[str, Any], leaf: dict[str, Any], salts: bool, said: str
) -> None:
    digest, opened = sealed_parts(RECORD)
    sealed = entry(0, "a", 1, None, parts=digest, **leaf)
    with pytest.raises(Wrong, match=f"^{said}$"):
        inclusion(with_record(record, sealed, opened if salts else None))


def test_an_entry_of_a_record_names_its_order_by_all_three_members() -> None:
    digest, opened = sealed_parts(RECORD)
    leaf = {"kind": "record", "id": "a", "salt": SALT, "at": T, "parts": digest}
    for more, said in (
        ({}, "the leaf of a names no order"),
        (
            {"of": OURS, "nth": 1},
            "the leaf of a must have either all of the members of, nth and after, or none",
        ),
    ):
        with pytest.raises(Wrong, match=f"^{said}$"):
            inclusion(with_record(RECORD, logged(0, "a", leaf | more), opened))


def test_two_parts_of_a_bundle_never_have_one_name() -> None:
    digest, opened = sealed_parts(RECORD)
    bundle = with_record(RECORD, entry(0, "a", 1, None, parts=digest), opened)
    bundle.document("history.json")["records"].append(RECORD)
    with pytest.raises(Wrong, match=r"^two parts of the bundle have the name a$"):
        inclusion(bundle)
