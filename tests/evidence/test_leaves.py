"""Sealed leaves of rows: canonical as others write them, salted, without words of the row. Also the
page from which a stranger checks them."""

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from app.core.ids import new_salts
from app.evidence import verify_entries
from app.evidence.seal import read_checkpoint
from app.evidence.verify import unpack
from app.evidence.verify_forms import DECIMALS, LEAVES
from app.sealing.leaf_store import (
    AUDIT_ENTRY,
    DELIVERY,
    KINDS,
    ORDERS,
    RECORD,
    REVISION,
    Kind,
    LeafPlace,
    leaf_of,
    reading_again,
)
from reconcile.canonical import canonical_json
from reconcile.money import EXPONENTS
from reconcile.transparency.commitments import AUDIT_TEXTS, RECORD_TEXTS, REVISION_TEXTS, TEXTS
from reconcile.transparency.merkle import leaf_hash
from tests.evidence.conftest import Bundles, changed, failed, forged_with
from tests.searching import every

ROOM = Path(verify_entries.__file__).parent
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
    (ORDERS, (1, 1, 9, b"\0" * 32)),
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


def _rows_of_page(heading: str) -> Iterator[list[str]]:
    """Yield the cells of the rows below a heading of a table of the README."""
    page = (ROOM / "README.md").read_text("utf-8")
    _, found, rest = page.partition(f"{heading}\n")
    assert found, heading
    for line in rest.split("\n")[1:]:
        if not line.startswith("| "):
            return
        yield [cell.strip() for cell in re.split(r" \|", line.strip("| "))]


def _table_of_members() -> dict[str, dict[str, int]]:
    """Return, by kind, each member that the README names, with the number of the step that checks
    it."""
    kinds = {*LEAVES}
    found: dict[str, dict[str, int]] = {kind: {} for kind in kinds}
    for members, of, _, step in _rows_of_page(
        "| member |in which leaves |meaning |step that checks the member |"
    ):
        named = kinds & {*re.findall(r"\w+", of)}
        those = kinds - named if of.startswith("all") else named
        first, *others = step.split("; ")
        for kind in those:
            own = next((e for e in others if kind in re.findall(r"\w+", e)), first)
            number = re.search(r"\d", own)
            assert number
            found[kind] |= dict.fromkeys(re.findall("`(\\w+)`", members), int(number[0]))
    return found


def test_the_page_names_every_member_of_every_leaf() -> None:
    """Those that are sealed, and those that the verifier takes."""
    page = _table_of_members()
    place = LeafPlace("00" * 32, 1, None)
    for kind, row in ROWS:
        found = kind.sealable(row)
        placed = None if found.order is None and kind is not DELIVERY else place
        leaf = leaf_of(found, number=0, salt=SALT, place=placed, secret=SALT)
        assert leaf.members().keys() == page[kind.name].keys(), kind.name
    again = leaf_of(
        reading_again(DELIVERY.sealable(ROWS[0][1])), number=0, salt=SALT, place=place, secret=SALT
    )
    assert again.members().keys() == page["reading"].keys()
    for name, form in LEAVES.items():
        assert {each.rstrip("?") for each in form} == page[name].keys(), name


def test_the_page_names_the_decimals_of_every_currency() -> None:
    page = (ROOM / "README.md").read_text("utf-8")
    assert "Most currencies have 2 decimals." in page
    decimals = dict.fromkeys(EXPONENTS, 2)
    for codes, count in re.findall(r"((?:[A-Z]{3}\s+)+)have (\d)", page):
        decimals |= dict.fromkeys(codes.split(), int(count))
    assert decimals == EXPONENTS
    assert decimals == {code: DECIMALS.get(code, 2) for code in EXPONENTS}


def test_the_page_names_every_part() -> None:
    page: dict[str, set[str]] = {}
    for kinds, _, names in _rows_of_page(
        "| kind of leaf |document |members that are parts by themselves |"
    ):
        page |= {kind: {*re.findall(r"`(\w+)`", names)} for kind in kinds.split(", ")}
    sealed = {"record": RECORD_TEXTS, "revision": REVISION_TEXTS, "deed": AUDIT_TEXTS}
    assert page == {kind: {*names} for kind, names in (
        {**sealed, "delivery": TEXTS, "reading": TEXTS}).items()}  # fmt: skip
    assert {kind: {*names} for kind, names in verify_entries.PARTS_OF.items()} == {
        kind: {*names} for kind, names in sealed.items()
    }
    assert {*verify_entries.TEXTS} == {*TEXTS}


# The bundle has no leaf of two kinds, and no request of several events; a salt can be any.
STEP_NAMES = {6: "inclusion", 7: "readings", 8: "completeness"}
CHANGED = [
    (kind, member, step)
    for kind, members in sorted(_table_of_members().items())
    for member, step in members.items()
    if kind not in ("deed", "reading") and member not in ("salt", "whole")
]


@pytest.mark.parametrize(("kind", "member", "step"), list(CHANGED)[:: every(3)])
def test_the_step_that_the_page_names_finds_another_value(
    bundles: Bundles, monkeypatch: pytest.MonkeyPatch, kind: str, member: str, step: int
) -> None:
    """The shop has sealed something else than it shows: every hash fits, and its signature."""

    def change(log: Any) -> None:
        shown = next(e for e in log["leaves"] if f'"kind":"{kind}"' in e["leaf"])
        leaf = json.loads(shown["leaf"])
        leaf[member] = _another(leaf[member])
        shown["leaf"] = rfc8785.dumps(leaf).decode()

    head = read_checkpoint(unpack(bundles.full)["checkpoint.txt"].decode()).head
    monkeypatch.setattr(verify_entries, "root_of", lambda *_: head)
    forged = forged_with(bundles.key, bundles.full, changed("log.json", change))
    assert STEP_NAMES[step] in failed(forged)


def _another(value: Any) -> Any:
    if isinstance(value, int):
        return 2 if value == 1 else 1
    digest = isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value)
    return "record" if value == "revision" else "0" * 64 if digest or value is None else "revision"


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
