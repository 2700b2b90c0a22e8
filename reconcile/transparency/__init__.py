"""The log in which everything is sealed: Merkle trees, proofs, and what evidence must show."""
