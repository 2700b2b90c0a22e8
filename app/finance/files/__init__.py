"""Read CSV, XLSX, JSON Lines and ZIP files as tables, within limits. README.md explains the
limits."""
