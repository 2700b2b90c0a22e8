"""Readers for CSV, XLSX, JSON Lines and ZIP files, which yield tables within limits. See
README.md."""
