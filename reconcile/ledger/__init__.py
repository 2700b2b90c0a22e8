"""Computes an order's ledger from its history of deliveries and records, and explains the
ledger."""
