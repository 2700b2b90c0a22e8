"""Alarms of the watchdog about problems that no other part of the program reports."""

from dataclasses import dataclass

from reconcile.instants import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """Alarm that is raised at present.

    reason    code for the log
    problem   what is wrong, and where, without the full stop
    do        next step; further sentences may follow it, the last without its full stop
    pressing  True if something is certainly wrong; False if a person must judge that
    since     when the problem began; None if unknown
    """

    reason: str
    problem: str
    do: str
    pressing: bool = True
    since: Instant | None = None

    @property
    def sentence(self) -> str:
        """Problem and next step, for people."""
        return f"{self.problem}: {self.do}."
