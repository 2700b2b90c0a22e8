"""The pure engine: what a set of deliveries and records means. Standard library only."""
