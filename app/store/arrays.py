"""Statements for PostgreSQL that carry whole columns as arrays.

Their text does not depend on how many rows there are, so that the server plans each once and a
batch of any size is one round trip.
"""

from __future__ import annotations

from functools import lru_cache

from sqlalchemy import BigInteger, LargeBinary

from app.store.tables import metadata


@lru_cache
def insert(table: str, columns: tuple[str, ...], conflict: str) -> str:
    """Insert the rows of which each parameter is one column."""
    names = ",".join(f'"{name}"' for name in columns)
    arrays = ",".join(
        f"${number}::{_kind(table, name)}[]" for number, name in enumerate(columns, 1)
    )
    return f"INSERT INTO {table} ({names}) SELECT * FROM unnest({arrays}) {conflict}"  # noqa: S608


def _kind(table: str, column: str) -> str:
    kind = metadata.tables[table].columns[column].type
    if isinstance(kind, BigInteger):
        return "bigint"
    return "bytea" if isinstance(kind, LargeBinary) else "text"


def with_list(sql: str) -> str:
    """`sql` with its `IN ({})` as one parameter: a list of texts."""
    return sql.replace("IN ({})", "= ANY($1::text[])")
