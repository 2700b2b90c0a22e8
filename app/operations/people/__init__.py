"""People and programs that may come in."""
