"""What happened, line by line: the same seed must give the same bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable


class Trace:
    """Lines of `seconds who what`, and how often each kind of thing happened."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self.lines: list[str] = []
        self.counts: Counter[str] = Counter()

    def say(self, who: str, what: str, *, count: str = "") -> None:
        """One line; `count` names what of it is counted."""
        self.lines.append(f"{self._seconds():16.6f} {who:9} {what}")
        if count:
            self.counts[count] += 1

    def text(self) -> str:
        """The whole trace."""
        return "\n".join(self.lines) + "\n"
