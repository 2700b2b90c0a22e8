"""A Citus cluster: what is distributed, and what the nodes do meanwhile."""
