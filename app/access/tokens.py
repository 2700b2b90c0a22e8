"""API tokens. A token is shown once and stored as a hash."""

import hashlib
import itertools
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Final, Literal, get_args

from app.access import operator_store, operators
from app.core.errors import NotFoundError, TallyhookError, UsageError
from app.core.ids import new_token
from app.database.database import DatabaseContext
from app.database.engine import Connection
from reconcile.instants import DAY, HOUR, LATEST, Duration, Instant, format_instant, parse_instant
from reconcile.periods import Calendar

TokenScope = Literal["read", "orders", "checkout", "finance", "evidence"]
"""Permission that a token can have. `checkout` allows a program to start payments."""

TOKEN_SCOPES: Final[tuple[TokenScope, ...]] = get_args(TokenScope)

UNNAMED: Final[tuple[TokenScope, ...]] = ("read", "orders", "checkout")
"""Default scopes of a new token."""

ENDS_SOON: Final[Duration] = 14 * DAY
"""Time before a token's expiry at which warnings about the expiry begin."""

_NAME = re.compile(r"[A-Za-z0-9._-]{1,60}")
_DAY_ALONE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_LENGTH = re.compile(r"([1-9]\d{0,4})([dh])", re.ASCII)


async def issue_token(
    context: DatabaseContext,
    *,
    name: str,
    scopes: Iterable[TokenScope] = UNNAMED,
    until: str | None = None,
    zone: tzinfo = UTC,
    by: str | None = None,
) -> str:
    """Create a token for a program and return the token.

    `until` is an RFC 3339 moment, a day, or a duration such as 90d. Raise UsageError if refused.
    """
    if not _NAME.fullmatch(name):
        raise UsageError("a token's name has 1 to 60 letters, digits, dots, dashes or underscores")
    token = new_token(f"thk_{context.database.environment}_")
    given = set(scopes)
    async with context.database.writing() as connection:
        await operator_store.acting_alone(connection)
        now = context.clock.now()
        entry = operator_store.TokenEntry(
            name=name,
            created_at=now,
            scopes=tuple(scope for scope in TOKEN_SCOPES if scope in given),
            until=None if until is None else ending(until, now=now, zone=zone),
        )
        who = await operators.permitted(connection, by=by, action="token_added")
        taken = {each.name: each for each in await operator_store.list_tokens(connection)}
        if (there := taken.get(name)) is not None:
            of_it = "" if there.revoked_at is None else ", which was revoked"
            raise UsageError(
                f"there is already a token named {name}{of_it}; choose another name, such as "
                f"{_free_name(name, taken)}"
            )
        await operator_store.add_token(connection, entry, token=token)
        await operators.note_in_trail(
            connection, who, action="token_added", subject=name, at=now,
            facts=_facts(entry) | _mark(token),
        )  # fmt: skip
    return token


OWN_SCOPES: Final[tuple[TokenScope, ...]] = ("read",)

OWN_BY_ROLE: Final[Mapping[TokenScope, operators.Reading]] = {"finance": "bank"}
"""Further scopes of personal tokens, with the needed reading permission."""


async def issue_own_token(
    context: DatabaseContext, *, operator: str, until: str, by: str | None, zone: tzinfo = UTC
) -> tuple[str, operator_store.TokenEntry]:
    """Create a personal token. Return the token and its stored data.

    Raise NotFoundError for an unknown operator, and UsageError for an invalid expiry or without
    permission.
    """
    token = new_token(f"tho_{context.database.environment}_")
    async with context.database.writing() as connection:
        await operator_store.acting_alone(connection)
        now = context.clock.now()
        who = await operators.permitted(connection, by=by, action="token_added")
        await _in_force(connection, operator)
        taken = {each.name for each in await operator_store.list_tokens(connection)}
        entry = operator_store.TokenEntry(
            name=_free_name(operator, taken),
            created_at=now,
            scopes=OWN_SCOPES,
            until=ending(until, now=now, zone=zone),
            operator=operator,
        )
        await operator_store.add_token(connection, entry, token=token)
        await operators.note_in_trail(
            connection, who, action="token_added", subject=entry.name, at=now,
            facts=_facts(entry) | _mark(token),
        )  # fmt: skip
    return token, entry


async def _in_force(connection: Connection, name: str) -> operator_store.Operator:
    for each in await operator_store.operators(connection):
        if each.name == name and each.disabled_at is None:
            return each
    raise operators.no_operator(name)


def _free_name(operator: str, taken: Collection[str]) -> str:
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", operator).strip("-")[:50] or "operator"
    return next(
        name
        for number in itertools.count(1)
        if (name := plain if number == 1 else f"{plain}-{number}") not in taken
    )


def ending(text: str, *, now: Instant, zone: tzinfo) -> Instant:
    """Return the instant at which a token expires. Raise UsageError for past times."""
    length = _LENGTH.fullmatch(text)
    if length is not None:
        end = now + int(length[1]) * (DAY if length[2] == "d" else HOUR)
    else:
        try:
            alone = _DAY_ALONE.fullmatch(text)
            end = parse_instant(text) if alone is None else Calendar(zone).day(text)[1]
        except ValueError:
            raise UsageError(
                "--until must be a day such as 2027-06-30, a time such as 2027-06-30T12:00:00Z, "
                "or a duration such as 90d or 12h"
            ) from None
    if not now < end <= LATEST:
        raise UsageError("--until must be in the future; choose a later time")
    return end


def _facts(entry: operator_store.TokenEntry) -> dict[str, str | int]:
    facts: dict[str, str | int] = {"scopes": " ".join(entry.scopes)}
    if entry.operator is not None:
        facts["operator"] = entry.operator
    return facts if entry.until is None else facts | {"until": format_instant(entry.until)}


def _mark(token: str) -> dict[str, str]:
    kept = operator_store.hashed(token)
    return {"hash_sha256": hashlib.sha256(kept.encode()).hexdigest()}


def no_token(name: str) -> NotFoundError:
    return NotFoundError(
        f"there is no active token named {name}: `tallyhook tokens list` shows all"
    )


async def withdraw_token(context: DatabaseContext, *, name: str, by: str | None = None) -> None:
    """Revoke a token.

    Raise NotFoundError without such an active token, and UsageError if permission is missing.
    """
    async with context.database.writing() as connection:
        await operator_store.acting_alone(connection)
        now = context.clock.now()
        who = await operators.permitted(connection, by=by, action="token_revoked")
        entry = await operator_store.revoke_token(connection, name=name, now=now)
        if entry is None:
            raise no_token(name)
        await operators.note_in_trail(
            connection, who, action="token_revoked", subject=name, at=now, facts=_facts(entry)
        )


async def known_tokens(context: DatabaseContext) -> list[operator_store.TokenEntry]:
    """Return the stored data of all tokens."""
    async with context.database.reading() as connection:
        return await operator_store.list_tokens(connection)


async def token_of(context: DatabaseContext, token: str) -> operator_store.TokenEntry | None:
    """Return a token's stored data, even if expired or revoked."""
    return await context.database.on_snapshot(operator_store.token_entry, token)


class TokenNotInForce(TallyhookError):
    """Error for a text that is not an active token."""


class ScopeMissing(TallyhookError):
    """Error for an active token that lacks the needed scope."""


async def admit(context: DatabaseContext, token: str, *, scope: TokenScope) -> str:
    """Return the name of a token with this scope.

    Raise TokenNotInForce for an inactive token, and ScopeMissing without the scope.
    """
    entry = await _token_in_force(context, token)
    if scope in entry.scopes:
        return entry.name
    reading = OWN_BY_ROLE.get(scope)
    if entry.operator is not None and reading is not None:
        who, readers = await _holding(context, entry), operators.MAY_READ[reading]
        if who.role not in readers:
            raise ScopeMissing(
                f"{who.name} has the role {who.role}, but the role must be "
                f"{' or '.join(sorted(readers))}."
            )
        return entry.name
    raise ScopeMissing(
        f"The token {entry.name} lacks the scope {scope}. `tallyhook tokens add NAME --scope "
        f"{scope}` makes a token with this scope."
    )


async def _token_in_force(context: DatabaseContext, token: str) -> operator_store.TokenEntry:
    entry = await token_of(context, token)
    if entry is None or not entry.in_force(context.clock.now()):
        raise _refused(entry)
    return entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Operator who has proved their identity with a personal token."""

    name: operators.Proven
    role: str


async def holder_of(context: DatabaseContext, token: str) -> Holder:
    """Return the owner of a personal token.

    Raise TokenNotInForce for an inactive token, and ScopeMissing for a program's token.
    """
    entry = await _token_in_force(context, token)
    if entry.operator is None:
        raise ScopeMissing(
            f"The token {entry.name} belongs to a program, but this request needs an "
            "operator's own token. `tallyhook operators token NAME --until T` makes one."
        )
    who = await _holding(context, entry)
    return Holder(name=operators.Proven(who.name), role=who.role)


async def _holding(
    context: DatabaseContext, entry: operator_store.TokenEntry
) -> operator_store.Operator:
    try:
        async with context.database.reading() as connection:
            return await _in_force(connection, entry.operator or "")
    except NotFoundError:
        raise _refused(entry) from None


def _refused(entry: operator_store.TokenEntry | None) -> TokenNotInForce:
    if entry is not None and entry.revoked_at is None and entry.until is not None:
        sentence = f"This token expired at {format_instant(entry.until)}"
    else:
        sentence = "Send a valid token as `Authorization: Bearer …`"
    return TokenNotInForce(f"{sentence}; `tallyhook tokens add` makes one.")


async def ending_soon(context: DatabaseContext) -> list[operator_store.TokenEntry]:
    """Return the active tokens that expire within the next 14 days, sorted by expiry."""
    now = context.clock.now()
    return sorted(
        (
            each
            for each in await known_tokens(context)
            if each.in_force(now) and each.until is not None and each.until - now < ENDS_SOON
        ),
        key=lambda each: (each.until, each.name),
    )
