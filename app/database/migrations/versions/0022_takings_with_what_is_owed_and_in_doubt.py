"""All takings are made anew: they now say what is owed back and which payments are in doubt."""

from __future__ import annotations

from typing import Final

from alembic import op

from app.database.statements import downgrade as downgrade

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

FORGET: Final = "DELETE FROM takings"
"""A cache: the next reconciliation fills it. Those of before are written in another form."""


def upgrade() -> None:
    op.execute(FORGET)
