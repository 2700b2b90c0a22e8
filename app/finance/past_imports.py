"""Imports that were published: one, or the newest of a kind."""

from __future__ import annotations

from app.core.errors import NotFoundError
from app.finance.import_store import Import, ImportKind, import_of, imports
from app.receiving.context import AppContext


async def past_import(context: AppContext, number: int) -> Import:
    """A published import. Raises NotFoundError where there is none of this number."""
    async with context.store.reading() as connection:
        found = await import_of(connection, number)
    if found is None:
        raise NotFoundError(f"there is no import {number}")
    return found


async def past_imports(context: AppContext, *, kind: ImportKind, limit: int) -> list[Import]:
    """The imports of a kind that were published, newest first."""
    async with context.store.reading() as connection:
        return await imports(connection, kind=kind, limit=limit)
