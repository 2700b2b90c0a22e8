"""Has checkpoints cosigned by witnesses, over C2SP tlog-witness.

    1 choose   the newest checkpoint as of the last full interval: all witnesses, and every worker,
               are asked to cosign the same one
    2 claim    each witness that has not, and is not to be left alone for now
    3 ask      with the proof that it began with the one that the witness cosigned last; where that
               is another than we think, the witness says so, and is asked again
    4 verify   its signature over this very checkpoint, and its clock
    5 keep     the cosignature, or why there is none, and when it is asked again

No transaction is open while a witness is waited for.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Final

import httpx2
import structlog

from app.core.http import Exchange, asked_to_wait, exchange
from app.evidence.witnesses import CLOCK, Witness, Witnesses, WrongCosignature, cosigned_at
from app.receiving.context import AppContext
from app.sealing.departure_store import (
    Departure,
    WitnessState,
    add_departure,
    change_witness,
    claim_witness,
    witness_states,
)
from app.sealing.log_store import SignedHead, kept_hashes, newest_head
from reconcile.instants import HOUR, MINUTE, NO_TIME, SECOND, Duration, Instant
from reconcile.transparency.cosignatures import (
    SIZE_TYPE,
    add_checkpoint,
    body_of,
    read_signatures,
    stated_size,
)
from reconcile.transparency.merkle import Hash, computed, consistency_spans, needed

LIMIT_S: Final = 5.0
"""Seconds that a witness may take for an answer: it verifies a few hashes and writes one row. All
TRIES together take less than a stop waits for."""

ANSWER_MAX: Final = 16 * 1024
"""Bytes of an answer: a cosignature has some 150, and a witness may sign with several keys."""

TRIES: Final = 3
"""Requests to one witness at a time: it may say twice that it knows another size than we think."""

LEASE: Final[Duration] = MINUTE
"""For which a witness is ours to ask: longer than TRIES requests may take."""

FIRST_PAUSE: Final[Duration] = 30 * SECOND
"""Before a witness that cosigned nothing is asked again; twice as long each time."""

LONGEST_PAUSE: Final[Duration] = HOUR
"""Between two requests to one that goes on cosigning nothing, and what it may ask us to wait."""

REST_S: Final = 5.0
"""Seconds between two looks at whether there is something to have cosigned."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reply:
    """What became of asking once: a cosignature, a size that the witness knows, or a problem."""

    at: Instant | None = None
    line: str | None = None
    size: int | None = None
    problem: str | None = None
    wait: Duration = NO_TIME


class Cosigning:
    """Asks one log's witnesses, beside any number of others that do."""

    def __init__(
        self, context: AppContext, witnesses: Witnesses, client: httpx2.AsyncClient
    ) -> None:
        self._context = context
        self._witnesses = witnesses
        self._client = client

    async def ask_due(self) -> int:
        """Ask every witness that is due. Returns how many were asked."""
        now = self._context.clock.now()
        until = Instant(now - now % self._witnesses.every)  # 1
        async with self._context.store.reading() as connection:
            head = await newest_head(connection, until=until)
            newest = await newest_head(connection)
            states = await witness_states(connection)
        if head is None or newest is None:
            return 0
        due = [
            (witness, state)
            for witness in self._witnesses.each
            if _is_due(state := states.get(witness.name), head, now)
        ]
        asked = [self._ask(witness, state, head, newest) for witness, state in due]
        done = await asyncio.gather(*asked, return_exceptions=True)
        for each in done:  # no other is left half done by one that could not be written down
            if isinstance(each, BaseException):
                raise each
        return len(done)

    async def _ask(
        self, witness: Witness, state: WitnessState | None, head: SignedHead, newest: SignedHead
    ) -> None:
        """One witness, until it has cosigned or says that it does not."""
        now = self._context.clock.now()
        async with self._context.store.writing() as connection:  # 2
            mine = await claim_witness(
                connection,
                witness.name,
                before=None if state is None else state.next_at,
                until=Instant(now + LEASE),
            )
        if not mine:
            return
        known = state or WitnessState(witness=witness.name, next_at=now)
        old = known.size
        for _ in range(TRIES):
            reply = await self._cosigned(witness, old, head)  # 3
            if reply.size is None:
                return await self._keep(known, head, reply)
            if reply.size == old:  # of as many leaves it knows another head
                return await self._keep(known, head, _Reply(problem="log_is_another"))
            if reply.size > newest.size:
                return await self._keep(known, head, _Reply(problem="log_is_shorter"))
            old = reply.size
            head = newest if old > head.size else head
        return await self._keep(known, head, _Reply(problem="answer_not_in_form"))

    async def _cosigned(self, witness: Witness, old: int, head: SignedHead) -> _Reply:
        try:
            proof = await self._proof(old, head.size)
        except KeyError:
            return _Reply(problem="log_damaged")
        answer = await exchange(
            self._client,
            "POST",
            f"{witness.url}/add-checkpoint",
            headers={"content-type": "text/plain; charset=utf-8", "accept": "text/plain, */*"},
            content=add_checkpoint(old=old, proof=proof, note=head.note),
            limit_s=LIMIT_S,
            most=ANSWER_MAX,
        )
        if answer.status == 200 and answer.problem is None:
            return self._verified(witness, head, answer.body)  # 4
        return _refusal(answer, same=old == head.size)

    async def _proof(self, old: int, size: int) -> list[Hash]:
        """That the log of `size` leaves began with that of `old`; nothing where any log did."""
        if old in (0, size):
            return []
        spans = consistency_spans(old, size=size)
        async with self._context.store.reading() as connection:
            kept = await kept_hashes(connection, needed(spans))
        return [computed(span, kept) for span in spans]

    def _verified(self, witness: Witness, head: SignedHead, body: bytes) -> _Reply:
        """Lines of other keys are passed over: C2SP tlog-witness."""
        try:
            lines = body.decode("utf-8")
        except UnicodeDecodeError:
            return _Reply(problem="answer_not_in_form")
        own = [
            each.line
            for each in read_signatures(lines)
            if (each.name, each.key_id) == (witness.key.name, witness.key.id)
        ]
        if not own:
            return _Reply(problem="not_its_signature" if "— " in lines else "answer_not_in_form")
        try:
            at = cosigned_at(f"{body_of(head.note)}\n{own[0]}\n", witness.key)
        except WrongCosignature:
            return _Reply(problem="not_its_signature")
        if at is None or abs(at - self._context.clock.now()) > CLOCK:
            return _Reply(problem="clock_off")
        return _Reply(at=at, line=own[0])

    async def _keep(self, known: WitnessState, head: SignedHead, reply: _Reply) -> None:
        now = self._context.clock.now()
        if reply.line is None or reply.at is None:
            await self._keep_failure(known, reply, now)
            return
        left = Departure(
            size=head.size, way=known.witness, head=head.head, at=reply.at, line=reply.line
        )
        state = WitnessState(
            witness=known.witness, size=head.size, cosigned_at=reply.at, next_at=now
        )
        async with self._context.store.writing() as connection:  # 5
            await add_departure(connection, left)
            await change_witness(connection, state)
        if known.problem is not None:
            log.info("a witness cosigns again", witness=known.witness.partition("+")[0])

    async def _keep_failure(self, known: WitnessState, reply: _Reply, now: Instant) -> None:
        problem = reply.problem or "answer_not_in_form"
        pause = min(FIRST_PAUSE << min(known.failures, 16), LONGEST_PAUSE)
        state = replace(
            known,
            next_at=Instant(now + max(pause, min(reply.wait, LONGEST_PAUSE))),
            failures=known.failures + 1,
            since=now if known.since is None else known.since,
            problem=problem,
        )
        async with self._context.store.writing() as connection:
            await change_witness(connection, state)
        if known.problem != problem:
            name = known.witness.partition("+")[0]
            log.warning("a witness does not cosign", witness=name, reason=problem)


def _is_due(state: WitnessState | None, head: SignedHead, now: Instant) -> bool:
    return state is None or (state.size < head.size and state.next_at <= now)


_REFUSALS: Final = {404: "log_unknown", 403: "key_unknown", 422: "log_is_another"}
"""What a witness says by a status: C2SP tlog-witness."""


def _refusal(answer: Exchange, *, same: bool) -> _Reply:
    """What a witness that has not cosigned says. same: it was asked for the size that it knows."""
    if answer.problem in ("too_large", "encoded"):
        return _Reply(problem="answer_not_in_form")
    if answer.status is None or answer.status >= 500 or answer.status == 429:
        return _Reply(problem="unreachable", wait=asked_to_wait(answer.headers))
    if answer.status == 409:
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        size = stated_size(answer.body) if kind == SIZE_TYPE else None
        if size is None:
            return _Reply(problem="log_is_another" if same else "answer_not_in_form")
        return _Reply(size=size)
    if 200 <= answer.status < 400:
        return _Reply(problem="answer_not_in_form")
    return _Reply(problem=_REFUSALS.get(answer.status, "refused"))
