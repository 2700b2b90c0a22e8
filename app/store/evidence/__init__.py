"""The log in which everything is sealed, and what proofs are made of."""
