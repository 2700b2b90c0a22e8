"""Deeds are found by what they were done to."""

from __future__ import annotations

from alembic import op

from app.database.statements import downgrade as downgrade

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(op.f("ix_audit_subject_number"), "audit", ["subject", "number"])
