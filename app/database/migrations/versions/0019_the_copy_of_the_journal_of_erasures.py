"""The journal of erasures has a copy in the database, so that every backup carries one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from app.database.statements import downgrade as downgrade

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "erasures",
        sa.Column("journal", TEXT, nullable=False),
        sa.Column("number", BIG, autoincrement=False, nullable=False),
        sa.Column("line", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("journal", "number", name=op.f("pk_erasures")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    if op.get_context().dialect.name == "sqlite":
        for verb in ("update", "delete"):
            op.execute(
                f"CREATE TRIGGER erasures_no_{verb} BEFORE {verb.upper()} ON erasures "
                "BEGIN SELECT RAISE(ABORT, 'rows of erasures are only added'); END"
            )
    else:
        op.execute(
            "CREATE TRIGGER erasures_only_added_to BEFORE UPDATE OR DELETE OR TRUNCATE ON erasures "
            "FOR EACH STATEMENT EXECUTE FUNCTION only_added_to()"
        )
