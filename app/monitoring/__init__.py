"""Whether all is well: preflight checks, alarms, and what a supervisor asks."""

__all__ = (
    "alarm_messages",
    "certificate",
    "health",
    "preflight",
    "watchdog",
)
