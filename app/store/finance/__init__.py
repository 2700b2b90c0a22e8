"""Books, statements, takings, runs, breaks and closed periods."""
