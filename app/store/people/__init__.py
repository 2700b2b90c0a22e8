"""Who may come in, who did what, and what was stated."""
