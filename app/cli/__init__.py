"""The command line. It parses a command, calls an operation of another package, and prints the
result."""
