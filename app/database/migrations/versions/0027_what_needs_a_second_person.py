"""What needs a second person: proposals and what became of them; and tokens of operators."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from app.database.statements import downgrade as downgrade

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _text(name: str, *, null: bool = False) -> sa.Column[str]:
    return sa.Column(name, TEXT, nullable=null)


def _big(name: str) -> sa.Column[int]:
    kind = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column(name, kind, autoincrement=False, nullable=False)


def _table(name: str, key: str, *columns: sa.Column) -> None:  # type: ignore[type-arg]
    op.create_table(
        name,
        *columns,
        sa.PrimaryKeyConstraint(key, name=op.f(f"pk_{name}")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )


def upgrade() -> None:
    words = ("kind", "subject", "sentence", "given", "state", "who", "role", "reason")
    _table("proposals", "id", _text("id"), *map(_text, words), _big("at"), _big("until"))
    op.create_index("ix_proposals_until", "proposals", ["until"])
    said = ("decision", "who", "role", "reason")
    _table("proposal_decisions", "proposal", _text("proposal"), *map(_text, said), _big("at"))
    op.add_column("tokens", _text("operator", null=True))
    for table in ("proposals", "proposal_decisions"):
        _only_added_to(table)


def _only_added_to(table: str) -> None:
    if op.get_context().dialect.name == "sqlite":
        for verb in ("update", "delete"):
            op.execute(
                f"CREATE TRIGGER {table}_no_{verb} BEFORE {verb.upper()} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, 'rows of {table} are only added'); END"
            )
    else:
        op.execute(
            f"CREATE TRIGGER {table}_only_added_to BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION only_added_to()"
        )
