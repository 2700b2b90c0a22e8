"""What proves itself to strangers: the evidence key, and the two forms in which it signs."""
