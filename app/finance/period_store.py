"""Rows of periods: what a report reads beside lines and breaks, and closed periods.

A closed period is written once, in order, and never changed.
"""

import json
import zlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Final, cast

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.statements import stream
from reconcile.canonical import canonical_json
from reconcile.instants import Instant, format_instant
from reconcile.ledger.fold import FINAL
from reconcile.ledger.ledger import Outcome
from reconcile.reporting.closing import Closing, closing_document, closing_of
from reconcile.reporting.input import ChangeSeen

LEVEL: Final = 9
"""Prints are kept forever and made once, so they are compressed as far as deflate can."""


async def add_closing(
    connection: AsyncConnection, closing: Closing, *, prints: Mapping[str, bytes]
) -> None:
    """Store a closing with its report's bytes by format. Fails for a period that is closed."""
    await connection.execute(
        text(
            "INSERT INTO closings (period, as_of, closed_at, who, digest, document) "
            "VALUES (:period, :as_of, :closed_at, :who, :digest, :document)"
        ),
        {
            "period": closing.month.name,
            "as_of": closing.as_of,
            "closed_at": closing.closed_at,
            "who": closing.by,
            "digest": closing.digest,
            "document": canonical_json(closing_document(closing)).decode(),
        },
    )
    sql = "INSERT INTO closing_prints (period, format, content) VALUES (:period, :format, :content)"
    for form, content in sorted(prints.items()):
        packed = zlib.compress(content, LEVEL)
        await connection.execute(
            text(sql), {"period": closing.month.name, "format": form, "content": packed}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """A closed period for lists; the closing itself is read by its name."""

    period: str
    as_of: Instant
    closed_at: Instant
    by: str
    digest: str

    def document(self) -> dict[str, str]:
        return {
            "period": self.period,
            "as_of": format_instant(self.as_of),
            "closed_at": format_instant(self.closed_at),
            "closed_by": self.by,
            "digest": self.digest,
        }


async def closed_periods(connection: AsyncConnection) -> list[Closed]:
    rows = await connection.execute(
        text("SELECT period, as_of, closed_at, who, digest FROM closings ORDER BY period")
    )
    return [
        Closed(period=row[0], as_of=row[1], closed_at=row[2], by=row[3], digest=row[4])
        for row in rows
    ]


async def closing_of_period(connection: AsyncConnection, period: str) -> Closing | None:
    document = await closing_text(connection, period)
    return None if document is None else closing_of(json.loads(document))


async def closing_text(connection: AsyncConnection, period: str) -> str | None:
    found = await connection.execute(
        text("SELECT document FROM closings WHERE period=:period"), {"period": period}
    )
    document: str | None = found.scalar_one_or_none()
    return document


async def print_of(connection: AsyncConnection, period: str, form: str) -> bytes | None:
    """Return a closed report's bytes in one format; None if it was not printed in it."""
    found = await connection.execute(
        text("SELECT content FROM closing_prints WHERE period=:period AND format=:format"),
        {"period": period, "format": form},
    )
    content: bytes | None = found.scalar_one_or_none()
    return None if content is None else zlib.decompress(content)


async def first_published(connection: AsyncConnection) -> Instant | None:
    """Return when the first revision was published; None before it."""
    found = await connection.scalar(text("SELECT at FROM revisions ORDER BY seq LIMIT 1"))
    return None if found is None else Instant(found)


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
    """Yield orders that had a final outcome at the start and another by the end, in key order."""
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
    """Return ids of the breaks that people had accepted by then, even if undone since."""
    rows = await connection.execute(text(_ACCEPTED), {"as_of": as_of})
    return [row[0] for row in rows]
