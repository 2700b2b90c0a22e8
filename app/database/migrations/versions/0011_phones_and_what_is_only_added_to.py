"""Keyed digests of phone numbers, and tables of which the database refuses to change a row."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from app.database.statements import downgrade as downgrade

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

# Compared and sorted by its bytes, as SQLite does, whatever the server's locale.
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

ONLY_ADDED_TO = (
    "audit",
    "signoffs",
    "revisions",
    "records",
    "match_rules",
    "runs",
    "breaks",
    "break_versions",
    "break_seen",
    "break_turns",
    "break_deeds",
)


def upgrade() -> None:
    op.create_table(
        "phones",
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("thing", TEXT, nullable=False),
        sa.Column("noted_at", BIG, autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("digest", "kind", "thing", name=op.f("pk_phones")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    refuse = _refuse_on_sqlite
    if op.get_context().dialect.name != "sqlite":
        op.execute(
            "CREATE FUNCTION only_added_to() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "RAISE EXCEPTION 'rows of % are only added', TG_TABLE_NAME; END $$"
        )
        refuse = _refuse_on_postgresql
    for table in ONLY_ADDED_TO:
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
        "FOR EACH STATEMENT EXECUTE FUNCTION only_added_to()"
    )
