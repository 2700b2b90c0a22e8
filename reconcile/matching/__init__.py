"""Ledgers beside order books and statements: what matches, what breaks, and why."""
