"""Readers of CSV, XLSX, JSON Lines and ZIP files as tables, within limits. See README.md."""
