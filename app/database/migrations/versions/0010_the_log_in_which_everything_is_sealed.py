"""The log in which everything that is kept for ever is sealed: leaves, nodes, checkpoints, keys."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from app.database.statements import downgrade as downgrade

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

# Compared and sorted by its bytes, as SQLite does, whatever the server's locale.
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _big(name: str, *, counted: bool = False) -> sa.Column[int]:
    kind = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column(name, kind, autoincrement=counted, nullable=False)


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, TEXT, nullable=False)


def _blob(name: str) -> sa.Column[bytes]:
    return sa.Column(name, sa.LargeBinary(), nullable=False)


def upgrade() -> None:
    op.create_table(
        "log_leaves",
        _big("number"),
        *(_text(name) for name in ("kind", "subject", "document")),
        _blob("hash"),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_log_leaves")),
        sa.UniqueConstraint("subject", name=op.f("uq_log_leaves_subject")),
        sqlite_strict=True,
    )
    op.create_table(
        "log_nodes",
        _big("level"),
        _big("place"),
        _blob("hash"),
        sa.PrimaryKeyConstraint("level", "place", name=op.f("pk_log_nodes")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_table(
        "log_checkpoints",
        _big("size"),
        _blob("head"),
        _big("at"),
        _text("note"),
        sa.PrimaryKeyConstraint("size", name=op.f("pk_log_checkpoints")),
        sqlite_strict=True,
    )
    op.create_table(
        "log_keys",
        _big("number"),
        _text("public"),
        _big("since"),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_log_keys")),
        sqlite_strict=True,
    )
    op.create_table(
        "unsealed",
        _big("row", counted=True),
        *(_text(name) for name in ("kind", "ids")),
        _big("count"),
        sa.PrimaryKeyConstraint("row", name=op.f("pk_unsealed")),
        sqlite_strict=True,
        sqlite_autoincrement=True,
    )
