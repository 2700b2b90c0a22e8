"""The pure engine: what a set of deliveries and records means. Uses the standard library only."""
