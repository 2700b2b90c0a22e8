"""Files from outside: CSV, XLSX, JSON lines and ZIP, read as tables within limits. See
README.md."""
