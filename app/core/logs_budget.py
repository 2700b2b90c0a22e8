"""A bound on log lines, so that a flood at the door cannot fill the disk through the log."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Final

MINUTE_S: Final = 60.0


class Budget:
    """So many lines, and then none until a minute after the first of them.

    The clock is only asked when the lines are used up: that costs the ordinary line nothing.
    """

    def __init__(self, lines: int | None, clock: Callable[[], float] = monotonic) -> None:
        """`lines` in a minute; None: as many as there are."""
        self._lines = lines
        self._clock = clock
        self._left = lines or 0
        self._began = clock()
        self.left_out = 0
        """Lines that were not written and not yet told of."""

    def take(self) -> bool:
        """Use one line, if there is one."""
        if self._left > 0:
            self._left -= 1
            return True
        if self._lines is None:
            return True
        if self._is_over():
            self._began, self._left = self._clock(), self._lines - 1
            return True
        self.left_out += 1
        return False

    def told(self, *, at_once: bool = False) -> int:
        """How many were left out, to be told now; 0 while their minute is not over."""
        if not (at_once or self._left > 0 or self._is_over()):
            return 0
        count, self.left_out = self.left_out, 0
        return count

    def _is_over(self) -> bool:
        return self._clock() - self._began >= MINUTE_S
