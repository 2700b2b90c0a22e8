"""The rules of matching that were saved, as their files said. Rows are only added."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from reconcile.instants import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRules:
    """One saved set: its number, from 1, who saved it when, and the file's text."""

    number: int
    at: Instant
    who: str
    digest: str
    toml: str


async def rules_in_force(
    connection: AsyncConnection, *, as_of: Instant | None = None
) -> SavedRules | None:
    """The set that was saved last, or last by an instant; None: none ever was."""
    where = "" if as_of is None else "WHERE at <= :as_of "
    rows = await connection.execute(
        text(
            f"SELECT number, at, who, digest, toml FROM match_rules {where}"  # noqa: S608
            "ORDER BY number DESC LIMIT 1"
        ),
        {} if as_of is None else {"as_of": as_of},
    )
    found = rows.first()
    if found is None:
        return None
    number, at, who, digest, toml = found
    return SavedRules(number=number, at=at, who=who, digest=digest, toml=toml)


async def add_rules(connection: AsyncConnection, *, at: Instant, who: str, toml: str) -> SavedRules:
    """Save a set after all others."""
    last = await rules_in_force(connection)
    saved = SavedRules(
        number=1 if last is None else last.number + 1,
        at=at,
        who=who,
        digest=hashlib.sha256(toml.encode()).hexdigest(),
        toml=toml,
    )
    await connection.execute(
        text(
            "INSERT INTO match_rules (number, at, who, digest, toml) "
            "VALUES (:number, :at, :who, :digest, :toml)"
        ),
        {name: getattr(saved, name) for name in ("number", "at", "who", "digest", "toml")},
    )
    return saved
