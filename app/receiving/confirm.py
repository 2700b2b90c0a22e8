"""Asks providers about events that their signature does not cover, and stores what they answer.

    due confirmation ──ask──▶ answer ──store as a delivery──▶ event, `fetched` ──▶ settled or later

The answer is appended as a delivery is: what it says is folded like everything else. Until there is
one, the ledger says `pending` and why.
"""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import structlog

from app.context.context import AppContext
from app.core.http import asked_to_wait
from app.core.ids import new_id
from app.core.logs import Repeating
from app.core.periodic import PeriodicTask, TaskGroup
from app.core.reading import Unreadable
from app.providers.fetched import NOT_FOUND, NOT_KNOWN, keep_answer
from app.providers.provider_client import AnsweredQuestion, ProviderClient, date_of
from app.providers.request import FETCHED, Incoming
from app.providers.source import Source
from app.receiving.append_store import Arrival, keep_arrivals
from app.receiving.confirmation_store import (
    Asking,
    Confirmation,
    Waiting,
    any_due,
    any_since,
    asked_count,
    drop_most_asked,
    gap_since_answer,
    is_known,
    last_positions,
    make_due,
    put_off,
    settle,
    take_due,
    unanswered,
    waiting_before,
)
from app.receiving.unread_values import values_of
from reconcile.instants import DAY, HOUR, MINUTE, SECOND, Duration, Instant
from reconcile.ledger.events import Event
from reconcile.ledger.outcome_attempts import LONGEST_WINDOW
from reconcile.ledger.positions import REPEATED_AFTER

log = structlog.get_logger()

AT_ONCE: Final = 8
"""Questions to one provider at one moment: few enough for any provider's limit on requests."""

MAX_WAITING: Final = 10_000
"""Events of one source that are asked about again; of more, those asked about most are given up.
Genuine ones are settled by one of the first questions. Events never asked about stay: what may
come of them is bounded where they are received."""

LEASE: Final[Duration] = 2 * MINUTE
"""How long whoever takes a confirmation has for it; asking takes 20 seconds at most."""

FIRST_PAUSE: Final[Duration] = 5 * SECOND
LONGEST_PAUSE: Final[Duration] = HOUR
"""Between two questions about one event: twice as long each time, within these bounds."""

ASK_FOR: Final[Duration] = LONGEST_WINDOW + 5 * DAY
"""Time for which one event is asked about: beyond the window of the slowest payment method, so that
its provider is asked when the window ends. Its ledger stays pending, and says why."""

ASK_AGAIN: Final[tuple[Duration, ...]] = (10 * SECOND, MINUTE, 10 * MINUTE, HOUR)
"""Pauses before the same question after an answer that repeats the position, since a provider's
copy may lag behind, and after one that changes it, until it is repeated."""

SURE_NOT_FOUND: Final = 5
"""Times that a provider must not know an event before it is believed: some are slow to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmer:
    """Everything needed to ask: the context, and an asker and a source for each weak profile."""

    context: AppContext
    sources: Mapping[str, Source]
    askers: Mapping[str, ProviderClient]
    unanswered: Repeating = field(default_factory=Repeating)


async def confirm_due(confirmer: Confirmer, source: str) -> int:
    """Ask about due events of one source, up to AT_ONCE. Returns their number."""
    context = confirmer.context
    now = context.clock.now()
    asking = Asking(source=source, now=now, lease=LEASE, longest=DAY)
    async with context.database.reading() as connection:
        if not await any_due(connection, asking):
            return 0
    async with context.database.writing() as connection:
        due = await take_due(connection, asking, limit=AT_ONCE)
    ended = await asyncio.gather(
        *(_confirm(confirmer, each) for each in due), return_exceptions=True
    )
    for each in ended:  # once all have ended: none goes on by itself
        if isinstance(each, BaseException):
            raise each
    await _keep_bounded(context, source)
    return len(due)


async def _keep_bounded(context: AppContext, source: str) -> None:
    async with context.database.reading() as connection:
        if await asked_count(connection, source) <= MAX_WAITING:
            return
    async with context.database.writing() as connection:
        gone = await drop_most_asked(connection, source, keep=MAX_WAITING)
    log.error("too many events wait to be confirmed", source=source, count=gone)


async def _confirm(confirmer: Confirmer, due: Confirmation) -> None:
    asked = await confirmer.askers[due.event.source].ask(due.event)
    if asked is None:
        await _give_up(confirmer.context, due, "the event names nothing that could be asked about")
        return
    event, context = await _store(confirmer, due, asked), confirmer.context
    source = confirmer.sources.get(due.event.source)
    if event is None or source is None or not (_settles(event) or source.answers_with_event):
        asked_for = asked_to_wait(asked.answer.headers)
        await _later(context, due, asked_for, answered=event is not None)
        return
    rule = source.profile.fetch_back
    # Halfway to the deadline, which the last answer is to meet.
    again = due.asked_since + min(context.policy.payment_window // 2, LONGEST_PAUSE)
    async with context.database.writing() as connection:
        if rule is not None and event.kind in rule.again and context.clock.now() < again:
            await put_off(connection, due, until=again, answered=context.clock.now())
            return
        known = await last_positions(connection, event) if event.states else []
        pause = ask_again_after(event, known, tries=due.tries)
        if pause is not None:
            now = context.clock.now()
            await put_off(connection, due, until=now + pause, answered=now)
        else:
            await settle(connection, due)


def ask_again_after(answer: Event, known: Sequence[Event], *, tries: int) -> Duration | None:
    """Return the pause before the next question about a position; None where it is final.

    known  the latest stored positions of the payment, the last first
    """
    repeats = bool(known) and known[0].key != answer.key
    changed = len(known) > 1 and known[0].states != known[1].states  # and not repeated yet
    if changed or (repeats and tries < len(ASK_AGAIN)):
        return ASK_AGAIN[min(tries, len(ASK_AGAIN) - 1)]
    return DAY if any(state.word == "pending" for state in answer.states) else None


def _settles(answer: Event) -> bool:
    return answer.kind == NOT_KNOWN or answer.claim not in ("pending", "unrecognized")


async def _store(confirmer: Confirmer, due: Confirmation, asked: AnsweredQuestion) -> Event | None:
    """Store the answer, and return its event; None where there is no usable answer."""
    status, context = asked.answer.status, confirmer.context
    if status in NOT_FOUND and due.tries + 1 < SURE_NOT_FOUND:
        return None
    if asked.answer.problem is not None or status is None or not _answers(status):
        name, reason = due.event.source, asked.answer.problem or f"status_{status}"
        if times := confirmer.unanswered.times(f"{name} {reason}"):
            log.warning(
                "provider gave no answer",
                source=name,
                event_id=due.event.event_id,
                reason=reason,
                count=times,
            )
        return None
    source = confirmer.sources[due.event.source]

    def read(dated: Instant | None) -> tuple[bytes, Event | None, str | None]:
        kept = keep_answer(
            due.event,
            question=asked.question.shown,
            status=status,
            answer=asked.answer.body,
            dated=dated,
        )
        digest = hashlib.sha256(kept).hexdigest()
        return kept, *_read(source, kept, digest, context.database.environment)

    kept, event, problem = read(None)
    if event is not None and event.states:  # of other answers equal ones are kept once
        kept, event, problem = read(date_of(asked.answer.headers.get("date", "")))
    if event is None and due.tries:
        return None  # kept once, to be looked at; not every hour
    async with context.database.reading() as connection:
        if event is not None and await is_known(connection, event):
            return event  # the same answer as before: nothing new to keep
        known = [] if event is None or not event.states else await last_positions(connection, event)
        if (
            event is not None
            and says_nothing_new(event, known)
            and not await gap_since_answer(connection, event)  # else it proves that it still stands
        ):
            return event
    now = context.clock.now()
    arrival = Arrival(
        delivery_id=new_id("dlv_", now),
        received_at=now,
        source=due.event.source,
        digest=hashlib.sha256(kept).hexdigest(),
        headers=f"{FETCHED}: {asked.question.shown}",
        body=kept,
        event=event,
        problem=problem,
        values=values_of(None, Incoming((), kept)) if event is None else frozenset(),
    )
    async with context.database.writing() as connection:
        await keep_arrivals(connection, [arrival])
    context.signals.evidence_arrived.set()
    return event


def says_nothing_new(answer: Event, known: Sequence[Event]) -> bool:
    """Check whether an answer repeats the latest position, and no undoing is to be repeated.

    known  the latest stored positions of the payment, the last first
    """
    if not known or _position_of(answer) != _position_of(known[0]):
        return False
    # Only a position that differs from the one before can have taken something back.
    changed = len(known) > 1 and known[1].states != known[0].states
    later, earlier = answer.stated_at, known[0].stated_at
    due = later is not None and earlier is not None and later - earlier >= REPEATED_AFTER
    return not (changed and due)


def _position_of(answer: Event) -> Event:
    return replace(answer, event_id="", digest="", stated_at=None)


def _answers(status: int) -> bool:
    return 200 <= status < 300 or status in NOT_FOUND


def _read(
    source: Source, kept: bytes, digest: str, environment: str | None
) -> tuple[Event | None, str | None]:
    try:
        return source.read_answer(kept, digest=digest, environment=environment), None
    except Unreadable as unreadable:
        return None, str(unreadable)


async def _later(
    context: AppContext, due: Confirmation, asked: Duration, *, answered: bool
) -> None:
    """Put the question off for our pause, or as long as the provider `asked`, within bounds."""
    now = context.clock.now()
    if now - due.asked_since > ASK_FOR:
        await _give_up(context, due, f"the provider gave no final answer in {ASK_FOR // DAY} days")
        return
    pause = min(max(FIRST_PAUSE * 2 ** min(due.tries, 20), asked), LONGEST_PAUSE)
    async with context.database.writing() as connection:
        await put_off(connection, due, until=now + pause, answered=now if answered else None)


async def _give_up(context: AppContext, due: Confirmation, why: str) -> None:
    """Ask no more. The ledger stays pending and says why; the log says it once."""
    log.error("event not confirmed", event_id=due.event.event_id, reason=why)
    async with context.database.writing() as connection:
        await settle(connection, due)


MOST_ASKED_BEFORE: Final = 200
"""Events that providers are asked about once more before a month is closed: what 10 seconds are
enough for. Of more, the others count as not asked."""

PATIENCE_S: Final = 15.0
"""Seconds to wait for their answers: a provider that takes longer counts as not asked."""

_LOOK_S: Final = 0.2


async def ask_before(context: AppContext, *, until: Instant) -> list[Waiting]:
    """Have providers asked again about every unfinished event that came before `until`. Return,
    oldest first, those without an answer in time, such as where no service runs."""
    async with context.database.reading() as connection:
        if not await any_since(connection, until=until):
            return []
    now = context.clock.now()
    async with context.database.writing() as connection:
        waiting = await make_due(connection, now=now, until=until, limit=MOST_ASKED_BEFORE + 1)
    left, over = waiting[:MOST_ASKED_BEFORE], waiting[MOST_ASKED_BEFORE:]
    for _ in range(int(PATIENCE_S / _LOOK_S)):
        await asyncio.sleep(_LOOK_S)
        async with context.database.reading() as connection:
            left = await unanswered(connection, left, since=now)
        if not left:
            break
    return left + over


async def unanswered_by(context: AppContext, *, until: Instant, as_of: Instant) -> list[Waiting]:
    """Return unfinished events that came before `until` and had no answer from then to `as_of`.

    Nobody is asked: an answer of now is not known of then, and would change nothing in a report as
    of then.
    """
    async with context.database.reading() as connection:
        waiting = await waiting_before(connection, until=until, limit=MOST_ASKED_BEFORE + 1)
        return await unanswered(connection, waiting, since=until, until=as_of)


IDLE_S: Final = 1.0
"""Between two looks at what is due. A look costs one index lookup."""

BETWEEN_S: Final = 0.05
"""Rest for each question: 20 a second to one provider at most, whoever makes us ask."""


def confirming(confirmer: Confirmer) -> TaskGroup:
    """Asks about due events until it is stopped."""
    return TaskGroup(
        [
            PeriodicTask(
                partial(confirm_due, confirmer, source),
                component=f"asking {source} back",
                rest=lambda questions: questions * BETWEEN_S if questions else IDLE_S,
            )
            for source in confirmer.askers
        ]
    )
