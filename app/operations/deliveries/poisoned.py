"""Deliveries that were accepted and that the database refused, each alone, three times."""

from __future__ import annotations

from app.operations.desk import Desk
from app.store.arrivals.inbox import Item, set_aside, try_again


async def poisoned(desk: Desk) -> list[Item]:
    """What is set aside, the oldest first."""
    async with desk.store.reading() as connection:
        return [item for row in await set_aside(connection) for item in row.items]


async def read_again(desk: Desk) -> None:
    """Let the reader try them again."""
    async with desk.store.writing() as connection:
        await try_again(connection)
