"""Compute the report of a period, its journal, and the reasons why the period cannot be closed
yet."""
