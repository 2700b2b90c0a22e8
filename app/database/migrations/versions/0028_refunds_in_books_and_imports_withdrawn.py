"""What an order book says was refunded of a line; and imports that take another one back."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from app.database.statements import downgrade as downgrade

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("book_lines", sa.Column("refunded", BIG, nullable=True))
    op.add_column("book_lines", sa.Column("refunded_at", BIG, nullable=True))
    op.add_column("imports", sa.Column("withdraws", BIG, nullable=True))
    op.add_column("imports", sa.Column("reason", TEXT, nullable=True))
    op.create_index(
        "ix_imports_withdraws",
        "imports",
        ["withdraws"],
        sqlite_where=sa.text("withdraws IS NOT NULL"),
        postgresql_where=sa.text("withdraws IS NOT NULL"),
    )
