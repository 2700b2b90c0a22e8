"""Signals between tasks, and between a process and its child; they carry no content."""

import asyncio
from collections.abc import Callable


class Signal(asyncio.Event):
    """Event whose `set` is also passed on, to another process."""

    def __init__(self) -> None:
        super().__init__()
        self.elsewhere: Callable[[], None] = lambda: None

    def set(self) -> None:
        """Wake waiting tasks, here and elsewhere."""
        super().set()
        self.elsewhere()

    def hear(self) -> None:
        """Wake waiting tasks here only: the signal came from elsewhere."""
        super().set()
