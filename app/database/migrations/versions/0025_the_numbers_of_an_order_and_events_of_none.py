"""The digests of phone numbers are found by their order or delivery, too; and events of no order
leave the index of those that have one, or SQLite goes through all of them to find one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from app.database.statements import downgrade as downgrade

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

WITH_ORDER = sa.text("order_key IS NOT NULL")


def upgrade() -> None:
    op.create_index("ix_phones_thing", "phones", ["thing"])
    op.drop_index("ix_events_order_key", "events")
    op.create_index(
        "ix_events_order_key",
        "events",
        ["order_key"],
        sqlite_where=WITH_ORDER,
        postgresql_where=WITH_ORDER,
    )
