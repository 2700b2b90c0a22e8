"""What was sealed, and what is handed out as proof of it."""
