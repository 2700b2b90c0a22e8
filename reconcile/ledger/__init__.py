"""Folds a history into a ledger: events, records, correlation, outcome, findings, explanation."""
