"""One database as a whole: tables, migrations, the one writer, locks, room on its disk."""

__all__ = (
    "engine",
    "facts",
    "faults",
    "locks",
    "made",
    "mapping",
    "parameters",
    "postgresql",
    "safety",
    "schema",
    "statements",
    "tables",
    "temporary_database",
    "transactions",
    "writer",
)
