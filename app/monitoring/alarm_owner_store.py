"""Who is at which alarm, as rows: one for each alarm that somebody has taken."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from reconcile.instants import Instant


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
