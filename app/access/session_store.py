"""Database rows of credentials, invitations, sessions and used forms."""

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Final, Literal

from sqlalchemy import Text, bindparam, delete, table, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.access.operator_store import hashed
from app.core.clock import CLOCKS_DIFFER
from app.database.statements import PlainConnection
from reconcile.instants import Instant

LinkKind = Literal["invite", "enter"]

Way = Literal["password", "company", "link"]
"""Way in which a session began. A link is made by the machine's owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """An operator's stored password hash and secret for one-time codes."""

    name: str
    password: str
    totp: str | None
    totp_step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Passkey:
    """Passkey of an operator."""

    id: str
    name: str
    label: str
    public_key: bytes
    sign_count: int
    made_at: Instant
    used_at: Instant | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInLink:
    """Link that is still usable and lets a person set a password or begin a session."""

    kind: LinkKind
    name: str
    until: Instant
    totp: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSession:
    """Active session of an operator, with the operator's present role."""

    name: str
    role: str
    created_at: Instant
    used_at: Instant
    until: Instant
    way: Way
    proved_at: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSession:
    """Session on an operator's account page."""

    id: str
    created_at: Instant
    used_at: Instant
    until: Instant


ID_CHARS: Final = 16
"""Number of hexadecimal digits in a session's id."""


async def credential_of(connection: AsyncConnection, name: str) -> Credential | None:
    rows = await connection.execute(
        text("SELECT name, password, totp, totp_step FROM credentials WHERE name=:name"),
        {"name": name},
    )
    row = rows.mappings().first()
    return None if row is None else Credential(**row)


async def any_credential(connection: AsyncConnection) -> bool:
    """Return whether at least one active operator can sign in."""
    rows = await connection.execute(
        text(
            "SELECT 1 FROM operators LEFT JOIN credentials ON credentials.name = operators.name "
            "WHERE disabled_at IS NULL AND (password IS NOT NULL OR company IS NOT NULL) LIMIT 1"
        )
    )
    return rows.first() is not None


async def set_credential(
    connection: AsyncConnection, credential: Credential, *, now: Instant
) -> None:
    await connection.execute(
        text(
            "INSERT INTO credentials (name, password, totp, totp_step, set_at) "
            "VALUES (:name, :password, :totp, :totp_step, :now) ON CONFLICT (name) DO UPDATE SET "
            "password=excluded.password, totp=excluded.totp, totp_step=excluded.totp_step, "
            "set_at=excluded.set_at"
        ),
        asdict(credential) | {"now": now},
    )


async def delete_credential(connection: AsyncConnection, name: str) -> None:
    await connection.execute(text("DELETE FROM credentials WHERE name=:name"), {"name": name})
    await delete_passkeys(connection, name)


async def passkeys_of(connection: AsyncConnection, name: str) -> list[Passkey]:
    rows = await connection.execute(
        text(
            "SELECT id, name, label, public_key, sign_count, made_at, used_at FROM passkeys "
            "WHERE name=:name ORDER BY made_at, id"
        ),
        {"name": name},
    )
    return [Passkey(**row) for row in rows.mappings()]


async def add_passkey(connection: AsyncConnection, passkey: Passkey) -> bool:
    """Insert a passkey. Return False if the passkey is already stored."""
    rows = await connection.execute(
        text(
            "INSERT INTO passkeys (id, name, label, public_key, sign_count, made_at) "
            "VALUES (:id, :name, :label, :public_key, :sign_count, :made_at) "
            "ON CONFLICT DO NOTHING RETURNING id"
        ),
        {name: value for name, value in asdict(passkey).items() if name != "used_at"},
    )
    return rows.first() is not None


async def note_signature(
    connection: AsyncConnection, passkey: Passkey, *, count: int, now: Instant
) -> bool:
    """Store a passkey's signature count. Return False after another use."""
    rows = await connection.execute(
        text(
            "UPDATE passkeys SET sign_count=:count, used_at=:now "
            "WHERE id=:id AND sign_count=:before RETURNING id"
        ),
        {"id": passkey.id, "before": passkey.sign_count, "count": count, "now": now},
    )
    return rows.first() is not None


async def delete_passkeys(
    connection: AsyncConnection, name: str, identity: str | None = None
) -> int:
    """Delete one passkey, or all without an id. Return the number."""
    rows = await connection.execute(
        text(
            "DELETE FROM passkeys WHERE name=:name AND (id=:id OR :id IS NULL) RETURNING id"
        ).bindparams(bindparam("id", type_=Text)),
        {"name": name, "id": identity},
    )
    return len(rows.all())


async def use_step(connection: AsyncConnection, name: str, step: int) -> bool:
    """Use a code's time step. Return False if used before."""
    rows = await connection.execute(
        text(
            "UPDATE credentials SET totp_step=:step WHERE name=:name "
            "AND coalesce(totp_step, -1) < :step RETURNING name"
        ),
        {"name": name, "step": step},
    )
    return rows.first() is not None


async def add_link(
    connection: AsyncConnection, link: SignInLink, *, token: str, now: Instant
) -> None:
    """Insert a sign-in link. The person's earlier links of this kind are deleted."""
    await connection.execute(
        text("DELETE FROM invitations WHERE name=:name AND kind=:kind"),
        {"name": link.name, "kind": link.kind},
    )
    await connection.execute(
        text(
            "INSERT INTO invitations (hash, kind, name, made_at, until, totp) "
            "VALUES (:hash, :kind, :name, :now, :until, :totp)"
        ),
        asdict(link) | {"hash": hashed(token), "now": now},
    )


async def open_link(
    connection: AsyncConnection, token: str, *, kind: LinkKind, now: Instant
) -> SignInLink | None:
    """Return the usable sign-in link of a secret token."""
    rows = await connection.execute(
        text(
            "SELECT kind, invitations.name, until, totp FROM invitations "
            "JOIN operators ON operators.name = invitations.name AND disabled_at IS NULL "
            "WHERE hash=:hash AND kind=:kind AND used_at IS NULL AND until > :now"
        ),
        {"hash": hashed(token), "kind": kind, "now": now},
    )
    row = rows.mappings().first()
    return None if row is None else SignInLink(**row)


async def delete_invitations(connection: AsyncConnection, name: str) -> None:
    """Delete all invitations of a person, used or not."""
    await connection.execute(
        text("DELETE FROM invitations WHERE name=:name AND kind='invite'"), {"name": name}
    )


async def use_link(connection: AsyncConnection, token: str, *, now: Instant) -> bool:
    """Use a sign-in link. Return False if used or expired."""
    rows = await connection.execute(
        text(
            "UPDATE invitations SET used_at=:now, totp=NULL WHERE hash=:hash AND used_at IS NULL "
            "AND until > :now RETURNING name"
        ),
        {"hash": hashed(token), "now": now},
    )
    return rows.first() is not None


async def add_session(
    connection: AsyncConnection,
    *,
    token: str,
    name: str,
    now: Instant,
    until: Instant,
    way: Way = "password",
) -> None:
    """Insert a session, stored under the hash of its cookie. Expired sessions are deleted."""
    await connection.execute(text("DELETE FROM sessions WHERE until <= :now"), {"now": now})
    await connection.execute(
        text(
            "INSERT INTO sessions (hash, name, created_at, used_at, until, way, proved_at) "
            "VALUES (:hash, :name, :now, :now, :until, :way, :now)"
        ),
        {"hash": hashed(token), "name": name, "now": now, "until": until, "way": way},
    )


def _times(now: Instant, used_after: Instant) -> dict[str, Instant]:
    return {"now": now, "used_after": used_after, "used_before": Instant(now + CLOCKS_DIFFER)}


async def session_in_force(
    connection: AsyncConnection, token: str, *, now: Instant, used_after: Instant
) -> OperatorSession | None:
    """Return a cookie's active session with the operator's present role."""
    rows = await connection.execute(
        text(
            "SELECT sessions.name, role, sessions.created_at, used_at, until, way, proved_at "
            "FROM sessions "
            "JOIN operators ON operators.name = sessions.name AND disabled_at IS NULL "
            "WHERE hash=:hash AND revoked_at IS NULL AND until > :now AND used_at > :used_after "
            "AND used_at <= :used_before"
        ),
        {"hash": hashed(token), **_times(now, used_after)},
    )
    row = rows.mappings().first()
    return None if row is None else OperatorSession(**row)


async def name_of_session(connection: AsyncConnection, token: str) -> str | None:
    """Return the person of a cookie's session, even if expired."""
    rows = await connection.execute(
        text("SELECT name FROM sessions WHERE hash=:hash AND revoked_at IS NULL"),
        {"hash": hashed(token)},
    )
    row = rows.first()
    return None if row is None else str(row[0])


async def note_use(connection: AsyncConnection, token: str, *, now: Instant) -> None:
    await connection.execute(
        text("UPDATE sessions SET used_at=:now WHERE hash=:hash AND used_at < :now"),
        {"hash": hashed(token), "now": now},
    )


async def revoke_session(connection: AsyncConnection, token: str, *, now: Instant) -> None:
    await connection.execute(
        text("UPDATE sessions SET revoked_at=:now WHERE hash=:hash AND revoked_at IS NULL"),
        {"hash": hashed(token), "now": now},
    )


async def renew_session(connection: AsyncConnection, token: str, *, new: str, now: Instant) -> bool:
    """Give a session a new cookie. Return False if ended."""
    rows = await connection.execute(
        text(
            "UPDATE sessions SET hash=:new, proved_at=:now "
            "WHERE hash=:hash AND revoked_at IS NULL RETURNING name"
        ),
        {"hash": hashed(token), "new": hashed(new), "now": now},
    )
    return rows.first() is not None


async def with_credentials(connection: AsyncConnection) -> set[str]:
    """Return the names of all persons who have a stored password."""
    rows = await connection.execute(text("SELECT name FROM credentials"))
    return {row[0] for row in rows}


async def invited(connection: AsyncConnection, *, now: Instant) -> set[str]:
    """Return the names of all persons who have a usable invitation."""
    rows = await connection.execute(
        text(
            "SELECT name FROM invitations WHERE kind='invite' AND used_at IS NULL AND until > :now"
        ),
        {"now": now},
    )
    return {row[0] for row in rows}


async def sessions_by_name(
    connection: AsyncConnection, *, now: Instant, used_after: Instant
) -> dict[str, tuple[int, Instant]]:
    """Return each person's session count and latest use."""
    rows = await connection.execute(
        text(
            "SELECT name, count(*), max(used_at) FROM sessions WHERE revoked_at IS NULL "
            "AND until > :now AND used_at > :used_after "
            "AND used_at <= :used_before GROUP BY name"
        ),
        _times(now, used_after),
    )
    return {row[0]: (int(row[1]), Instant(row[2])) for row in rows}


async def revoke_sessions_of(connection: AsyncConnection, name: str, *, now: Instant) -> int:
    """End all sessions of a person. Return the number of ended sessions."""
    rows = await connection.execute(
        text(
            "UPDATE sessions SET revoked_at=:now WHERE name=:name AND revoked_at IS NULL "
            "RETURNING hash"
        ),
        {"name": name, "now": now},
    )
    return len(rows.all())


async def sessions_of(
    connection: AsyncConnection, name: str, *, now: Instant, used_after: Instant
) -> list[OwnSession]:
    rows = await connection.execute(
        text(
            "SELECT hash, created_at, used_at, until FROM sessions WHERE name=:name "
            "AND revoked_at IS NULL AND until > :now AND used_at > :used_after "
            "AND used_at <= :used_before ORDER BY created_at DESC, hash"
        ),
        {"name": name, **_times(now, used_after)},
    )
    return [
        OwnSession(id=digest[:ID_CHARS], created_at=created, used_at=used, until=until)
        for digest, created, used, until in rows
    ]


async def revoke_own_sessions(
    connection: AsyncConnection, name: str, ids: Collection[str], *, now: Instant
) -> int:
    """End a person's sessions with these ids. Return their number."""
    rows = await connection.execute(
        text(
            "UPDATE sessions SET revoked_at=:now WHERE name=:name AND revoked_at IS NULL "
            "AND substr(hash, 1, :chars) IN :ids RETURNING hash"
        ).bindparams(bindparam("ids", type_=Text, expanding=True)),
        {"name": name, "now": now, "chars": ID_CHARS, "ids": list(ids)},
    )
    return len(rows.all())


async def end_everything(connection: AsyncConnection) -> None:
    """Delete all sessions and invitations, because a restored backup may contain revoked ones."""
    for name in ("sessions", "invitations"):
        await connection.execute(delete(table(name)))


def end_access(connection: PlainConnection, *, after: Instant, now: Instant) -> None:
    """End sessions and invitations that a fast clock has dated later than `after`."""
    connection.ask("DELETE FROM sessions WHERE used_at > ?", (after,))
    connection.ask(
        "UPDATE invitations SET until=? WHERE until > ? AND made_at > ?", (now, now, after)
    )


async def use_form(
    connection: AsyncConnection, form: str, *, now: Instant, kept_since: Instant
) -> bool:
    """Use a form's id. Return False if used before."""
    await connection.execute(text("DELETE FROM used_forms WHERE at < :at"), {"at": kept_since})
    rows = await connection.execute(
        text("INSERT INTO used_forms (id, at) VALUES (:id, :now) ON CONFLICT DO NOTHING "
             "RETURNING id"),
        {"id": hashed(form), "now": now},
    )  # fmt: skip
    return rows.first() is not None
