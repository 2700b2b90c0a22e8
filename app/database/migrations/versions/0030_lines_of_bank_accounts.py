"""Lines of bank accounts, as files of banks state them; and what was done by schedule."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from app.database.statements import downgrade as downgrade

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _text(name: str, *, null: bool = False) -> sa.Column[str]:
    return sa.Column(name, TEXT, nullable=null)


def _big(name: str, *, null: bool = False) -> sa.Column[int]:
    kind = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column(name, kind, autoincrement=False, nullable=null)


def upgrade() -> None:
    op.create_table(
        "bank_lines",
        _text("subject"),
        _big("ordinal"),
        _big("since"),
        _big("until", null=True),
        _text("line"),
        _text("account"),
        _text("currency"),
        _big("minor"),
        _big("booked_at"),
        _text("entry"),
        _text("reference"),
        _text("counterparty"),
        _text("told"),
        sa.PrimaryKeyConstraint("subject", "ordinal", "since", name=op.f("pk_bank_lines")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_table(
        "scheduled_runs",
        _text("name"),
        _big("due_at"),
        _text("cron"),
        _text("state"),
        _big("asked"),
        _big("late"),
        _big("tries"),
        _big("as_of"),
        _big("until", null=True),
        _big("ended_at", null=True),
        _big("run", null=True),
        _text("problem", null=True),
        _text("delivered"),
        sa.PrimaryKeyConstraint("name", "due_at", name=op.f("pk_scheduled_runs")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
