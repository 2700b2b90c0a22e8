"""What folds read and write: histories, due marks, ledgers, and what is to be told."""
