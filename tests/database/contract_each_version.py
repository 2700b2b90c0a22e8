"""What every database must keep when it is brought up to date from any version there has been."""

from __future__ import annotations

import pytest

from app.database import schema
from app.orders.counter_store import differing_tallies
from app.orders.listing_store import differing_listings
from app.receiving.inbox import Inbox
from tests.contexts import settings_of
from tests.database.builders import differences, rows
from tests.database.old_versions import TALLIES, VERSIONS, contents, make_version, version_of

CACHE = "takings"
NEW_TAKINGS = "0022"
"""The version since which ledger lines are written in another form: those of before are deleted."""

LISTINGS = "0029"
"""The version that made what lists of orders are read from of the ledgers that were there; tables
of it and of later ones are filled without looking at each other."""


class EachVersionContract:
    """From each version in turn. A subclass gives `old_url`, a database without any table."""

    every = 12
    """Of the versions between, the gate takes every so-manieth."""

    @pytest.mark.slow
    async def test_an_upgrade_from_some_versions(self, old_url: str) -> None:
        """Each row of each table is there afterwards, and the tables are as new ones are. From the
        first version, from the last before this one, and from some between."""
        await self.upgraded(old_url, sorted({*VERSIONS[:: self.every], VERSIONS[-2]}))

    @pytest.mark.soak
    async def test_an_upgrade_from_each_version(self, old_url: str) -> None:
        """The same from each."""
        await self.upgraded(old_url, VERSIONS)

    async def upgraded(self, old_url: str, versions: list[str]) -> None:
        """Bring a database of each of these versions up to date."""
        inbox = Inbox(settings_of(old_url), purpose="upgrading")
        rows = 0
        try:
            for version in versions:
                before = await make_version(inbox, version)
                assert await inbox.database.upgrade() == (version, schema.newest_version())
                assert await version_of(inbox) == schema.newest_version()
                after = await contents(inbox, before)
                if version < NEW_TAKINGS:  # a cache, made anew by the next reconciliation
                    assert not any(after.pop(CACHE, ()))
                    before.pop(CACHE, None)
                assert after == before, version
                async with inbox.database.reading() as connection:
                    assert await connection.run_sync(differences) == [], version
                    if version < TALLIES:
                        assert await differing_tallies(connection) == [], version
                    if version < LISTINGS:
                        assert await differing_listings(connection) == [], version
                rows += sum(map(len, before.values()))
        finally:
            await inbox.close()
        print(f"upgraded from each of {len(versions)} versions: {rows:,} rows, none lost")

    async def test_tokens_keep_what_they_had(self, old_url: str) -> None:
        """Before tokens were for some things only, each was for all that the API had."""
        inbox = Inbox(settings_of(old_url), purpose="upgrading")
        try:
            await make_version(inbox, "0017")
            await inbox.database.upgrade()
            scopes = await rows(inbox, "SELECT DISTINCT scopes, until FROM tokens")
            assert scopes == [("read orders checkout", None)]
        finally:
            await inbox.close()
