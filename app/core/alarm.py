"""Alarms about problems that the program's watchdog finds and no other part reports."""

from dataclasses import dataclass

from reconcile.instants import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """Alarm that is raised at present.

    reason    code for the log
    problem   what is wrong, and where, without the full stop
    do        the next step, without the last full stop
    pressing  whether something is certainly wrong; False if a person must judge
    since     time at which the problem began, if known
    """

    reason: str
    problem: str
    do: str
    pressing: bool = True
    since: Instant | None = None

    @property
    def sentence(self) -> str:
        """Return the problem and the next step as a sentence for people."""
        return f"{self.problem}: {self.do}."
