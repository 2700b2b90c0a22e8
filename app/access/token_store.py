"""API tokens: only their hashes are kept. A token has 256 bits of chance, so SHA-256 is enough."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from reconcile.instants import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEntry:
    """What is known of a token; never the token itself.

    scopes  what it may be used for, in the order of the vocabulary
    until   the instant from which on it is good for nothing; None: it has no end
    """

    name: str
    created_at: Instant
    scopes: tuple[str, ...]
    until: Instant | None = None
    revoked_at: Instant | None = None

    @property
    def changed_at(self) -> Instant:
        """When a person last did anything to it."""
        return self.created_at if self.revoked_at is None else self.revoked_at

    def in_force(self, now: Instant) -> bool:
        """Whether it opens anything."""
        return self.revoked_at is None and (self.until is None or now < self.until)


_SELECT: Final = "SELECT name, created_at, scopes, until, revoked_at FROM tokens"


def hashed(token: str) -> str:
    """The form in which a token is kept and looked up."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


async def add_token(connection: AsyncConnection, entry: TokenEntry, *, token: str) -> None:
    """Keep a new token's hash under a name that is free."""
    await connection.execute(
        text(
            "INSERT INTO tokens (name, hash, created_at, scopes, until) "
            "VALUES (:name, :hash, :now, :scopes, :until)"
        ),
        {
            "name": entry.name,
            "hash": hashed(token),
            "now": entry.created_at,
            "scopes": " ".join(entry.scopes),
            "until": entry.until,
        },
    )


async def revoke_token(
    connection: AsyncConnection, *, name: str, now: Instant
) -> TokenEntry | None:
    """Revoke by name; what it was, or None when there is no such token that was not revoked."""
    result = await connection.execute(
        text(
            "UPDATE tokens SET revoked_at=:now WHERE name=:name AND revoked_at IS NULL "
            "RETURNING name, created_at, scopes, until, revoked_at"
        ),
        {"name": name, "now": now},
    )
    row = result.first()
    return None if row is None else _entry(tuple(row))


async def list_tokens(connection: AsyncConnection) -> list[TokenEntry]:
    """All tokens, by name."""
    rows = await connection.execute(text(f"{_SELECT} ORDER BY name"))
    return [_entry(tuple(row)) for row in rows]


async def token_entry(connection: AsyncConnection, token: str) -> TokenEntry | None:
    """What is known of the token that this is, in force or not; None for any other text."""
    found = await connection.execute(text(f"{_SELECT} WHERE hash=:hash"), {"hash": hashed(token)})
    row = found.first()
    return None if row is None else _entry(tuple(row))


def _entry(row: Sequence[Any]) -> TokenEntry:
    name, created_at, scopes, until, revoked_at = row
    return TokenEntry(
        name=name,
        created_at=created_at,
        scopes=tuple(scopes.split()),
        until=until,
        revoked_at=revoked_at,
    )
