"""A report in each of its formats. See README.md."""
