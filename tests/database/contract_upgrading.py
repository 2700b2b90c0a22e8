"""What every database must keep when bringing it up to date is cut short."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
from sqlalchemy import Connection, event, inspect

from app.core.errors import StoreUnavailable
from app.database import schema
from app.receiving.inbox import Inbox
from tests.contexts import settings_of
from tests.database.builders import differences


class CutShort(Exception):
    """The statement that was never run."""


@contextmanager
def before_each_statement(inbox: Inbox, then: Callable[[int, Connection], None]) -> Iterator[None]:
    """Call `then` with 1, 2, … before each statement of the writer."""
    engine = inbox.database.writer._engine.sync_engine
    numbers = count(1)

    def hear(connection: Connection, *_: Any) -> None:
        then(next(numbers), connection)

    event.listen(engine, "before_cursor_execute", hear)
    try:
        yield
    finally:
        event.remove(engine, "before_cursor_execute", hear)


async def cut_short(inbox: Inbox, number: int) -> bool:
    """Upgrade until the statement of this number. Return False where the upgrade ended before."""

    def then(reached: int, connection: Connection) -> None:
        if reached != number:
            return
        if inbox.database.shared:  # all that a server sees of a client that is killed
            driver: Any = connection.connection.driver_connection
            driver._transport.abort()
        else:
            raise CutShort

    with before_each_statement(inbox, then):
        try:
            await inbox.database.upgrade()
        except (CutShort, StoreUnavailable):
            return True
    return False


class UpgradingContract:
    """Upgrades that are cut short. A subclass gives `empty_url`, a database without any table."""

    statements_between = 12
    """From one statement that the upgrade is cut short before to the next."""

    async def test_an_upgrade_that_is_cut_short_leaves_nothing(self, empty_url: str) -> None:
        assert await always_whole(empty_url, between=self.statements_between) > 5

    @pytest.mark.soak
    async def test_an_upgrade_that_is_cut_short_before_each_statement(self, empty_url: str) -> None:
        """The long form."""
        print(f"cut short {await always_whole(empty_url, between=1)} times: nothing was left")


async def always_whole(url: str, *, between: int) -> int:
    """Cut the upgrade of an empty database short, again and again. Return how often."""
    inbox = Inbox(settings_of(url), purpose="upgrading")
    number, cuts = 1, 0
    try:
        while await cut_short(inbox, number):
            async with inbox.database.reading() as connection:
                names = await connection.run_sync(lambda plain: inspect(plain).get_table_names())
                assert names == [], number
            number, cuts = number + between, cuts + 1
        async with inbox.database.reading() as connection:
            assert await schema.current_version(connection) == schema.NEWEST
            assert await connection.run_sync(differences) == []
            assert await schema.is_own(connection)
    finally:
        await inbox.close()
    return cuts
