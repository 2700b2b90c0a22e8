"""Compares ledgers with order books, statements and bank files, and reports each difference with
its cause."""
