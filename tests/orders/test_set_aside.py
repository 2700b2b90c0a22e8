"""Orders of deliveries that could not be read: held until the last of those has been read."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.database.statements import insert_rows
from app.orders.hold_store import holds_of
from app.orders.set_aside import LISTED, hold_orders, release_left, release_orders, retry
from app.receiving.framing import framed
from app.receiving.inbox import Inbox
from app.receiving.inbox_store import Suspect, next_suspects, take_suspect_out
from tests.database.builders import arrival, context, keep, opened, received, said
from tests.reconcile.build import T


@pytest.fixture
async def inbox(tmp_path: Path) -> AsyncIterator[Inbox]:
    """Open a store that knows the order A."""
    async with opened(f"sqlite+aiosqlite:///{tmp_path}/t.db") as inbox:
        await keep(inbox, arrival(said("e1", order="A")))
        yield inbox


async def suspects(inbox: Inbox, *orders: str) -> list[Suspect]:
    """Set a suspect aside because of each of these orders."""
    record = framed([received(arrival(said("e2", order="A")))])
    columns = ("received_at", "tries", "aside", "orders", "record")
    rows = [(T, 3, 1, order, record) for order in orders]
    await inbox.database.writer.commit(insert_rows, table="suspects", columns=columns, rows=rows)
    return await inbox.database.on_snapshot(next_suspects, aside=True, limit=len(orders))


async def held(inbox: Inbox) -> list[str]:
    """List the orders that are held."""
    async with inbox.database.reading() as connection:
        return [hold.order for hold in await holds_of(connection, ["A"])]


@pytest.mark.parametrize("again", [False, True])
async def test_an_order_is_held_as_long_as_anything_of_it_is_left(
    inbox: Inbox, again: bool
) -> None:
    """Behind however many others, and also where a person has had all of them tried again."""
    found = await suspects(inbox, "A", *["B"] * LISTED, "A")
    await hold_orders(context(inbox), found[0], ["A"])
    if again:
        await retry(context(inbox))
    for each, left in ((found[0], ["A"]), (found[-1], [])):
        await inbox.database.writer.commit(take_suspect_out, each)
        await release_orders(context(inbox), ["A"])
        assert await held(inbox) == left


async def test_an_order_of_which_all_is_read_is_released_by_the_next_reader(inbox: Inbox) -> None:
    """The one before ended between the reading and the release."""
    found = await suspects(inbox, "A", "A")
    await hold_orders(context(inbox), found[0], ["A"])
    for each, left in zip(found, (["A"], []), strict=True):
        await inbox.database.writer.commit(take_suspect_out, each)
        await release_left(context(inbox))
        assert await held(inbox) == left
