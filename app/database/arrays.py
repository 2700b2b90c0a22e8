"""Statements for PostgreSQL that carry whole columns as arrays.

Their text does not depend on how many rows there are, so that the server plans each once and a
batch of any size is one round trip.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

from sqlalchemy import BigInteger, LargeBinary

if TYPE_CHECKING:
    from sqlalchemy import MetaData

ADOPTED: Final = (
    "UPDATE events SET order_key=adopted.order_key FROM unnest($1::bigint[], $2::text[]) "
    'AS adopted ("row", order_key) WHERE events."row"=adopted."row"'
)
"""Orphans by their rows, and the order that each belongs to."""


@lru_cache
def insert(table: str, columns: tuple[str, ...], conflict: str) -> str:
    """Insert the rows of which each parameter is one column."""
    names = ",".join(f'"{name}"' for name in columns)
    arrays = ",".join(
        f"${number}::{_kind(table, name)}[]" for number, name in enumerate(columns, 1)
    )
    return f"INSERT INTO {table} ({names}) SELECT * FROM unnest({arrays}) {conflict}"  # noqa: S608


@cache
def tables() -> MetaData:
    """What the columns hold. Loaded only where it is needed: it takes a fifth of a start."""
    from app.database.tables import metadata

    return metadata


def _kind(table: str, column: str) -> str:
    kind = tables().tables[table].columns[column].type
    if isinstance(kind, BigInteger):
        return "bigint"
    return "bytea" if isinstance(kind, LargeBinary) else "text"


def with_list(sql: str) -> str:
    """`sql` with its `IN ({})` as one parameter: a list of texts."""
    return sql.replace("IN ({})", "= ANY($1::text[])")
