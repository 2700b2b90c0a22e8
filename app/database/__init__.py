"""The database: its tables, migrations, single writer, locks and disk space."""

__all__ = (
    "database",
    "engine",
    "facts",
    "faults",
    "gaps",
    "holders",
    "layout",
    "locks",
    "mapping",
    "marks",
    "nodes",
    "postgresql",
    "schema",
    "servers",
    "statements",
    "tables",
    "takeover",
    "writer",
)
