"""What every database must keep when bringing it up to date is cut short."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
from sqlalchemy import Connection, event

from app.core.errors import StoreUnavailable
from app.database import schema
from app.receiving.inbox import Inbox
from tests.contexts import settings_of
from tests.database.builders import differences
from tests.database.old_versions import VERSIONS, contents, make_version, version_of


class CutShort(Exception):
    """The statement that was never run."""


@contextmanager
def before_each_statement(
    inbox: Inbox, then: Callable[[int, Connection], None], *others: str
) -> Iterator[None]:
    """Call `then` with 1, 2, … before each statement of the writer, and before other events."""
    engine = inbox.database.writer._engine.sync_engine
    numbers = count(1)

    def hear(connection: Connection, *_: Any) -> None:
        then(next(numbers), connection)

    events = ("before_cursor_execute", *others)
    for name in events:
        event.listen(engine, name, hear)
    try:
        yield
    finally:
        for name in events:
            event.remove(engine, name, hear)


async def cut_short(inbox: Inbox, number: int) -> bool:
    """Upgrade as far as before the statement of this number. False where it came to its end."""

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
    """A database stays whole when bringing it up to date is cut short. A subclass gives `old_url`,
    a database without any table."""

    statements_between = 12
    """From one statement that the upgrade is cut short before to the next."""

    async def test_an_upgrade_that_is_cut_short(self, old_url: str) -> None:
        """Before whichever statement it ends, each row is there in the old version; the next
        upgrade comes further, and the last one to its end."""
        inbox = Inbox(settings_of(old_url), purpose="upgrading")
        try:
            await always_whole(inbox, VERSIONS[0], between=self.statements_between)
        finally:
            await inbox.close()

    @pytest.mark.soak
    async def test_an_upgrade_from_each_version_that_is_cut_short(self, old_url: str) -> None:
        """The long form: from each version, before every statement."""
        inbox = Inbox(settings_of(old_url), purpose="upgrading")
        try:
            cuts = sum([await always_whole(inbox, old, between=1) for old in VERSIONS])
        finally:
            await inbox.close()
        print(f"cut short {cuts} times on the way from {len(VERSIONS)} versions: no row lost")


async def always_whole(inbox: Inbox, version: str, *, between: int) -> int:
    """Cut short on its way from this version, again and again. Returns how often."""
    before = await make_version(inbox, version)
    number, cuts = 1, 0
    while await cut_short(inbox, number):
        assert await version_of(inbox) == version, number
        assert await contents(inbox, before) == before, number
        number, cuts = number + between, cuts + 1
    assert number > len([each for each in VERSIONS if each > version])
    assert await version_of(inbox) == schema.newest_version()
    assert await contents(inbox, before) == before
    async with inbox.database.reading() as connection:
        assert await connection.run_sync(differences) == []
    return cuts
