"""One database as a whole: tables, migrations, the one writer, locks, room on its disk."""

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
