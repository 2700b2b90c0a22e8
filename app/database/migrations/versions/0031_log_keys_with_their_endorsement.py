"""What the key before a key of the log signed of it, which checkpoints have left the house, and the
keys by which leaves name their orders, with the tree of all of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from app.database.statements import downgrade as downgrade

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _text(name: str, *, null: bool = False) -> sa.Column[str]:
    return sa.Column(name, TEXT, nullable=null)


def _big(name: str, *, null: bool = False) -> sa.Column[int]:
    kind = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column(name, kind, autoincrement=False, nullable=null)


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
    op.create_table(
        "log_departures",
        _big("size"),
        _text("way"),
        sa.Column("head", sa.LargeBinary(), nullable=False),
        _big("at"),
        _text("line", null=True),
        sa.PrimaryKeyConstraint("size", "way", name=op.f("pk_log_departures")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    if op.get_context().dialect.name == "sqlite":
        for verb in ("update", "delete"):
            op.execute(
                f"CREATE TRIGGER log_departures_no_{verb} BEFORE {verb.upper()} ON log_departures "
                "BEGIN SELECT RAISE(ABORT, 'rows of log_departures are only added'); END"
            )
    else:
        op.execute(
            "CREATE TRIGGER log_departures_only_added_to BEFORE UPDATE OR DELETE OR TRUNCATE "
            "ON log_departures FOR EACH STATEMENT EXECUTE FUNCTION only_added_to()"
        )
    op.create_table(
        "log_witnesses",
        _text("witness"),
        _big("size"),
        _big("cosigned_at", null=True),
        _big("next_at"),
        _big("failures"),
        _big("since", null=True),
        _text("problem", null=True),
        sa.PrimaryKeyConstraint("witness", name=op.f("pk_log_witnesses")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
