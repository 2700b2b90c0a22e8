"""Notifications to the shop, and what was signed off before going live."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from app.database.statements import downgrade as downgrade

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

# Compared and sorted by its bytes, as SQLite does, whatever the server's locale.
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _big(name: str, *, null: bool = False) -> sa.Column[int]:
    kind = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column(name, kind, autoincrement=False, nullable=null)


def _index(table: str, name: str, columns: list[str], condition: str) -> None:
    where = sa.text(condition)
    op.create_index(name, table, columns, sqlite_where=where, postgresql_where=where)


def upgrade() -> None:
    op.create_table(
        "notifications",
        _big("seq"),
        sa.Column("order_key", TEXT, nullable=False),
        _big("since"),
        _big("due_at", null=True),
        _big("tries"),
        _big("delivered_at", null=True),
        sa.Column("problem", TEXT, nullable=True),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_notifications")),
        sqlite_strict=True,
    )
    waiting = "due_at IS NOT NULL"
    _index("notifications", "ix_notifications_due_at", ["due_at", "seq"], waiting)
    _index("notifications", "ix_notifications_waiting", ["order_key", "seq"], waiting)
    _index(
        "notifications",
        "ix_notifications_dead",
        ["seq"],
        "due_at IS NULL AND delivered_at IS NULL",
    )
    op.create_table(
        "signoffs",
        _big("number"),
        sa.Column("item", TEXT, nullable=False),
        sa.Column("state", TEXT, nullable=False),
        _big("at"),
        sa.Column("signer", TEXT, nullable=False),
        sa.Column("note", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_signoffs")),
        sqlite_strict=True,
    )
