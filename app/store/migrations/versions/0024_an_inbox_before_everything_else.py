"""Deliveries are kept in an inbox first, and read afterwards.

What wrote a batch of new events as one statement goes from PostgreSQL."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from app.store.database.one_way import downgrade as downgrade

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "inbox",
        sa.Column("seq", BIG, autoincrement=True, nullable=False),
        sa.Column("count", BIG, autoincrement=False, nullable=False),
        sa.Column("received_at", BIG, autoincrement=False, nullable=False),
        sa.Column("tries", BIG, autoincrement=False, nullable=False),
        sa.Column("records", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_inbox")),
        sqlite_strict=True,
        sqlite_autoincrement=True,
    )
    if op.get_context().dialect.name == "postgresql":
        op.execute("DROP FUNCTION nothing_known")
        op.execute("DROP TYPE arriving")
