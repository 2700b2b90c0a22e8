"""Signals between tasks, and between a process and its child; they carry no content."""

import asyncio
from collections.abc import Callable


class Signal(asyncio.Event):
    """Event whose `set` also wakes tasks of another process."""

    def __init__(self) -> None:
        super().__init__()
        self.elsewhere: Callable[[], None] = lambda: None

    def set(self) -> None:
        """Wake waiting tasks here and in the other process."""
        super().set()
        self.elsewhere()

    def hear(self) -> None:
        """Wake waiting tasks here only, because the signal came from the other process."""
        super().set()


class Signals:
    """Events that one task sets and another waits for."""

    def __init__(self) -> None:
        self.evidence_arrived = Signal()
        """Set when there is something new about an order."""
        self.accepted = Signal()
        """Set when a delivery was added to the inbox."""
        self.read = Signal()
        """Set when a delivery of the inbox was read."""
        self.folded = Signal()
        """Set when a round of folding has ended."""
        self.alarming = Signal()
        """Set when a condition of an alarm has begun or ended."""
        self.drained = asyncio.Event()
        """Cleared while the reader of this process has a backlog to read."""
        self.drained.set()
        self.closing = asyncio.Event()
        """Set when the service stops: nobody should wait for signals any more."""
        self.dated_ahead = False
        """Set while unread deliveries may be dated later than now, because a clock was fast."""
        self.folded_elsewhere = False
        """True while another process folds and seals the deliveries that this process reads."""
