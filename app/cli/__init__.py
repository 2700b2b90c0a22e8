"""The command line: parses words, calls an operation, prints what it returns."""
