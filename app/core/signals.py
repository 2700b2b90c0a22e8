"""Signals between tasks, and between a process and its child; they carry no content."""

import asyncio
from collections.abc import Callable


class Signal(asyncio.Event):
    """Event that also passes its `set` on to another process."""

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
