"""Database rows of operators, tokens, bookmarks and the audit trail."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypedDict

from sqlalchemy import column, select, table, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.document_of import document_of
from app.database.statements import PlainConnection, run, select_in
from reconcile.canonical import canonical_json
from reconcile.documents import Count, InstantText
from reconcile.instants import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """Person who works with the service in a role."""

    name: str
    role: str
    created_at: Instant
    disabled_at: Instant | None = None
    account: str | None = None
    company: str | None = None


async def add_operator(connection: AsyncConnection, operator: Operator) -> None:
    """Insert an operator. The operator's name must not be taken."""
    await connection.execute(
        text(
            "INSERT INTO operators (name, role, created_at, company) "
            "VALUES (:name, :role, :at, :company)"
        ),
        {
            "name": operator.name,
            "role": operator.role,
            "at": operator.created_at,
            "company": operator.company,
        },
    )


async def set_role(connection: AsyncConnection, name: str, role: str) -> None:
    await connection.execute(
        text("UPDATE operators SET role=:role WHERE name=:name"), {"name": name, "role": role}
    )


async def set_company(connection: AsyncConnection, name: str, company: str) -> None:
    """Store the id of the company account with which a person signs in."""
    await connection.execute(
        text("UPDATE operators SET company=:company WHERE name=:name"),
        {"name": name, "company": company},
    )


async def disable_operator(connection: AsyncConnection, name: str, *, now: Instant) -> bool:
    """Disable an operator. Return False if no active operator has this name."""
    result = await connection.execute(
        text(
            "UPDATE operators SET disabled_at=:now WHERE name=:name AND disabled_at IS NULL "
            "RETURNING name"
        ),
        {"name": name, "now": now},
    )
    return result.first() is not None


async def operators(connection: AsyncConnection) -> list[Operator]:
    """Return all operators, including disabled operators, sorted by name."""
    rows = await connection.execute(
        text("SELECT name, role, created_at, disabled_at, company FROM operators ORDER BY name")
    )
    return [Operator(**row) for row in rows.mappings()]


class AuditEntryDocument(TypedDict):
    number: Count
    at: InstantText
    who: str
    role: str
    action: str
    subject: str
    reason: str
    facts: Mapping[str, str | int]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One person's act in the audit trail, without personal data."""

    at: Instant
    who: str
    role: str
    action: str
    subject: str
    reason: str = ""
    facts: Mapping[str, str | int] = field(default_factory=dict)
    number: int = 0
    order: str | None = None

    def document(self) -> AuditEntryDocument:
        return document_of(AuditEntryDocument, self)


async def add_entry(connection: AsyncConnection, entry: AuditEntry) -> int:
    return await run(connection, keep_entry, entry)


def keep_entry(connection: PlainConnection, entry: AuditEntry) -> int:
    """Append an audit entry and return its number."""
    ((number,),) = connection.ask(
        "INSERT INTO counters (name, value) VALUES ('audit', 1) "
        "ON CONFLICT (name) DO UPDATE SET value=counters.value+1 RETURNING value"
    )
    facts = canonical_json(dict(entry.facts)).decode()
    act = (entry.at, entry.who, entry.role, entry.action, entry.subject, entry.reason)
    connection.ask(
        "INSERT INTO audit (number, at, who, role, action, subject, reason, facts, order_key) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (number, *act, facts, entry.order),
    )
    return int(number)


async def acting_alone(connection: AsyncConnection) -> None:
    """Lock the audit trail for the transaction. Take this lock first."""
    await connection.execute(
        text(
            "INSERT INTO counters (name, value) VALUES ('audit', 0) "
            "ON CONFLICT (name) DO UPDATE SET value=counters.value"
        )
    )


_AUDIT: Final = table(
    "audit",
    *map(column, ("number", "at", "who", "role", "action", "subject", "reason", "facts")),
)


async def audit_entries(
    connection: AsyncConnection,
    *,
    after: int = 0,
    limit: int,
    subject: str | None = None,
    who: str | None = None,
    action: str | None = None,
    before: int | None = None,
) -> list[AuditEntry]:
    """Return the matching audit entries; with `before`, newest first."""
    number = _AUDIT.c.number
    listing = select(_AUDIT).where(number > after).limit(limit)
    for name, value in (("subject", subject), ("who", who), ("action", action)):
        if value is not None:
            listing = listing.where(_AUDIT.c[name] == value)
    if before is None:
        listing = listing.order_by(number)
    else:
        listing = listing.where(number < before).order_by(number.desc())
    rows = await connection.execute(listing)
    return [AuditEntry(**{**row, "facts": json.loads(row["facts"])}) for row in rows.mappings()]


_ABOUT: Final = (
    "SELECT number, at, who, role, action, subject, reason, facts FROM audit WHERE subject IN ({})"
)


async def entries_about(connection: AsyncConnection, subjects: Iterable[str]) -> list[AuditEntry]:
    """Return the audit entries about these subjects."""
    names = [each.name for each in _AUDIT.c]
    found = [
        dict(zip(names, row, strict=True))
        for row in await select_in(connection, sql=_ABOUT, values=subjects)
    ]
    entries = [AuditEntry(**{**row, "facts": json.loads(row["facts"])}) for row in found]
    return sorted(entries, key=lambda each: each.number)


async def acts_since(
    connection: AsyncConnection, since: Instant, *, who: str, actions: Sequence[str]
) -> list[AuditEntry]:
    """Return a person's audit entries with these actions."""
    column = _AUDIT.c
    listing = select(_AUDIT).where(column.who == who, column.at >= since)
    listing = listing.where(column.action.in_(actions)).order_by(column.number)
    rows = await connection.execute(listing)
    return [AuditEntry(**{**row, "facts": json.loads(row["facts"])}) for row in rows.mappings()]


async def ways_in_since(connection: AsyncConnection, since: Instant) -> set[tuple[str, str]]:
    """Return pairs of operators: the first gave the second access."""
    rows = await connection.execute(
        text(
            "SELECT who, subject, at FROM audit WHERE action = 'operator_invited' AND at > :since "
            "UNION SELECT who, operator, at FROM audit JOIN tokens ON tokens.name = subject "
            "WHERE action = 'token_added' AND at > :since AND operator IS NOT NULL"
        ),
        {"since": since},
    )
    vouched = await audit_entries(connection, limit=1, action=VOUCHED)
    founders = [({each.facts["one"], each.facts["other"]}, each.at) for each in vouched]
    return {
        (by, of)
        for by, of, at in rows
        if not any({by, of} == pair and at <= before for pair, before in founders)
    }


VOUCHED: Final = "founders_vouched"
"""Audit action that declares two founders different persons."""


class TokenDocument(TypedDict):
    name: str
    operator: str | None
    scopes: list[str]
    until: InstantText | None
    created_at: InstantText
    revoked_at: InstantText | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEntry:
    """Stored data of an API token, without the secret."""

    name: str
    created_at: Instant
    scopes: tuple[str, ...]
    until: Instant | None = None
    """Expiry; None if the token does not expire."""
    revoked_at: Instant | None = None
    operator: str | None = None
    """The token's owner. None for a program's token."""

    def document(self) -> TokenDocument:
        return document_of(TokenDocument, self)

    @property
    def changed_at(self) -> Instant:
        return self.created_at if self.revoked_at is None else self.revoked_at

    def in_force(self, now: Instant) -> bool:
        return self.revoked_at is None and (self.until is None or now < self.until)


_TOKENS: Final = table(
    "tokens",
    *map(column, ("name", "created_at", "scopes", "until", "revoked_at", "operator", "hash")),
)
_ENTRIES: Final = select(*_TOKENS.c[:-1])

_ENTRY: Final = (
    "SELECT name, created_at, scopes, until, revoked_at, operator FROM tokens WHERE hash = ?"
)


def hashed(token: str) -> str:
    """Return the SHA-256 hash of a token, link or cookie."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


async def add_token(connection: AsyncConnection, entry: TokenEntry, *, token: str) -> None:
    await connection.execute(
        text(
            "INSERT INTO tokens (name, hash, created_at, scopes, until, operator) "
            "VALUES (:name, :hash, :created_at, :scopes, :until, :operator)"
        ),
        asdict(entry) | {"hash": hashed(token), "scopes": " ".join(entry.scopes)},
    )


async def revoke_token(
    connection: AsyncConnection, *, name: str, now: Instant
) -> TokenEntry | None:
    """Revoke an active token and return its data, if any."""
    result = await connection.execute(
        text(
            "UPDATE tokens SET revoked_at=:now WHERE name=:name AND revoked_at IS NULL "
            "RETURNING name, created_at, scopes, until, revoked_at, operator"
        ),
        {"name": name, "now": now},
    )
    row = result.first()
    return None if row is None else _entry(tuple(row))


async def revoke_tokens_of(connection: AsyncConnection, operator: str, *, now: Instant) -> int:
    """Revoke all tokens that a person owns. Return the number of revoked tokens."""
    rows = await connection.execute(
        text(
            "UPDATE tokens SET revoked_at=:now WHERE operator=:operator AND revoked_at IS NULL "
            "RETURNING name"
        ),
        {"operator": operator, "now": now},
    )
    return len(rows.all())


async def list_tokens(connection: AsyncConnection) -> list[TokenEntry]:
    rows = await connection.execute(_ENTRIES.order_by(_TOKENS.c.name))
    return [_entry(tuple(row)) for row in rows]


def token_entry(connection: PlainConnection, token: str) -> TokenEntry | None:
    """Return a token's stored data, even if expired or revoked."""
    rows = connection.ask(_ENTRY, (hashed(token),))
    return _entry(rows[0]) if rows else None


def _entry(row: Sequence[Any]) -> TokenEntry:
    names = ("name", "created_at", "scopes", "until", "revoked_at", "operator")
    found = dict(zip(names, row, strict=True))
    return TokenEntry(**{**found, "scopes": tuple(found["scopes"].split())})


# --- bookmarks ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Bookmark:
    """Operator's bookmark: a pinned order or a filtered list."""

    kind: str
    label: str
    query: str
    at: Instant


async def bookmarks(connection: AsyncConnection, operator: str) -> list[Bookmark]:
    """Return an operator's bookmarks, without restricted orders."""
    rows = await connection.execute(
        text(
            "SELECT kind, label, query, at FROM bookmarks WHERE operator = :operator "
            "AND NOT (kind = 'order' AND EXISTS (SELECT 1 FROM restrictions "
            "WHERE restrictions.kind = 'order' AND thing = label)) ORDER BY kind, label"
        ),
        {"operator": operator},
    )
    return [Bookmark(**row) for row in rows.mappings()]


async def put_bookmark(connection: AsyncConnection, operator: str, kept: Bookmark) -> None:
    """Insert a bookmark. A bookmark with an equal kind and label is replaced."""
    await connection.execute(
        text(
            "INSERT INTO bookmarks (operator, kind, label, query, at) "
            "VALUES (:operator, :kind, :label, :query, :at) "
            "ON CONFLICT (operator, kind, label) DO UPDATE SET query=excluded.query, at=excluded.at"
        ),
        asdict(kept) | {"operator": operator},
    )


async def delete_bookmark(
    connection: AsyncConnection, operator: str, *, kind: str, label: str
) -> bool:
    """Delete a bookmark. Return False if no such bookmark existed."""
    rows = await connection.execute(
        text(
            "DELETE FROM bookmarks WHERE operator = :operator AND kind = :kind "
            "AND label = :label RETURNING label"
        ),
        {"operator": operator, "kind": kind, "label": label},
    )
    return rows.first() is not None
