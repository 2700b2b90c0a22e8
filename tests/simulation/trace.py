"""A trace of all that happened: the same seed gives the same bytes."""

from collections import Counter
from collections.abc import Callable


class Trace:
    """Lines of `seconds who what`, and counts of each kind of thing."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self.lines: list[str] = []
        self.counts: Counter[str] = Counter()

    def say(self, who: str, what: str, *, count: str = "") -> None:
        """Add a line, and count it under a name."""
        self.lines.append(f"{self._seconds():16.6f} {who:9} {what}")
        if count:
            self.counts[count] += 1

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"
