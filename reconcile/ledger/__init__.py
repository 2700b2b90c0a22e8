"""From a history to a ledger: events, records, correlation, outcome, findings, explanation."""
