"""The Starlette application: webhooks, API, health, metrics. It parses and prints only."""
