"""News between tasks, and between a process and its child: that something happened, never what."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Signal(asyncio.Event):
    """An event whose `set` is also passed on elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.elsewhere: Callable[[], None] = lambda: None

    def set(self) -> None:
        """Wake whoever waits, here and elsewhere."""
        super().set()
        self.elsewhere()

    def hear(self) -> None:
        """Wake whoever waits here: it came from elsewhere."""
        super().set()
