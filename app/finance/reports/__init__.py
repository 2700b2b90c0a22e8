"""The formats of a report. See README.md."""
