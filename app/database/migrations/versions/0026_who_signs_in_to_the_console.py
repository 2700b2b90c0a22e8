"""Who signs in to the console: credentials, invitations, sessions, and forms that were sent; and
the newest orders of an outcome, and the breaks of an order, are found by an index."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from app.database.statements import downgrade as downgrade

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _text(name: str, *, null: bool = False) -> sa.Column[str]:
    return sa.Column(name, TEXT, nullable=null)


def _big(name: str, *, null: bool = False) -> sa.Column[int]:
    kind = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column(name, kind, autoincrement=False, nullable=null)


def _table(name: str, key: str, *columns: sa.Column) -> None:  # type: ignore[type-arg]
    op.create_table(
        name,
        *columns,
        sa.PrimaryKeyConstraint(key, name=op.f(f"pk_{name}")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )


def upgrade() -> None:
    _table(
        "credentials",
        "name",
        _text("name"),
        _text("password"),
        _text("totp", null=True),
        _big("totp_step", null=True),
        _big("set_at"),
    )
    _table(
        "invitations",
        "hash",
        _text("hash"),
        _text("kind"),
        _text("name"),
        _big("made_at"),
        _big("until"),
        _big("used_at", null=True),
        _text("totp", null=True),
    )
    op.create_index("ix_invitations_name", "invitations", ["name"])
    _table(
        "sessions",
        "hash",
        _text("hash"),
        _text("name"),
        _big("created_at"),
        _big("used_at"),
        _big("until"),
        _big("revoked_at", null=True),
    )
    op.create_index("ix_sessions_name", "sessions", ["name"])
    _table("used_forms", "id", _text("id"), _big("at"))
    op.create_index("ix_used_forms_at", "used_forms", ["at"])
    op.create_index("ix_revisions_outcome", "revisions", ["outcome", "seq"])
    op.create_index("ix_breaks_order_ref", "breaks", ["order_ref"])
