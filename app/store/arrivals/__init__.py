"""What comes in: the journal, a batch's way into the tables, and what was refused."""
