"""A log that forked, as after a restore, goes on under another origin.

What was signed before holds as it did, witnesses cosign what follows, and what was lost is reported
as lost.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from app.core.errors import NotFoundError
from app.evidence.prove_sealed import prove_growth
from app.evidence.seal import (
    open_signer,
    read_checkpoint,
    rename_log,
    rotate_key,
    signed_checkpoint,
)
from app.evidence.verify import NOT_LISTED, unpack
from app.evidence.verify_evidence import KeptCheckpoint, VerifiedBundle, verify_evidence
from app.evidence.verify_log import VerifiedLog, verify_log
from reconcile.instants import SECOND, Instant
from tests.database.builders import tamper
from tests.evidence.conftest import forged_with
from tests.evidence.test_witnesses import (
    ONE,
    TWO,
    House,
    checked,
    first_lines,
    house,
    step,
    verified,
)


def lost_checkpoint(own: House, note: str) -> str:
    """Return a signed checkpoint of five more leaves, which the log does not know of any more."""
    said = read_checkpoint(note)
    lost = replace(said, size=said.size + 5, head=b"\x07" * 32)
    return signed_checkpoint(own.signing_key, lost)


async def against(own: House, note: str) -> VerifiedLog:
    return await verify_log(own.context, against=note, progress=lambda done, of: None)


def kept(archive: bytes, note: str, *hashes: str) -> VerifiedBundle:
    path = tuple(bytes.fromhex(each) for each in hashes) or None
    return verify_evidence(archive, kept=KeptCheckpoint(note=note, path=path))


async def forked(own: House) -> str:
    """Have witnesses cosign leaves that the log does not have. Return its newest checkpoint."""
    await own.sealed("e1")
    await own.asked()
    note = (await own.newest()).note
    lost = read_checkpoint(lost_checkpoint(own, note))
    for witness in own.witnesses:
        witness.seen[lost.origin] = (lost.size, lost.head)
    await own.sealed("e2")
    return note


async def renamed(own: House) -> None:
    await rename_log(own.context, by=None, reason="a backup was put back")


async def test_witnesses_cosign_again(tmp_path: Path) -> None:
    async with house(tmp_path, ONE, TWO) as own:
        first = await forked(own)
        before = await own.bundle("ORD-e1")
        await own.asked()
        assert await own.problems() == ["log_is_shorter"] * 2
        assert (await own.alarm() or ("",))[0] == "witness_contradicts"

        await renamed(own)
        assert await own.alarm() is None
        await own.sealed("e3")
        await own.asked()
        assert await own.problems() == [None, None]
        assert await own.alarm() is None
        newest = read_checkpoint((await own.newest()).note)
        assert [witness.asked[-1] for witness in own.witnesses] == [(0, newest.size)] * 2
        after, again = await own.bundle("ORD-e3"), await own.bundle("ORD-e1")
        assert (await checked(own.context)).problems == []
        keys = own.keys
    origin = read_checkpoint(first).origin
    assert newest.origin != origin
    for archive, log in ((before, origin), (again, origin), (after, newest.origin)):
        found = verified(archive, *keys)
        assert found.valid, found.steps
        assert read_checkpoint(unpack(archive)["checkpoint.txt"].decode()).origin == log
    lost = "leaves that were sealed under an earlier origin of the log: "
    assert lost not in first_lines(verified(before, *keys))
    for archive in (again, after):
        assert f"{lost}{origin} from leaf " in first_lines(verified(archive, *keys))


async def test_kept_checkpoints_hold_up_to_where_the_origin_ended(tmp_path: Path) -> None:
    """Of the log itself, and of a bundle of after."""
    async with house(tmp_path) as own:
        first = await forked(own)
        last = (await own.newest()).note
        lost = lost_checkpoint(own, last)
        await renamed(own)
        await own.sealed("e3")
        after = await own.bundle("ORD-e3")
        ours = read_checkpoint(unpack(after)["checkpoint.txt"].decode())
        for note in (first, last, (await own.newest()).note):
            assert (await against(own, note)).problems == [], note
        (problem,) = (await against(own, lost)).problems
        ended, lost_size = read_checkpoint(last), read_checkpoint(lost).size
        assert problem.startswith(
            f"the kept checkpoint of the log {ended.origin} has {lost_size} leaves, but this log "
            f"has only {ended.size} leaves"
        )
        assert problem.endswith("a backup was restored in between")
        growth = await prove_growth(own.context, old=ended.size, new=ours.size)
    same = kept(after, last, *growth["path"])
    assert step(same, "kept_checkpoint")[0] is True
    assert same.valid
    passed, sentence = step(kept(after, lost, *growth["path"]), "kept_checkpoint")
    assert (passed, "a backup was restored in between" in sentence) == (False, True)


async def test_one_of_another_log_is_still_refused(tmp_path: Path) -> None:
    async with house(tmp_path) as own:
        note = await forked(own)
        await renamed(own)
        await own.sealed("e3")
        after = await own.bundle("ORD-e3")
        other = replace(read_checkpoint(note), origin="tallyhook.sandbox/other")
        signed = signed_checkpoint(own.signing_key, other)
    passed, sentence = step(kept(after, signed), "kept_checkpoint")
    assert (passed, "to another log" in sentence) == (False, True)


@pytest.mark.parametrize(
    "wrong", [{"log": "x", "leaves": "4"}, {"log": 7, "leaves": 4}, {"leaves": 4}, "x"]
)
async def test_origins_that_are_not_in_form_fail(tmp_path: Path, wrong: object) -> None:
    """Otherwise who has the shop's key could have what nothing proves left out of the list."""

    def change(members: dict[str, bytes]) -> None:
        log = json.loads(members["log.json"])
        members["log.json"] = json.dumps(log | {"origins": [wrong]}).encode()

    async with house(tmp_path) as own:
        await own.sealed("e1")
        archive = forged_with(own.signing_key, await own.bundle("ORD-e1"), change)
    found = verify_evidence(archive)
    assert step(found, "inclusion")[0] is False
    assert list(found.not_proven) == [NOT_LISTED]


async def test_a_checkpoint_has_the_origin_of_its_size(tmp_path: Path) -> None:
    """One in the other's name was put in."""
    async with house(tmp_path) as own:
        last = read_checkpoint(await forked(own))
        await renamed(own)
        await own.sealed("e3")
        newest = read_checkpoint((await own.newest()).note)
        key = own.signing_key
        for said, origin in ((newest, last.origin), (last, newest.origin)):
            note = signed_checkpoint(key, replace(said, origin=origin))
            sql = f"UPDATE log_checkpoints SET note = '{note}' WHERE size = {said.size}"
            await tamper(own.context, "log_checkpoints", sql)
            (problem,) = (await checked(own.context)).problems
            assert "is not signed by a key of this log" in problem
            sql = sql.replace(note, signed_checkpoint(key, said))
            await tamper(own.context, "log_checkpoints", sql)
            assert (await checked(own.context)).problems == []


async def test_a_later_key_is_endorsed_for_what_an_earlier_origin_signed(tmp_path: Path) -> None:
    """The bundle's proofs lead to a cosigned checkpoint of before, its manifest is the new key's.
    Who trusts the old key need not take the new one on the bundle's word."""
    async with house(tmp_path, ONE) as own:
        await forked(own)
        await renamed(own)
        old = (await open_signer(own.context)).key.public
        own.driver.clock.put(Instant(own.driver.clock.now() + SECOND))
        await rotate_key(own.context, by=None)
        await own.sealed("e3")
        archives = [await own.bundle("ORD-e1"), await own.bundle("ORD-e3")]
    for archive in archives:
        found = verify_evidence(archive, trusted=old)
        assert found.valid, found.steps
        assert step(found, "checkpoint")[0] is True
    assert "which endorsed the key of the manifest" in step(
        verify_evidence(archives[0]), "checkpoint"
    )[1]  # fmt: skip


async def test_a_log_that_has_not_begun_has_no_origin_to_change(tmp_path: Path) -> None:
    async with house(tmp_path) as own:
        with pytest.raises(NotFoundError, match="nothing is sealed yet"):
            await renamed(own)
