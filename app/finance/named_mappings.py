"""Save column mappings under names."""

import hashlib
import re
from dataclasses import replace
from typing import Final, TypeVar

from app.access.operators import note_in_trail, permitted
from app.context.context import AppContext
from app.core.errors import NotFoundError, UsageError
from app.finance import import_store
from app.finance.files.presets import KINDS, ReadingRequest, reading_in

MOST_NAMED: Final = 200
"""Maximum number of saved mappings."""

Request = TypeVar("Request", bound=ReadingRequest)

_NAME: Final = re.compile(r"[^\W_][\w .-]{0,59}")


async def list_mappings(context: AppContext) -> list[import_store.NamedMapping]:
    async with context.database.reading() as connection:
        return await import_store.named_mappings(connection)


async def one_mapping(context: AppContext, name: str) -> import_store.NamedMapping:
    """Return the mapping with this name. Raise NotFoundError, with all names, for an unknown
    name."""
    known = await list_mappings(context)
    found = next((each for each in known if each.name == name), None)
    if found is None:
        there = ", ".join(each.name for each in known) or "none yet"
        raise NotFoundError(
            f"there is no mapping {name[:60]!r}: name a file, or one of these: {there}"
        )
    return found


async def save_named(
    context: AppContext, name: str, *, kind: import_store.ImportKind, toml: str, by: str | None
) -> None:
    """Save a mapping under a name, replacing an earlier one. Raise UsageError if invalid."""
    if not _NAME.fullmatch(name) or name.endswith(".toml"):
        raise UsageError(
            "a mapping's name must have 1 to 60 letters, digits, blanks, dots and hyphens, and "
            "must not end in .toml"
        )
    reading_in(toml.encode(), KINDS[kind], name=name)
    async with context.database.writing() as connection:
        who = await permitted(connection, by=by, action="mapping_saved")
        known = await import_store.named_mappings(connection)
        if len(known) >= MOST_NAMED and name not in {each.name for each in known}:
            raise UsageError(f"there are {MOST_NAMED} mappings: delete one that is not used")
        now = context.clock.now()
        saved = import_store.NamedMapping(name=name, kind=kind, toml=toml, who=who.name, at=now)
        await import_store.save_mapping(connection, saved)
        await import_store.replace_import_tasks(
            connection, ()
        )  # it may fit files that had no mapping
        digest = hashlib.sha256(toml.encode()).hexdigest()
        facts = {"kind": kind, "sha256": digest}
        await note_in_trail(
            connection, who, action="mapping_saved", subject=name, at=now, facts=facts
        )


async def delete_named(context: AppContext, name: str, *, by: str | None) -> None:
    """Delete a saved mapping."""
    await one_mapping(context, name)
    async with context.database.writing() as connection:
        who = await permitted(connection, by=by, action="mapping_deleted")
        await import_store.delete_mapping(connection, name)
        await import_store.replace_import_tasks(connection, ())
        now = context.clock.now()
        await note_in_trail(connection, who, action="mapping_deleted", subject=name, at=now)


async def with_named_mapping(context: AppContext, request: Request) -> Request:
    """Return the request with the content of the saved mapping that the request names. Raise
    NotFoundError for an unknown mapping."""
    named = request.mapping
    if named is None or request.content or named.suffix == ".toml" or named.name != str(named):
        return request
    if named.exists():
        return request
    found = await one_mapping(context, str(named))
    return replace(request, content=found.toml)
