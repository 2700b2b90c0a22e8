"""Store and read attachments: files attached to orders and breaks.

Equal files are stored only once.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import astuple, dataclass, field, fields
from typing import Any, Final, Literal

from sqlalchemy import column, select, table, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.access.operator_store import acting_alone
from app.database.mapping import AUDIT_AT
from app.database.statements import insert_rows, run, select_in, statement
from reconcile.instants import Instant

About = Literal["order", "break"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachmentRecord:
    """Stored attachment of an order or break. The details are None after deletion."""

    attachment_id: str
    about: About
    subject: str
    order: str
    kind: str
    media: str
    sha256: str
    size: int
    who: str
    at: Instant
    audit_number: int
    details: str | None = field(default=None, repr=False)
    gone_at: Instant | None = None


_COLUMNS: Final = (
    "id", "about", "subject", "order_key", "kind", "media", "sha256", "size", "who", "at", "deed",
    "details", "gone_at",
)  # fmt: skip
_ATTACHMENTS: Final = table("attachments", *map(column, _COLUMNS))
_THERE: Final = statement(
    "SELECT {columns} FROM attachments WHERE gone_at IS NULL AND order_key IN ({})",
    columns=", ".join(_COLUMNS),
)


_FIELDS: Final = tuple(each.name for each in fields(AttachmentRecord))


def _record(row: Sequence[Any]) -> AttachmentRecord:
    return AttachmentRecord(**dict(zip(_FIELDS, row, strict=True)))


async def add_attachment(
    connection: AsyncConnection, attached: AttachmentRecord, body: bytes
) -> None:
    """Store an attachment, and its file content if that content is not stored yet."""
    rows = [astuple(attached)]
    await run(connection, insert_rows, table="attachments", columns=_COLUMNS, rows=rows)
    await run(
        connection,
        insert_rows,
        table="attachment_files",
        columns=("sha256", "body"),
        rows=[(attached.sha256, body)],
        conflict="ON CONFLICT DO NOTHING",
    )


async def attachments_of_order(connection: AsyncConnection, order: str) -> list[AttachmentRecord]:
    """Return all attachments of an order and its breaks, including deleted attachments, oldest
    first."""
    of_order = select(_ATTACHMENTS).where(_ATTACHMENTS.c.order_key == order)
    rows = await connection.execute(of_order.order_by(_ATTACHMENTS.c.deed))
    return [_record(row) for row in rows]


async def attachments_of_subject(
    connection: AsyncConnection, about: About, subject: str
) -> list[AttachmentRecord]:
    """Return the attachments of exactly this order or break, including deleted attachments."""
    of_one = select(_ATTACHMENTS).where(
        _ATTACHMENTS.c.subject == subject, _ATTACHMENTS.c.about == about
    )
    rows = await connection.execute(of_one.order_by(_ATTACHMENTS.c.deed))
    return [_record(row) for row in rows]


async def attachment_named(connection: AsyncConnection, name: str) -> AttachmentRecord | None:
    rows = await connection.execute(select(_ATTACHMENTS).where(_ATTACHMENTS.c.id == name))
    return next((_record(row) for row in rows), None)


async def living_attachments(
    connection: AsyncConnection, orders: Iterable[str]
) -> list[AttachmentRecord]:
    """Return the attachments of these orders, except deleted attachments, sorted by id."""
    return sorted(
        (_record(row) for row in await select_in(connection, sql=_THERE, values=orders)),
        key=lambda each: each.attachment_id,
    )


AT_ONCE: Final = 200
"""Number of attachments in one batch."""


async def attachments_after(connection: AsyncConnection, after: str) -> list[AttachmentRecord]:
    """Return the next batch of undeleted attachments after an id."""
    key = _ATTACHMENTS.c.id
    there = select(_ATTACHMENTS).where(_ATTACHMENTS.c.gone_at.is_(None), key > after)
    rows = await connection.execute(there.order_by(key).limit(AT_ONCE))
    return [_record(row) for row in rows]


async def attached_bytes(connection: AsyncConnection, sha256: str) -> bytes | None:
    """Return the file content with this digest; None if it is not stored."""
    found = await connection.scalar(
        text("SELECT body FROM attachment_files WHERE sha256 = :digest"), {"digest": sha256}
    )
    return None if found is None else bytes(found)


async def files_of_none_but(connection: AsyncConnection, names: Collection[str]) -> set[str]:
    """Return the digests of the files that only the named attachments use."""
    sql = "SELECT sha256, id FROM attachments WHERE gone_at IS NULL AND sha256 IN ({})"
    own = "SELECT sha256 FROM attachments WHERE gone_at IS NULL AND id IN ({})"
    files = {row[0] for row in await select_in(connection, sql=own, values=names)}
    rows = await select_in(connection, sql=sql, values=files)
    return files - {row[0] for row in rows if row[1] not in names}


async def empty_attachments(
    connection: AsyncConnection, names: Sequence[str], *, now: Instant
) -> None:
    """Delete these attachments' personal data and files. Shared files stay."""
    await acting_alone(connection)  # waits for an attach of the same bytes
    for name in names:
        await connection.execute(
            text(
                "UPDATE attachments SET details = NULL, gone_at = :now "
                "WHERE id = :name AND gone_at IS NULL"
            ),
            {"now": now, "name": name},
        )
    await select_in(
        connection,
        sql="DELETE FROM attachment_files WHERE NOT EXISTS (SELECT 1 FROM attachments AS others "
        "WHERE others.sha256 = attachment_files.sha256 AND others.gone_at IS NULL) "
        "AND sha256 IN (SELECT sha256 FROM attachments WHERE id IN ({}))",
        values=names,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedEntry:
    """Audit entry about an order's file, whose leaf counts as a leaf of the order."""

    number: int
    attachment_id: str
    removed: bool
    media: str


async def counted_entries(
    connection: AsyncConnection, order: str, *, until: Instant
) -> list[CountedEntry]:
    """Return the audit entries about an order's files."""
    rows = await connection.execute(
        text(
            statement(
                "SELECT number, action, facts FROM audit WHERE order_key = :order "
                "AND {at} <= :until ORDER BY number",
                at=AUDIT_AT,
            )
        ),
        {"order": order, "until": until},
    )
    found = []
    for number, action, facts in rows:
        stated = json.loads(facts)
        found.append(
            CountedEntry(
                number=number,
                attachment_id=stated["attachment"],
                removed=action == "detached",
                media=stated.get("media", ""),
            )
        )
    return found


async def order_of_break(connection: AsyncConnection, name: str) -> str | None:
    """Return a break's order, or "" without one. Return None for an unknown break."""
    rows = await connection.execute(
        text("SELECT order_ref FROM breaks WHERE id = :name"), {"name": name}
    )
    row = rows.first()
    return None if row is None else (row[0] or "")
