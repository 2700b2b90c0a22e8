"""What reconciliation reads fast, what each run saw, and what people decided about breaks."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

from app.database.statements import downgrade as downgrade

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

# Compared and sorted by its bytes, as SQLite does, whatever the server's locale.
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _big(name: str, *, null: bool = False) -> sa.Column[Any]:
    kind = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column(name, kind, autoincrement=False, nullable=null)


def _text(name: str, *, null: bool = False) -> sa.Column[Any]:
    return sa.Column(name, TEXT, nullable=null)


def _table(name: str, *columns: sa.Column[Any], keys: int = 1, clustered: bool = True) -> None:
    """A table whose first columns are its key."""
    op.create_table(
        name,
        *columns,
        sa.PrimaryKeyConstraint(*[c.name for c in columns[:keys]], name=op.f(f"pk_{name}")),
        sqlite_strict=True,
        **({"sqlite_with_rowid": False} if clustered else {}),
    )


def upgrade() -> None:
    _takings()
    _runs()
    _breaks()


def _takings() -> None:
    _table(
        "takings",
        _text("key"),
        _text("order_key"),
        _big("minor"),
        *(_text(name) for name in ("currency", "source", "payment", "cite")),
        _big("at"),
        _big("opened_at"),
        _big("plain"),
        _text("told"),
        _big("generation"),
        _big("until", null=True),
        keys=2,
    )
    op.create_index(
        "ix_takings_order_key_generation_until",
        "takings",
        ["order_key", "generation", "until"],
        unique=True,
    )


def _runs() -> None:
    _table(
        "match_rules",
        _big("number"),
        _big("at"),
        *(_text(name) for name in ("who", "digest", "toml")),
        clustered=False,
    )
    _table(
        "runs",
        _big("number"),
        _big("at"),
        _big("as_of"),
        *(_big(name, null=True) for name in ("since", "until", "rules")),
        *(_big(name) for name in ("lived", "breaks", "ties")),
        _text("result"),
        clustered=False,
    )


def _breaks() -> None:
    _table(
        "breaks",
        _text("id"),
        _text("cause"),
        *(_text(name, null=True) for name in ("order_ref", "payment", "subject")),
    )
    op.create_index("ix_breaks_cause", "breaks", ["cause", "id"])
    op.create_index("ix_breaks_subject", "breaks", ["subject"])
    _table(
        "break_versions",
        _text("break_id"),
        _big("version"),
        _text("digest"),
        _big("minor"),
        _text("currency"),
        _big("since"),
        _text("seen"),
        keys=2,
    )
    _table("break_seen", _big("run"), _text("break_id"), _big("version"), keys=2)
    _table(
        "break_turns",
        _text("break_id"),
        _big("run"),
        _text("turn"),
        _big("version"),
        _text("cites"),
        keys=2,
    )
    _table(
        "break_deeds",
        _big("number"),
        _text("break_id"),
        _big("at"),
        *(_text(name) for name in ("who", "deed", "value", "reason")),
        _text("second", null=True),
        _big("minor"),
        _text("currency"),
        clustered=False,
    )
    op.create_index("ix_break_deeds_break_id", "break_deeds", ["break_id", "number"])
