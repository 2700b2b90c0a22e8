"""Mappings that people saved by name, each with its kind of file and its TOML text."""

from dataclasses import dataclass
from typing import Final

from sqlalchemy import column, delete, insert, select, table
from sqlalchemy.ext.asyncio import AsyncConnection

from app.finance.import_store import ImportKind
from reconcile.instants import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedMapping:
    """A mapping, saved by `who` at an instant."""

    name: str
    kind: ImportKind
    toml: str
    who: str
    at: Instant


_COLUMNS: Final = tuple(NamedMapping.__dataclass_fields__)
_MAPPINGS: Final = table("mappings", *map(column, _COLUMNS))


async def named_mappings(connection: AsyncConnection) -> list[NamedMapping]:
    """Return all mappings by name."""
    rows = await connection.execute(select(_MAPPINGS).order_by(_MAPPINGS.c.name))
    return [NamedMapping(**row._mapping) for row in rows]


async def save_mapping(connection: AsyncConnection, saved: NamedMapping) -> None:
    """Store a mapping in place of the one with its name."""
    await delete_mapping(connection, saved.name)
    values = {name: getattr(saved, name) for name in _COLUMNS}
    await connection.execute(insert(_MAPPINGS).values(values))


async def delete_mapping(connection: AsyncConnection, name: str) -> None:
    await connection.execute(delete(_MAPPINGS).where(_MAPPINGS.c.name == name))
