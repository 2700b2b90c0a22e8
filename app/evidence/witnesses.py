"""Ask witnesses to cosign checkpoints of the log (C2SP tlog-witness).

1 choose   the checkpoint that was newest when the interval began
2 claim    each witness that has not cosigned the checkpoint
3 ask      with a proof from the witness's last checkpoint
4 verify   the signature, and the witness's clock
5 store    the cosignature or the refusal, and the next request's time

No transaction is open during a request.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, Literal, TypedDict

import httpx2

from app.config.settings import Settings
from app.context.context import AppContext
from app.core.clock import CLOCKS_DIFFER
from app.core.errors import UsageError
from app.core.http import Exchange, asked_to_wait, exchange
from app.core.logs import log
from app.core.text import LEAF, counted
from app.database.engine import Connection
from app.evidence.keys import PublicKey
from app.sealing import departure_store, log_store
from reconcile import instants
from reconcile.documents import Count, InstantText, Keywords
from reconcile.transparency import cosignatures, merkle

CLOCK: Final[instants.Duration] = 10 * instants.MINUTE
"""Maximum difference between a witness's clock and this machine's clock."""

PROBLEMS: Final[Mapping[str, str]] = {
    "unreachable": "it cannot be reached: check its address in TALLYHOOK_EVIDENCE__WITNESSES",
    "log_unknown": "it does not know this log: give its operator what `tallyhook log key` prints",
    "key_unknown": "it does not know the log's present key: give its operator what `tallyhook "
    "log key` prints",
    "refused": "it refuses the request: ask its operator",
    "answer_not_in_form": "its answer is not that of a witness: check its address",
    "not_its_signature": "its answer is not signed with the configured key: ask its operator "
    "whether the key in TALLYHOOK_EVIDENCE__WITNESSES is right",
    "clock_off": "its clock, or this machine's, is more than ten minutes off",
    "log_damaged": "no proof can be computed for it, because hashes of the log are missing: run "
    "`tallyhook log verify`",
    "log_is_shorter": "it has cosigned more leaves than this log has: the log was cut off, or "
    "restored from a backup (`tallyhook log rename`), or another installation "
    "uses this log's key",
    "log_is_another": "it has cosigned a log that differs from this one: the log was rewritten, or "
    "restored from a backup (`tallyhook log rename`)",
}

CONTRADICTING: Final = ("log_is_shorter", "log_is_another")


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """One configured witness. Its requests go to `url` followed by `/add-checkpoint`."""

    key: cosignatures.VerifierKey
    url: str = field(repr=False)

    @property
    def name(self) -> str:
        """Return the witness's verifier key. The witness's state is stored under this name."""
        return self.key.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Witnesses:
    """Configured witnesses, and the number of required cosignatures."""

    each: tuple[Witness, ...]
    quorum: int
    every: instants.Duration
    """Interval between requests."""
    alarm_after: instants.Duration
    """Time without enough cosignatures until an alarm."""

    @property
    def names(self) -> list[str]:
        return [witness.name for witness in self.each]


def witnesses_of(settings: Settings) -> Witnesses | None:
    """Return the witnesses in the settings; None if there are none."""
    evidence = settings.evidence
    pairs = [each.split(" ") for each in evidence.witnesses]
    if not pairs:
        return None
    return Witnesses(
        each=tuple(Witness(key=cosignatures.read_cosigner(key), url=url) for key, url in pairs),
        quorum=evidence.witness_quorum or len(pairs) // 2 + 1,
        every=evidence.witness_every_s * instants.SECOND,
        alarm_after=evidence.witness_alarm_s * instants.SECOND,
    )


class WrongCosignature(Exception):
    """Error for a signature line that has a witness's name, but was not made with the witness's
    key."""


def cosigned_at(note: str, key: cosignatures.VerifierKey) -> instants.Instant | None:
    """Return the time of a witness's cosignature. Raise WrongCosignature if false."""
    body, public, found = cosignatures.body_of(note), PublicKey(key.raw), None
    for signature in cosignatures.signatures_of(note):
        if (signature.name, signature.key_id) != (key.name, key.id):
            continue
        timed = cosignatures.timed_signature(signature.content)
        if timed is None or not public.verifies(
            timed[1], cosignatures.cosigned_message(body, time=timed[0])
        ):
            raise WrongCosignature(key.name)
        found = instants.Instant(timed[0] * instants.SECOND)
    return found


def trusted_witnesses(given: Sequence[str]) -> list[cosignatures.VerifierKey]:
    """Parse the keys of trusted witnesses. Raises UsageError for an invalid or repeated key."""
    found: list[cosignatures.VerifierKey] = []
    for text in given:
        try:
            key = cosignatures.read_cosigner(text.strip())
        except ValueError as error:
            raise UsageError(f"--witness: {text[:60]!r} {error}") from None
        if any(key.raw == other.raw for other in found):
            raise UsageError(f"--witness: {key.name} is given twice; give each witness once")
        found.append(key)
    return found


# --- their state ------------------------------------------------------------------------------


WitnessState = Literal["waiting", "cosigns", "fails", "contradicts"]


class WitnessDocument(TypedDict):
    witness: Annotated[str, Keywords(examples=["witness.example/w1"])]
    key: Annotated[str, "The witness's verifier key, in the format of C2SP signed-note."]
    state: WitnessState
    leaves: Annotated[Count, "Leaves of the largest checkpoint that it has cosigned."]
    cosigned_at: InstantText | None
    since: Annotated[InstantText | None, "Since when it has cosigned nothing."]
    problem: Annotated[str | None, "Why it does not cosign, as a code."]
    sentence: Annotated[str | None, "The reason in words, and what to do."]


class DepartureDocument(TypedDict):
    way: Annotated[str, "published, folder, mail, post, or the witness that cosigned it."]
    leaves: Count
    at: InstantText
    head: Annotated[str, "SHA-256 in hex."]


class WitnessesDocument(TypedDict):
    quorum: Annotated[Count | None, "How many witnesses must cosign; null if none are configured."]
    cosigned: Annotated[Count, "Leaves of the largest checkpoint that enough witnesses cosigned."]
    witnesses: list[WitnessDocument]
    left: list[DepartureDocument]


def witness_state(state: departure_store.WitnessState | None) -> WitnessState:
    """Return the state of a witness: `cosigns`, `fails`, `contradicts` or `waiting`."""
    if state is None or (state.problem is None and state.cosigned_at is None):
        return "waiting"
    if state.problem is None:
        return "cosigns"
    return "contradicts" if state.problem in CONTRADICTING else "fails"


async def witness_document(context: AppContext) -> WitnessesDocument:
    """Return a document on the witnesses, the cosigned size, and the published checkpoints."""
    witnesses = witnesses_of(context.settings)
    async with context.database.reading() as connection:
        states = await departure_store.witness_states(connection)
        left = await departure_store.newest_departures(connection)
        covered = await cosigned_size(connection, witnesses)
    each = () if witnesses is None else witnesses.each
    return {
        "quorum": None if witnesses is None else witnesses.quorum,
        "cosigned": covered,
        "witnesses": [_witness_document(witness, states.get(witness.name)) for witness in each],
        "left": [departure_document(departure) for departure in left],
    }


async def cosigned_size(connection: Connection, witnesses: Witnesses | None) -> int:
    """Return the largest cosigned checkpoint's size; 0 without one."""
    if witnesses is None:
        return 0
    return await departure_store.last_cosigned(
        connection, witnesses=witnesses.names, quorum=witnesses.quorum
    )


def _witness_document(
    witness: Witness, state: departure_store.WitnessState | None
) -> WitnessDocument:
    problem = None if state is None else state.problem
    return {
        "witness": witness.key.name,
        "key": witness.name,
        "state": witness_state(state),
        "leaves": 0 if state is None else state.size,
        "cosigned_at": instants.format_known(None if state is None else state.cosigned_at),
        "since": instants.format_known(None if state is None else state.since),
        "problem": problem,
        "sentence": None if problem is None else PROBLEMS.get(problem, problem),
    }


def departure_document(departure: departure_store.Departure) -> DepartureDocument:
    return {
        "way": departure_way(departure),
        "leaves": departure.size,
        "at": instants.format_instant(departure.at),
        "head": departure.head.hex(),
    }


def departure_way(departure: departure_store.Departure) -> str:
    """Return a checkpoint's channel: a code, or the witness's name."""
    return departure.way.partition("+")[0]


def departure_sentence(departure: departure_store.Departure) -> str:
    """Return a sentence on how and when a checkpoint was published."""
    how = {
        "published": "published under /.well-known/tallyhook/",
        "folder": "put into a folder",
        "mail": "mailed",
        "post": "posted",
    }.get(departure.way, f"cosigned by {departure_way(departure)}")
    return (
        f"the checkpoint of {counted(departure.size, *LEAF)}, {how} at "
        f"{instants.plain_instant(departure.at)}"
    )


# --- asking in the background -----------------------------------------------------------------

LIMIT_S: Final = 5.0
"""Maximum number of seconds for a witness's answer."""

ANSWER_MAX: Final = 16 * 1024
"""Maximum number of bytes of an answer."""

TRIES: Final = 3
"""Maximum number of requests to a witness in a row."""

LEASE: Final[instants.Duration] = instants.MINUTE
"""Duration of a claim on a witness."""

FIRST_PAUSE: Final[instants.Duration] = 30 * instants.SECOND
"""First pause after a failed request to a witness."""

LONGEST_PAUSE: Final[instants.Duration] = instants.HOUR

REST_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reply:
    at: instants.Instant | None = None
    line: str | None = None
    size: int | None = None
    problem: str | None = None
    wait: instants.Duration = instants.NO_TIME


class Cosigning:
    """Client that asks the witnesses of one log for cosignatures. Several processes may run a
    client."""

    def __init__(
        self, context: AppContext, witnesses: Witnesses, client: httpx2.AsyncClient
    ) -> None:
        self._context = context
        self._witnesses = witnesses
        self._client = client

    async def ask_due(self) -> int:
        """Ask every due witness. Return the number of asked witnesses."""
        now = self._context.clock.now()
        until = instants.Instant(now - now % self._witnesses.every)  # 1
        latest = now + LONGEST_PAUSE + CLOCKS_DIFFER  # later: a clock was ahead
        async with self._context.database.reading() as connection:
            head = await log_store.newest_head(connection, until=until)
            newest = await log_store.newest_head(connection)
            states = await departure_store.witness_states(connection)
        if head is None or newest is None:
            return 0
        due = [
            (witness, state)
            for witness in self._witnesses.each
            if (state := states.get(witness.name)) is None
            or (state.size < head.size and not now < state.next_at <= latest)
        ]
        asked = [self._ask(witness, state, head, newest) for witness, state in due]
        done = await asyncio.gather(*asked, return_exceptions=True)
        for each in done:  # finish all before raising the first error
            if isinstance(each, BaseException):
                raise each
        return len(done)

    async def _ask(
        self,
        witness: Witness,
        state: departure_store.WitnessState | None,
        head: log_store.SignedHead,
        newest: log_store.SignedHead,
    ) -> None:
        now = self._context.clock.now()
        async with self._context.database.writing() as connection:  # 2
            mine = await departure_store.claim_witness(
                connection,
                witness.name,
                before=None if state is None else state.next_at,
                until=instants.Instant(now + LEASE),
            )
        if not mine:
            return
        known = state or departure_store.WitnessState(witness=witness.name, next_at=now)
        old = known.size
        for _ in range(TRIES):
            reply = await self._cosigned(witness, old, head)  # 3
            if reply.size is None:
                return await self._keep(known, head, reply)
            if reply.size == old:  # it knows another head of this size
                return await self._keep(known, head, _Reply(problem="log_is_another"))
            if reply.size > newest.size:
                return await self._keep(known, head, _Reply(problem="log_is_shorter"))
            old = reply.size
            head = newest if old > head.size else head
        return await self._keep(known, head, _Reply(problem="answer_not_in_form"))

    async def _cosigned(self, witness: Witness, old: int, head: log_store.SignedHead) -> _Reply:
        try:
            proof = await self._proof(old, head.size)
        except KeyError:
            return _Reply(problem="log_damaged")
        answer = await exchange(
            self._client,
            "POST",
            f"{witness.url}/add-checkpoint",
            headers={"content-type": "text/plain; charset=utf-8", "accept": "text/plain, */*"},
            content=cosignatures.add_checkpoint(old=old, proof=proof, note=head.note),
            limit_s=LIMIT_S,
            most=ANSWER_MAX,
        )
        if answer.status == 200 and answer.problem is None:
            return self._verified(witness, head, answer.body)  # 4
        return _refusal(answer, same=old == head.size)

    async def _proof(self, old: int, size: int) -> list[merkle.Hash]:
        if old in (0, size):
            return []
        spans = merkle.consistency_spans(old, size=size)
        async with self._context.database.reading() as connection:
            kept = await log_store.kept_hashes(connection, merkle.needed(spans))
        return [merkle.computed(span, kept) for span in spans]

    def _verified(self, witness: Witness, head: log_store.SignedHead, body: bytes) -> _Reply:
        try:
            lines = body.decode("utf-8")
        except UnicodeDecodeError:
            return _Reply(problem="answer_not_in_form")
        own = [
            each.line
            for each in cosignatures.read_signatures(lines)
            if (each.name, each.key_id) == (witness.key.name, witness.key.id)
        ]
        if not own:
            return _Reply(problem="not_its_signature" if "— " in lines else "answer_not_in_form")
        try:
            at = cosigned_at(f"{cosignatures.body_of(head.note)}\n{own[0]}\n", witness.key)
        except WrongCosignature:
            return _Reply(problem="not_its_signature")
        if at is None or abs(at - self._context.clock.now()) > CLOCK:
            return _Reply(problem="clock_off")
        return _Reply(at=at, line=own[0])

    async def _keep(
        self, known: departure_store.WitnessState, head: log_store.SignedHead, reply: _Reply
    ) -> None:
        now, name = self._context.clock.now(), known.witness.partition("+")[0]
        if reply.line is None or reply.at is None:
            problem = reply.problem or "answer_not_in_form"
            pause = min(FIRST_PAUSE << min(known.failures, 16), LONGEST_PAUSE)
            state = replace(
                known,
                next_at=instants.Instant(now + max(pause, min(reply.wait, LONGEST_PAUSE))),
                failures=known.failures + 1,
                since=now if known.since is None else known.since,
                problem=problem,
            )
            async with self._context.database.writing() as connection:
                await departure_store.change_witness(connection, state)
            if known.problem != problem:
                log.warning("a witness does not cosign", witness=name, reason=problem)
            return
        left = departure_store.Departure(
            size=head.size, way=known.witness, head=head.head, at=reply.at, line=reply.line
        )
        state = departure_store.WitnessState(
            witness=known.witness, size=head.size, cosigned_at=reply.at, next_at=now
        )
        async with self._context.database.writing() as connection:  # 5
            await departure_store.add_departure(connection, left)
            await departure_store.change_witness(connection, state)
        if known.problem is not None:
            log.info("a witness cosigns again", witness=name)


_REFUSALS: Final = {404: "log_unknown", 403: "key_unknown", 422: "log_is_another"}
"""Code of the problem for each HTTP status of a refusal (C2SP tlog-witness)."""


def _refusal(answer: Exchange, *, same: bool) -> _Reply:
    if answer.problem in ("too_large", "encoded"):
        return _Reply(problem="answer_not_in_form")
    if answer.status is None or answer.status >= 500 or answer.status == 429:
        return _Reply(problem="unreachable", wait=asked_to_wait(answer.headers))
    if answer.status == 409:
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        size = cosignatures.stated_size(answer.body) if kind == cosignatures.SIZE_TYPE else None
        if size is None:
            return _Reply(problem="log_is_another" if same else "answer_not_in_form")
        return _Reply(size=size)
    if 200 <= answer.status < 400:
        return _Reply(problem="answer_not_in_form")
    return _Reply(problem=_REFUSALS.get(answer.status, "refused"))
