"""What the merchant's books and the provider's statements say, import by import."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from app.database.statements import downgrade as downgrade

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

# Compared and sorted by its bytes, as SQLite does, whatever the server's locale.
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _big(name: str, *, null: bool = False) -> sa.Column[int]:
    kind = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column(name, kind, autoincrement=False, nullable=null)


def _text(name: str, *, null: bool = False) -> sa.Column[str]:
    return sa.Column(name, TEXT, nullable=null)


def upgrade() -> None:
    op.create_table(
        "imports",
        _big("number"),
        *(_text(name) for name in ("kind", "file", "sha256", "who")),
        _big("started_at"),
        _big("published_at", null=True),
        *(_big(name) for name in ("written", "read", "new", "changed", "unchanged", "rejected")),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_imports")),
        sqlite_strict=True,
    )
    _book_lines()
    _statement_lines()


def _book_lines() -> None:
    op.create_table(
        "book_lines",
        _text("match_key"),
        _text("kind"),
        _big("since"),
        _big("until", null=True),
        _text("line"),
        _text("reference"),
        _big("minor"),
        _text("currency"),
        _big("placed_at", null=True),
        *(_text(name, null=True) for name in ("status", "group_key", "group_name", "phone")),
        sa.PrimaryKeyConstraint("match_key", "kind", "since", name=op.f("pk_book_lines")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    _partial_index("book_lines", "group_key")


def _statement_lines() -> None:
    op.create_table(
        "statement_lines",
        _text("subject"),
        _text("kind"),
        _text("source"),
        _big("ordinal"),
        _big("since"),
        _big("until", null=True),
        _text("line"),
        *(_text(name, null=True) for name in ("match_key", "payment", "order_ref")),
        _text("currency"),
        *(_big(name) for name in ("gross", "fee", "net")),
        _big("settled_at", null=True),
        _text("payout", null=True),
        sa.PrimaryKeyConstraint(
            *("subject", "kind", "source", "ordinal", "since"),
            name=op.f("pk_statement_lines"),
        ),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    _partial_index("statement_lines", "match_key")


def _partial_index(table: str, column: str) -> None:
    given = sa.text(f"{column} IS NOT NULL")
    op.create_index(
        f"ix_{table}_{column}", table, [column], sqlite_where=given, postgresql_where=given
    )
