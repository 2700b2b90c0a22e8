"""Operators: people with a name and a role. A name is never given to a second person."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from reconcile.instants import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One person, and since when they may do nothing any more, if so."""

    name: str
    role: str
    created_at: Instant
    disabled_at: Instant | None = None


async def add_operator(connection: AsyncConnection, operator: Operator) -> None:
    """Write down a person whose name is free."""
    await connection.execute(
        text("INSERT INTO operators (name, role, created_at) VALUES (:name, :role, :at)"),
        {"name": operator.name, "role": operator.role, "at": operator.created_at},
    )


async def disable_operator(connection: AsyncConnection, name: str, *, now: Instant) -> bool:
    """Let a person do nothing any more; False where no such person may."""
    result = await connection.execute(
        text(
            "UPDATE operators SET disabled_at=:now WHERE name=:name AND disabled_at IS NULL "
            "RETURNING name"
        ),
        {"name": name, "now": now},
    )
    return result.first() is not None


async def operators(connection: AsyncConnection) -> list[Operator]:
    """All of them by name, the disabled included; a shop has some dozens."""
    rows = await connection.execute(
        text("SELECT name, role, created_at, disabled_at FROM operators ORDER BY name")
    )
    return [Operator(name=r[0], role=r[1], created_at=r[2], disabled_at=r[3]) for r in rows]
