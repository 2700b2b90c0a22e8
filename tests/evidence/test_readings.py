"""Commitments to what was said: each part by itself, salted, in the one canonical form."""

import hashlib
from typing import Any

import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from app.database.mapping import event_row
from app.sealing.leaf_store import DELIVERY
from reconcile.instants import EARLIEST, LATEST, Instant
from reconcile.ledger.events import PART_KINDS, STATE_MEMBERS, STATE_WORDS, Event, Part, State
from reconcile.money import Money
from reconcile.transparency.commitments import (
    AUDIT_TEXTS,
    RECORD_TEXTS,
    REVISION_TEXTS,
    SAID,
    TEXTS,
    cut_into_parts,
    document_of_parts,
    part_hashes,
    part_salts,
    parts_digest,
    sealed_digest,
    written_parts,
)
from reconcile.transparency.evidence import value_document
from reconcile.transparency.order_tree import order_commitment
from tests.rows import for_each

SECRET, SALT = b"s" * 32, b"0123456789abcdef"
WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
MONEY = st.builds(
    Money, minor=st.integers(-(2**53), 2**53), currency=st.sampled_from(["KES", "JPY", "BHD"])
)
STATES = st.builds(
    State, member=st.sampled_from(STATE_MEMBERS), word=st.sampled_from(STATE_WORDS),
    money=st.none() | MONEY, reference=st.none() | WORDS,
    at=st.none() | st.integers(EARLIEST, LATEST),
)  # fmt: skip
EVENTS = st.builds(
    Event,
    source=WORDS, event_id=WORDS, digest=st.just("0f" * 32), kind=WORDS,
    claim=st.sampled_from(["succeeded", "disputed"]), standing=st.sampled_from(["said", "fetched"]),
    occurred_at=st.none() | st.integers(0, 253_402_300_799_999_999).map(Instant),
    order=st.none() | WORDS, session=st.none() | WORDS, payment=st.none() | WORDS,
    movement=st.none() | WORDS, capture=st.none() | WORDS, reason=st.none() | WORDS,
    money=st.none() | MONEY, order_money=st.none() | MONEY, refunded_total=st.none() | MONEY,
    unclear=st.none() | st.just("amount"), method=st.none() | WORDS,
    expected_by=st.none() | st.integers(EARLIEST, LATEST), revocable_days=st.none() | st.just(56),
    shop=st.sampled_from([None, "ours", "other"]), suggested=st.none() | WORDS,
    agreement=st.none() | WORDS, standalone=st.booleans(),
    parts=st.just(()) | st.tuples(st.builds(Part, kind=st.sampled_from(PART_KINDS), money=MONEY)),
    states=st.just(()) | st.tuples(STATES), stated_at=st.none() | st.integers(EARLIEST, LATEST),
)  # fmt: skip


@given(EVENTS)
def test_a_stranger_finds_the_digest_from_the_events_document(event: Event) -> None:
    """By another's RFC 8785, from what a bundle's history.json and log.json show."""
    document, salts = value_document(event), part_salts(SECRET, SALT)
    parts: dict[str, Any] = {name: document[name] for name in TEXTS if name in document}
    parts[SAID] = {name: value for name, value in document.items() if name not in TEXTS}
    hashes = {
        name: hashlib.sha256(
            rfc8785.dumps({"part": name, "salt": salts[name], "value": value})
        ).hexdigest()
        for name, value in parts.items()
    }
    row = event_row(event, order_key=None, delivery_id="dlv_1", received_at=EARLIEST)
    head = ("dlv_1", 1, "shop", "00" * 32, 9, "", None, None)
    written = DELIVERY.sealable((*head, *row)).written()
    assert written is not None
    assert part_hashes(written, secret=SECRET, salt=SALT) == hashes
    digest = hashlib.sha256(rfc8785.dumps(hashes)).hexdigest()
    assert sealed_digest(written, secret=SECRET, salt=SALT) == digest
    assert parts_digest(dict(sorted(hashes.items()))) == digest
    assert written == written_parts(cut_into_parts(document, TEXTS))


@for_each("names", [RECORD_TEXTS, REVISION_TEXTS, AUDIT_TEXTS])
def test_a_stranger_finds_the_digest_of_other_documents(names: tuple[str, ...]) -> None:
    document: dict[str, Any] = {
        "at": "2026-01-01T00:00:00Z",
        "number": 7,
        "ready": True,
        "before": None,
    }
    document |= {name: [f"\u20ac {name}", {"x": 1}] for name in names}
    salts, parts = part_salts(SECRET, SALT), {name: document[name] for name in names}
    parts[SAID] = {name: value for name, value in document.items() if name not in names}
    hashes = {
        name: hashlib.sha256(
            rfc8785.dumps({"part": name, "salt": salts[name], "value": value})
        ).hexdigest()
        for name, value in parts.items()
    }
    cut = cut_into_parts(document, names)
    assert sealed_digest(written_parts(cut), secret=SECRET, salt=SALT) == (
        hashlib.sha256(rfc8785.dumps(hashes)).hexdigest()
    )
    assert document_of_parts(cut) == document


def test_salts_tell_nothing_of_each_other() -> None:
    salts = part_salts(SECRET, SALT)
    assert len({*salts.values(), *part_salts(SECRET, SALT[::-1]).values()}) == 2 * len(salts)
    assert {len(salt) for salt in salts.values()} == {32}


def test_the_name_of_an_order_is_what_the_rfc_says() -> None:
    """RFC 4231, test case 2."""
    assert order_commitment(b"Jefe", "what do ya want for nothing?").hex() == (
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    )
