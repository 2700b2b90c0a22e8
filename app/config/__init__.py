"""The configuration: every setting with its bounds, read once, with all mistakes at once."""

__all__ = (
    "config_file",
    "database_url",
    "example",
    "load",
    "settings",
    "values",
)
