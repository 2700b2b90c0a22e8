"""What the key before a key of the log signed of it: that the log goes on with it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from app.database.statements import downgrade as downgrade

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column("log_keys", sa.Column("endorsement", TEXT, nullable=True))
