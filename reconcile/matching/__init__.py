"""Compares ledgers with order books and statements: what matches, what breaks, and why."""
