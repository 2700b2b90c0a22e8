"""Compare ledgers with order books, statements and bank files, and report each difference with its
cause."""
