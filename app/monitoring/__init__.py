"""Monitoring: preflight checks, alarms, and the state of the service."""

__all__ = (
    "alarm_messages",
    "health",
    "monitoring_store",
    "notice_ways",
    "preflight",
    "service_note",
    "watchdog",
    "work_notices",
)
