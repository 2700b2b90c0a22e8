"""What every database must do with a preview of an upgrade: say what it does, and write nothing."""

import pytest

from app.core.errors import StoreUnavailable
from app.database import schema
from app.database.tables import metadata
from app.orders.preview import Preview, previewed
from app.receiving.inbox import Inbox
from reconcile.ledger.policy import Policy
from tests.contexts import settings_of
from tests.database.builders import arrival, context, dump, keep, said
from tests.database.contract_holds import before_the_upgrade, hold_records, rules_of_before, started
from tests.database.contract_ledgers import paid


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
        assert "4 orders 2 would be published otherwise, and 2 held" in preview.sentence()
        await started(context(inbox, at=20))
        assert [each[0] for each in await hold_records(inbox)] == ["A", "B"]
        assert (await preview_of(inbox)).rows() == []

    async def test_a_preview_of_an_empty_database_lists_all_migrations(
        self, empty_url: str
    ) -> None:
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
