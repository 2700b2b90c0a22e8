"""API tokens: made once, shown once, kept hashed."""

from __future__ import annotations

import re

from app.errors import NotFoundError, UsageError
from app.ids import new_token
from app.operations.desk import Desk
from app.operations.people.people import note_deed, permitted
from app.store.people.tokens import TokenEntry, add_token, list_tokens, revoke_token, token_name

_NAME = re.compile(r"[A-Za-z0-9._-]{1,60}")


async def issue_token(desk: Desk, *, name: str, by: str | None = None) -> str:
    """A new token under a free name. Raises UsageError when the name is taken or ill-formed, and
    for who may not."""
    if not _NAME.fullmatch(name):
        raise UsageError("a token's name is 1 to 60 letters, digits, dots, dashes or underscores")
    token = new_token(f"thk_{desk.store.environment}_")
    async with desk.store.writing() as connection:
        now = desk.clock.now()
        who = await permitted(connection, by=by, action="token_added")
        if any(entry.name == name for entry in await list_tokens(connection)):
            raise UsageError(f"there is already a token named {name}; choose another name")
        await add_token(connection, name=name, token=token, now=now)
        await note_deed(connection, who, action="token_added", subject=name, at=now)
    return token


async def withdraw_token(desk: Desk, *, name: str, by: str | None = None) -> None:
    """Revoke a token by name. Raises NotFoundError when none in force has it, UsageError for who
    may not."""
    async with desk.store.writing() as connection:
        now = desk.clock.now()
        who = await permitted(connection, by=by, action="token_revoked")
        if not await revoke_token(connection, name=name, now=now):
            raise NotFoundError(f"there is no token in force named {name}")
        await note_deed(connection, who, action="token_revoked", subject=name, at=now)


async def known_tokens(desk: Desk) -> list[TokenEntry]:
    """All tokens by name; never the tokens themselves."""
    async with desk.store.reading() as connection:
        return await list_tokens(connection)


async def who_is(desk: Desk, token: str) -> str | None:
    """The name of the token in force that this is, or None."""
    async with desk.store.reading() as connection:
        return await token_name(connection, token)
