"""Operators' choices of how they are notified of their work, and the audit entries that cause
notices."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.access.operator_store import AuditEntry
from reconcile.instants import LATEST, Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeChoice:
    """An operator's choice of notifications about work."""

    operator: str
    pace: str
    """`at_once` or `daily`."""
    way: str
    """`mail` or `post`."""
    address: str | None
    """Recipient of mails. None for a signed POST."""
    position: int
    """Last audit entry of which the operator was notified."""
    due_at: Instant
    """Time of the next check. During a try, the end of the sender's claim."""
    tries: int = 0
    """Number of failed tries since the last success."""


async def put_choice(connection: AsyncConnection, choice: NoticeChoice) -> None:
    """Store an operator's choice, and replace any earlier choice."""
    await connection.execute(
        text(
            "INSERT INTO notice_choices "
            "(operator, pace, way, address, position, due_at, tries) VALUES "
            "(:operator, :pace, :way, :address, :position, :due_at, :tries) "
            "ON CONFLICT (operator) DO UPDATE SET pace=excluded.pace, way=excluded.way, "
            "address=excluded.address, position=excluded.position, due_at=excluded.due_at, "
            "tries=excluded.tries"
        ),
        asdict(choice),
    )


async def delete_choice(connection: AsyncConnection, operator: str) -> None:
    await connection.execute(
        text("DELETE FROM notice_choices WHERE operator = :operator"), {"operator": operator}
    )


async def choice_of(connection: AsyncConnection, operator: str) -> NoticeChoice | None:
    rows = await connection.execute(
        text(
            "SELECT operator, pace, way, address, position, due_at, tries FROM notice_choices "
            "WHERE operator = :operator"
        ),
        {"operator": operator},
    )
    row = rows.mappings().first()
    return None if row is None else NoticeChoice(**row)


async def choices_due(
    connection: AsyncConnection, now: Instant, *, beyond: Instant = LATEST
) -> list[NoticeChoice]:
    """Return the choices of all operators that are due for a check.

    Times later than `beyond` come from a fast clock, and count as due.
    """
    rows = await connection.execute(
        text(
            "SELECT operator, pace, way, address, position, due_at, tries FROM notice_choices "
            "WHERE due_at <= :now OR due_at > :beyond ORDER BY operator"
        ),
        {"now": now, "beyond": beyond},
    )
    return [NoticeChoice(**row) for row in rows.mappings()]


async def claim_choice(
    connection: AsyncConnection, choice: NoticeChoice, *, until: Instant
) -> bool:
    """Claim an operator's choice until the given time. Return False if it changed meanwhile."""
    claimed = await connection.execute(
        text(
            "UPDATE notice_choices SET due_at = :until WHERE operator = :operator "
            "AND due_at = :due_at AND position = :position"
        ),
        asdict(choice) | {"until": until},
    )
    return claimed.rowcount == 1


async def put_looked(
    connection: AsyncConnection,
    choice: NoticeChoice,
    *,
    position: int,
    due_at: Instant,
    tries: int = 0,
) -> None:
    """Store the last audit entry already notified."""
    await connection.execute(
        text(
            "UPDATE notice_choices SET position = :reached, due_at = :due_at, tries = :tries "
            "WHERE operator = :operator AND position = :position AND pace = :pace AND way = :way"
        ),
        asdict(choice) | {"reached": position, "due_at": due_at, "tries": tries},
    )


async def work_entries(
    connection: AsyncConnection, *, after: int, limit: int
) -> Sequence[AuditEntry]:
    """Return the audit entries above `after` on assigned breaks and made proposals, by number."""
    rows = await connection.execute(
        text(
            "SELECT number, at, who, role, action, subject, facts FROM audit "
            "WHERE action IN ('break_assigned', 'proposed') AND number > :after "
            "ORDER BY number LIMIT :limit"
        ),
        {"after": after, "limit": limit},
    )
    return [AuditEntry(**{**row, "facts": json.loads(row["facts"])}) for row in rows.mappings()]


async def newest_entry(connection: AsyncConnection) -> int:
    """Return the number of the last audit entry; 0 if there is none."""
    found = await connection.execute(text("SELECT max(number) FROM audit"))
    return int(found.scalar_one() or 0)
