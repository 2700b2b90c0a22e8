"""What a use case needs of an open database, for rooms that know no store."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from app.core.clock import Clock
from app.database.engine import Connection


class Transactions(Protocol):
    """Snapshots and transactions of one database of one environment."""

    environment: str | None

    def reading(self) -> AbstractAsyncContextManager[Connection]:
        """A connection on one consistent snapshot. Raises StoreUnavailable without one."""

    def writing(self) -> AbstractAsyncContextManager[Connection]:
        """One transaction, after every other writer's. Raises StoreUnavailable without room."""


class DatabaseContext(Protocol):
    """One open database and the clock."""

    @property
    def store(self) -> Transactions:
        """The database."""

    @property
    def clock(self) -> Clock:
        """What says what time it is."""
