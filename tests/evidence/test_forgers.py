"""Another story by who holds the shop's own key is found, or reported first as not proven.

Leaves out: a forger without the key, and changed bytes (`test_tampering`).
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import rfc8785

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
from app.evidence.verify import MANIFEST, VerifyStep, unpack
from app.evidence.verify_evidence import KeptCheckpoint, verify_evidence
from app.orders.record_store import add_records
from app.sealing import log_store
from reconcile.instants import DAY, SECOND
from tests.api.driving import Driver, driving, event, signed
from tests.evidence.conftest import (
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
    steps,
    written,
)
from tests.evidence.world import LATER, record
from tests.reconcile.build import T


def _delivery(change: Callable[[dict[str, Any]], None]) -> Change:
    return lambda members: changed(a_delivery(members), change)(members)


def _without_leaf(members: Members, subject: str, *, unsealed: Sequence[str] = ()) -> None:
    def forget(log: Any) -> None:
        log["leaves"] = [each for each in log["leaves"] if each["id"] != subject]
        log["unsealed"] += unsealed

    changed("log.json", forget)(members)


def _left_out(members: Members, *, leaf_too: bool = True) -> None:
    """Leave out the last delivery, as if it had never come: all that is left hangs together."""
    gone = json.loads(members["history.json"])["deliveries"][-1]["delivery_id"]
    for name in [each for each in members if each.startswith(f"delivery-{gone}")]:
        del members[name]
    changed("history.json", lambda history: history["deliveries"].pop())(members)
    if leaf_too:
        _without_leaf(members, gone)


def _end_left_out(members: Members) -> None:
    """Leave out the last notice that the shop got, as if there had been none."""
    gone = json.loads(members["revisions.json"])[-1]["seq"]
    changed("revisions.json", lambda document: document.pop())(members)
    _without_leaf(members, f"revision:{gone}")


def _renamed(members: Members) -> None:
    for name in ("history.json", "sessions.json"):
        members[name] = members[name].replace(b'"ORD-1"', b'"ORD-9"')
    in_manifest(members, order="ORD-9")


def _dispute_ended(members: Members) -> None:
    """Make a dispute its end, in the history and in all that follows from it."""
    members["history.json"] = members["history.json"].replace(b'"disputed"', b'"dispute_won"')
    refolded(members)


def _changed_unopened(members: Members) -> None:
    _dispute_ended(members)
    heard = [each["delivery_id"] for each in json.loads(members["history.json"])["deliveries"]]
    changed("log.json", lambda log: [log["parts"].pop(each) for each in heard])(members)


def _with_reading(members: Members) -> None:
    """Put another payment in the last delivery, and its commitment in place of what opens it."""
    last = json.loads(members["history.json"])["deliveries"][-1]["delivery_id"]
    changed(
        "history.json",
        lambda history: history["deliveries"][-1]["event"].update(payment="\N{BULLET}1"),
    )(members)
    hidden = {"payment": {"hash": "0" * 64}}
    changed("log.json", lambda log: log["parts"][last].update(hidden))(members)


def _hidden(members: Members) -> None:
    """Show the leaf of a delivery as a hash alone, which may be any other leaf's."""
    heard = json.loads(members["history.json"])["deliveries"][0]["delivery_id"]

    def hide(log: Any) -> None:
        (leaf,) = (each for each in log["leaves"] if each["id"] == heard)
        leaf["leaf"] = None

    changed("log.json", hide)(members)


def _invented(members: Members) -> None:
    """Let the first delivery say something else, and its leaf have no content."""
    _hidden(members)
    changed(
        "history.json",
        lambda history: history["deliveries"][0]["event"].update(claim="authorized"),
    )(members)
    refolded(members)


def _answer_without_file(members: Members) -> None:
    """Invent what the payment service answered, and take away what was kept of it."""
    document = json.loads(members["sessions.json"])
    name = f"record-{document[1]['record_id']}.details"
    document[1]["details"] = '{"status":"refused"}'
    members["sessions.json"] = rfc8785.dumps(document)
    members.pop(name, None)
    left_out = json.loads(members[MANIFEST])["left_out"]
    left_out.pop(name, None)
    in_manifest(members, left_out=left_out)


def _added_to(name: str) -> Change:
    return lambda members: members.update({name: members[name] + b" Paid in full. "})


KES_5 = {"amount": "5.00", "currency": "KES"}
LINE = {
    "from": "statement", "line": "x", "kind": "payment", "payment": "pay_2", "order": None,
    "gross": KES_5, "fee": KES_5, "net": KES_5, "settled_at": None, "payout": None,
}  # fmt: skip


@dataclass(frozen=True)
class Forgery:
    """One story that is not true.

    full   the step that finds it in a full bundle; None: none does. `redacted`: in such a one
    words  what the first lines say then
    """

    says: str
    change: Change
    full: str | None
    redacted: str | None
    words: str = ""
    rendering: bool = True


def _as_of(moment: str) -> Change:
    """Give the bundle another instant, wherever it stands."""

    def change(members: Members) -> None:
        changed("history.json", lambda history: history.update(as_of=moment))(members)
        in_manifest(members, as_of=moment)
        refolded(members)

    return change


FORGERIES = [
    Forgery("it is as of before all that is here", _as_of("2026-11-19T10:00:00Z"),
            "deliveries", "deliveries"),
    Forgery("it is as of before the newest that is here", _as_of("2026-11-26T16:02:01Z"),
            "deliveries", "deliveries"),
    Forgery("it is as of a year to come", _as_of("2030-01-01T00:00:00Z"), "manifest", "manifest"),
    *(
        Forgery(
            f"{name} is rewritten",
            _added_to(name),
            "rendered", "rendered", rendering=False,
        )
        for name in ("report.html", "README.txt", "verify.py", "explanation.txt")
    ),
    Forgery(
        "the shop's systems were notified for another reason",
        changed("revisions.json", lambda listed: listed[-1].update(because=["evt_invented"])),
        "inclusion", "inclusion",
    ),
    Forgery(
        "a masked reason, which cannot be compared, is no way around that",
        changed("revisions.json", lambda listed: listed[-1].update(because=["+254 ••• ••• •44"])),
        "inclusion", "inclusion",
    ),
    Forgery("an answer has no file", _answer_without_file, "deliveries", "deliveries"),
    Forgery(
        "a receipt is laid beside",
        lambda members: members.update({"receipt.html": b"Paid."}),
        "deliveries", "deliveries",
    ),
    Forgery(
        "a session had another idempotency key",
        changed("sessions.json", lambda listed: listed[0].update(key="key_0002")),
        "deliveries", "deliveries",
    ),
    Forgery(
        "the payment service answered otherwise",
        changed("sessions.json", lambda listed: listed[1].update(details='{"status":"refused"}')),
        "deliveries", None, "the answers of the payment service (sessions.json)",
    ),
    Forgery(
        "a session is left out",
        changed("sessions.json", lambda listed: listed.pop()),
        "deliveries", "deliveries",
    ),
    Forgery(
        "a line of a settlement file is invented",
        changed("books.json", lambda listed: listed.append(LINE)),
        None, None, "lines of order books and settlement files (books.json)",
    ),
    Forgery(
        "a delivery had a header more",
        _delivery(lambda stated: stated["headers_shown"].append(["x-forwarded-for", "192.0.2.1"])),
        "deliveries", None, "method and headers (delivery-ID.json)",
    ),
    Forgery(
        "a delivery came by another method",
        _delivery(lambda stated: stated.update(method="PUT")),
        "deliveries", None, "method and headers (delivery-ID.json)",
    ),
    Forgery(
        "a delivery came to another address",
        _delivery(lambda stated: stated.update(address="https://shop.example/webhooks/other")),
        None, None, "address, verdict, signature and what it is over (delivery-ID.json)",
    ),
    Forgery(
        "a delivery was signed with another secret",
        _delivery(lambda stated: stated["signature"].update(key="0" * 16)),
        None, None, "address, verdict, signature and what it is over (delivery-ID.json)",
    ),
    Forgery("a delivery is left out", _left_out, "completeness", "completeness"),
    Forgery(
        "what came last is left out", _end_left_out, "completeness", "completeness",
    ),
    Forgery(
        "a delivery stays in the log alone",
        lambda members: _left_out(members, leaf_too=False),
        "completeness", "completeness",
    ),
    Forgery("it is another order's bundle", _renamed, "completeness", "completeness"),
    Forgery(
        "the order's name in the log is not opened",
        changed("log.json", lambda log: log["order"].update(key=None)),
        "completeness", "completeness",
    ),
    Forgery(
        "the log is said not to name orders",
        changed("log.json", lambda log: log.update(order=None, tree=None)),
        None, None, "that what is here is of it: the key by which entries of the log name",
    ),
    Forgery("a dispute is shown as its end", _dispute_ended, "readings", "readings"),
    Forgery(
        "it is, and what opens the reading is taken away", _changed_unopened,
        "readings", "readings",
    ),
    Forgery("a reference is hidden that was not masked", _with_reading, "readings", "readings"),
    Forgery(
        "an invented delivery has a leaf without its content",
        _invented,
        "inclusion", "inclusion",
    ),
    Forgery(
        "the log says nothing of it",
        changed("log.json", lambda log: log.update(leaves=[])),
        "inclusion", "inclusion",
    ),
    Forgery(
        "there is no checkpoint", lambda members: members.pop("checkpoint.txt"),
        "checkpoint", "checkpoint",
    ),
    Forgery(
        "a profile reads the service's words otherwise",
        lambda members: members.update({"profile-1.toml": members["profile-1.toml"] + b"\n#\n"}),
        None, None, "which profile reads which source, and how (sources.json, profile-N.toml)",
    ),
    Forgery(
        "the shop waits for longer than it did",
        lambda members: members.update(
            {"history.json": members["history.json"].replace(b'"grace_us":', b'"grace_us":1', 1)}
        ),
        "ledger", "ledger",
    ),
]  # fmt: skip


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda each: each.says)
def test_another_story_under_the_shops_own_key(
    bundles: Bundles, forge: Forge, forgery: Forgery
) -> None:
    """In a full and in a redacted bundle."""
    for archive, step in ((bundles.full, forgery.full), (bundles.redacted, forgery.redacted)):
        again = forge(archive, forgery.change, key=bundles.key, rendering=forgery.rendering)
        found = verify_evidence(again, trusted=bundles.key.public)
        if step is None:
            assert forgery.words in first_lines(found)
        else:
            assert step in failed(found), forgery.says
            assert first_lines(found).startswith("DO NOT RELY ON IT: ")


def test_every_leaf_is_shown_whole(bundles: Bundles, forge: Forge) -> None:
    for archive in (bundles.redacted, bundles.full):
        found = verify_evidence(forge(archive, _hidden, key=bundles.key))
        assert {"digests", "inclusion", "readings", "completeness"} <= {*failed(found)}


def _unsealed(members: Members) -> None:
    """Take away an arrival's leaf, and call it not sealed yet."""
    heard = json.loads(members["history.json"])["deliveries"][-1]["delivery_id"]
    _without_leaf(members, heard, unsealed=[heard])


def test_what_could_have_been_sealed_must_be(bundles: Bundles, forge: Forge) -> None:
    """All of this world came weeks before the bundle's instant."""
    found = verify_evidence(forge(bundles.full, _unsealed, key=bundles.key))
    assert failed(found) == ["inclusion", "completeness"]
    assert "was not sealed" in steps(found)["inclusion"].sentence


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
    assert "not sealed yet, 1: dlv_" in first_lines(found)


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
    assert "nothing here proves that it was one" in step.sentence
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
    assert 0 < within < leaves
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
        (grown.bundles[0], anew, None, "not one and the same"),
        (grown.bundles[1], anew, grown.path, "not one and the same"),
        (grown.bundles[1], grown.notes[0], (), "not one and the same"),
        (grown.bundles[1], grown.notes[0], grown.path[:-1], "not one and the same"),
        (grown.bundles[0], smaller, grown.path, "not one and the same"),
        (grown.bundles[0], other, None, "of another log"),
        (grown.bundles[0], "hello", None, "no checkpoint"),
    ):
        step = kept_step(archive, note, path)
        assert step.passed is False, why
        assert why in step.sentence


def test_the_first_lines_say_what_a_log_written_anew_looks_like(grown: Grown) -> None:
    """No step shows what who has database and key can do: only a kept checkpoint does."""
    anew, after = "that the log was not written anew", "after the 2 leaves of the checkpoint that"
    assert anew in first_lines(verify_evidence(grown.bundles[1]))
    kept = KeptCheckpoint(note=grown.notes[0], path=grown.path)
    lines = first_lines(verify_evidence(grown.bundles[1], kept=kept))
    assert f"{anew} {after} you kept: 2 of the 3 here came later" in lines, "it covers one of them"
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
    assert "compare it with the keys that you have" in step.sentence


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
    assert step.sentence.startswith("No delivery is here")


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
        with pytest.raises(UsageError, match="should have been sealed and is not yet: try again"):
            await build(driver)


# --- another program -----------------------------------------------------------------------------


def test_another_program_cannot_tell_what_was_rendered(bundles: Bundles, forge: Forge) -> None:
    """It says so, and does not fail what another release has worded otherwise."""

    def change(members: Members) -> None:
        in_manifest(members, program="0" * 64, release="9.9")
        members["report.html"] += b" "

    found = verify_evidence(forge(bundles.full, change, key=bundles.key, rendering=False))
    assert failed(found) == []
    assert "another program (9.9)" in steps(found)["rendered"].sentence
    assert "rendered" in first_lines(found).splitlines()[0]


def test_the_files_of_a_bundle_name_the_program(bundles: Bundles) -> None:
    manifest = json.loads(unpack(bundles.redacted)[MANIFEST])
    assert len(manifest["program"]) == 64
    assert manifest["release"]
