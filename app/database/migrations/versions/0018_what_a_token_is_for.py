"""What a token is for, and when it ends. Tokens that were made before keep what they had."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from alembic import op

from app.database.statements import downgrade as downgrade

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

KEEP: Final = "UPDATE tokens SET scopes = 'read orders checkout'"


def upgrade() -> None:
    op.add_column("tokens", sa.Column("scopes", TEXT, nullable=False, server_default=sa.text("''")))
    op.add_column("tokens", sa.Column("until", BIG, nullable=True))
    op.execute(KEEP)
