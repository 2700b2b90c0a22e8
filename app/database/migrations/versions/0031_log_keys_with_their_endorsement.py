"""What the key before a key of the log signed of it: that the log goes on with it; and the keys by
which leaves name their orders."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from app.database.statements import downgrade as downgrade

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("log_keys", sa.Column("endorsement", TEXT, nullable=True))
    op.create_table(
        "order_keys",
        sa.Column("number", BIG, autoincrement=False, nullable=False),
        sa.Column("order_key", TEXT, nullable=True),
        sa.Column("key", sa.LargeBinary(), nullable=True),
        sa.Column("commitment", sa.LargeBinary(), nullable=False),
        sa.Column("leaves", BIG, nullable=False),
        sa.Column("last", BIG, nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_order_keys")),
        sa.UniqueConstraint("order_key", name=op.f("uq_order_keys_order_key")),
        sqlite_strict=True,
    )
