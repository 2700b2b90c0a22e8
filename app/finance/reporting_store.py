"""What a report reads beside takings, lines and breaks: outcomes that changed, breaks accepted."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Final, cast

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.statements import stream
from reconcile.instants import Instant
from reconcile.ledger.fold import FINAL
from reconcile.ledger.ledger import Outcome
from reconcile.reporting.input import ChangeSeen

AT_ONCE: Final = 1_000
"""Revisions in memory at a time, about half a kilobyte each."""

_REVISIONS: Final = (
    "SELECT order_key, at, before_outcome, outcome, because FROM revisions "
    "WHERE at >= :start AND at < :end AND at <= :as_of ORDER BY order_key, seq"
)

_ACCEPTED: Final = (
    "SELECT DISTINCT break_id FROM break_deeds WHERE deed = 'accepted' AND at <= :as_of "
    "ORDER BY break_id"
)


async def changed_outcomes(
    connection: AsyncConnection, *, start: Instant, end: Instant, as_of: Instant
) -> AsyncIterator[ChangeSeen]:
    """Orders that had a final outcome at the start and another by the end, in key order."""
    changed: ChangeSeen | None = None
    values = {"start": start, "end": end, "as_of": as_of}
    async for rows in stream(connection, _REVISIONS, at_once=AT_ONCE, values=values):
        for order, at, before, after, because in rows:
            if changed is None or changed.order != order:
                if changed is not None and _is_change(changed):
                    yield changed
                first = cast(Outcome, before or "pending")
            else:
                first = changed.before
            changed = ChangeSeen(
                order=order,
                at=at,
                before=first,
                after=cast(Outcome, after),
                because=tuple(json.loads(because)),
            )
    if changed is not None and _is_change(changed):
        yield changed


def _is_change(seen: ChangeSeen) -> bool:
    return seen.before in FINAL and seen.before != seen.after


async def accepted_breaks(connection: AsyncConnection, *, as_of: Instant) -> list[str]:
    """Ids of the breaks that people had accepted by then, whatever became of that."""
    rows = await connection.execute(text(_ACCEPTED), {"as_of": as_of})
    return [row[0] for row in rows]
