"""Readers of the formats that only banks write."""
