"""A function that asks, once the lock is ours, whether a batch is as new as it was taken for."""

from __future__ import annotations

from alembic import op

from app.database.statements import downgrade as downgrade

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

# Each statement of a volatile function sees what was committed before it began, so what is asked
# after the lock sees what its last holder wrote; the statement that calls the function does not.
# A link is looked up for each one that is made, whatever the server thinks of the table's size.
NOTHING_KNOWN = """
CREATE FUNCTION nothing_known(
    turn bigint, ids text[], refs text[], kinds text[], sources text[], orders text[]
) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(turn);
    RETURN NOT EXISTS (SELECT 1 FROM events WHERE event_id = ANY (ids))
        AND NOT EXISTS (
            SELECT 1 FROM unnest(refs, kinds, sources, orders)
                AS made (reference, kind, source, order_key)
            WHERE made.order_key <> (
                SELECT links.order_key FROM links
                WHERE links.reference = made.reference AND links.kind = made.kind
                    AND links.source = made.source
            )
        )
        AND NOT EXISTS (SELECT 1 FROM events WHERE order_key IS NULL AND payment = ANY (refs))
        AND NOT EXISTS (SELECT 1 FROM events WHERE order_key IS NULL AND session = ANY (refs));
END $$
"""


def upgrade() -> None:
    if op.get_context().dialect.name != "sqlite":
        op.execute(NOTHING_KNOWN)
