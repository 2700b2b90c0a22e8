"""Closed periods, and their reports as they were printed: the database refuses to change them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from app.database.statements import downgrade as downgrade

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

# Compared and sorted by its bytes, as SQLite does, whatever the server's locale.
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _big(name: str) -> sa.Column[int]:
    kind = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column(name, kind, autoincrement=False, nullable=False)


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, TEXT, nullable=False)


def upgrade() -> None:
    op.create_table(
        "closings",
        _text("period"),
        _big("as_of"),
        _big("closed_at"),
        *(_text(name) for name in ("who", "digest", "document")),
        sa.PrimaryKeyConstraint("period", name=op.f("pk_closings")),
        sqlite_strict=True,
    )
    op.create_table(
        "closing_prints",
        _text("period"),
        _text("format"),
        sa.Column("content", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("period", "format", name=op.f("pk_closing_prints")),
        sqlite_strict=True,
    )
    refuse = _refuse_on_sqlite
    if op.get_context().dialect.name != "sqlite":
        op.execute(
            "CREATE FUNCTION closings_only_added_to() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "RAISE EXCEPTION 'rows of % are only added', TG_TABLE_NAME; END $$"
        )
        refuse = _refuse_on_postgresql
    for table in ("closings", "closing_prints"):
        refuse(table)


def _refuse_on_sqlite(table: str) -> None:
    for verb in ("update", "delete"):
        op.execute(
            f"CREATE TRIGGER {table}_no_{verb} BEFORE {verb.upper()} ON {table} "
            f"BEGIN SELECT RAISE(ABORT, 'rows of {table} are only added'); END"
        )


def _refuse_on_postgresql(table: str) -> None:
    op.execute(
        f"CREATE TRIGGER {table}_only_added_to BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
        "FOR EACH STATEMENT EXECUTE FUNCTION closings_only_added_to()"
    )
