"""The configuration: reads every setting once, checks its bounds, and reports all mistakes
together."""

__all__ = (
    "config_file",
    "database_url",
    "example",
    "load",
    "settings",
    "values",
)
