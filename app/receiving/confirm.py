"""Task that asks providers about events that no signature covers.

due confirmation ──ask──▶ answer ──store as a delivery──▶ event, `fetched` ──▶ settled or later
"""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from app.context.context import AppContext
from app.core.http import asked_to_wait
from app.core.ids import new_id
from app.core.logs import Repeating, log
from app.core.periodic import PeriodicTask, TaskGroup
from app.core.reading import Unreadable
from app.providers.fetched import NOT_FOUND, NOT_KNOWN, keep_answer
from app.providers.provider_client import AnsweredQuestion, ProviderClient, date_of
from app.providers.request import FETCHED, Incoming
from app.providers.source import Source
from app.receiving import confirmation_store
from app.receiving.append_store import Arrival, keep_arrivals
from app.receiving.unread_values import values_of
from reconcile.instants import DAY, HOUR, MINUTE, SECOND, Duration, Instant
from reconcile.ledger.events import Event
from reconcile.ledger.outcome_attempts import LONGEST_WINDOW
from reconcile.ledger.positions import REPEATED_AFTER

AT_ONCE: Final = 8
"""Maximum number of simultaneous questions to one provider."""

MAX_WAITING: Final = 10_000
"""Maximum number of a source's events that wait for questions."""

LEASE: Final[Duration] = 2 * MINUTE
"""Time for which a process reserves events for a question."""

FIRST_PAUSE: Final[Duration] = 5 * SECOND
LONGEST_PAUSE: Final[Duration] = HOUR
"""Maximum pause between two questions about one event."""

ASK_FOR: Final[Duration] = LONGEST_WINDOW + 5 * DAY
"""Time for which a provider is asked about an event."""

ASK_AGAIN: Final[tuple[Duration, ...]] = (10 * SECOND, MINUTE, 10 * MINUTE, HOUR)
"""Pauses before a provider is asked the same question again, to confirm changes."""

SURE_NOT_FOUND: Final = 5
"""Number of `not found` answers that count as final."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmer:
    """The sources, and the clients that ask their providers."""

    context: AppContext
    sources: Mapping[str, Source]
    askers: Mapping[str, ProviderClient]
    unanswered: Repeating = field(default_factory=Repeating)


async def confirm_due(confirmer: Confirmer, source: str) -> int:
    """Ask about a source's due events. Return their number."""
    context = confirmer.context
    now = context.clock.now()
    asking = confirmation_store.Asking(source=source, now=now, lease=LEASE, longest=DAY)
    async with context.database.reading() as connection:
        if not await confirmation_store.any_due(connection, asking):
            return 0
    async with context.database.writing() as connection:
        due = await confirmation_store.take_due(connection, asking, limit=AT_ONCE)
    ended = await asyncio.gather(
        *(_confirm(confirmer, each) for each in due), return_exceptions=True
    )
    for each in ended:  # only after all have ended, so that none keeps running
        if isinstance(each, BaseException):
            raise each
    await _keep_bounded(context, source)
    return len(due)


async def _keep_bounded(context: AppContext, source: str) -> None:
    async with context.database.reading() as connection:
        if await confirmation_store.asked_count(connection, source) <= MAX_WAITING:
            return
    async with context.database.writing() as connection:
        gone = await confirmation_store.drop_most_asked(connection, source, keep=MAX_WAITING)
    log.error("too many events are waiting to be confirmed", source=source, count=gone)


async def _confirm(confirmer: Confirmer, due: confirmation_store.Confirmation) -> None:
    asked = await confirmer.askers[due.event.source].ask(due.event)
    if asked is None:
        await _give_up(
            confirmer.context,
            due,
            "the event lacks a payment or session to ask the provider about",
        )
        return
    event, context = await _store(confirmer, due, asked), confirmer.context
    source = confirmer.sources.get(due.event.source)
    if event is None or source is None or not (_settles(event) or source.answers_with_event):
        asked_for = asked_to_wait(asked.answer.headers)
        await _later(context, due, asked_for, answered=event is not None)
        return
    rule = source.profile.fetch_back
    # Halfway to the deadline, so that the last answer arrives before it.
    again = due.asked_since + min(context.policy.payment_window // 2, LONGEST_PAUSE)
    async with context.database.writing() as connection:
        if rule is not None and event.kind in rule.again and context.clock.now() < again:
            await confirmation_store.put_off(
                connection, due, until=again, answered=context.clock.now()
            )
            return
        known = await confirmation_store.last_positions(connection, event) if event.states else []
        pause = ask_again_after(event, known, tries=due.tries)
        if pause is not None:
            now = context.clock.now()
            await confirmation_store.put_off(connection, due, until=now + pause, answered=now)
        else:
            await confirmation_store.settle(connection, due)


def ask_again_after(answer: Event, known: Sequence[Event], *, tries: int) -> Duration | None:
    """Return the pause before the next question; None if final.

    The answers in `known` are newest first.
    """
    repeats = bool(known) and known[0].key != answer.key
    changed = len(known) > 1 and known[0].states != known[1].states  # and not repeated yet
    if changed or (repeats and tries < len(ASK_AGAIN)):
        return ASK_AGAIN[min(tries, len(ASK_AGAIN) - 1)]
    return DAY if any(state.word == "pending" for state in answer.states) else None


def _settles(answer: Event) -> bool:
    return answer.kind == NOT_KNOWN or answer.claim not in ("pending", "unrecognized")


async def _store(
    confirmer: Confirmer, due: confirmation_store.Confirmation, asked: AnsweredQuestion
) -> Event | None:
    status, context = asked.answer.status, confirmer.context
    if status in NOT_FOUND and due.tries + 1 < SURE_NOT_FOUND:
        return None
    if asked.answer.problem is not None or status is None or not _answers(status):
        name, reason = due.event.source, asked.answer.problem or f"status_{status}"
        if times := confirmer.unanswered.times(f"{name} {reason}"):
            log.warning(
                "the provider gave no answer",
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
    if event is not None and event.states:  # equal answers of other kinds are stored once
        kept, event, problem = read(date_of(asked.answer.headers.get("date", "")))
    if event is None and due.tries:
        return None  # stored once for people to see, not every hour
    async with context.database.reading() as connection:
        if event is not None:
            if await confirmation_store.is_known(connection, event):
                return event  # the same answer as before, so nothing to store
            known = (
                await confirmation_store.last_positions(connection, event) if event.states else ()
            )
            # After a gap, an equal answer is stored: it proves that nothing changed.
            if says_nothing_new(event, known) and not await confirmation_store.gap_since_answer(
                connection, event
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
    """Return whether an answer repeats the payment's latest answer."""
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
    context: AppContext, due: confirmation_store.Confirmation, asked: Duration, *, answered: bool
) -> None:
    now = context.clock.now()
    if now - due.asked_since > ASK_FOR:
        await _give_up(context, due, f"the provider gave no final answer in {ASK_FOR // DAY} days")
        return
    pause = min(max(FIRST_PAUSE * 2 ** min(due.tries, 20), asked), LONGEST_PAUSE)
    async with context.database.writing() as connection:
        await confirmation_store.put_off(
            connection, due, until=now + pause, answered=now if answered else None
        )


async def _give_up(context: AppContext, due: confirmation_store.Confirmation, why: str) -> None:
    log.error("an event was not confirmed", event_id=due.event.event_id, reason=why)
    async with context.database.writing() as connection:
        await confirmation_store.settle(connection, due)


MOST_ASKED_BEFORE: Final = 200
"""Maximum number of events asked about before a month is closed, in 10 s."""

PATIENCE_S: Final = 15.0
"""Seconds to wait for answers before a month is closed."""

_LOOK_S: Final = 0.2


async def ask_before(context: AppContext, *, until: Instant) -> list[confirmation_store.Waiting]:
    """Ask again about events before `until`.

    Wait up to 15 seconds, and return the unanswered events.
    """
    async with context.database.reading() as connection:
        if not await confirmation_store.any_since(connection, until=until):
            return []
    now = context.clock.now()
    async with context.database.writing() as connection:
        waiting = await confirmation_store.make_due(
            connection, now=now, until=until, limit=MOST_ASKED_BEFORE + 1
        )
    left, over = waiting[:MOST_ASKED_BEFORE], waiting[MOST_ASKED_BEFORE:]
    for _ in range(int(PATIENCE_S / _LOOK_S)):
        await asyncio.sleep(_LOOK_S)
        async with context.database.reading() as connection:
            left = await confirmation_store.unanswered(connection, left, since=now)
        if not left:
            break
    return left + over


async def unanswered_by(
    context: AppContext, *, until: Instant, as_of: Instant
) -> list[confirmation_store.Waiting]:
    """Return the events before `until` without an answer by `as_of`."""
    async with context.database.reading() as connection:
        waiting = await confirmation_store.waiting_before(
            connection, until=until, limit=MOST_ASKED_BEFORE + 1
        )
        return await confirmation_store.unanswered(connection, waiting, since=until, until=as_of)


IDLE_S: Final = 1.0
"""Seconds between two checks for due events. A check costs one index lookup."""

BETWEEN_S: Final = 0.05
"""Pause after each question, in seconds."""


def confirming(confirmer: Confirmer) -> TaskGroup:
    """Build one task per source that asks about due events."""
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
