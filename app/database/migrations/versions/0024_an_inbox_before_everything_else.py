"""Deliveries are kept in an inbox first, and read afterwards.

What wrote a batch of new events as one statement goes from PostgreSQL."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

from app.database.statements import downgrade as downgrade

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    _create(
        "inbox",
        sa.Column("count", BIG, autoincrement=False, nullable=False),
        sa.Column("received_at", BIG, autoincrement=False, nullable=False),
        sa.Column("size", BIG, autoincrement=False, nullable=False),
        sa.Column("records", sa.LargeBinary(), nullable=False),
    )
    _create(
        "suspects",
        sa.Column("received_at", BIG, autoincrement=False, nullable=False),
        sa.Column("tries", BIG, autoincrement=False, nullable=False),
        sa.Column("aside", BIG, autoincrement=False, nullable=False),
        sa.Column("orders", TEXT, nullable=False),
        sa.Column("record", sa.LargeBinary(), nullable=False),
    )
    if op.get_context().dialect.name == "postgresql":
        op.execute("DROP FUNCTION nothing_known")
        op.execute("DROP TYPE arriving")


def _create(name: str, *columns: sa.Column[Any]) -> None:
    op.create_table(
        name,
        sa.Column("seq", BIG, autoincrement=True, nullable=False),
        *columns,
        sa.PrimaryKeyConstraint("seq", name=op.f(f"pk_{name}")),
        sqlite_strict=True,
        sqlite_autoincrement=True,
    )
