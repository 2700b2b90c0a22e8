"""The tests. Every test says its property in one sentence."""
