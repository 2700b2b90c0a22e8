"""Files of others: CSV, XLSX, JSON lines and ZIP, read as tables within limits. See README.md."""
