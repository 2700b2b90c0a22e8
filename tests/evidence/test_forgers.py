"""Forgeries by whoever holds the shop's key and its whole log: each fails a step that is named
here, or is listed first as the word of whoever made the bundle.

The reader has the shop's key and a checkpoint that left the shop before the dispute.
"""

import asyncio
import json
from pathlib import Path

import pytest

from app.evidence.keys import EvidenceKey
from app.evidence.verify import main
from app.evidence.verify_evidence import KeptCheckpoint, VerifiedBundle, verify_evidence
from reconcile.instants import format_instant
from tests.evidence.conftest import (
    NOW,
    Bundles,
    Forge,
    Members,
    failed,
    first_lines,
    written,
)
from tests.evidence.forger import (
    Forger,
    ForgersWorld,
    forged_copy,
    forgers_world,
)
from tests.evidence.forgeries import FORGERIES, IN_FORM, IN_FULL, UNPROVEN, Forgery, Unproven
from tests.searching import every


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> ForgersWorld:
    return asyncio.run(forgers_world(tmp_path_factory.mktemp("forgers")))


def verified(world: ForgersWorld, forger: Forger) -> VerifiedBundle:
    archive = forger.bundle()
    kept = KeptCheckpoint(note=world.note, path=forger.consistency() or None)
    return verify_evidence(archive, trusted=world.key.public, kept=kept)


STEPS = dict.fromkeys(each.step for each in FORGERIES)
TRIED = [
    each for step in STEPS for each in [one for one in FORGERIES if one.step == step][:: every(3)]
]
"""Forgeries that are tried: all, or a third of each step's."""


def test_at_least_120_forgeries_are_tried() -> None:
    assert len({each.says for each in TRIED}) >= 120


@pytest.mark.parametrize("forgery", TRIED, ids=lambda each: each.says)
def test_a_forgery_fails(world: ForgersWorld, forgery: Forgery) -> None:
    """At the step that is named, in a redacted bundle and, but for its form, in a full one."""
    archives = (world.redacted, world.full)
    for archive in archives[forgery in IN_FULL : 1 if forgery in IN_FORM else 2]:
        forger = forged_copy(world, archive)
        forgery.tried(forger)
        found = verified(world, forger)
        assert forgery.step in failed(found), [each for each in found.steps if not each.passed]
        assert first_lines(found).startswith("DO NOT RELY ON IT: ")


def test_a_forger_who_changes_nothing_is_found_at_no_step(world: ForgersWorld) -> None:
    """So each forgery fails for what it changes: also in a log that goes on."""
    for archive in (world.full, world.redacted):
        forger = forged_copy(world, archive)
        assert verified(world, forger).valid
        forger = forged_copy(world, archive)
        forger.append({"kind": "orders"})
        forger.prove()
        assert verified(world, forger).valid


def test_what_nothing_proves_of_a_true_bundle_is_listed(world: ForgersWorld) -> None:
    full = verified(world, forged_copy(world, world.full))
    redacted = verified(world, forged_copy(world, world.redacted))
    assert {*full.not_proven} == NOT_PROVEN
    assert {*redacted.not_proven} == NOT_PROVEN | NOT_PROVEN_OF_REDACTED
    said = {each.name: each.sentence for each in redacted.steps}
    assert said["deliveries"].startswith("6 deliveries, with 3 redeliveries: ")
    assert said["inclusion"].endswith(", except for 5 masked parts, which cannot be compared.")
    assert said["readings"] == (
        "Events in history.json that equal the sealed event: 7 of 9. "
        "Equal except for masked texts: 2. Not sealed yet: 0."
    )


NOT_PROVEN = {
    "that nothing about the order was left out since 2026-11-21T10:00:00Z",
    "the address, verdict, signature and signed bytes of deliveries (delivery-ID.json)",
    "the address and signature of redeliveries (log.json has only their entries)",
    "what the attached files show, and who made them: the log proves only when the shop attached "
    "them (attachments.json)",
    "when each source last delivered a readable message (heard.json)",
    "which profile reads which source (sources.json)",
    "the shop's time limits (policy in history.json)",
}
NOT_PROVEN_OF_REDACTED = {
    "what the left-out bodies stated, in texts that are masked (history.json), of 1 of 6",
    "the method and headers of deliveries (delivery-ID.json)",
    "the answers of the payment service (sessions.json)",
    "what attached files show that are not in the bundle (attachments.json), of 1 of 2",
    "masked texts of records, revisions and audit entries, 5 in all (history.json, "
    "revisions.json, attachments.json)",
}


@pytest.mark.parametrize("story", UNPROVEN, ids=lambda each: each.says)
def test_what_no_step_can_find_is_listed_first(world: ForgersWorld, story: Unproven) -> None:
    for archive in (world.full, world.redacted):
        forger = forged_copy(world, archive)
        story.tried(forger)
        found = verified(world, forger)
        if story.full or archive is world.redacted:
            assert failed(found) == []
            assert story.words in first_lines(found)
        else:
            assert failed(found) in (["deliveries"], ["bodies"]) or "inclusion" in failed(found)


def test_whose_key_it_is_is_reported_first(
    bundles: Bundles, forge: Forge, forger: EvidenceKey
) -> None:
    """A stranger's log hangs together as well as the shop's."""
    said = "- that the bundle is the shop's: compare evidence-key.pub with a key that you got from"
    forged = forge(bundles.full, lambda members: None)
    assert failed(forged) == []
    assert said in first_lines(verify_evidence(forged))
    assert said not in first_lines(verify_evidence(bundles.full, trusted=bundles.key.public))


def test_what_is_nested_deep_is_not_in_form(bundles: Bundles, forge: Forge) -> None:
    """And ends no verification in the middle."""
    deep = b"[" * 450 + b"]" * 450

    def change(members: Members) -> None:
        sessions = json.loads(members["sessions.json"])
        name = f"record-{sessions[1]['record_id']}.details"
        members[name] = deep
        sessions[1]["details"] = deep.decode()
        members["sessions.json"] = written(sessions)

    assert "inclusion" in failed(verify_evidence(forge(bundles.full, change, key=bundles.key)))


@pytest.mark.parametrize("says", ["a refund and its revision are left out", "the tree is left out"])
def test_verify_py_alone_finds_it_as_well(
    world: ForgersWorld, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As every bundle holds it."""
    (forgery,) = (each for each in FORGERIES if each.says == says)
    forger = forged_copy(world, world.redacted)
    forgery.tried(forger)
    (tmp_path / "forged.zip").write_bytes(forger.bundle())
    assert main([str(tmp_path / "forged.zip"), format_instant(NOW)]) == 1
    out = capsys.readouterr().out
    assert out.startswith(f"DO NOT RELY ON IT: {forgery.step}")
    assert "\nNot proven, but only stated by the maker of the bundle:\n- " in out
