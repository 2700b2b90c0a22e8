"""Write a report in all its formats. README.md describes them."""
