"""Alarms of the watchdog about problems that no other part of the program reports."""

from dataclasses import dataclass

from reconcile.instants import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """Alarm that is raised at present.

    reason    code for the log
    sentence  what is wrong, where, and what to do, for people
    pressing  True if something is certainly wrong; False if a person must judge that
    since     when the problem began; None if unknown
    """

    reason: str
    sentence: str
    pressing: bool = True
    since: Instant | None = None
