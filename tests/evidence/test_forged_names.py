"""Forgeries by a holder of the shop's key: two things with one name, or one with another's.

A name is no place to hide in. What is hidden behind a hash, a mark or another order is reported
first.
"""

import asyncio
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import rfc8785

from app.evidence.keys import EvidenceKey
from app.evidence.prove_sealed import path_to
from app.evidence.seal import open_signer, read_checkpoint
from app.evidence.verify import MANIFEST, main, unpack
from app.evidence.verify_evidence import verify_evidence
from app.sealing import log_store
from reconcile.instants import format_instant
from tests.api.driving import Driver, driving, event
from tests.evidence.conftest import (
    NOW,
    Bundles,
    Change,
    Forge,
    Members,
    a_delivery,
    build,
    changed,
    failed,
    first_lines,
    forged_with,
    in_manifest,
    refolded,
    seal_now,
    steps,
    written,
)


def _manifest(**said: Any) -> Change:
    return lambda members: in_manifest(members, **said)


def _of(name: str, change: Callable[[Any], None]) -> Change:
    """Make a change of one file, and of all that follows from it."""

    def changing(members: Members) -> None:
        changed(name, change)(members)
        refolded(members)

    return changing


def _canceled(**said: Any) -> Change:
    """Make up a cancellation before the sealed record of the order's price."""

    def change(history: Any) -> None:
        placed = next(each for each in history["records"] if each["kind"] == "order_placed")
        made_up = {**placed, "kind": "order_canceled", **said}
        del made_up["money"]
        history["records"].insert(0, made_up)

    return _of("history.json", change)


def _otherwise_named(members: Members) -> None:
    """Give the order another reference, and leave the key empty that would show that it has none
    such."""

    def rename(document: Any) -> None:
        for each in document["records"] if isinstance(document, dict) else document:
            each.update(order="ORD-9")

    changed("history.json", rename)(members)
    changed("history.json", lambda history: history.update(order="ORD-9"))(members)
    changed("sessions.json", rename)(members)
    changed("log.json", lambda log: log["order"].update(key=""))(members)
    in_manifest(members, order="ORD-9")
    refolded(members)


def _twice_in_one_object(members: Members) -> None:
    """Let a reader of JSON who takes the first of two names see another order."""
    first = b'{"as_of":'
    assert members["history.json"].startswith(first)
    members["history.json"] = b'{"order":"X",' + members["history.json"][1:]


def _laid_beside(members: Members) -> None:
    """Call a file under a name of its own what is signed of a delivery."""
    of, name = a_delivery(members), "receipt.html"
    paid = b"<h1>Paid in full</h1>"
    said = {"file": name, "sha256": hashlib.sha256(paid).hexdigest(), "size": len(paid)}
    before = json.loads(members[of])["signed"]["file"]
    changed(of, lambda each: each.update(signed=said))(members)
    members.pop(before, None)
    members[name] = paid
    left = json.loads(members[MANIFEST])["left_out"]
    left.pop(before, None)
    in_manifest(members, left_out=left)


def _profile_beside(members: Members) -> None:
    """Name a profile as the letter is named where names have no case."""
    members["Report.html"] = members.pop("profile-1.toml")
    changed("sources.json", lambda sources: sources[0].update(file="Report.html"))(members)


CHANGES: dict[str, tuple[Change, str]] = {
    "a made-up record has a sealed one's name": (_canceled(), "inclusion"),
    "a made-up record is called as a revision is": (_canceled(record_id="revision:1"), "inclusion"),
    "a made-up revision has a sealed one's number": (
        changed(
            "revisions.json",
            lambda revisions: revisions.insert(0, revisions[0] | {"outcome": "failed"}),
        ),
        "inclusion",
    ),
    "one delivery counts twice": (
        _of(
            "history.json",
            lambda history: history["deliveries"].insert(0, history["deliveries"][-1]),
        ),
        "inclusion",
    ),
    "another order has a key that is empty": (_otherwise_named, "completeness"),
    "one object has a name twice": (_twice_in_one_object, "deliveries"),
    "what is signed has a name of its own": (_laid_beside, "deliveries"),
    "a profile's file is called almost as the letter": (_profile_beside, "deliveries"),
    "it says neither that it is redacted nor that it is not": (_manifest(redacted=""), "manifest"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_name_is_no_place_to_hide_in(
    bundles: Bundles, forge: Forge, what: str, tmp_path: Any, capsys: Any
) -> None:
    """In a full and in a redacted bundle, here and by what is in every bundle."""
    change, step = CHANGES[what]
    for archive in (bundles.full, bundles.redacted):
        forged = forge(archive, change, key=bundles.key)
        assert step in failed(forged, trusted=bundles.key.public)
        (tmp_path / "forged.zip").write_bytes(forged)
        assert main([str(tmp_path / "forged.zip"), format_instant(NOW)]) == 1
        assert step in capsys.readouterr().out.splitlines()[0]


def test_an_attachments_audit_entry_has_one_file(bundles: Bundles, forge: Forge) -> None:
    """Of two that name one entry the log has sealed one."""
    facts = {"attachment": "att_1", "about": "order", "kind": "other", "media": "text/plain",
             "sha256": "0" * 64, "size": 1, "details": "0" * 64}  # fmt: skip
    entry = {"number": 1, "at": "2026-11-20T10:00:00Z", "action": "attached", "subject": "ORD-1",
             "who": "anna", "role": None, "reason": None, "facts": facts}  # fmt: skip
    attachment = {"attached": entry, "removed": None, "content": None, "details": None}

    def change(members: Members) -> None:
        members["attachments.json"] = written([attachment, attachment])

    step = steps(forge(bundles.full, change, key=bundles.key))["inclusion"]
    assert step.sentence == "Two things here have the name deed:1."


# --- redacted and full ----------------------------------------------------------------------------


def test_a_bundle_is_redacted_or_it_is_not(bundles: Bundles, forge: Forge) -> None:
    """Nothing reads the bodies of one that is called redacted, and it is handed on as what it is
    not. In one that is called full nobody would look for what is left out."""
    called = forge(bundles.full, _manifest(redacted=True), key=bundles.key)
    assert "deliveries" in failed(called)
    called = forge(bundles.redacted, _manifest(redacted=False), key=bundles.key)
    assert "deliveries" in failed(called)


def _unopened(members: Members) -> None:
    heard = [each["delivery_id"] for each in json.loads(members["history.json"])["deliveries"]]
    changed("log.json", lambda log: [log["parts"].pop(each) for each in heard])(members)


def _unread(members: Members) -> None:
    """Take away how the bodies are read, and what was sealed of that."""
    _unopened(members)
    changed("sources.json", list.clear)(members)
    del members["profile-1.toml"]


def test_bodies_that_nobody_reads_prove_nothing_of_the_history(
    bundles: Bundles, forge: Forge, tmp_path: Any, capsys: Any
) -> None:
    """Not even where they can be read again: `verify.py` reads no bodies."""
    for change in (_unread, _unopened):
        forged = forge(bundles.full, change, key=bundles.key)
        assert "readings" in failed(verify_evidence(forged))
    (tmp_path / "unopened.zip").write_bytes(forged)
    assert main([str(tmp_path / "unopened.zip"), format_instant(NOW)]) == 1
    assert "does not open one leaf of dlv_" in capsys.readouterr().out


def test_some_bodies_are_not_all_of_them(bundles: Bundles, forge: Forge) -> None:
    """A profile is there for the others alone."""

    def change(members: Members) -> None:
        _unopened(members)
        last = json.loads(members["history.json"])["deliveries"][-1]["delivery_id"]
        changed(f"delivery-{last}.json", lambda stated: stated.update(source="other"))(members)
        changed(
            "history.json",
            lambda history: history["deliveries"][-1]["event"].update(source="other"),
        )(members)
        refolded(members)

    step = steps(forge(bundles.full, change, key=bundles.key))["bodies"]
    assert step.passed is None
    assert "1 more has no profile in here that can read them" in step.sentence


def test_what_is_stated_of_a_file_is_what_it_is(bundles: Bundles, forge: Forge) -> None:
    """Its size, too, and the names of headers, which are never masked."""
    changes: tuple[Callable[[Any], None], ...] = (
        lambda stated: stated["headers"].update(size=7),
        lambda stated: stated["headers_shown"][0].__setitem__(0, "paid •"),
    )
    for change in changes:
        forged = forge(bundles.full, lambda m, c=change: changed(a_delivery(m), c)(m), bundles.key)
        assert failed(forged) == ["deliveries"]


@pytest.mark.parametrize(
    ("member", "said", "words"),
    [
        ("let_go_at", "2026-11-21T10:00:00Z", "- that a body was deleted, and when"),
        ("problem", "no JSON", "- why a body could not be read"),
        ("headers_shown", None, "- what is masked in headers and answers: the files beside"),
    ],
)
def test_what_only_the_maker_says_of_a_delivery_is_reported_first(
    bundles: Bundles, forge: Forge, member: str, said: str | None, words: str
) -> None:
    def change(members: Members) -> None:
        name = a_delivery(members)
        if said is None:
            changed(name, lambda stated: stated[member][0].__setitem__(1, "9,000 KES •"))(members)
        else:
            changed(name, lambda stated: stated.update({member: said}))(members)

    found = verify_evidence(forge(bundles.full, change, key=bundles.key))
    assert failed(found) == []
    assert words in first_lines(found)
    assert words not in first_lines(verify_evidence(bundles.full))


# --- what is reported first -----------------------------------------------------------------------


def test_whose_key_it_is_is_reported_first(
    bundles: Bundles, forge: Forge, forger: EvidenceKey
) -> None:
    """A stranger's log hangs together as well as the shop's."""
    said = "- that it is the shop's: compare evidence-key.pub with a key that you have from the"
    forged = forge(bundles.full, lambda members: None)
    assert failed(forged) == []
    assert said in first_lines(verify_evidence(forged))
    assert said not in first_lines(verify_evidence(bundles.full, trusted=bundles.key.public))


def test_a_letter_that_nobody_rendered_again_is_reported_first(
    bundles: Bundles, forge: Forge
) -> None:
    """People read it, and another program's may say anything."""

    def change(members: Members) -> None:
        in_manifest(members, program="0" * 64, release="9.9")
        members["report.html"] = b"<h1>Paid in full</h1>"

    said = "- that report.html, explanation.txt and README.txt say what the data here say"
    found = verify_evidence(forge(bundles.full, change, key=bundles.key, rendering=False))
    assert failed(found) == []
    assert f"{said}: `tallyhook evidence verify` of release 9.9" in first_lines(found)
    assert said not in first_lines(verify_evidence(bundles.full))


def test_what_is_nested_deep_is_not_in_form(bundles: Bundles, forge: Forge) -> None:
    """And ends no verification in the middle."""
    deep = b"[" * 450 + b"]" * 450

    def change(members: Members) -> None:
        sessions = json.loads(members["sessions.json"])
        name = f"record-{sessions[1]['record_id']}.details"
        members[name] = deep
        sessions[1]["details"] = deep.decode()
        members["sessions.json"] = rfc8785.dumps(sessions)

    assert "inclusion" in failed(verify_evidence(forge(bundles.full, change, key=bundles.key)))


# --- entries of the log that are another order's --------------------------------------------------


@dataclass(frozen=True)
class Crossed:
    """A full bundle of ORD-1, whose middle delivery is a refund; entries of the same log that are
    of ORD-2, one of them that a delivery was joined to it later; and the key."""

    full: bytes
    others: list[dict[str, Any]]
    key: EvidenceKey


@pytest.fixture(scope="module")
def crossed(tmp_path_factory: pytest.TempPathFactory) -> Crossed:
    folder = tmp_path_factory.mktemp("crossed")

    async def world() -> Crossed:
        async with driving(folder, with_worker=False, looking=True) as driver:
            other: Any = {"session": {"reference": "cs_2"}, "payment": {"reference": "pay_2"}}
            for each in (
                event("o1", "pending", order=None, **other),
                event("e1"),
                event("e2", "refunded", refund={"reference": "re_1", "amount": 1500}),
                event("o2", order={"reference": "ORD-2"}, **other),
            ):
                await driver.send(each)
                await seal_now(driver)
            await driver.send(event("e3", "pending"))
            full = await build(driver, as_of=None, reason="dispute 12")
            key = (await open_signer(driver.context)).key
            return Crossed(full, await _others(driver, full), key)

    return asyncio.run(world())


async def _others(driver: Driver, archive: bytes) -> list[dict[str, Any]]:
    """Return every other entry of the log, with its proof, as a bundle has them."""
    members = unpack(archive)
    size = read_checkpoint(members["checkpoint.txt"].decode()).size
    own = {each["index"] for each in json.loads(members["log.json"])["leaves"]}
    async with driver.context.database.reading() as connection:
        return [
            {
                "id": leaf.subject, "index": leaf.number, "leaf": leaf.document,
                "proof": [e.hex() for e in await path_to(connection, leaf.number, size=size)],
            }
            for leaf in await log_store.leaves_after(connection, 0, limit=100)
            if leaf.number < size and leaf.number not in own
        ]  # fmt: skip


def _refund(members: Members) -> str:
    found = json.loads(members["history.json"])["deliveries"]
    return str(next(e["delivery_id"] for e in found if e["event"]["claim"] == "refunded"))


def _without_refund(members: Members) -> str:
    """Leave the refund out, but for its leaf."""
    gone = _refund(members)
    for name in [each for each in members if each.startswith(f"delivery-{gone}")]:
        del members[name]
    _of(
        "history.json",
        lambda history: history.update(
            deliveries=[e for e in history["deliveries"] if e["delivery_id"] != gone]
        ),
    )(members)
    return gone


def _leaves(members: Members, leaves: list[dict[str, Any]]) -> None:
    ordered = sorted(leaves, key=lambda each: int(each["index"]))
    changed("log.json", lambda log: log.update(leaves=ordered))(members)


def _own(members: Members) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(members["log.json"])["leaves"]
    return found


def test_two_entries_of_one_name_fill_no_gap(crossed: Crossed) -> None:
    """A refund and its leaf are left out. Two entries of others stand under one name, so that the
    count of entries is right."""

    def change(members: Members) -> None:
        gone = _without_refund(members)
        own = [each for each in _own(members) if each["id"] != gone]
        _leaves(members, own + [{**each, "id": "x"} for each in crossed.others[:2]])

    assert "inclusion" in failed(forged_with(crossed.key, crossed.full, change))


def test_an_entry_has_its_own_name(crossed: Crossed) -> None:
    """A refund's leaf is called as a delivery that another order was found for later, as if that
    were true of the refund."""
    joined = next(e for e in crossed.others if json.loads(e["leaf"])["kind"] == "reading")
    name = json.loads(joined["leaf"])["delivery"]

    def change(members: Members) -> None:
        gone = _without_refund(members)
        own = [{**e, "id": name} if e["id"] == gone else e for e in _own(members)]
        _leaves(members, [*own, joined])

    assert "inclusion" in failed(forged_with(crossed.key, crossed.full, change))


def test_what_is_of_another_order_by_now_is_reported_first(
    crossed: Crossed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A holder of the database can seal a delivery under another order, and leave it out."""
    gone = _refund(unpack(crossed.full))

    def change(members: Members) -> None:
        _without_refund(members)
        moved = {"kind": "reading", "delivery": gone, "salt": "0" * 32, "parts": None}
        own = _own(members)
        index = own[-1]["index"] + 1
        leaf = {"id": f"reading:{gone}:{index}", "index": index, "proof": []}
        _leaves(members, [*own, {**leaf, "leaf": rfc8785.dumps(moved).decode()}])
        changed("log.json", lambda log: log["parts"].pop(gone))(members)

    # Proofs are another test's: here the log has what it is said to have.
    root = "app.evidence.verify_entries.root_of"
    forged = forged_with(crossed.key, crossed.full, change)
    head = read_checkpoint(unpack(crossed.full)["checkpoint.txt"].decode()).head
    monkeypatch.setattr(root, lambda *_: head)
    found = verify_evidence(forged)
    assert failed(found) == []
    lines = first_lines(found)
    assert f"that these, which are not here, are not of this order, 1: {gone}; the log had" in lines
