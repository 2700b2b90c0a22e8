"""All tables with their indexes and constraints, and triggers that protect append-only tables.

Until 0.1.0 is tagged, change the tables and this migration in place. At the tag, write out the
statements of `create_all`; every later change needs a new migration.
"""

from alembic import op

from app.database.statements import statement
from app.database.tables import metadata

revision = "0.1.0"
down_revision = None
branch_labels = None
depends_on = None

APPEND_ONLY = (
    "audit",
    "bank_balances",
    "break_deeds",
    "break_seen",
    "break_turns",
    "break_versions",
    "breaks",
    "closing_prints",
    "closings",
    "coverage",
    "erasures",
    "gaps",
    "log_departures",
    "match_rules",
    "proposal_decisions",
    "proposals",
    "records",
    "reopenings",
    "revisions",
    "runs",
    "signoffs",
)


SQLITE_TRIGGER = """
CREATE TRIGGER {table}_no_{verb} BEFORE {verb} ON {table}
BEGIN SELECT RAISE(ABORT, 'rows of {table} are only added'); END
"""

POSTGRESQL_FUNCTION = """
CREATE FUNCTION only_added_to() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'rows of % are only added', TG_TABLE_NAME; END $$
"""

POSTGRESQL_TRIGGER = """
CREATE TRIGGER {table}_only_added_to BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}
FOR EACH STATEMENT EXECUTE FUNCTION only_added_to()
"""


def upgrade() -> None:
    connection = op.get_bind()
    metadata.create_all(connection, checkfirst=False)
    if connection.dialect.name == "sqlite":
        for table in APPEND_ONLY:
            for verb in ("update", "delete"):
                op.execute(statement(SQLITE_TRIGGER, table=table, verb=verb))
        return
    op.create_primary_key("pk_events", "events", ["event_id", "source", "digest"])
    op.execute(POSTGRESQL_FUNCTION)
    for table in APPEND_ONLY:
        op.execute(statement(POSTGRESQL_TRIGGER, table=table))
