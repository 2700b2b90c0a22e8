"""Whether all is well: preflight checks, alarms, and what a supervisor asks."""

__all__ = (
    "alarm_messages",
    "health",
    "preflight",
    "watchdog",
)
