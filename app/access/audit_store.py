"""The audit trail: who did what, when and why. Rows are only added."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from reconcile.instants import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """One thing that a person did.

    subject  what it was done to: an order, a break, a file, a period; never a phone number
    reason   what the person said for it, in their words; may be empty
    facts    named values worth keeping, such as counts and digests; never personal data
    """

    at: Instant
    who: str
    role: str
    action: str
    subject: str
    reason: str = ""
    facts: Mapping[str, str | int] = field(default_factory=dict)
    number: int = 0


async def add_deed(connection: AsyncConnection, deed: Deed) -> int:
    """Write it after all others, in the caller's transaction. Returns its number.

    The counter's row stays locked until the transaction ends, so numbers are in commit order.
    """
    number = await connection.scalar(
        text(
            "INSERT INTO counters (name, value) VALUES ('audit', 1) "
            "ON CONFLICT (name) DO UPDATE SET value=counters.value+1 RETURNING value"
        )
    )
    assert isinstance(number, int)
    await connection.execute(
        text(
            "INSERT INTO audit (number, at, who, role, action, subject, reason, facts) "
            "VALUES (:number, :at, :who, :role, :action, :subject, :reason, :facts)"
        ),
        {
            "number": number,
            "at": deed.at,
            "who": deed.who,
            "role": deed.role,
            "action": deed.action,
            "subject": deed.subject,
            "reason": deed.reason,
            "facts": json.dumps(dict(deed.facts), sort_keys=True, ensure_ascii=False),
        },
    )
    return number


async def deeds(
    connection: AsyncConnection,
    *,
    after: int = 0,
    limit: int,
    subject: str | None = None,
    who: str | None = None,
    action: str | None = None,
) -> list[Deed]:
    """Deeds in the order in which they were done: all, or those of a subject, person or action."""
    given = {"subject": subject, "who": who, "action": action}
    chosen = {name: value for name, value in given.items() if value is not None}
    where = " AND ".join(["number > :after", *(f"{name} = :{name}" for name in chosen)])
    rows = await connection.execute(
        text(
            "SELECT number, at, who, role, action, subject, reason, facts FROM audit "  # noqa: S608
            f"WHERE {where} ORDER BY number LIMIT :limit"
        ),
        {"after": after, "limit": limit, **chosen},
    )
    return [
        Deed(
            number=row[0],
            at=row[1],
            who=row[2],
            role=row[3],
            action=row[4],
            subject=row[5],
            reason=row[6],
            facts=json.loads(row[7]),
        )
        for row in rows
    ]
