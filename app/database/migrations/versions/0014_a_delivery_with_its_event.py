"""A type for a delivery with its event, so that a batch of them is one parameter."""

from __future__ import annotations

from alembic import op

from app.database.statements import downgrade as downgrade

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

ARRIVING = """
CREATE TYPE arriving AS (
    id text, received_at bigint, source text, verdict text, event_id text, digest text, size
    bigint, headers text, body bytea, problem text, envelope text, event_order_key text,
    event_source text, event_event_id text, event_digest text, event_delivery_id text,
    event_received_at bigint, event_kind text, event_claim text, event_occurred_at bigint,
    event_order_ref text, event_session text, event_payment text, event_movement text,
    event_amount bigint, event_currency text, event_order_amount bigint,
    event_order_currency text, event_reason text, event_standing text, customer bytea
)
"""


def upgrade() -> None:
    if op.get_context().dialect.name != "sqlite":
        op.execute(ARRIVING)
