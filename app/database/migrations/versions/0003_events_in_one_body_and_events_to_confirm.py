"""Several events in one body, and events that count only once their provider was asked."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from app.database.statements import downgrade as downgrade

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

# Compared and sorted by its bytes, as SQLite does, whatever the server's locale.
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _big(name: str) -> sa.Column[int]:
    kind = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column(name, kind, autoincrement=False, nullable=False)


def upgrade() -> None:
    op.add_column("deliveries", sa.Column("envelope", TEXT, nullable=True))
    op.create_index(
        "ix_deliveries_envelope",
        "deliveries",
        ["envelope"],
        sqlite_where=sa.text("envelope IS NOT NULL"),
        postgresql_where=sa.text("envelope IS NOT NULL"),
    )
    op.add_column(
        "events", sa.Column("standing", TEXT, nullable=False, server_default=sa.text("'said'"))
    )
    op.create_table(
        "envelopes",
        sa.Column("digest", TEXT, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_envelopes")),
        sqlite_strict=True,
    )
    op.create_table(
        "confirmations",
        sa.Column("event_id", TEXT, nullable=False),
        sa.Column("source", TEXT, nullable=False),
        sa.Column("digest", TEXT, nullable=False),
        _big("asked_since"),
        _big("due_at"),
        _big("tries"),
        sa.PrimaryKeyConstraint("event_id", "source", "digest", name=op.f("pk_confirmations")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_index("ix_confirmations_source", "confirmations", ["source", "tries", "due_at"])
