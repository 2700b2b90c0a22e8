"""Counters of orders by outcome and by finding, as the ledgers that are there give them."""

from __future__ import annotations

from collections import Counter
from typing import Final

import sqlalchemy as sa
from alembic import op

from app.database.statements import downgrade as downgrade

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

COUNT: Final = sa.text("SELECT outcome, findings, count(*) FROM ledgers GROUP BY outcome, findings")
KEEP: Final = sa.text("INSERT INTO counters (name, value) VALUES (:name, :value)")


def upgrade() -> None:
    connection = op.get_bind()
    counted = Counter[str]()
    for outcome, findings, count in connection.execute(COUNT).all():
        counted[f"outcome {outcome}"] += count
        for code in findings.split("|"):
            if code:
                counted[f"finding {code}"] += count
    for name, value in sorted(counted.items()):
        connection.execute(KEEP, {"name": name, "value": value})
