"""What every database must do with a preview of an upgrade: say what it does, and write nothing."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection, column, insert, inspect, table

from app.core.errors import StoreUnavailable
from app.database import schema
from app.orders.preview import previewed
from app.receiving.inbox import Inbox
from reconcile.ledger.policy import Policy
from tests.contexts import settings_of
from tests.database.builders import arrival, context, keep, opened, said
from tests.database.contract_holds import before_the_upgrade, hold_records, rules_of_before, started
from tests.database.contract_ledgers import paid
from tests.database.contract_retention import NOT_BEFORE, to_first_version
from tests.database.old_versions import (
    VERSIONS,
    Contents,
    bring_to,
    contents,
    is_tally,
    version_of,
)


class PreviewContract:
    """Previews. A subclass gives `url` and `old_url`, a database without any table."""

    @pytest.mark.parametrize("version", ["0001", pytest.param("0016", marks=pytest.mark.alike)])
    async def test_a_preview_says_what_the_upgrade_then_does(
        self, inbox: Inbox, old_url: str, version: str
    ) -> None:
        """On a database of an earlier version: the migrations, the outcomes, and exactly the orders
        that are held after it; what came since is not counted, and nothing is written."""
        await before_the_upgrade(inbox, "A", "B")
        with rules_of_before():
            await keep(inbox, arrival(said("c", order="C")))
            await started(context(inbox, at=10))
        await keep(inbox, arrival(paid("C"), at=15), arrival(paid("D"), at=15))
        old = Inbox(settings_of(old_url), purpose="upgrading")
        try:
            before = await copied_to_version(inbox, old, version)
            async with old.database.previewing() as (connection, found):
                preview = await previewed(connection, version=found, policy=Policy(), progress=show)
            assert await contents(old, before) == before
            assert await version_of(old) == version
            assert await old.database.upgrade() == (version, schema.newest_version())
        finally:
            await old.close()
        document = preview.document()
        assert (document["version"], document["needed"]) == (version, schema.newest_version())
        assert [m["version"] for m in document["migrations"]] == [
            each for each in VERSIONS if each > version
        ]
        assert document["orders"] == 4
        assert document["outcomes"] == [
            {"before": "unresolved", "after": "succeeded, held", "orders": 2}
        ]
        assert [each["order"] for each in document["held"]] == ["A", "B"]
        assert len(preview.rows()) == len(document["migrations"]) + 3
        assert "4 orders 2 would be published otherwise, and 2 held" in preview.sentence()
        async with opened(old_url) as upgraded:
            await started(context(upgraded, at=20))
            assert [each[0] for each in await hold_records(upgraded)] == ["A", "B"]
            async with upgraded.database.previewing() as (connection, found):
                again = await previewed(connection, version=found, policy=Policy(), progress=show)
            assert again.rows() == []

    async def test_a_preview_of_a_database_without_any_table(self, old_url: str) -> None:
        """All is due, and there is nothing in it. On SQLite such a file is not there yet."""
        old = Inbox(settings_of(old_url), purpose="upgrading")
        try:
            if not old.database.shared:
                with pytest.raises(StoreUnavailable, match="there is no database"):
                    async with old.database.previewing():
                        raise AssertionError
                return
            async with old.database.previewing() as (connection, version):
                preview = await previewed(
                    connection, version=version, policy=Policy(), progress=show
                )
            assert len(preview.migrations) == len(VERSIONS)
            assert preview.document()["orders"] == 0
        finally:
            await old.close()


def show(done: int, total: int) -> None:
    """Progress that nobody watches."""
    assert done <= total


COPIED = ("deliveries", "events", "links", "records", "order_due", "ledgers", "revisions", "meta",
          "counters")  # fmt: skip


async def copied_to_version(inbox: Inbox, old: Inbox, version: str) -> Contents:
    """Make `old` what the program of that version would have left of what is in `store`."""
    kept = {}
    async with inbox.database.reading() as connection:
        for name in COPIED:
            result = await connection.exec_driver_sql(f"SELECT * FROM {name}")
            kept[name] = [dict(row._mapping) for row in result]
    async with old.database.writing() as connection:
        await connection.run_sync(to_first_version)
        await connection.run_sync(bring_to, version)
        await connection.run_sync(_put, kept)
    there = await _columns(old, COPIED)
    return await contents(
        old, {name: [dict.fromkeys(there[name])] for name in COPIED if kept[name]}
    )


def _put(connection: Connection, kept: Contents) -> None:
    for name, found in kept.items():
        there = {each["name"] for each in inspect(connection).get_columns(name)}
        for row in found:
            if (name == "counters" and is_tally(row["name"])) or row.get("name") in NOT_BEFORE:
                continue  # no earlier version had it
            chosen = {key: value for key, value in row.items() if key in there}
            connection.execute(insert(table(name, *map(column, chosen))), chosen)


async def _columns(inbox: Inbox, names: tuple[str, ...]) -> dict[str, list[str]]:
    def look(connection: Connection) -> dict[str, list[str]]:
        seen = inspect(connection)
        return {name: [each["name"] for each in seen.get_columns(name)] for name in names}

    async with inbox.database.reading() as connection:
        return await connection.run_sync(look)
