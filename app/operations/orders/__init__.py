"""Orders: what the shop says of them, what it is told, and how people find one."""
