"""References of captures, sums of what was refunded so far, and the authors of records."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from app.database.statements import downgrade as downgrade

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

EVENTS = (
    ("capture", TEXT),
    ("refunded_total", BIG),
    ("refunded_currency", TEXT),
)

# Attributes of a type are in the order of the rows that it takes: it is made anew.
ARRIVING = """
CREATE TYPE arriving AS (
    id text, received_at bigint, source text, verdict text, event_id text, digest text, size
    bigint, headers text, body bytea, problem text, envelope text, event_order_key text,
    event_source text, event_event_id text, event_digest text, event_delivery_id text,
    event_received_at bigint, event_kind text, event_claim text, event_occurred_at bigint,
    event_order_ref text, event_session text, event_payment text, event_movement text,
    event_amount bigint, event_currency text, event_order_amount bigint,
    event_order_currency text, event_reason text, event_standing text, event_capture text,
    event_refunded_total bigint, event_refunded_currency text, customer bytea
)
"""


def upgrade() -> None:
    for name, kind in EVENTS:
        op.add_column("events", sa.Column(name, kind, nullable=True))
    for name in ("payment", "author"):
        op.add_column("records", sa.Column(name, TEXT, nullable=True))
    if op.get_context().dialect.name != "sqlite":
        op.execute("DROP TYPE arriving")
        op.execute(ARRIVING)
