"""Compute an order's ledger from its history of deliveries and records, and explain the ledger."""
