"""Computes the report of a period, its journal, and what prevents closing the period."""
