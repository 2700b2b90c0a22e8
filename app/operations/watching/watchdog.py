"""Looks now and then for what nobody reports: silence, unread deliveries, payments of no order,
a clock that is off, orders paid for and not shipped.

A further alarm is one more line of WATCHES: readiness, the figures, the feed and the log tell
whatever stands there. What makes an alarm is decided in a module of its own, such as `silence`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

import structlog

from app.operations.desk import Desk
from app.operations.watching import unread
from app.operations.watching.alarm import Alarm
from app.operations.watching.no_order import LOOKED_AT, PATIENCE, Paid, Seen, no_order
from app.operations.watching.refused_ages import RefusedAges
from app.operations.watching.silence import DAYS, EXPECTED, LONGEST, SESSIONS, Heard, silence
from app.store.watching import (
    deliveries_between,
    finding_counts,
    last_delivery,
    paid_until,
    sessions_since,
    tied_since,
    unreadable_since,
)
from reconcile.instants import DAY
from reconcile.ledger import FindingCode

REST_S: Final = 45.0
"""Seconds between two looks: a clock that is off is told within a minute. The longest of them reads
every order's row once."""

WATCHED: Final[tuple[FindingCode, ...]] = ("paid_but_not_fulfilled", "fulfilled_but_not_paid")
"""Findings that a shop must act on; each is published as a revision, too."""

log = structlog.get_logger()


class Watched(NamedTuple):
    """What there is to look at: what is stored, and what this receiver refused for its age."""

    desk: Desk
    ages: RefusedAges


class Watch(NamedTuple):
    """One thing that is watched.

    name    its key in readiness; `tallyhook_<name>_alarm` is its figure
    figure  what the figure says, for whoever reads /metrics
    look    looks once; the alarm, if there is reason for one
    """

    name: str
    figure: str
    look: Callable[[Watched], Awaitable[Alarm | None]]


async def _silence(watched: Watched) -> Alarm | None:
    return silence(await _heard(watched.desk))


async def _heard(desk: Desk) -> Heard:
    now = desk.clock.now()
    async with desk.store.reading() as connection:
        last = await last_delivery(connection)
        start = now - LONGEST if last is None else last
        end = min(now, start + LONGEST)
        usual = [
            await deliveries_between(
                connection, start - days * DAY, end - days * DAY, enough=EXPECTED
            )
            for days in range(1, DAYS + 1)
        ]
        sessions = await sessions_since(connection, start, enough=SESSIONS)
    return Heard(now=now, last=last, usual=usual, sessions=sessions)


async def _unreadable(watched: Watched) -> Alarm | None:
    start = watched.desk.clock.now() - unread.WINDOW
    async with watched.desk.store.reading() as connection:
        return unread.unread(await unreadable_since(connection, start, enough=unread.ENOUGH))


async def _no_order(watched: Watched) -> Alarm | None:
    now = watched.desk.clock.now()
    until = now - PATIENCE
    async with watched.desk.store.reading() as connection:
        rows = await paid_until(connection, until, looked_at=LOOKED_AT)
        tied = await tied_since(connection, until, looked_at=LOOKED_AT)
        came = await deliveries_between(connection, 0, until, enough=LOOKED_AT)
    paid = map(Paid._make, rows)
    return no_order(Seen(now, paid, whole=came < LOOKED_AT, tied_since=tied))


async def _clock(watched: Watched) -> Alarm | None:
    return watched.ages.alarm(watched.desk.clock.now())


WATCHES: Final = (
    Watch(
        "silence",
        "1 while fewer verified events come than is usual at this time.",
        _silence,
    ),
    Watch(
        "unreadable",
        f"1 while genuine deliveries of the last {unread.DAYS} could not be read.",
        _unreadable,
    ),
    Watch(
        "no_order",
        "1 while none of the last payments of a source belongs to an order.",
        _no_order,
    ),
    Watch(
        "clock",
        "1 while genuine deliveries are refused for their age and none is taken.",
        _clock,
    ),
)
"""Everything that can raise an alarm."""


async def alarms(watched: Watched) -> dict[str, Alarm]:
    """Those that there is reason for now, by the name of what is watched."""
    seen = [(watch.name, await watch.look(watched)) for watch in WATCHES]
    return {name: alarm for name, alarm in seen if alarm is not None}


class Watchdog:
    """What was last seen, for readiness, the figures and the feed.

    alarms    those that last, by the name of what is watched
    findings  how many orders have each of the findings that are watched
    """

    def __init__(self, desk: Desk, ages: RefusedAges) -> None:
        self._watched = Watched(desk, ages)
        self.alarms: Mapping[str, Alarm] = {}
        self.findings: Mapping[str, int] = dict.fromkeys(WATCHED, 0)

    @property
    def sentences(self) -> list[str]:
        """What the alarms that last say to people."""
        return [alarm.sentence for alarm in self.alarms.values()]

    async def look(self) -> int:
        """Look once, and log what has changed. Returns 0: there is nothing to do at once."""
        await self._count_findings()
        before, self.alarms = self.alarms, await alarms(self._watched)
        for name, alarm in self.alarms.items():
            if name not in before:
                log.error("an alarm is raised", reason=alarm.reason)
        for name, alarm in before.items():
            if name not in self.alarms:
                log.info("an alarm is over", reason=alarm.reason)
        return 0

    async def _count_findings(self) -> None:
        counted = self.findings
        async with self._watched.desk.store.reading() as connection:
            self.findings = await finding_counts(connection, WATCHED)
        for code, count in self.findings.items():
            if count > counted[code]:
                log.warning("orders to look at", finding=code, count=count)
