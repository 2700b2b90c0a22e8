"""The costs of the service, measured: `python -m tests.bench [--quick] [NAME...]`."""
