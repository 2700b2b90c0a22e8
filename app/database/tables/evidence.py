"""The tables of the log in which everything that is kept for ever is sealed.

A leaf holds the document that was sealed of one row, and its hash; nodes are the hashes of each 256
leaves, of each 256 of those, and so on; a checkpoint is a signed head.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Integer, UniqueConstraint
from sqlmodel import Field

from app.database.tables.base import (
    CLUSTERED,
    STRICT,
    Table,
    big_column,
    blob_column,
    text_column,
)


class LogLeafRow(Table, table=True):
    """One entry of the log. Append-only; numbers begin at 0 and have no gaps."""

    __tablename__ = "log_leaves"
    __table_args__ = (UniqueConstraint("subject"), STRICT)
    number: int = big_column(primary=True)
    kind: str = text_column()
    subject: str = text_column()
    document: str = text_column()
    hash: bytes = blob_column(null=False)


class LogNodeRow(Table, table=True):
    """The hash of a complete subtree of 2**level leaves; level is a multiple of 8. Append-only."""

    __tablename__ = "log_nodes"
    __table_args__ = CLUSTERED
    level: int = big_column(primary=True)
    place: int = big_column(primary=True)
    hash: bytes = blob_column(null=False)


class LogCheckpointRow(Table, table=True):
    """The head of the log when it had this size, and the note that was signed. Append-only."""

    __tablename__ = "log_checkpoints"
    __table_args__ = STRICT
    size: int = big_column(primary=True)
    head: bytes = blob_column(null=False)
    at: int = big_column()
    note: str = text_column()


class LogKeyRow(Table, table=True):
    """A public key, in hex, with which checkpoints were signed since then. Append-only."""

    __tablename__ = "log_keys"
    __table_args__ = STRICT
    number: int = big_column(primary=True)
    public: str = text_column()
    since: int = big_column()


class UnsealedRow(Table, table=True):
    """Rows of one kind that one transaction wrote and that have no leaf yet, by their ids."""

    __tablename__ = "unsealed"
    # A number that came again could be taken for the mark that a slow sealer has read.
    __table_args__ = {**STRICT, "sqlite_autoincrement": True}  # noqa: RUF012
    row: int | None = Field(
        default=None,
        sa_column=Column(
            BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True
        ),
    )
    kind: str = text_column()
    ids: str = text_column()
    count: int = big_column()
