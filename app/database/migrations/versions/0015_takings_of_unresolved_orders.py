"""Takings of unresolved orders are made anew: they now say what may have been captured."""

from __future__ import annotations

from typing import Final

from alembic import op

from app.database.statements import downgrade as downgrade

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

FORGET: Final = "DELETE FROM takings WHERE told LIKE '%\"unresolved\"%'"


def upgrade() -> None:
    op.execute(FORGET)
