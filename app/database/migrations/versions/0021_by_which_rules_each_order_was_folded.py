"""By which rules each order was folded last, and holds that are found without looking at all
records.

`ledgers.rules` has no default on purpose: a process of an earlier version, which cannot say by
which rules it folds and knows of no holds, fails when it publishes, and ends.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from app.database.statements import downgrade as downgrade

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

# Compared and sorted by its bytes, as SQLite does, whatever the server's locale.
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

NAMES = "order_key, as_of, outcome, fulfillable, findings, substance, next_decision_at"
HOLDS = sa.text("kind IN ('held', 'released')")


def upgrade() -> None:
    if op.get_context().dialect.name == "sqlite":
        _on_sqlite()
    else:
        op.add_column(
            "ledgers", sa.Column("rules", TEXT, nullable=False, server_default=sa.text("''"))
        )
        op.alter_column("ledgers", "rules", server_default=None)
    op.create_index(
        "ix_records_holds",
        "records",
        ["order_key", "reason"],
        sqlite_where=HOLDS,
        postgresql_where=HOLDS,
    )


def _on_sqlite() -> None:
    """SQLite takes no column that may not be null and has no default: the table is made anew."""
    op.create_table(
        "ledgers_anew",
        sa.Column("order_key", TEXT, nullable=False),
        sa.Column("as_of", BIG, autoincrement=False, nullable=False),
        sa.Column("outcome", TEXT, nullable=False),
        sa.Column("fulfillable", BIG, autoincrement=False, nullable=False),
        sa.Column("findings", TEXT, nullable=False),
        sa.Column("substance", TEXT, nullable=False),
        sa.Column("next_decision_at", BIG, autoincrement=False, nullable=True),
        sa.Column("rules", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("order_key", name=op.f("pk_ledgers")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.execute(
        f"INSERT INTO ledgers_anew ({NAMES}, rules) "  # noqa: S608
        f"SELECT {NAMES}, '' FROM ledgers ORDER BY order_key"
    )
    op.drop_table("ledgers")
    op.rename_table("ledgers_anew", "ledgers")
    op.create_index("ix_ledgers_outcome", "ledgers", ["outcome", "order_key"])
