"""Signals between tasks, or between a process and its child. A signal carries no content."""

import asyncio
from collections.abc import Callable


class Signal(asyncio.Event):
    """Event that also wakes tasks in another process."""

    def __init__(self) -> None:
        super().__init__()
        self.elsewhere: Callable[[], None] = lambda: None

    def set(self) -> None:
        """Wake the waiting tasks of this process and of the other process."""
        super().set()
        self.elsewhere()

    def hear(self) -> None:
        """Wake the waiting tasks of this process only. Call this method for a signal that came from
        the other process."""
        super().set()


class Signals:
    """Signals by which the tasks of a process notify each other."""

    def __init__(self) -> None:
        self.evidence_arrived = Signal()
        """Set when something new about an order was stored."""
        self.accepted = Signal()
        """Set when a delivery was added to the inbox."""
        self.read = Signal()
        """Set when a delivery in the inbox was read."""
        self.folded = Signal()
        """Set when a round of folding has ended."""
        self.alarming = Signal()
        """Set when an alarm's condition has begun or ended."""
        self.drained = asyncio.Event()
        """Cleared while the reader of this process has unread deliveries to catch up with."""
        self.drained.set()
        self.closing = asyncio.Event()
        """Set when the service stops. Tasks must then stop waiting for signals."""
        self.dated_ahead = False
        """True if unread deliveries may be dated in the future, because a clock was fast."""
        self.folded_elsewhere = False
        """True if another process folds and seals the deliveries that this process reads."""
