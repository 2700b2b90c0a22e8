"""Engine that computes ledgers from deliveries and records, and matches ledgers with order books
and statements.

It is pure: it does no input or output, and uses only the standard library.
"""
