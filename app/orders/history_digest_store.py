"""Digests of everything that became known in a stretch of time, by kind and day.

Leaves out what may be let go or corrected later without anything being untrue: bodies, headers,
phone numbers, the verdict and the reading of a delivery that `reindex` gives anew. What is kept
for ever goes in: ids, digests of bodies, dates, amounts, references, and who did what. So a pruned
body changes nothing here, and a changed amount does.

Rows are read once, in the order of their keys, in memory that grows with days and not with rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.statements import stream
from reconcile.instants import Instant
from reconcile.periods import day_of
from reconcile.reporting.closing import Sealed

AT_ONCE: Final = 1_000
"""Rows in memory at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One kind of evidence: its table, when a row became known, its key and its columns."""

    name: str
    table: str
    known: str
    key: str
    columns: str

    @property
    def sql(self) -> str:
        """The moment of knowledge and the columns of every row of a stretch, in key order."""
        return (
            f"SELECT {self.known}, {self.columns} FROM {self.table} "  # noqa: S608
            f"WHERE {self.known} > :after AND {self.known} <= :until ORDER BY {self.key}"
        )


def _lines(table: str, *, key: str, columns: str) -> Part:
    """Versions of imported lines: known from the moment in which their import was published."""
    return Part(
        name=table,
        table=f"{table} JOIN imports ON imports.number = since",
        known="published_at",
        key=key.replace("kind", f"{table}.kind"),
        columns=f"{key}, {columns}".replace("kind", f"{table}.kind"),
    )


PARTS: Final = (
    Part(
        name="deliveries",
        table="deliveries",
        known="received_at",
        key="id",
        columns="id, source, digest, size",
    ),
    Part(
        name="events",
        table="events",
        known="received_at",
        key="event_id, source, digest",
        columns="event_id, source, digest, order_key, claim, occurred_at, order_ref, session, "
        "payment, movement, amount, currency, order_amount, order_currency, standing",
    ),
    Part(
        name="records",
        table="records",
        known="recorded_at",
        key="id",
        columns='id, kind, order_key, at, amount, currency, source, "key", session, expires_at, '
        "reason",
    ),
    _lines(
        "book_lines",
        key="match_key, kind, since",
        columns="line, reference, minor, currency, placed_at, status, group_name",
    ),
    _lines(
        "statement_lines",
        key="source, subject, kind, ordinal, since",
        columns="line, payment, order_ref, currency, gross, fee, net, settled_at, payout",
    ),
    Part(
        name="rules",
        table="match_rules",
        known="at",
        key="number",
        columns="number, who, digest",
    ),
    Part(
        name="break_deeds",
        table="break_deeds",
        known="at",
        key="number",
        columns="number, break_id, who, deed, value, reason, second, minor, currency",
    ),
    Part(
        name="deeds",
        table="audit",
        known="at",
        key="number",
        columns="number, who, role, action, subject, reason, facts",
    ),
)
"""Every kind, in the order in which they are read."""


async def history_digests(
    connection: AsyncConnection,
    *,
    after: Instant,
    until: Instant,
    progress: Callable[[int], None],
) -> tuple[Sealed, ...]:
    """The evidence that became known after one instant, up to another, sorted by kind and day."""
    found: list[Sealed] = []
    for part in PARTS:
        days: dict[str, _Day] = {}
        values = {"after": after, "until": until}
        async for rows in stream(connection, part.sql, at_once=AT_ONCE, values=values):
            for row in rows:
                days.setdefault(day_of(row[0]), _Day()).add(row)
            progress(len(rows))
        found += [days[day].sealed(part.name, day) for day in sorted(days)]
    return tuple(found)


class _Day:
    """The rows of one kind that became known on one day."""

    def __init__(self) -> None:
        self._count, self._hash = 0, hashlib.sha256()

    def add(self, row: Sequence[Any]) -> None:
        """One more row: its columns are texts, whole numbers and nulls."""
        text = json.dumps(list(row), ensure_ascii=False, separators=(",", ":"))
        self._hash.update(text.encode("utf-8", "backslashreplace") + b"\n")
        self._count += 1

    def sealed(self, part: str, day: str) -> Sealed:
        """What it came to."""
        digest = f"sha256:{self._hash.hexdigest()}"
        return Sealed(part=part, day=day, count=self._count, digest=digest)
