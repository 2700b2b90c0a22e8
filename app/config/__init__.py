"""The service's configuration. Every setting is read once and checked, and all mistakes are
reported together."""

__all__ = (
    "config_file",
    "database_url",
    "example",
    "load",
    "settings",
    "values",
)
