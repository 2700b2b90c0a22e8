"""Monitoring: preflight checks, alarms, and the state of the service."""

__all__ = (
    "alarm_messages",
    "health",
    "notice_ways",
    "preflight",
    "watchdog",
    "work_notices",
)
