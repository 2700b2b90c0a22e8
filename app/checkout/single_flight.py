"""One caller at a time for each order, and one answer for all who waited together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Generic, TypeVar

from app.checkout.faults import CheckoutBusyError

T = TypeVar("T")

MAX_CALLERS: Final = 2_048
"""Calls under way in one process; each holds a request's few kilobytes for at most a minute."""


class Turn(Generic[T]):
    """The place of one order while anybody asks for it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.callers = 0
        self._said: tuple[object, T] | None = None

    def said(self, asked: object) -> T | None:
        """What an earlier caller of this turn got for the same question."""
        return self._said[1] if self._said is not None and self._said[0] == asked else None

    def say(self, asked: object, answer: T) -> T:
        """Leave the answer for those who wait with the same question."""
        self._said = (asked, answer)
        return answer


class Turns(Generic[T]):
    """The turns of all orders. An order that nobody asks for takes no memory."""

    def __init__(self, limit: int = MAX_CALLERS) -> None:
        self._limit = limit
        self._callers = 0
        self._turns: dict[str, Turn[T]] = {}

    def __len__(self) -> int:
        return len(self._turns)

    @asynccontextmanager
    async def of(self, order: str) -> AsyncIterator[Turn[T]]:
        """Wait for the order's turn and hold it. Raises CheckoutBusyError beyond the limit."""
        if self._callers >= self._limit:
            raise CheckoutBusyError(
                "Too many checkouts are being opened at this moment; try again in a minute."
            )
        turn = self._turns.setdefault(order, Turn())
        self._callers += 1
        turn.callers += 1
        try:
            async with turn.lock:
                yield turn
        finally:
            self._callers -= 1
            turn.callers -= 1
            if not turn.callers:
                del self._turns[order]
