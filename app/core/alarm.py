"""Alarms of the watchdog about problems that nothing else would report."""

from dataclasses import dataclass

from reconcile.instants import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """An alarm that is raised at present.

    reason    a code, for the log
    sentence  for people: what is wrong, where, and what to do
    pressing  whether something is certainly wrong; if not, a person must judge
    since     when the problem began; None if unknown
    """

    reason: str
    sentence: str
    pressing: bool = True
    since: Instant | None = None
