"""Read the file formats that only banks write."""
