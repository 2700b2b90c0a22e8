"""The reconciliation engine: it computes order ledgers, and matches them with order books and
provider statements.

The package does no input or output, and uses only the standard library.
"""
