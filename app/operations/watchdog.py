"""Looks now and then for what nobody reports: silence, and orders paid for and not shipped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import structlog

from app.operations.desk import Desk
from app.operations.silence import DAYS, EXPECTED, LONGEST, SESSIONS, Heard, Silence, silence
from app.store.watching import (
    deliveries_between,
    finding_counts,
    last_delivery,
    sessions_since,
)
from reconcile.instants import DAY
from reconcile.ledger import FindingCode

REST_S: Final = 120.0
"""Seconds between two looks; the longest of them reads every order's row once."""

WATCHED: Final[tuple[FindingCode, ...]] = ("paid_but_not_fulfilled", "fulfilled_but_not_paid")
"""Findings that a shop must act on; each is published as a revision, too."""

log = structlog.get_logger()


class Watchdog:
    """What was last seen. `alarm` and `findings` are for readiness and the figures."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.alarm: Silence | None = None
        self.findings: Mapping[str, int] = dict.fromkeys(WATCHED, 0)

    async def look(self) -> int:
        """Look once, and log what has changed. Returns 0: there is nothing to do at once."""
        before, counted = self.alarm, self.findings
        async with self._desk.store.reading() as connection:
            self.findings = await finding_counts(connection, WATCHED)
        self.alarm = silence(await self._heard())
        if self.alarm is not None and before is None:
            log.error("it is too quiet", reason=self.alarm.reason)
        elif self.alarm is None and before is not None:
            log.info("it is no longer too quiet")
        for code, count in self.findings.items():
            if count > counted[code]:
                log.warning("orders to look at", finding=code, count=count)
        return 0

    async def _heard(self) -> Heard:
        now = self._desk.clock.now()
        async with self._desk.store.reading() as connection:
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
