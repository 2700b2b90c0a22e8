"""Deliveries that could not be read are found without looking at all others."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from app.database.statements import downgrade as downgrade

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

UNREADABLE = sa.text("verdict = 'unreadable'")


def upgrade() -> None:
    op.create_index(
        "ix_deliveries_unreadable",
        "deliveries",
        ["id", "source"],
        sqlite_where=UNREADABLE,
        postgresql_where=UNREADABLE,
    )
