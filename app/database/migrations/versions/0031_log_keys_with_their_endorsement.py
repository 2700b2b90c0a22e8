"""What the key before a key of the log signed of it: that the log goes on with it; and the keys by
which leaves name their orders, with the tree of all of them."""

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


def _big(name: str) -> sa.Column[int]:
    return sa.Column(name, BIG, autoincrement=False, nullable=False)


def upgrade() -> None:
    op.add_column("log_keys", sa.Column("endorsement", TEXT, nullable=True))
    op.create_table(
        "order_keys",
        _big("number"),
        sa.Column("order_key", TEXT, nullable=True),
        sa.Column("key", sa.LargeBinary(), nullable=True),
        sa.Column("commitment", sa.LargeBinary(), nullable=False),
        _big("leaves"),
        _big("last"),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_order_keys")),
        sa.UniqueConstraint("order_key", name=op.f("uq_order_keys_order_key")),
        sqlite_strict=True,
    )
    op.create_table(
        "order_trees",
        *(_big(name) for name in ("number", "at", "size", "orders")),
        sa.Column("root", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_order_trees")),
        sqlite_strict=True,
    )
    op.create_table(
        "order_states",
        sa.Column("commitment", sa.LargeBinary(), nullable=False),
        *(_big(name) for name in ("size", "leaves", "last")),
        sa.PrimaryKeyConstraint("commitment", "size", name=op.f("pk_order_states")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_table(
        "order_nodes",
        *(_big(name) for name in ("level", "place", "size")),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("level", "place", "size", name=op.f("pk_order_nodes")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
