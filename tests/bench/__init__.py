"""What the service costs, measured: `python -m tests.bench [--quick] [NAME...]`."""
