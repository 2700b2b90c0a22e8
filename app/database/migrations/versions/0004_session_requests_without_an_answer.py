"""Session requests that wait for an answer, with what was sent."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from app.database.statements import downgrade as downgrade

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# Compared and sorted by its bytes, as SQLite does, whatever the server's locale.
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _big(name: str) -> sa.Column[int]:
    kind = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column(name, kind, autoincrement=False, nullable=False)


def upgrade() -> None:
    op.create_table(
        "unanswered",
        sa.Column("key", TEXT, nullable=False),
        sa.Column("order_key", TEXT, nullable=False),
        sa.Column("request", TEXT, nullable=False),
        _big("due_at"),
        _big("held_until"),
        _big("tries"),
        _big("in_vain"),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_unanswered")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_index("ix_unanswered_due_at", "unanswered", ["due_at"])
