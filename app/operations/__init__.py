"""The use cases. Command line, API and worker call these and nothing lower."""
