"""Pure engine: folds deliveries and records into ledgers, and matches them with books and
statements. Uses the standard library only."""
