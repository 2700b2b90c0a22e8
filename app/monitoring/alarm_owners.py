"""Taking an alarm: who is at it, and how far, so that two people do not do the same.

It changes nothing about the alarm, which ends by itself when its reason does; who was at it is then
forgotten here and stays in the trail.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, get_args

from app.access.operators import note_in_trail, permitted
from app.core.alarm import Alarm
from app.core.errors import NotFoundError
from app.monitoring.alarm_owner_store import (
    AlarmOwner,
    alarm_owners,
    delete_alarm_owner,
    put_alarm_owner,
)
from app.receiving.context import AppContext

TakenState = Literal["looking", "waiting"]
TAKEN_STATES: Final[tuple[TakenState, ...]] = get_args(TakenState)
"""Somebody is at it; somebody waits for another, such as the provider."""


async def take_alarm(
    context: AppContext,
    name: str,
    *,
    lasting: Mapping[str, Alarm],
    state: TakenState,
    by: str | None,
    why: str,
) -> None:
    """Say that one is at an alarm that lasts. Raises NotFoundError where it does not, UsageError
    for who may not."""
    alarm = lasting.get(name)
    if alarm is None:
        raise NotFoundError(f"the alarm {name!r} does not last any more")
    async with context.store.writing() as connection:
        now = context.clock.now()
        who = await permitted(connection, by=by, action="alarm_taken")
        await put_alarm_owner(
            connection,
            AlarmOwner(alarm=name, reason=alarm.reason, owner=who.name, state=state, at=now),
        )
        await note_in_trail(
            connection,
            who,
            action="alarm_taken",
            subject=name,
            at=now,
            reason=why,
            facts={"alarm": alarm.reason, "state": state},
        )


async def owners_of(context: AppContext, lasting: Mapping[str, Alarm]) -> dict[str, AlarmOwner]:
    """Who is at which of the alarms that last."""
    async with context.store.reading() as connection:
        found = await alarm_owners(connection)
    return {each.alarm: each for each in found if _lasts(each, lasting)}


async def forget_owners(context: AppContext, lasting: Mapping[str, Alarm]) -> None:
    """Forget who was at alarms that are over, or that were raised anew for another reason."""
    async with context.store.reading() as connection:
        over = [each for each in await alarm_owners(connection) if not _lasts(each, lasting)]
    if over:
        async with context.store.writing() as connection:
            for each in over:
                await delete_alarm_owner(connection, each)


def _lasts(taken: AlarmOwner, lasting: Mapping[str, Alarm]) -> bool:
    alarm = lasting.get(taken.alarm)
    return alarm is not None and alarm.reason == taken.reason
