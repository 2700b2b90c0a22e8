"""Books and statements: imported, matched with ledgers, reported, and months closed."""
