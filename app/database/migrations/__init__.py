"""History of the database's schema: one migration for each version."""
