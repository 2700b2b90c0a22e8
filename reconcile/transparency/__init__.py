"""The log in which everything is sealed: Merkle trees, proofs, and the checks of evidence."""
