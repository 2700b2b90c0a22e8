"""Compute digests of a period's evidence, by kind and day."""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.statements import statement, stream
from reconcile.instants import Instant
from reconcile.periods import day_of
from reconcile.reporting.closing import EvidenceDigest

AT_ONCE: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceTable:
    """Kind of evidence with its database table."""

    name: str
    table: str
    known: str
    key: str
    columns: str
    where: str = "1 = 1"

    @property
    def sql(self) -> str:
        """Return SQL for the rows of a span of time."""
        return statement(
            "SELECT {known}, {columns} FROM {table} "
            "WHERE {known} > :after AND {known} <= :until AND {where} ORDER BY {key}",
            known=self.known,
            columns=self.columns,
            table=self.table,
            where=self.where,
            key=self.key,
        )


def _lines(table: str, *, key: str, columns: str) -> EvidenceTable:
    return EvidenceTable(
        name=table,
        table=f"{table} JOIN imports ON imports.number = since",
        known="published_at",
        key=key.replace("kind", f"{table}.kind"),
        columns=f"{key}, {columns}".replace("kind", f"{table}.kind"),
    )


PARTS: Final = (
    EvidenceTable(
        name="deliveries",
        table="deliveries",
        known="received_at",
        key="id",
        columns="id, source, digest, size",
    ),
    EvidenceTable(
        name="events",
        table="events",
        known="received_at",
        key="event_id, source, digest",
        # Not `order_key`: an event without an order gets one when somebody assigns its payment.
        columns="event_id, source, digest, claim, occurred_at, order_ref, session, payment, "
        "movement, amount, currency, order_amount, order_currency, standing",
    ),
    EvidenceTable(
        name="records",
        table="records",
        known="recorded_at",
        key="id",
        columns='id, kind, order_key, at, amount, currency, source, "key", session, expires_at, '
        "reason, payment, replaces, tenders, free, dated",
    ),
    _lines(
        "book_lines",
        key="match_key, kind, since",
        columns="line, reference, minor, currency, placed_at, status, group_name, method",
    ),
    EvidenceTable(
        name="book_refunds",
        table="book_lines JOIN imports ON imports.number = since",
        where="refunded IS NOT NULL",
        known="published_at",
        key="match_key, book_lines.kind, since",
        columns="match_key, book_lines.kind, since, refunded, refunded_at",
    ),
    EvidenceTable(
        name="withdrawals",
        table="imports",
        known="published_at",
        key="number",
        columns="number, kind, who, withdraws, reason",
        where="withdraws IS NOT NULL",
    ),
    _lines(
        "statement_lines",
        key="source, subject, kind, ordinal, since",
        columns="line, payment, order_ref, currency, gross, fee, net, settled_at, payout",
    ),
    _lines(
        "bank_lines",
        key="subject, ordinal, since",
        columns="line, account, currency, minor, booked_at",
    ),
    EvidenceTable(
        name="coverage",
        table="coverage",
        known="at",
        key="number",
        columns="number, of_import, kind, name, wallet, since, until, who, reason, withdraws",
    ),
    EvidenceTable(
        name="rules",
        table="match_rules",
        known="at",
        key="number",
        columns="number, who, digest",
    ),
    EvidenceTable(
        name="break_deeds",
        table="break_deeds",
        known="at",
        key="number",
        columns="number, break_id, who, deed, value, reason, second, minor, currency",
    ),
    EvidenceTable(
        name="deeds",
        table="audit",
        known="at",
        key="number",
        columns="number, who, role, action, subject, reason, facts",
    ),
)


async def evidence_digests(
    connection: AsyncConnection,
    *,
    after: Instant,
    until: Instant,
    progress: Callable[[int], None],
) -> tuple[EvidenceDigest, ...]:
    """Return digests of the evidence by kind and day."""
    found: list[EvidenceDigest] = []
    for part in PARTS:
        counts, hashes = Counter[str](), defaultdict[str, Any](hashlib.sha256)
        values = {"after": after, "until": until}
        async for rows in stream(connection, part.sql, at_once=AT_ONCE, values=values):
            for row in rows:  # its columns are texts, whole numbers and nulls
                line = json.dumps(list(row), ensure_ascii=False, separators=(",", ":")) + "\n"
                day = day_of(row[0])
                hashes[day].update(line.encode("utf-8", "backslashreplace"))
                counts[day] += 1
            progress(len(rows))
        found += [
            EvidenceDigest(
                part=part.name,
                day=day,
                count=counts[day],
                digest=f"sha256:{hashes[day].hexdigest()}",
            )
            for day in sorted(counts)
        ]
    return tuple(found)
