"""The log in which all evidence is sealed: Merkle trees, proofs, and the checks of evidence."""
