"""Statements for PostgreSQL that carry whole columns as arrays, and several of them as one.

Their text does not depend on how many rows there are, so that the server plans each once and a
batch of any size is one round trip.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import BigInteger, LargeBinary

if TYPE_CHECKING:
    from sqlalchemy import MetaData

_Statement = tuple[str, Sequence[Any]]

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
    from app.store.tables import metadata

    return metadata


def _kind(table: str, column: str) -> str:
    kind = tables().tables[table].columns[column].type
    if isinstance(kind, BigInteger):
        return "bigint"
    return "bytea" if isinstance(kind, LargeBinary) else "text"


def with_list(sql: str) -> str:
    """`sql` with its `IN ({})` as one parameter: a list of texts."""
    return sql.replace("IN ({})", "= ANY($1::text[])")


# --- several statements as one -------------------------------------------------------------------


def asked_together(statements: Sequence[_Statement]) -> _Statement:
    """Several queries as one, whose rows are (place of the query, the query's row)."""
    queries = enumerate(_renumbered(statements))
    tagged = [f"SELECT {n}, q FROM ({sql}) AS q" for n, sql in queries]  # noqa: S608
    return " UNION ALL ".join(tagged), _values(statements)


def written_together(statements: Sequence[_Statement]) -> _Statement:
    """Several writes as one. None of them sees what the others write."""
    *others, last = _renumbered(statements)
    named = ", ".join(f"w{n} AS ({sql})" for n, sql in enumerate(others))
    return f"WITH {named} {last}" if named else last, _values(statements)


def _renumbered(statements: Sequence[_Statement]) -> list[str]:
    """Their texts, with parameters numbered through all of them."""
    texts, before = [], 0
    for sql, values in statements:
        texts.append(_shifted(sql, before))
        before += len(values)
    return texts


@lru_cache(maxsize=1_024)
def _shifted(sql: str, by: int) -> str:
    return re.sub(r"\$(\d+)", lambda found: f"${int(found[1]) + by}", sql)


def _values(statements: Sequence[_Statement]) -> list[Any]:
    return list(chain.from_iterable(values for _, values in statements))
