"""Documentation is executed."""
