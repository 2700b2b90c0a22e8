"""History of the schema: one migration for each version."""
