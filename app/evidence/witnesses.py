"""Witnesses: others, with keys of their own, who cosign checkpoints of the log.

A witness keeps the last checkpoint that it has seen of a log, and cosigns a later one only if that
began with it. So whoever trusts enough of them need not trust the shop that its log was never
written anew. Leaves out: how they are asked (`cosigning`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from app.core.errors import UsageError
from app.core.text import LEAF, counted
from app.database.engine import Connection
from app.evidence.keys import PublicKey
from app.receiving.context import AppContext
from app.sealing.departure_store import (
    Departure,
    WitnessState,
    last_cosigned,
    newest_departures,
    witness_states,
)
from reconcile.instants import (
    MINUTE,
    SECOND,
    Duration,
    Instant,
    format_instant,
    format_known,
    plain_instant,
)
from reconcile.transparency.cosignatures import (
    VerifierKey,
    body_of,
    cosigned_message,
    read_cosigner,
    signatures_of,
    timed_signature,
)

CLOCK: Final[Duration] = 10 * MINUTE
"""By which a witness's clock may be off: its word on the time is what others go by later."""

PROBLEMS: Final[Mapping[str, str]] = {
    "unreachable": "it cannot be reached: see its address in TALLYHOOK_EVIDENCE__WITNESSES",
    "log_unknown": "it does not know this log: give its operator what `tallyhook log key` prints",
    "key_unknown": "it does not know the key that signs now: give its operator what `tallyhook log "
    "key` prints",
    "refused": "it refuses the request: ask its operator",
    "answer_not_in_form": "its answer is none of a witness: see its address",
    "not_its_signature": "its answer is not signed with its key: compare the key in "
    "TALLYHOOK_EVIDENCE__WITNESSES with its operator's",
    "clock_off": "its clock, or this machine's, is more than ten minutes off",
    "log_damaged": "no proof can be made for it, since hashes of the log are missing: `tallyhook "
    "log verify`",
    "log_is_shorter": "it has cosigned more leaves than this log has: the log was cut off, or put "
    "back from a backup, or another installation signs with its key",
    "log_is_another": "it has cosigned another log than this one: the log was written anew",
}
"""Why a witness cosigns nothing, and what to do, by code."""

CONTRADICTING: Final = ("log_is_shorter", "log_is_another")
"""Those by which a witness says that the log is not the one that it knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """One witness. `url`: before `/add-checkpoint`."""

    key: VerifierKey
    url: str = field(repr=False)

    @property
    def name(self) -> str:
        """Its verifier key, under which it is kept."""
        return self.key.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Witnesses:
    """Those that are asked, and how many of them have to cosign a checkpoint.

    every        how often they are asked
    alarm_after  how long the quorum may not be reached before that is an alarm
    """

    each: tuple[Witness, ...]
    quorum: int
    every: Duration
    alarm_after: Duration

    @property
    def names(self) -> list[str]:
        """Their verifier keys."""
        return [witness.name for witness in self.each]


class WrongCosignature(Exception):
    """A note bears a signature in a witness's name that is not its own, or not of this note."""


def cosigned_at(note: str, key: VerifierKey) -> Instant | None:
    """When a witness has cosigned a checkpoint, as it says; None where it has not.

    Raises WrongCosignature where a line names its key and does not hold: C2SP signed-note.
    """
    body, public, found = body_of(note), PublicKey(key.raw), None
    for signature in signatures_of(note):
        if (signature.name, signature.key_id) != (key.name, key.id):
            continue
        timed = timed_signature(signature.content)
        if timed is None or not public.verifies(timed[1], cosigned_message(body, time=timed[0])):
            raise WrongCosignature(key.name)
        found = Instant(timed[0] * SECOND)
    return found


def trusted_witnesses(given: Sequence[str]) -> list[VerifierKey]:
    """The keys that somebody names to verify with. Raises UsageError."""
    found: list[VerifierKey] = []
    for text in given:
        try:
            key = read_cosigner(text.strip())
        except ValueError as error:
            raise UsageError(f"--witness: {text[:60]!r} {error}") from None
        if any(key.raw == other.raw for other in found):
            raise UsageError(f"--witness: {key.name} is named twice; one key is one witness")
        found.append(key)
    return found


# --- what is known of them ------------------------------------------------------------------------


def witness_state(state: WitnessState | None) -> str:
    """`waiting` where it never cosigned, `cosigns`, `fails`, or `contradicts`."""
    if state is None or (state.problem is None and state.cosigned_at is None):
        return "waiting"
    if state.problem is None:
        return "cosigns"
    return "contradicts" if state.problem in CONTRADICTING else "fails"


async def witness_document(context: AppContext, witnesses: Witnesses | None) -> dict[str, Any]:
    """The witnesses, how far so many of them as must have cosigned the log, and the last
    checkpoint that left by each way; for JSON."""
    async with context.store.reading() as connection:
        states = await witness_states(connection)
        left = await newest_departures(connection)
        covered = await cosigned_size(connection, witnesses)
    each = () if witnesses is None else witnesses.each
    return {
        "quorum": None if witnesses is None else witnesses.quorum,
        "cosigned": covered,
        "witnesses": [_told(witness, states.get(witness.name)) for witness in each],
        "left": [departure_document(departure) for departure in left],
    }


async def cosigned_size(connection: Connection, witnesses: Witnesses | None) -> int:
    """The leaves of the largest checkpoint that so many witnesses as must have cosigned."""
    if witnesses is None:
        return 0
    return await last_cosigned(connection, witnesses=witnesses.names, quorum=witnesses.quorum)


def _told(witness: Witness, state: WitnessState | None) -> dict[str, Any]:
    problem = None if state is None else state.problem
    return {
        "witness": witness.key.name,
        "key": witness.name,
        "state": witness_state(state),
        "leaves": 0 if state is None else state.size,
        "cosigned_at": format_known(None if state is None else state.cosigned_at),
        "since": format_known(None if state is None else state.since),
        "problem": problem,
        "sentence": None if problem is None else PROBLEMS.get(problem, problem),
    }


def departure_document(departure: Departure) -> dict[str, Any]:
    """For JSON."""
    return {
        "way": departure_way(departure),
        "leaves": departure.size,
        "at": format_instant(departure.at),
        "head": departure.head.hex(),
    }


def departure_way(departure: Departure) -> str:
    """How it left: a word, or the name of the witness that has cosigned it."""
    return departure.way.partition("+")[0]


def departure_sentence(departure: Departure) -> str:
    """What left last, for people."""
    how = {
        "published": "shown under /.well-known/tallyhook/",
        "folder": "put into a folder",
        "mail": "mailed",
        "post": "posted",
    }.get(departure.way, f"cosigned by {departure_way(departure)}")
    return (
        f"the checkpoint of {counted(departure.size, *LEAF)}, {how} at "
        f"{plain_instant(departure.at)}"
    )
