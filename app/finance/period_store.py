"""Store closings of periods, and query what a report needs except lines and breaks."""

import hashlib
import json
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Annotated, Final, TypedDict, cast

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.document_of import document_of
from app.database.statements import stream
from reconcile.canonical import canonical_json
from reconcile.documents import Count, InstantText, Keywords, NextText
from reconcile.instants import Instant
from reconcile.ledger.fold import FINAL
from reconcile.ledger.ledger import Outcome
from reconcile.reporting.closing import (
    Closing,
    Print,
    Reopening,
    closing_document,
    closing_of,
)
from reconcile.reporting.inputs import ChangeSeen

LEVEL: Final = 9
"""Level of compression. Reports are written once and kept forever."""

PART_BYTES: Final = 1024 * 1024
"""Number of bytes of a report in one row, uncompressed."""


class PrintParts:
    """Compressor of a report or journal in parts."""

    def __init__(self, content: bytes = b"") -> None:
        self._parts: list[bytes] = []
        self._rest = bytearray()
        self._sha256, self._size = hashlib.sha256(), 0
        self.write(content)

    def write(self, content: bytes) -> None:
        self._sha256.update(content)
        self._size += len(content)
        self._rest += content
        if len(self._rest) >= PART_BYTES:
            self._deflate()

    def parts(self) -> Sequence[bytes]:
        """Return the whole text as compressed parts."""
        if self._rest or not self._parts:
            self._deflate()
        return self._parts

    def described(self, form: str) -> Print:
        return Print(format=form, sha256=self._sha256.hexdigest(), size=self._size)

    def _deflate(self) -> None:
        self._parts.append(zlib.compress(bytes(self._rest), LEVEL))
        self._rest.clear()


async def add_closing(
    connection: AsyncConnection, closing: Closing, *, prints: Mapping[str, PrintParts]
) -> None:
    """Store a closing with its reports and journals."""
    row = {"period": closing.month.name, "version": closing.version}
    await connection.execute(
        text(
            "INSERT INTO closings "
            "(period, version, as_of, closed_at, who, second, digest, document) VALUES "
            "(:period, :version, :as_of, :closed_at, :who, :second, :digest, :document)"
        ),
        row
        | {
            "as_of": closing.as_of,
            "closed_at": closing.closed_at,
            "who": closing.by,
            "second": closing.approved_by,
            "digest": closing.digest,
            "document": canonical_json(closing_document(closing)).decode(),
        },
    )
    sql = text(
        "INSERT INTO closing_prints (period, version, format, part, content) "
        "VALUES (:period, :version, :format, :part, :content)"
    )
    for form, made in sorted(prints.items()):
        for part, content in enumerate(made.parts()):
            await connection.execute(sql, row | {"format": form, "part": part, "content": content})


async def add_reopening(connection: AsyncConnection, reopening: Reopening) -> None:
    """Store the reopening of a closing. A second reopening fails."""
    await connection.execute(
        text(
            "INSERT INTO reopenings (period, version, at, who, digest, document) "
            "VALUES (:period, :version, :at, :who, :digest, :document)"
        ),
        {
            "period": reopening.period,
            "version": reopening.version,
            "at": reopening.at,
            "who": reopening.by,
            "digest": reopening.digest,
            "document": canonical_json(reopening.document()).decode(),
        },
    )


class PeriodDocument(TypedDict):
    period: Annotated[str, Keywords(pattern="^[0-9]{4}-[0-9]{2}$", examples=["2026-10"])]
    version: Annotated[Count, "Version of the closing: 1, increased by one for each reopening."]
    as_of: InstantText
    closed_at: InstantText
    closed_by: str
    approved_by: Annotated[str | None, "Who approved the closing, if two people were needed."]
    digest: str
    reopened_at: Annotated[InstantText | None, "When the month was reopened; null if it was not."]
    reopened_by: str | None


class PeriodListDocument(TypedDict):
    periods: list[PeriodDocument]
    next: NextText


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """Closing of a period, without its content."""

    period: str
    version: int
    as_of: Instant
    closed_at: Instant
    by: str
    second: str | None = None
    digest: str
    reopened_at: Instant | None = None
    reopened_by: str | None = None
    reopening: str | None = None

    def stands_at(self, as_of: Instant | None) -> bool:
        """Check if the closing was in force at an instant."""
        if as_of is None:
            return self.reopened_at is None
        return self.closed_at <= as_of and (self.reopened_at is None or as_of < self.reopened_at)

    def document(self) -> PeriodDocument:
        return document_of(PeriodDocument, self, closed_by=self.by, approved_by=self.second)


_CLOSINGS: Final = (
    "SELECT c.period, c.version, c.as_of, c.closed_at, c.who, c.second, c.digest, "
    "r.at, r.who, r.digest "
    "FROM closings c LEFT JOIN reopenings r ON r.period = c.period AND r.version = c.version "
    "ORDER BY c.period, c.version"
)


async def all_closings(connection: AsyncConnection) -> list[Closed]:
    """Return all closings, sorted by period and version."""
    return [
        Closed(
            period=row[0],
            version=row[1],
            as_of=row[2],
            closed_at=row[3],
            by=row[4],
            second=row[5],
            digest=row[6],
            reopened_at=row[7],
            reopened_by=row[8],
            reopening=row[9],
        )
        for row in await connection.execute(text(_CLOSINGS))
    ]


async def closed_periods(
    connection: AsyncConnection, *, as_of: Instant | None = None
) -> list[Closed]:
    """Return the closings in force, the earliest period first."""
    return [each for each in await all_closings(connection) if each.stands_at(as_of)]


async def closing_of_period(
    connection: AsyncConnection, period: str, *, version: int
) -> Closing | None:
    document = await closing_text(connection, period, version=version)
    return None if document is None else closing_of(json.loads(document))


async def closing_text(connection: AsyncConnection, period: str, *, version: int) -> str | None:
    found = await connection.execute(
        text("SELECT document FROM closings WHERE period=:period AND version=:version"),
        {"period": period, "version": version},
    )
    document: str | None = found.scalar_one_or_none()
    return document


async def reopening_text(connection: AsyncConnection, period: str, *, version: int) -> str | None:
    found = await connection.execute(
        text("SELECT document FROM reopenings WHERE period=:period AND version=:version"),
        {"period": period, "version": version},
    )
    document: str | None = found.scalar_one_or_none()
    return document


async def print_parts(
    connection: AsyncConnection, period: str, form: str, *, version: int
) -> AsyncIterator[bytes]:
    """Yield the parts of a stored report or journal."""
    sql = text(
        "SELECT content FROM closing_prints WHERE period=:period AND version=:version "
        "AND format=:format AND part=:part"
    )
    row = {"period": period, "version": version, "format": form}
    for part in count():
        found = await connection.execute(sql, row | {"part": part})
        if (content := found.scalar_one_or_none()) is None:
            return
        yield zlib.decompress(content)


async def print_of(
    connection: AsyncConnection, period: str, form: str, *, version: int
) -> bytes | None:
    """Return a stored report in one format, or None."""
    found = [part async for part in print_parts(connection, period, form, version=version)]
    return b"".join(found) if found else None


_FIRST: Final = (
    "SELECT at FROM revisions ORDER BY seq LIMIT 1",
    "SELECT received_at FROM deliveries ORDER BY id LIMIT 1",
    "SELECT started_at FROM imports ORDER BY number LIMIT 1",
)


async def first_known(connection: AsyncConnection) -> Instant | None:
    """Return the time of the first stored evidence, or None."""
    found = [await connection.scalar(text(each)) for each in _FIRST]
    return min((Instant(each) for each in found if each is not None), default=None)


async def count_unreadable(connection: AsyncConnection, *, until: Instant) -> int:
    """Return the number of unreadable deliveries that need a person."""
    found = await connection.scalar(
        text("SELECT count(DISTINCT delivery_id) FROM unread_values WHERE received_at <= :until"),
        {"until": until},
    )
    return int(found or 0)


async def count_not_ours(connection: AsyncConnection, *, since: Instant, until: Instant) -> int:
    """Return the number of deliveries for another shop."""
    found = await connection.scalar(
        text(
            "SELECT count(*) FROM deliveries WHERE verdict = 'not_ours' "
            "AND received_at >= :since AND received_at < :until"
        ),
        {"since": since, "until": until},
    )
    return int(found or 0)


AT_ONCE: Final = 1_000

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
    """Yield the orders whose final outcome changed, sorted by key."""
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
    """Return breaks accepted by an instant, even if undone later."""
    rows = await connection.execute(text(_ACCEPTED), {"as_of": as_of})
    return [row[0] for row in rows]
