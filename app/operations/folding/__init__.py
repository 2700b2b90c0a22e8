"""From what is stored to ledgers: folded as it comes due, rebuilt, and proved."""
