"""Witnesses that speak the published protocol cosign the log, and show that it was written anew."""

import asyncio
import base64
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx2
import pytest
from starlette.responses import PlainTextResponse, Response

from app.cli import main
from app.config.load import load_settings
from app.context.context import AppContext
from app.core.errors import UsageError
from app.core.http import outgoing_client
from app.evidence import witnesses
from app.evidence.bundle import Built, BundleRequest, build_evidence
from app.evidence.keys import EvidenceKey, load_key
from app.evidence.seal import open_signer, read_checkpoint, rotate_key, seal_all
from app.evidence.verify import report_lines, unpack
from app.evidence.verify_evidence import VerifiedBundle, named_witnesses, verify_evidence
from app.evidence.verify_log import VerifiedLog, verify_log
from app.evidence.witnesses import FIRST_PAUSE, LONGEST_PAUSE, Cosigning, witness_document
from app.finance.read_lines import lines_naming
from app.monitoring.watchdog import Watched, alarms
from app.orders.refold import refold_until_quiet
from app.sealing.departure_store import WitnessState, claim_witness, witness_states
from app.sealing.log_store import SignedHead, begin_log, newest_head
from app.wiring.worker import working_parts
from reconcile.instants import DAY, HOUR, MINUTE, SECOND, Instant, format_instant
from tests.api.driving import Driver, driving, environ, of_order
from tests.contexts import with_settings
from tests.database.builders import tamper
from tests.evidence.conftest import Bundles, forged_with
from tests.evidence.witness import Houses, TestWitness
from tests.reconcile.build import T
from tests.rows import for_each

EVERY = 10 * MINUTE


@dataclass
class House:
    """A service, and the witnesses that its log has."""

    driver: Driver
    folder: Path
    witnesses: list[TestWitness]
    transport: Houses

    @property
    def context(self) -> AppContext:
        """The service's, with these witnesses, more than half of whom have to cosign."""
        each = [f"{witness.key} https://{witness.name}" for witness in self.witnesses]
        settled = {"witnesses": each, "witness_every_s": EVERY // SECOND, "witness_alarm_s": 7200}
        return with_settings(self.driver.context, evidence=settled)

    @property
    def keys(self) -> list[str]:
        """The verifier keys of the witnesses."""
        return [each.key for each in self.witnesses]

    @property
    def signing_key(self) -> EvidenceKey:
        """The key of the log."""
        key = load_key(self.context.settings.evidence_key_path)
        assert key is not None
        return key

    def cosigning(self, client: httpx2.AsyncClient) -> Cosigning:
        found = witnesses.witnesses_of(self.context.settings)
        assert found is not None
        return Cosigning(self.context, found, client)

    async def sealed(self, *events: str) -> None:
        """Send events, each of an order of its own, and seal them in a checkpoint."""
        for name in events:
            await self.driver.send(of_order(f"ORD-{name}", name))
        await refold_until_quiet(self.context, limit=100, progress=lambda count: None)
        signer = await open_signer(self.context)
        await seal_all(self.context, signer)
        for witness in self.witnesses:
            witness.logs.setdefault(signer.origin, []).append(signer.key.public.raw)

    async def asked(self, *, later: int = EVERY) -> int:
        """Ask all that are due after this time. Return how many were asked."""
        self.driver.clock.put(Instant(self.driver.clock.now() + later))
        if not self.witnesses:
            return 0
        async with outgoing_client(timeout_s=5, transport=self.transport) as client:
            return await self.cosigning(client).ask_due()

    async def states(self) -> list[WitnessState | None]:
        async with self.context.database.reading() as connection:
            found = await witness_states(connection)
        return [found.get(witness.key) for witness in self.witnesses]

    async def state(self) -> WitnessState:
        """Return the state of the first witness, which was asked."""
        state = (await self.states())[0]
        assert state is not None
        return state

    async def problems(self) -> list[str | None]:
        return [None if each is None else each.problem for each in await self.states()]

    async def newest(self) -> SignedHead:
        async with self.context.database.reading() as connection:
            head = await newest_head(connection)
        assert head is not None
        return head

    async def alarm(self) -> tuple[str, str] | None:
        found = (await alarms(Watched(self.context))).get("witnesses")
        return None if found is None else (found.reason, found.sentence)

    async def bundle(self, order: str) -> bytes:
        return (await self.built(order)).archive

    async def built(self, order: str) -> Built:
        return await build_evidence(self.context, BundleRequest(order=order), lines=lines_naming)


@asynccontextmanager
async def house(folder: Path, *names: str) -> AsyncIterator[House]:
    """Run a service without orders, and witnesses of these names that do not know its log yet."""
    os.makedirs(folder, exist_ok=True)
    async with driving(folder, with_worker=False, looking=True) as driver:
        each = [TestWitness(name, lambda: driver.clock.now() // SECOND) for name in names]
        yield House(driver, folder, each, Houses(each))


ONE, TWO, THREE = "one.example/w", "two.example/w", "three.example/w"


async def test_each_witness_cosigns_the_same_checkpoint_and_then_what_was_added(
    tmp_path: Path,
) -> None:
    async with house(tmp_path, ONE, TWO) as own:
        assert await own.asked(later=SECOND) == 0  # nothing is sealed yet
        await own.sealed("e1", "e2", "e3")
        first = (await own.newest()).size
        assert await own.asked(later=0) == 0  # nor was anything as of the last full interval
        assert await own.asked() == 2
        assert await own.asked(later=0) == 0
        await own.sealed("e4", "e5")
        second = (await own.newest()).size
        assert await own.asked() == 2
        for witness in own.witnesses:
            assert witness.asked == [(0, first), (first, second)]
        document = await witness_document(own.context)
    assert document["quorum"] == 2
    assert document["cosigned"] == second
    assert [(each["witness"], each["state"], each["leaves"]) for each in document["witnesses"]] == [
        (ONE, "cosigns", second), (TWO, "cosigns", second),
    ]  # fmt: skip
    assert {each["way"] for each in document["left"]} == {ONE, TWO}


async def test_a_witness_that_knows_another_size_says_so_and_cosigns(tmp_path: Path) -> None:
    """One that lost its memory, and one that has cosigned what we could not write down."""
    async with house(tmp_path, ONE, TWO) as own:
        await own.sealed("e1", "e2", "e3")
        await own.asked()
        first = (await own.newest()).size
        await own.sealed("e4")
        own.witnesses[0].seen.clear()
        newest = await own.newest()
        own.witnesses[1].seen[read_checkpoint(newest.note).origin] = (newest.size, newest.head)
        await own.asked()
        assert own.witnesses[0].asked[1:] == [(first, newest.size), (0, newest.size)]
        assert own.witnesses[1].asked[1:] == [(first, newest.size), (newest.size, newest.size)]
        assert [each.size for each in await own.states() if each] == [newest.size] * 2
        assert await own.problems() == [None, None]


async def test_of_two_workers_one_asks(tmp_path: Path) -> None:
    async with house(tmp_path, ONE) as own:
        await own.sealed("e1")
        await own.asked(later=0)
        own.driver.clock.put(Instant(own.driver.clock.now() + EVERY))
        async with outgoing_client(timeout_s=5, transport=own.transport) as client:
            await asyncio.gather(*(own.cosigning(client).ask_due() for _ in range(3)))
        assert len(own.witnesses[0].asked) == 1
        now = own.driver.clock.now()
        async with own.context.database.writing() as connection:
            assert not await claim_witness(
                connection, own.witnesses[0].key, before=Instant(1), until=now
            )


Answers = Callable[[Response], Response]


def _said(text: str, status: int = 200, kind: str = "text/plain") -> Answers:
    return lambda answer: Response(text, status, media_type=kind)


def _foreign(answer: Response) -> Response:
    """Return a false signature under the witness's name and the id of its key."""
    name, encoded = bytes(answer.body).decode().split(" ")[1:]
    blob = bytearray(base64.b64decode(encoded))
    blob[-40] ^= 1
    return PlainTextResponse(f"— {name} {base64.b64encode(blob).decode()}\n")


BAD: tuple[tuple[Answers, str], ...] = (
    (_said("no", 404), "log_unknown"),
    (_said("no", 403), "key_unknown"),
    (_said("no", 400), "refused"),
    (_said("no", 500), "unreachable"),
    (_said("no", 429), "unreachable"),
    (_said("", 302), "answer_not_in_form"),
    (_said(""), "answer_not_in_form"),
    (_said("x" * 20_000), "answer_not_in_form"),
    (_said("ok\n"), "answer_not_in_form"),
    (lambda answer: Response(b"\xff\n"), "answer_not_in_form"),
    (_said("0\n", 409), "answer_not_in_form"),  # not of the type that states a size
    (_said("01\n", 409, "text/x.tlog.size"), "answer_not_in_form"),
    (_said("0\n", 409, "text/x.tlog.size"), "log_is_another"),
    (_said("999999\n", 409, "text/x.tlog.size"), "log_is_shorter"),
    (_said("no", 422), "log_is_another"),
    (_foreign, "not_its_signature"),
    (_said("— stranger.example AAAAAAAA\n"), "not_its_signature"),
)


async def test_a_bad_answer_is_refused_and_reported(tmp_path: Path) -> None:
    """Nothing of it is kept."""
    async with house(tmp_path, ONE) as own:
        await own.sealed("e1")
        failures = 0
        for answers, problem in BAD:
            own.witnesses[0].answers = answers
            own.witnesses[0].seen.clear()
            await own.asked(later=LONGEST_PAUSE)
            state = await own.state()
            assert (state.problem, state.size, state.cosigned_at) == (problem, 0, None), answers
            document = await witness_document(own.context)
            assert document["left"] == []
            assert document["witnesses"][0]["sentence"]
            failures = state.failures
        assert failures == len(BAD)


async def test_who_cosigns_nothing_is_asked_again_later_each_time(tmp_path: Path) -> None:
    async with house(tmp_path, ONE) as own:
        await own.sealed("e1")
        there = own.transport.there.copy()
        own.transport.there.clear()
        await own.asked()
        began = own.driver.clock.now()
        state = await own.state()
        assert (state.failures, state.since) == (1, began)
        assert state.next_at == began + FIRST_PAUSE
        assert await own.asked(later=FIRST_PAUSE - SECOND) == 0
        await own.asked(later=SECOND)
        state = await own.state()
        assert state.next_at - own.driver.clock.now() == 2 * FIRST_PAUSE
        own.transport.there |= there
        own.witnesses[0].answers = lambda answer: Response(
            "busy", 503, headers={"retry-after": "900"}
        )
        await own.asked(later=LONGEST_PAUSE)
        assert await own.asked(later=900 * SECOND - SECOND) == 0
        own.witnesses[0].answers = lambda answer: answer
        own.witnesses[0].seen.clear()
        await own.asked(later=SECOND)
        assert await own.problems() == [None]


async def test_sizes_that_go_round_in_circles_end_and_a_clock_that_is_off_is_not_believed(
    tmp_path: Path,
) -> None:
    async with house(tmp_path, ONE) as own:
        await own.sealed("e1", "e2", "e3")
        (witness,), sizes = own.witnesses, iter([1, 2, 1, 2, 1])
        witness.answers = lambda answer: Response(
            f"{next(sizes)}\n", 409, media_type="text/x.tlog.size"
        )
        await own.asked()
        assert (len(witness.asked), await own.problems()) == (
            witnesses.TRIES, ["answer_not_in_form"]
        )  # fmt: skip
        witness.answers = lambda answer: answer
        witness.seconds = lambda: (own.driver.clock.now() - HOUR) // SECOND
        await own.asked()
        assert await own.problems() == ["clock_off"]


async def test_too_few_cosignatures_for_too_long_are_an_alarm(tmp_path: Path) -> None:
    """Two of three suffice; one alone does not, after two hours; then its end is seen."""
    async with house(tmp_path, ONE, TWO, THREE) as own:
        await own.sealed("e1")
        del own.transport.there["three.example"]
        await own.asked()
        assert await own.problems() == [None, None, "unreachable"]
        assert await own.asked(later=3 * HOUR) == 1
        assert await own.alarm() is None
        two = own.transport.there.pop("two.example")
        await own.sealed("e2")
        await own.asked()
        assert await own.alarm() is None
        await own.asked(later=2 * HOUR)
        reason, sentence = await own.alarm() or ("", "")
        assert reason == "checkpoints_not_cosigned"
        assert "by 2 witnesses of 3" in sentence
        assert f"{TWO}: it cannot be reached" in sentence
        own.transport.there["two.example"] = two
        await own.asked(later=HOUR)
        assert await own.alarm() is None


async def test_witnesses_that_were_just_set_up_are_no_alarm(tmp_path: Path) -> None:
    """Their log is a year old."""
    async with house(tmp_path, ONE) as own:
        await own.sealed("e1")
        own.driver.clock.put(Instant(T + 300 * DAY))
        assert await own.alarm() is None
        own.transport.there.clear()
        await own.asked()
        assert await own.alarm() is None
        await own.asked(later=2 * HOUR)
        assert await own.alarm() is not None


async def test_the_worker_has_a_task_for_it_where_there_are_witnesses(tmp_path: Path) -> None:
    key = TestWitness(ONE, lambda: 0).key
    async with house(tmp_path) as own, outgoing_client(timeout_s=5) as client:
        for given, wanted in ((f"{key} https://{ONE}", True), ("", False)):
            settings = load_settings(environ(tmp_path, EVIDENCE__WITNESSES=given))
            context = replace(own.context, settings=settings)
            parts = working_parts(context, client=client, askers={}, signer=None)
            names = [name for name, _ in parts]
            assert ("the task that has checkpoints cosigned" in names) is wanted


# --- bundles --------------------------------------------------------------------------------------


def verified(archive: bytes, *keys: str, quorum: int | None = None) -> VerifiedBundle:
    return verify_evidence(archive, witnesses=named_witnesses(keys, quorum))


def step(found: VerifiedBundle, name: str = "witnesses") -> tuple[bool | None, str]:
    return next((each.passed, each.sentence) for each in found.steps if each.name == name)


def first_lines(found: VerifiedBundle) -> str:
    lines = report_lines(list(found.steps), found.not_proven)
    return "\n".join(lines[: 2 + len(found.not_proven)])


async def test_a_bundle_carries_the_cosignatures_and_they_are_verified(tmp_path: Path) -> None:
    async with house(tmp_path, ONE, TWO, THREE) as own:
        await own.sealed("e1")
        bare = await own.built("ORD-e1")
        assert bare.cosigned_by_too_few
        await own.sealed("e2", "e3")
        del own.transport.there["three.example"]
        await own.asked()
        at = format_instant(Instant(own.driver.clock.now() // SECOND * SECOND))
        enough = await own.built("ORD-e1")
        assert not enough.cosigned_by_too_few
        cosigned = enough.archive
        keys = own.keys
        # It is the first that so many have cosigned, for ever.
        await own.sealed("e4")
        await own.asked()
        again = await own.bundle("ORD-e1")
    for archive in (cosigned, again):
        note = unpack(archive)["checkpoint.txt"].decode()
        assert [line.split(" ")[1] for line in note.splitlines()[5:]] == [ONE, TWO]
    assert unpack(cosigned)["checkpoint.txt"] == unpack(again)["checkpoint.txt"]
    # Two of three suffice; all three, or the third alone, do not.
    passed = verified(cosigned, *keys, quorum=2)
    assert passed.valid
    assert step(passed) == (
        True,
        f"The checkpoint is cosigned: {ONE} cosigned it at {at}; {TWO} cosigned it at {at}; "
        f"{THREE} has not cosigned it.",
    )
    assert f"was not rewritten before the witnesses cosigned it at {at}" in first_lines(passed)
    for refused in (verified(cosigned, *keys), verified(cosigned, keys[2])):
        assert not refused.valid
        assert "DO NOT RELY ON IT: witnesses failed." in first_lines(refused)
    # Without a key of theirs it stands under "not proven" that anybody has cosigned it.
    found = verify_evidence(cosigned)
    assert found.valid
    assert f"that witnesses have cosigned the log: checkpoint.txt names {ONE}, {TWO}" in (
        first_lines(found)
    )
    assert "that the log was not rewritten" in first_lines(found)
    # One that was made before it was cosigned has nothing to show.
    assert not verified(bare.archive, keys[0]).valid
    assert "have cosigned" not in first_lines(verify_evidence(bare.archive))


async def test_what_is_in_a_witnesss_name_and_not_its_own_fails(tmp_path: Path) -> None:
    async with house(tmp_path, ONE, TWO) as own:
        await own.sealed("e1")
        await own.asked()
        archive = await own.bundle("ORD-e1")
        keys = own.keys
        key = own.signing_key
    note = unpack(archive)["checkpoint.txt"].decode()
    own_line, _ = note.splitlines()[5:]
    false = own_line[:-6] + ("AAAA==" if own_line[-6:] != "AAAA==" else "BAAA==")

    def change(members: dict[str, bytes]) -> None:
        members["checkpoint.txt"] = note.replace(own_line, false).encode()

    forged = forged_with(key, archive, change)
    assert verify_evidence(forged).valid  # nobody's key was asked for
    assert not verified(forged, *keys, quorum=1).valid
    assert "has an invalid signature" in step(verified(forged, keys[0]))[1]
    assert verified(forged, keys[1]).valid


@for_each(
    ("keys", "quorum", "why"),
    [
        (["nonsense"], None, "no verifier key"),
        (["{0}", "{0}"], None, "is given twice"),
        (["{0}"], 2, "--quorum"),
        ([], 1, "--quorum"),
    ],
)
def test_what_is_asked_for_wrongly_is_said(keys: list[str], quorum: int | None, why: str) -> None:
    key = TestWitness(ONE, lambda: 0).key
    with pytest.raises(UsageError, match=why):
        named_witnesses([each.format(key) for each in keys], quorum)


def test_the_command_takes_witnesses_and_a_quorum(
    bundles: Bundles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, key = tmp_path / "bundle.zip", TestWitness(ONE, lambda: 0).key
    file.write_bytes(bundles.redacted)
    words = ("evidence", "verify", str(file), "--witness", key)
    assert main.run(words) == 1
    assert "witnesses: FAILED. The bundle's checkpoint has 0 cosignatures of" in (
        capsys.readouterr().out
    )
    assert main.run((*words, "--quorum", "2")) == 2
    assert "--quorum may be at most" in capsys.readouterr().err
    assert main.run((*words[:-1], "x")) == 2


# --- who holds database and key -------------------------------------------------------------------


@asynccontextmanager
async def rebuilt(own: House, folder: Path, *events: str) -> AsyncIterator[House]:
    """Write the same log, with the genuine key, anew from these events alone."""
    secret = own.context.settings.evidence_key_path.read_bytes()
    signer = await open_signer(own.context)
    async with house(folder, *[each.name for each in own.witnesses]) as other:
        path = other.context.settings.evidence_key_path
        path.write_bytes(secret)
        path.chmod(0o600)
        public = signer.key.public.raw.hex()
        async with other.context.database.writing() as connection:
            await begin_log(connection, origin=signer.origin, public=public, now=T)
        await other.sealed(*events)
        other.witnesses, other.transport = own.witnesses, own.transport
        other.driver.clock.put(own.driver.clock.now())
        yield other


async def checked(context: AppContext) -> VerifiedLog:
    return await verify_log(context, progress=lambda done, of: None)


async def test_a_log_that_was_rebuilt_without_an_event_is_found_by_its_witnesses(
    tmp_path: Path,
) -> None:
    """With database and key, and the genuine program: all other checks are clean."""
    async with house(tmp_path / "genuine", ONE, TWO) as own:
        await own.sealed("paid", "disputed")
        await own.asked()
        genuine = await own.bundle("ORD-paid")
        keys = own.keys
        more = [f"x{number}" for number in range((await own.newest()).size)]  # it is even longer
        async with rebuilt(own, tmp_path / "anew", "paid", *more) as other:
            forged = await other.bundle("ORD-paid")
            assert (await checked(other.context)).found == 0
            key = other.signing_key
            assert verify_evidence(forged, trusted=key.public).valid
            # The witnesses refuse it, and it says so by itself.
            await other.asked()
            assert await other.problems() == ["log_is_another"] * 2
            assert (await other.alarm() or ("",))[0] == "witness_contradicts"
            forged = await other.bundle("ORD-paid")
            assert not verified(forged, *keys).valid
            assert not verified(forged, *keys, quorum=1).valid
            # With the genuine cosignatures put into it, too.
            lines = unpack(genuine)["checkpoint.txt"].decode().splitlines(keepends=True)[5:]

            def steal(members: dict[str, bytes], lines: list[str] = lines) -> None:
                members["checkpoint.txt"] += "".join(lines).encode()

            found = verified(forged_with(key, forged, steal), *keys)
            assert not found.valid
            assert "DO NOT RELY ON IT: witnesses failed." in first_lines(found)
        assert verified(genuine, *keys).valid


async def test_a_log_that_was_cut_off_is_found_by_its_witnesses(tmp_path: Path) -> None:
    async with house(tmp_path / "genuine", ONE) as own:
        await own.sealed("e1", "e2", "e3")
        await own.asked()
        async with rebuilt(own, tmp_path / "cut", "e1") as other:
            await other.asked()
            assert await other.problems() == ["log_is_shorter"]


async def test_log_verify_compares_with_what_left(tmp_path: Path) -> None:
    """It names the last that left, and finds each change since."""
    async with house(tmp_path, ONE) as own:
        await own.sealed("e1", "e2")
        await own.asked()
        clean, size = await checked(own.context), (await own.newest()).size
        assert clean.found == 0
        said = f"Last published: the checkpoint of {size} leaves, cosigned by {ONE} at"
        assert said in clean.sentence()
        left = clean.document()["left"]
        assert left is not None
        assert (left["way"], left["leaves"]) == (ONE, size)
        for changes, why in (
            ("line = replace(line, 'A', 'B')", "is not signed by that witness"),
            ("head = zeroblob(32)", "is not signed by that witness"),
            ("head = zeroblob(32), line = NULL, way = 'mail'", "the log was rewritten since"),
            (f"size = {size + 1}, line = NULL, way = 'mail'", "the end of the log was cut off"),
        ):
            await tamper(own.context, "log_departures", f"UPDATE log_departures SET {changes}")
            found = await checked(own.context)
            assert any(why in each for each in found.problems), (changes, found.problems)


# --- our own key is replaced ----------------------------------------------------------------------


async def test_the_log_goes_on_under_its_name_when_its_key_is_replaced(tmp_path: Path) -> None:
    """A witness that knows only the old key refuses; given the new one, it cosigns what follows.
    Bundles of before and after hold with the same key of the witness."""
    async with house(tmp_path, ONE) as own:
        await own.sealed("e1")
        await own.asked()
        before = await own.bundle("ORD-e1")
        old = (await open_signer(own.context)).key.public
        first = read_checkpoint(unpack(before)["checkpoint.txt"].decode()).origin
        own.driver.clock.put(Instant(own.driver.clock.now() + SECOND))
        await rotate_key(own.context, by=None)
        signer = await open_signer(own.context)
        assert signer.origin == first
        await own.driver.send(of_order("ORD-e2", "e2"))
        await refold_until_quiet(own.context, limit=100, progress=lambda count: None)
        await seal_all(own.context, signer)
        await own.asked()
        assert await own.problems() == ["key_unknown"]
        own.witnesses[0].logs[first].append(signer.key.public.raw)
        await own.asked()
        assert await own.problems() == [None]
        after = await own.bundle("ORD-e2")
        key = own.witnesses[0].key
    for archive in (before, after):
        found = verify_evidence(archive, trusted=old, witnesses=named_witnesses([key], None))
        assert found.valid, found.steps
        assert step(found)[0]
