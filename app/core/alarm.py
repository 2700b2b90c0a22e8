"""What the watchdog raises while something goes wrong that costs money and that nobody reports."""

from __future__ import annotations

from dataclasses import dataclass

from reconcile.instants import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """One alarm, while it lasts.

    reason    a code, for the log
    sentence  for people: what is so, where, and what to do
    pressing  whether something is surely wrong; else a person may know better
    since     when it began, where that is known
    """

    reason: str
    sentence: str
    pressing: bool = True
    since: Instant | None = None
