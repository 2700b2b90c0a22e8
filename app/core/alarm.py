"""Alarms about problems that the program's watchdog finds and no other part reports."""

from dataclasses import dataclass

from reconcile.instants import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """Alarm that is raised at present."""

    reason: str
    """Code for the log."""
    problem: str
    """Problem and its place, as a sentence without the full stop."""
    do: str
    """The next step, without the last full stop."""
    pressing: bool = True
    """True if something is certainly wrong. False if a person must judge."""
    since: Instant | None = None
    """Time at which the problem began, if known."""

    @property
    def sentence(self) -> str:
        """Return the problem and the next step as a sentence for people."""
        return f"{self.problem}: {self.do}."
