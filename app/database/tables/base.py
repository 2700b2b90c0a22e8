"""What every table shares: one metadata, names of constraints, and the kinds of columns."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Integer, LargeBinary, MetaData, Text
from sqlmodel import Field, SQLModel

CONVENTION = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}

metadata = MetaData(naming_convention=CONVENTION)
ONLY = "only"
"""In the `info` of an index or a constraint: the one dialect that has it."""

STRICT: dict[str, Any] = {"sqlite_strict": True}
CLUSTERED: dict[str, Any] = {"sqlite_strict": True, "sqlite_with_rowid": False}


class Table(SQLModel):
    """Shared base: all tables live in this module's own metadata."""

    metadata = metadata


TEXT = Text().with_variant(Text(collation="C"), "postgresql")


def text_column(*, primary: bool = False, null: bool = False) -> Any:
    """Text, compared and sorted by its bytes as on SQLite, whatever the server's locale."""
    return Field(sa_column=Column(TEXT, primary_key=primary, nullable=null))


def big_column(*, null: bool = False, primary: bool = False) -> Any:
    """A 64-bit integer: minor units of money, microseconds of time, counts."""
    kind = BigInteger().with_variant(Integer, "sqlite")
    return Field(sa_column=Column(kind, nullable=null, primary_key=primary, autoincrement=False))


def blob_column(*, null: bool = True) -> Any:
    """Bytes, which may be missing."""
    return Field(sa_column=Column(LargeBinary, nullable=null))
