"""API tokens: only their hashes are kept. A token has 256 bits of chance, so SHA-256 is enough."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from reconcile.instants import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEntry:
    """What is known of a token; never the token itself."""

    name: str
    created_at: Instant
    revoked_at: Instant | None


def hashed(token: str) -> str:
    """The form in which a token is kept and looked up."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


async def add_token(connection: AsyncConnection, *, name: str, token: str, now: Instant) -> None:
    """Keep a new token's hash under a name that is free."""
    await connection.execute(
        text("INSERT INTO tokens (name, hash, created_at) VALUES (:name, :hash, :now)"),
        {"name": name, "hash": hashed(token), "now": now},
    )


async def revoke_token(connection: AsyncConnection, *, name: str, now: Instant) -> bool:
    """Revoke by name; False when there is no such token in force."""
    result = await connection.execute(
        text(
            "UPDATE tokens SET revoked_at=:now WHERE name=:name AND revoked_at IS NULL "
            "RETURNING name"
        ),
        {"name": name, "now": now},
    )
    return result.first() is not None


async def list_tokens(connection: AsyncConnection) -> list[TokenEntry]:
    """All tokens, by name."""
    rows = await connection.execute(
        text("SELECT name, created_at, revoked_at FROM tokens ORDER BY name")
    )
    return [TokenEntry(name=r[0], created_at=r[1], revoked_at=r[2]) for r in rows]


async def token_name(connection: AsyncConnection, token: str) -> str | None:
    """The name of the token in force that this is; None for any other text."""
    row = await connection.execute(
        text("SELECT name FROM tokens WHERE hash=:hash AND revoked_at IS NULL"),
        {"hash": hashed(token)},
    )
    found = row.scalar_one_or_none()
    return None if found is None else str(found)
