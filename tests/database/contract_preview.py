"""What every database must do with a preview of an upgrade: say what it does, and write nothing."""

from __future__ import annotations

import pytest

from app.core.errors import StoreUnavailable
from app.database import schema
from app.database.tables import metadata
from app.orders.preview import Preview, previewed
from app.receiving.store import Store, StoreSettings
from reconcile.ledger.policy import Policy
from tests.database.builders import arrival, context, dump, keep, said
from tests.database.contract_holds import before_the_upgrade, hold_records, rules_of_before, started
from tests.database.contract_ledgers import paid


class PreviewContract:
    """Previews. A subclass gives `store` and `empty_url`, a database without any table."""

    async def test_a_preview_says_what_the_next_start_then_does(self, store: Store) -> None:
        """The outcomes, and exactly the orders that are held after it; what came since is not
        counted, and nothing is written."""
        await before_the_upgrade(store, "A", "B")
        with rules_of_before():
            await keep(store, arrival(said("c", order="C")))
            await started(context(store, at=10))
        await keep(store, arrival(paid("C"), at=15), arrival(paid("D"), at=15))
        before = await dump(store, *metadata.tables)
        preview = await preview_of(store)
        assert await dump(store, *metadata.tables) == before
        document = preview.document()
        assert (document["version"], document["needed"]) == (schema.NEWEST, schema.NEWEST)
        assert (document["migrations"], document["orders"]) == ([], 4)
        assert document["outcomes"] == [
            {"before": "unresolved", "after": "succeeded, held", "orders": 2}
        ]
        assert [each["order"] for each in document["held"]] == ["A", "B"]
        assert len(preview.rows()) == 3
        assert "4 orders 2 would be published otherwise, and 2 held" in preview.sentence()
        await started(context(store, at=20))
        assert [each[0] for each in await hold_records(store)] == ["A", "B"]
        assert (await preview_of(store)).rows() == []

    async def test_a_preview_of_a_database_without_any_table(self, empty_url: str) -> None:
        """All is due, and there is nothing in it. On SQLite such a file is not there yet."""
        store = Store(StoreSettings(url=empty_url, environment="sandbox"))
        try:
            if not store.shared:
                with pytest.raises(StoreUnavailable, match="there is no database"):
                    await preview_of(store)
                return
            document = (await preview_of(store)).document()
            assert [each["version"] for each in document["migrations"]] == [*schema.VERSIONS]
            assert document["orders"] == 0
        finally:
            await store.close()


async def preview_of(store: Store) -> Preview:
    """What `db upgrade --dry-run` finds."""

    def show(done: int, total: int) -> None:
        assert done <= total

    async with store.previewing() as (connection, version):
        return await previewed(connection, version=version, policy=Policy(), progress=show)
