"""Schemes that need code. One entry in `NAMED` (registry.py) for each module here."""
