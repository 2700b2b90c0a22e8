"""People who may change something, and what they did."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from app.database.statements import downgrade as downgrade

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

# Compared and sorted by its bytes, as SQLite does, whatever the server's locale.
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _big(name: str, *, null: bool = False) -> sa.Column[int]:
    kind = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column(name, kind, autoincrement=False, nullable=null)


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, TEXT, nullable=False)


def upgrade() -> None:
    op.create_table(
        "operators",
        _text("name"),
        _text("role"),
        _big("created_at"),
        _big("disabled_at", null=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_operators")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_table(
        "audit",
        _big("number"),
        _big("at"),
        *(_text(name) for name in ("who", "role", "action", "subject", "reason", "facts")),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_audit")),
        sqlite_strict=True,
    )
