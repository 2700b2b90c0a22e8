"""How the schema came to be: one migration for each version."""
