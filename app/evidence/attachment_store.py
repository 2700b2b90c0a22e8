"""Rows of attachments: files that people attach to orders and breaks, kept once by their digest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from sqlalchemy import column, select, table, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.access.operator_store import acting_alone
from app.database.statements import insert_rows, run, select_in, statement
from reconcile.instants import Instant

About = Literal["order", "break"]
"""What a file may be attached to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachmentRecord:
    """One attachment as it is stored.

    order         of which it is; "" for one of a break that is of no order
    audit_number  of the audit entry that says so, which the log seals
    details       what is personal of it, as canonical JSON; None once it is gone
    gone_at       when it was detached or erased: its bytes are gone, too, unless another has them
    """

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


def _record(row: Sequence[Any]) -> AttachmentRecord:
    return AttachmentRecord(
        attachment_id=row[0],
        about=row[1],
        subject=row[2],
        order=row[3],
        kind=row[4],
        media=row[5],
        sha256=row[6],
        size=row[7],
        who=row[8],
        at=row[9],
        audit_number=row[10],
        details=row[11],
        gone_at=row[12],
    )


async def add_attachment(
    connection: AsyncConnection, attached: AttachmentRecord, body: bytes
) -> None:
    """Keep one, and its bytes where they are not kept yet."""
    row = (
        attached.attachment_id, attached.about, attached.subject, attached.order, attached.kind,
        attached.media, attached.sha256, attached.size, attached.who, attached.at,
        attached.audit_number, attached.details, attached.gone_at,
    )  # fmt: skip
    await run(connection, insert_rows, table="attachments", columns=_COLUMNS, rows=[row])
    await run(
        connection,
        insert_rows,
        table="attachment_files",
        columns=("sha256", "body"),
        rows=[(attached.sha256, body)],
        conflict="ON CONFLICT DO NOTHING",
    )


async def attachments_of_order(connection: AsyncConnection, order: str) -> list[AttachmentRecord]:
    """Those of an order and of its breaks, in the order in which they were attached; gone ones,
    too."""
    of_order = select(_ATTACHMENTS).where(_ATTACHMENTS.c.order_key == order)
    rows = await connection.execute(of_order.order_by(_ATTACHMENTS.c.deed))
    return [_record(row) for row in rows]


async def attachments_of_subject(
    connection: AsyncConnection, about: About, subject: str
) -> list[AttachmentRecord]:
    """Those of one order or one break alone; gone ones, too."""
    of_one = select(_ATTACHMENTS).where(
        _ATTACHMENTS.c.subject == subject, _ATTACHMENTS.c.about == about
    )
    rows = await connection.execute(of_one.order_by(_ATTACHMENTS.c.deed))
    return [_record(row) for row in rows]


async def attachment_named(connection: AsyncConnection, name: str) -> AttachmentRecord | None:
    """The one of this id."""
    rows = await connection.execute(select(_ATTACHMENTS).where(_ATTACHMENTS.c.id == name))
    row = rows.first()
    return None if row is None else _record(row)


async def living_attachments(
    connection: AsyncConnection, orders: Iterable[str]
) -> list[AttachmentRecord]:
    """Those of these orders that are there, by id."""
    return sorted(
        (_record(row) for row in await select_in(connection, sql=_THERE, values=orders)),
        key=lambda each: each.attachment_id,
    )


AT_ONCE: Final = 200
"""Rows read at a time, each with some hundred bytes of details."""


async def attachments_after(connection: AsyncConnection, after: str) -> list[AttachmentRecord]:
    """Some of all that are there, by id."""
    key = _ATTACHMENTS.c.id
    there = select(_ATTACHMENTS).where(_ATTACHMENTS.c.gone_at.is_(None), key > after)
    rows = await connection.execute(there.order_by(key).limit(AT_ONCE))
    return [_record(row) for row in rows]


async def attached_bytes(connection: AsyncConnection, sha256: str) -> bytes | None:
    """The bytes of this digest; None where none of that digest is there."""
    found = await connection.scalar(
        text("SELECT body FROM attachment_files WHERE sha256 = :digest"), {"digest": sha256}
    )
    return None if found is None else bytes(found)


async def empty_attachments(
    connection: AsyncConnection, names: Sequence[str], *, now: Instant
) -> None:
    """Empty these of what is personal, and delete bytes that no other attachment has."""
    await acting_alone(connection)  # who attaches the same bytes just now counts, too
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


async def facts_of_audit_entries(
    connection: AsyncConnection, numbers: Iterable[int]
) -> dict[int, str]:
    """What audit entries say, as the text of which the log has the digest."""
    rows = await select_in(
        connection, sql="SELECT number, facts FROM audit WHERE number IN ({})", values=numbers
    )
    return {row[0]: row[1] for row in rows}


async def order_of_break(connection: AsyncConnection, name: str) -> str | None:
    """The order that a break is of, "" where it is of none; None where there is no such break."""
    rows = await connection.execute(
        text("SELECT order_ref FROM breaks WHERE id = :name"), {"name": name}
    )
    row = rows.first()
    return None if row is None else (row[0] or "")
