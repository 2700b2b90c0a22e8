"""What every database must keep when bringing it up to date is cut short."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from sqlalchemy import event, inspect

from app.store.database import schema
from app.store.store import Store, StoreSettings
from app.store.tables import metadata
from tests.store.builders import differences, dump
from tests.store.contract_retention import NEW_COLUMNS, fill_first_version, to_first_version


class CutShort(Exception):
    """The statement that was never run."""


@contextmanager
def before_each_statement(
    store: Store, then: Callable[[int], None], *others: str
) -> Iterator[None]:
    """Call `then` with 1, 2, … before each statement of the writer, and before other events."""
    engine = store.writer._engine.sync_engine
    numbers = count(1)

    def hear(*_: Any) -> None:
        then(next(numbers))

    events = ("before_cursor_execute", *others)
    for name in events:
        event.listen(engine, name, hear)
    try:
        yield
    finally:
        for name in events:
            event.remove(engine, name, hear)


async def make_first_version(store: Store) -> list[str]:
    """Rows in a database of the first version. Returns its tables."""
    async with store.writing() as connection:
        await connection.run_sync(to_first_version)
        made = await connection.run_sync(lambda plain: inspect(plain).get_table_names())
        await schema.stamp_environment(connection, "sandbox")
        await connection.run_sync(fill_first_version)
    return [name for name in metadata.tables if name in made]


async def version_of(store: Store) -> str | None:
    """The version that the database says it has."""
    async with store.reading() as connection:
        return await schema.current_version(connection)


async def cut_short(store: Store, number: int) -> bool:
    """Upgrade as far as before the statement of this number. False where it came to its end."""

    def then(reached: int) -> None:
        if reached == number:
            raise CutShort

    with before_each_statement(store, then):
        try:
            await store.upgrade()
        except CutShort:
            return True
    return False


class UpgradingContract:
    """A database stays whole when bringing it up to date is cut short. A subclass gives `old_url`,
    a database without any table."""

    statements_between = 1
    """From one statement that the upgrade is cut short before to the next."""

    async def test_an_upgrade_that_is_cut_short(self, old_url: str) -> None:
        """Before whichever statement it ends, each row is there in the old version; the next
        upgrade comes further, and the last one to its end."""
        store = Store(StoreSettings(url=old_url, environment="sandbox"))
        try:
            old = await make_first_version(store)
            before = await dump(store, *old, leave_out=NEW_COLUMNS)
            assert sum(map(len, before.values())) >= 8
            number = 1
            while await cut_short(store, number):
                assert await version_of(store) == "0001", number
                assert await dump(store, *old, leave_out=NEW_COLUMNS) == before, number
                number += self.statements_between
            assert number > len(schema.known_versions())
            assert await version_of(store) == schema.newest_version()
            assert await dump(store, *old, leave_out=NEW_COLUMNS) == before
            async with store.reading() as connection:
                assert await connection.run_sync(differences) == []
        finally:
            await store.close()
