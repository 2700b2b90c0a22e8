"""What is sealed of a row: canonical as others write it, salted, without what may be deleted."""

import hashlib
from typing import Any

import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from app.core.ids import new_salts
from app.sealing.leaf_store import (
    AUDIT_ENTRY,
    DELIVERY,
    KINDS,
    ORDERS,
    RECORD,
    REVISION,
    Kind,
    leaf_of,
)
from reconcile.canonical import canonical_json
from reconcile.transparency.merkle import leaf_hash

PHONE = "254711223344"
TEXT = st.none() | st.text(st.characters(exclude_categories=["Cs"]))
NUMBER = st.integers(-(2**53) + 1, 2**53 - 1)
SALT = b"0123456789abcdef"

ROWS: list[tuple[Kind, tuple[Any, ...]]] = [
    (DELIVERY, ("dlv_1", 1, "shop", "00" * 32, 9, f"x-phone: {PHONE}", None, None)),
    (RECORD, ("rec_1", 1, "order_placed", PHONE, 1, 2**62, "KES", None, PHONE, PHONE, None, PHONE,
              f"phone {PHONE}", PHONE, f"token:{PHONE}", *[None] * 4)),
    (REVISION, (1, PHONE, 1, "succeeded", 1, PHONE, None, None, f'["{PHONE}"]')),
    (AUDIT_ENTRY, (1, 1, PHONE, "admin", "erased", PHONE, f"{PHONE} asked",
                   f'{{"x": "{PHONE}"}}', PHONE)),
    (ORDERS, (1, 1, 9, 2, b"\0" * 32)),
]  # fmt: skip


@given(st.dictionaries(st.text("abcdefgh_", min_size=1), TEXT | NUMBER))
def test_documents_are_written_as_rfc_8785_says(members: dict[str, Any]) -> None:
    assert canonical_json(members) == rfc8785.dumps(members)


def test_no_leaf_holds_words_of_its_row() -> None:
    assert {kind.name for kind, _ in ROWS} == {kind.name for kind in KINDS}
    for kind, row in ROWS:
        leaf = leaf_of(kind.sealable(row), number=0, salt=SALT, secret=SALT)
        assert leaf.document.encode() == rfc8785.dumps(leaf.members())
        assert leaf.hash == leaf_hash(leaf.document.encode())
        assert PHONE not in leaf.document
        assert kind.key(leaf.subject) == row[0]
        assert kind.subject(row[0]) == leaf.subject


def test_digests_are_of_the_texts_that_are_kept() -> None:
    members = leaf_of(DELIVERY.sealable(ROWS[0][1]), number=0, salt=SALT).members()
    assert members["headers"] == hashlib.sha256(f"x-phone: {PHONE}".encode()).hexdigest()
    pruned = (*ROWS[0][1][:5], "", 5, None)
    assert DELIVERY.sealable(pruned).members["headers"] is None


def test_equal_rows_have_leaves_that_nobody_can_guess() -> None:
    row = AUDIT_ENTRY.sealable(ROWS[3][1])
    salts = new_salts(1_000)
    assert {len(salt) for salt in salts} == {16}
    assert len({leaf_of(row, number=0, salt=salt).hash for salt in salts}) == 1_000
