"""A report in each of its forms. See README.md."""
