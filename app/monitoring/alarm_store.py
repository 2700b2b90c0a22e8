"""Rows of alarms: what is told of each by each way to whoever is called, and who has taken it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from reconcile.instants import Instant

# --- what is told ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmMessage:
    """What is told of one alarm in one way.

    way        how: `post` or `mail`
    seen_at    when a receiver last saw that it lasts
    over_at    since when none does; None: it lasts
    told_at    when it was told that it is raised; None: not yet
    tries      of what is to be told now, those that failed
    due_at     when that is tried; while it is being tried, until when nobody else does
    """

    alarm: str
    way: str
    reason: str
    sentence: str
    raised_at: Instant
    seen_at: Instant
    over_at: Instant | None = None
    told_at: Instant | None = None
    tries: int = 0
    due_at: Instant


async def put_seen(connection: AsyncConnection, message: AlarmMessage) -> None:
    """It is raised, or lasts still; one that was over and is seen again was not over."""
    await connection.execute(
        text(
            "INSERT INTO alarm_messages "
            "(alarm, way, reason, sentence, raised_at, seen_at, tries, due_at) VALUES "
            "(:alarm, :way, :reason, :sentence, :raised_at, :seen_at, 0, :due_at) "
            "ON CONFLICT (alarm, way) DO UPDATE SET seen_at = excluded.seen_at, over_at = NULL"
        ),
        {
            "alarm": message.alarm,
            "way": message.way,
            "reason": message.reason,
            "sentence": message.sentence,
            "raised_at": message.raised_at,
            "seen_at": message.seen_at,
            "due_at": message.due_at,
        },
    )


async def any_lasts(connection: AsyncConnection) -> bool:
    """Whether there is one that was seen and is not over."""
    rows = await connection.execute(
        text("SELECT 1 FROM alarm_messages WHERE over_at IS NULL LIMIT 1")
    )
    return rows.first() is not None


async def put_over(connection: AsyncConnection, *, unseen_since: Instant, now: Instant) -> None:
    """Those that no receiver has seen since then are over, and that is to be told."""
    await connection.execute(
        text(
            "UPDATE alarm_messages SET over_at = :now, tries = 0, "
            "due_at = CASE WHEN told_at IS NULL THEN due_at ELSE :now END "
            "WHERE over_at IS NULL AND seen_at < :since"
        ),
        {"now": now, "since": unseen_since},
    )


async def messages_due(connection: AsyncConnection, now: Instant) -> Sequence[AlarmMessage]:
    """What is to be told now: that an alarm is raised, or that one of which that was told is over;
    and those that were over before they were told."""
    rows = await connection.execute(
        text(
            "SELECT alarm, way, reason, sentence, raised_at, seen_at, over_at, told_at, tries, "
            "due_at FROM alarm_messages WHERE due_at <= :now "
            "AND (told_at IS NULL OR over_at IS NOT NULL) ORDER BY raised_at, alarm, way"
        ),
        {"now": now},
    )
    return [AlarmMessage(**row) for row in rows.mappings()]


async def claim_message(
    connection: AsyncConnection, message: AlarmMessage, *, until: Instant
) -> bool:
    """Whether it is ours to tell until then: no other process was faster, nor has told it in the
    same instant, which would leave it as due as it was."""
    claimed = await connection.execute(
        text(
            "UPDATE alarm_messages SET due_at = :until "
            "WHERE alarm = :alarm AND way = :way AND due_at = :due_at "
            "AND (told_at IS NULL OR over_at IS NOT NULL)"
        ),
        {
            "until": until,
            "alarm": message.alarm,
            "way": message.way,
            "due_at": message.due_at,
        },
    )
    return claimed.rowcount == 1


async def put_notified(connection: AsyncConnection, message: AlarmMessage, *, now: Instant) -> None:
    """It was told that it is raised."""
    await connection.execute(
        text(
            "UPDATE alarm_messages SET told_at = :now, tries = 0, due_at = :now "
            "WHERE alarm = :alarm AND way = :way"
        ),
        {"now": now, "alarm": message.alarm, "way": message.way},
    )


async def put_failed(
    connection: AsyncConnection, message: AlarmMessage, *, again_at: Instant
) -> None:
    """It was not, and is tried again."""
    await connection.execute(
        text(
            "UPDATE alarm_messages SET tries = tries + 1, due_at = :again_at "
            "WHERE alarm = :alarm AND way = :way"
        ),
        {"again_at": again_at, "alarm": message.alarm, "way": message.way},
    )


async def delete_message(connection: AsyncConnection, message: AlarmMessage) -> None:
    """Nothing of it is to be told any more, unless it was seen again meanwhile."""
    await connection.execute(
        text(
            "DELETE FROM alarm_messages WHERE alarm = :alarm AND way = :way AND over_at IS NOT NULL"
        ),
        {"alarm": message.alarm, "way": message.way},
    )


# --- who is at it ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmOwner:
    """Who is at an alarm.

    reason  why it was raised when they took it: for another reason it is another alarm
    state   how far they are
    at      since when
    """

    alarm: str
    reason: str
    owner: str
    state: str
    at: Instant


async def alarm_owners(connection: AsyncConnection) -> list[AlarmOwner]:
    """All that are kept."""
    rows = await connection.execute(
        text("SELECT alarm, reason, owner, state, at FROM alarm_owners ORDER BY alarm")
    )
    return [
        AlarmOwner(alarm=row[0], reason=row[1], owner=row[2], state=row[3], at=row[4])
        for row in rows
    ]


async def put_alarm_owner(connection: AsyncConnection, taken: AlarmOwner) -> None:
    """Whoever had it has it no longer."""
    await connection.execute(
        text(
            "INSERT INTO alarm_owners (alarm, reason, owner, state, at) "
            "VALUES (:alarm, :reason, :owner, :state, :at) ON CONFLICT (alarm) DO UPDATE SET "
            "reason=excluded.reason, owner=excluded.owner, state=excluded.state, at=excluded.at"
        ),
        {
            "alarm": taken.alarm,
            "reason": taken.reason,
            "owner": taken.owner,
            "state": taken.state,
            "at": taken.at,
        },
    )


async def delete_alarm_owner(connection: AsyncConnection, taken: AlarmOwner) -> None:
    """Unless somebody has taken the alarm anew."""
    await connection.execute(
        text("DELETE FROM alarm_owners WHERE alarm = :alarm AND at = :at"),
        {"alarm": taken.alarm, "at": taken.at},
    )
