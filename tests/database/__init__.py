"""The contract of every database, and what is SQLite's alone."""
