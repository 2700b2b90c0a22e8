"""A key that follows another, a checkpoint that left the shop, and bundles that are no forgery."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import UsageError
from app.evidence import bundle
from app.evidence.keys import EvidenceKey, load_key
from app.evidence.prove_sealed import prove_growth
from app.evidence.seal import (
    CheckpointSigner,
    open_signer,
    read_checkpoint,
    rotate_key,
    signed_checkpoint,
)
from app.evidence.verify import MANIFEST, VerifyStep, opened, unpack
from app.evidence.verify_evidence import (
    KeptCheckpoint,
    bodies,
    provider_signatures,
    verify_evidence,
)
from app.orders.record_store import add_records
from app.sealing import log_store
from reconcile.instants import DAY, SECOND
from tests.api.driving import Driver, driving, event, signed
from tests.evidence.conftest import (
    NOW,
    Bundles,
    Forge,
    Members,
    build,
    changed,
    failed,
    first_lines,
    forged_with,
    in_manifest,
    steps,
    written,
)
from tests.evidence.world import LATER, record
from tests.reconcile.build import T
from tests.rows import for_each


def _without_leaf(members: Members, subject: str, *, unsealed: Sequence[str] = ()) -> None:
    def forget(log: Any) -> None:
        log["leaves"] = [each for each in log["leaves"] if each["id"] != subject]
        log["unsealed"] += unsealed

    changed("log.json", forget)(members)


def _unsealed(members: Members) -> None:
    """Take away an arrival's leaf, and call it not sealed yet."""
    heard = json.loads(members["history.json"])["deliveries"][-1]["delivery_id"]
    _without_leaf(members, heard, unsealed=[heard])


async def test_what_came_just_before_may_wait_for_its_seal(tmp_path: Path) -> None:
    """The first lines say that it is not proven yet."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        await driver.send(event("e1"))
        driver.clock.put(T + SECOND)
        await driver.send(event("e2", "pending"))
        archive = await build(driver, as_of=None)
        signer = await open_signer(driver.context)
        forged = forged_with(signer.key, archive, _unsealed)
    found = verify_evidence(forged)
    assert failed(found) == []
    assert "parts that are not sealed yet, 1: dlv_" in first_lines(found)


# --- keys, one after the other --------------------------------------------------------------------


def test_an_earlier_key_takes_more_than_the_bundles_word(
    bundles: Bundles, forge: Forge, forger: EvidenceKey
) -> None:
    """The checkpoint is the forger's, whose key the bundle calls an earlier one of the log."""

    def change(members: Members) -> None:
        note = members["checkpoint.txt"].decode()
        log = json.loads(members["log.json"])
        members["checkpoint.txt"] = signed_checkpoint(forger, read_checkpoint(note)).encode()
        log["keys"].insert(0, forger.public.raw.hex())
        log["endorsements"] = [None, *log["endorsements"]]
        members["log.json"] = written(log)

    found = verify_evidence(forge(bundles.full, change, key=bundles.key))
    step = steps(found)["checkpoint"]
    assert step.passed is None
    assert "but does not prove it" in step.sentence
    assert "checkpoint" in first_lines(found)


async def signed_first(driver: Driver) -> tuple[CheckpointSigner, bytes]:
    """Return the log's first signer, and a bundle that it has signed."""
    await driver.send(event("e1"))
    driver.clock.put(LATER)
    return await open_signer(driver.context), await build(driver)


async def test_bundles_hold_across_a_rotation(tmp_path: Path) -> None:
    """The old key signed that the new one follows. Who trusts either takes a new bundle, whose
    checkpoint may still be the old key's. Where the old key's file was lost, nobody signed that."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        path = driver.context.settings.evidence_key_path
        first, before = await signed_first(driver)
        second = await rotate_key(driver.context, by=None)
        driver.clock.put(LATER + DAY)
        after = await build(driver)
        path.unlink()
        third = await rotate_key(driver.context, by=None)
        lost = await build(driver)
    assert verify_evidence(before, trusted=first.key.public).valid
    for key in (first.key, second):
        found = verify_evidence(after, trusted=key.public)
        passed = [steps(found)[name].passed for name in ("signature", "checkpoint")]
        assert (found.valid, passed) == (True, [True, True])
    assert failed(before, trusted=second.public) == ["signature"]
    assert failed(lost, trusted=second.public) == ["signature"]
    assert steps(lost, trusted=third.public)["checkpoint"].passed is None
    assert load_key(path) is not None


async def test_a_rotation_that_was_cut_short_is_endorsed_when_it_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old key had been set aside, and the log did not know the new one yet."""

    class Killed(BaseException):
        """An end of the process."""

    async def die(*_: object, **__: object) -> None:
        raise Killed

    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        first, before = await signed_first(driver)
        with monkeypatch.context() as patched:
            patched.setattr(log_store, "add_key", die)
            with pytest.raises(Killed):
                await rotate_key(driver.context, by=None)
        driver.clock.put(LATER + DAY)
        second = await rotate_key(driver.context, by=None)
        after = await build(driver)
    assert verify_evidence(before, trusted=first.key.public).valid
    for key in (first.key.public, second.public):
        assert verify_evidence(after, trusted=key).valid


# --- a checkpoint that left the shop --------------------------------------------------------------


@dataclass(frozen=True)
class Grown:
    """Two bundles of a log, the checkpoint of each, the proof between them, and the key."""

    bundles: tuple[bytes, bytes]
    notes: tuple[str, str]
    path: tuple[bytes, ...]
    key: EvidenceKey


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Grown:
    folder = tmp_path_factory.mktemp("grown")

    async def world() -> Grown:
        async with driving(folder, with_worker=False, looking=True) as driver:
            found: list[bytes] = []
            for name in ("e1", "e2"):
                await driver.send(event(name, "pending"))
                driver.clock.put(LATER + DAY if found else LATER)
                found.append(await build(driver, as_of=None))
            notes = [unpack(each)["checkpoint.txt"].decode() for each in found]
            sizes = [read_checkpoint(each).size for each in notes]
            proof = await prove_growth(driver.context, old=sizes[0], new=sizes[1])
            signer = await open_signer(driver.context)
        return Grown(
            bundles=(found[0], found[1]),
            notes=(notes[0], notes[1]),
            path=tuple(bytes.fromhex(each) for each in proof["path"]),
            key=signer.key,
        )

    return asyncio.run(world())


def kept_step(archive: bytes, note: str, path: tuple[bytes, ...] | None = None) -> VerifyStep:
    return steps(archive, kept=KeptCheckpoint(note=note, path=path))["kept_checkpoint"]


def test_a_kept_checkpoint_shows_that_the_log_is_the_same(grown: Grown) -> None:
    """An earlier and a later one, with the proof between them; the very one needs none."""
    (first, second), (earlier, later) = grown.bundles, grown.notes
    same = kept_step(second, later)
    assert same.passed is True
    before, after = kept_step(second, earlier, grown.path), kept_step(first, later, grown.path)
    assert (before.passed, after.passed) == (True, True)
    leaves = len(json.loads(unpack(second)["log.json"])["leaves"])
    within = int(before.sentence.partition(": ")[2].split()[0])
    assert (within, leaves) == (1, 3)
    bare = kept_step(second, earlier)
    assert bare.passed is None
    assert "tallyhook log consistency" in bare.sentence


def test_a_log_that_was_written_anew_is_found_by_a_checkpoint_that_left(
    grown: Grown, forger: EvidenceKey
) -> None:
    """The shop's own key signed both; only one of them can be the log that there was."""
    said = read_checkpoint(grown.notes[0])
    anew = signed_checkpoint(grown.key, replace(said, head=bytes(32)))
    smaller = signed_checkpoint(grown.key, replace(said, size=said.size - 1))
    other = signed_checkpoint(grown.key, replace(said, origin="tallyhook.sandbox/other"))
    for archive, note, path, why in (
        (grown.bundles[0], anew, None, "to different logs"),
        (grown.bundles[1], anew, grown.path, "to different logs"),
        (grown.bundles[1], grown.notes[0], (), "to different logs"),
        (grown.bundles[1], grown.notes[0], grown.path[:-1], "to different logs"),
        (grown.bundles[0], smaller, grown.path, "to different logs"),
        (grown.bundles[0], other, None, "to another log"),
        (grown.bundles[0], "hello", None, "three lines"),
    ):
        step = kept_step(archive, note, path)
        assert step.passed is False, why
        assert why in step.sentence


def test_the_first_lines_say_what_a_log_written_anew_looks_like(grown: Grown) -> None:
    """No step shows what who has database and key can do: only a kept checkpoint does."""
    anew, after = "that the log was not rewritten", "after the 2 leaves of the checkpoint that"
    assert anew in first_lines(verify_evidence(grown.bundles[1]))
    kept = KeptCheckpoint(note=grown.notes[0], path=grown.path)
    lines = first_lines(verify_evidence(grown.bundles[1], kept=kept))
    assert f"{anew} {after} you kept: 2 of the 3 leaves in the bundle came later" in lines, (
        "it covers one of them"
    )
    whole = KeptCheckpoint(note=grown.notes[1])
    assert anew not in first_lines(verify_evidence(grown.bundles[1], kept=whole))


def test_a_checkpoint_of_another_key_is_the_readers_to_compare(
    grown: Grown, forger: EvidenceKey
) -> None:
    """Its hashes fit, as after a change of keys. The bundle cannot prove whose it is: it counts
    where the reader knows the key."""
    foreign = signed_checkpoint(forger, read_checkpoint(grown.notes[1]))
    step = kept_step(grown.bundles[0], foreign, grown.path)
    assert step.passed is None
    assert "compare it with the keys that you got" in step.sentence


# --- genuine bundles hold -------------------------------------------------------------------------


async def test_what_is_masked_by_its_name_is_no_forgery(tmp_path: Path) -> None:
    """A full bundle shows them masked beside the file that has them as they came: a header that is
    called an address, an answer with an e-mail address and a number that is none."""
    async with driving(tmp_path, looking=True) as driver:
        body = json.dumps(event("e1")).encode()
        await driver.send(body, [*signed(body), (b"x-envoy-external-address", b"198.51.100.7")])
        opened = record("opened", "session_opened", T, session="cs_1")
        answer = (
            '{"customer_email": "w@example.com", "name": "Wanjiku", "rate": NaN, "n": [1, true]}'
        )
        async with driver.context.database.writing() as connection:
            await add_records(connection, [opened], details=answer)
        driver.clock.put(LATER)
        assert failed(await build(driver, reason="why")) == []


async def test_an_order_without_deliveries_says_so(tmp_path: Path) -> None:
    async with driving(tmp_path, looking=True) as driver:
        await driver.api("PUT", "/orders/ORD-1", json={"amount": "5.00", "currency": "KES"})
        driver.clock.put(LATER)
        step = steps(await build(driver, reason="why"))["bodies"]
    assert step.sentence.startswith("The bundle has no delivery")


async def test_a_bundle_that_nobody_could_rely_on_is_not_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process seals, and is not done: the call says to try again."""

    async def nobody(*_: object, **__: object) -> int:
        return 0

    monkeypatch.setattr("app.evidence.seal.seal_all", nobody)
    monkeypatch.setattr(bundle, "SEAL_TRIES", 1)
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        await driver.send(event("e1"))
        driver.clock.put(LATER)
        with pytest.raises(
            UsageError, match="has not sealed 1 part of the evidence in time: try again"
        ):
            await build(driver)


# --- another program -----------------------------------------------------------------------------


def test_another_program_cannot_tell_what_was_rendered(bundles: Bundles, forge: Forge) -> None:
    """It says so, and does not fail what another release has worded otherwise."""

    def change(members: Members) -> None:
        in_manifest(members, program="0" * 64, release="9.9")
        members["report.html"] += b" "

    found = verify_evidence(forge(bundles.full, change, key=bundles.key, rendering=False))
    assert failed(found) == []
    assert "Another version of Tallyhook (9.9)" in steps(found)["rendered"].sentence
    assert "rendered" in first_lines(found).splitlines()[0]


@for_each(("program", "failing"), [({"program": "0" * 64}, []), ({}, ["bodies"])])
def test_only_this_programs_own_profiles_must_be_readable(
    bundles: Bundles, forge: Forge, program: dict[str, str], failing: list[str]
) -> None:
    """A profile in another program's language leaves two steps open; they do not fail."""

    def change(members: Members) -> None:
        in_manifest(members, **program)
        members["profile-1.toml"] += b"\n[a_table_of_another_release]\nkey = 1\n"

    found = verify_evidence(forge(bundles.full, change, key=bundles.key, rendering=False))
    assert [name for name in failed(found) if name == "bodies"] == failing
    if program:
        assert failed(found) == []
        for step in ("bodies", "provider_signatures"):
            assert steps(found)[step].passed is None
            assert "verify the bundle with that version" in steps(found)[step].sentence


def test_the_files_of_a_bundle_name_the_program(bundles: Bundles) -> None:
    manifest = json.loads(unpack(bundles.redacted)[MANIFEST])
    assert len(manifest["program"]) == 64
    assert manifest["release"]


# --- what the bodies and signatures of a bundle show ----------------------------------------------


def test_bodies_are_counted_by_what_can_be_read_of_them(bundles: Bundles) -> None:
    """A body whose source has no profile in the bundle is not read, and is no forgery."""
    needs = (None, "This check needs the secret")
    full, half, none, bare = (
        opened(unpack(each), NOW)
        for each in (bundles.full, bundles.full, bundles.full, bundles.redacted)
    )
    for each in half.document("history.json")["deliveries"][:2]:
        half.document(f"delivery-{each['delivery_id']}.json")["source"] = "till"
    none.document("sources.json").clear()
    count = len(full.document("history.json")["deliveries"])
    for given, read, sentence in (
        (full, True, f"{count} bodies found to agree with history.json."),
        (half, None, f"{count - 2} bodies found to agree with history.json. No profile "
                     "in the bundle can read 2 more."),
        (none, None, "No profile in the bundle can read the bodies."),
        (bare, None, "A redacted bundle has no bodies."),
    ):  # fmt: skip
        assert bodies(given) == (read, sentence)
        passed, said = provider_signatures(given)
        assert (passed, said[: len(needs[1])]) == needs or (passed, said) == (None, sentence)
