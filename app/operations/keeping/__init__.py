"""The database as a thing to keep: backed up, checked, and freed of what may go."""
