"""The digests of phone numbers are found by their order or delivery, too."""

from __future__ import annotations

from alembic import op

from app.store.database.one_way import downgrade as downgrade

revision = "0025"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_phones_thing", "phones", ["thing"])
