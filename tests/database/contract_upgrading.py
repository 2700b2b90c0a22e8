"""Contract of every database for upgrades: a preview, and no remains of an upgrade that is cut
short."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
from sqlalchemy import Connection, event, inspect

from app.core.errors import StoreUnavailable
from app.database import schema
from app.database.tables import metadata
from app.orders.preview import Preview, previewed
from app.receiving.inbox import Inbox
from reconcile.ledger.policy import Policy
from tests.contexts import settings_of
from tests.database.builders import arrival, context, differences, dump, keep, said
from tests.database.contract_holds import before_the_upgrade, hold_records, rules_of_before, started
from tests.database.contract_ledgers import paid


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
    """Number of statements from one cut of the upgrade to the next."""

    async def test_an_upgrade_that_is_cut_short_leaves_nothing(self, empty_url: str) -> None:
        assert await always_whole(empty_url, between=self.statements_between) >= 150 // (
            self.statements_between
        )

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


class PreviewContract:
    """Previews of an upgrade. A subclass gives `url` and `empty_url`, a database without any
    table."""

    async def test_a_preview_states_what_the_next_start_does(self, inbox: Inbox) -> None:
        """Later evidence is not counted, and nothing is written."""
        await before_the_upgrade(inbox, "A", "B")
        with rules_of_before():
            await keep(inbox, arrival(said("c", order="C")))
            await started(context(inbox, at=10))
        await keep(inbox, arrival(paid("C"), at=15), arrival(paid("D"), at=15))
        before = await dump(inbox, *metadata.tables)
        preview = await preview_of(inbox)
        assert await dump(inbox, *metadata.tables) == before
        document = preview.document()
        assert (document["version"], document["needed"]) == (schema.NEWEST, schema.NEWEST)
        assert (document["migrations"], document["orders"]) == ([], 4)
        assert document["outcomes"] == [
            {"before": "unresolved", "after": "succeeded, held", "orders": 2}
        ]
        assert [each["order"] for each in document["held"]] == ["A", "B"]
        assert len(preview.rows()) == 3
        assert (
            "4 orders 2 would be published differently, and 2 would be held" in preview.sentence()
        )
        await started(context(inbox, at=20))
        assert [each[0] for each in await hold_records(inbox)] == ["A", "B"]
        assert (await preview_of(inbox)).rows() == []

    async def test_a_preview_of_an_empty_database_lists_migrations(self, empty_url: str) -> None:
        """On SQLite there is no such file yet."""
        inbox = Inbox(settings_of(empty_url), purpose="upgrading")
        try:
            if not inbox.database.shared:
                with pytest.raises(StoreUnavailable, match="there is no database"):
                    await preview_of(inbox)
                return
            document = (await preview_of(inbox)).document()
            assert [each["version"] for each in document["migrations"]] == [*schema.VERSIONS]
            assert document["orders"] == 0
        finally:
            await inbox.close()


async def preview_of(inbox: Inbox) -> Preview:
    """Return what `db upgrade --dry-run` finds."""

    def show(done: int, total: int) -> None:
        assert done <= total

    async with inbox.database.previewing() as (connection, version):
        return await previewed(connection, version=version, policy=Policy(), progress=show)
