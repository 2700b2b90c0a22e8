"""What is known of a destination of notifications while it takes none."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from app.database.statements import downgrade as downgrade

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _big(name: str) -> sa.Column[int]:
    kind = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column(name, kind, autoincrement=False, nullable=False)


def upgrade() -> None:
    op.create_table(
        "destinations_away",
        sa.Column("destination", TEXT, nullable=False),
        _big("since"),
        _big("failures"),
        _big("probe_at"),
        sa.Column("problem", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("destination", name=op.f("pk_destinations_away")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
