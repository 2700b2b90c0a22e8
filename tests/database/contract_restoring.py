"""Contract of every database for restores: numbers never go back, and the schema is the migrations'
own."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from app.access.operators import register_operator, retire_operator, trail
from app.access.tokens import issue_token, withdraw_token
from app.core.errors import StrangeSchema
from app.database import schema
from app.database.faults import driver_errors
from app.evidence.seal import rename_log, seal_all
from app.evidence.verify_log import verify_log
from app.monitoring.health import refusal
from app.orders import published_store
from app.orders.read_feed import read_feed, read_from
from app.orders.refold import refold_until_quiet
from app.privacy.backup import Followed, FollowedLog, after_restore
from app.privacy.fit_journal import begin_journal
from app.privacy.replay_erasures import ErasureReplay
from app.receiving.inbox import Inbox
from app.sealing.log_queue_store import count_unsealed
from app.sealing.log_store import begin_log
from reconcile.instants import SECOND
from tests.database.builders import (
    SIGNER,
    arrival,
    change,
    commit,
    context,
    fetch,
    keep,
    quiet,
    rolled_back,
    rows,
    said,
    seal,
    tamper,
)
from tests.reconcile.build import T

SECONDS = T // SECOND


async def publish_orders(inbox: Inbox, *orders: str) -> None:
    """Publish one paid order for each reference."""
    events = [said(f"e-{o}", "succeeded", order=o, payment=f"p-{o}") for o in orders]
    await keep(inbox, *(arrival(each) for each in events))
    await refold_until_quiet(context(inbox), limit=100, progress=quiet)


async def numbers(inbox: Inbox) -> list[int]:
    return [each.seq for each in await read_feed(context(inbox), after=0, limit=1_000, wait_s=0)]


async def head(inbox: Inbox) -> int:
    return await fetch(inbox, published_store.head_of)


async def gaps(inbox: Inbox) -> list[str]:
    return await fetch(inbox, published_store.feed_gaps)


PLANTED: dict[str, dict[str, list[str]]] = {
    "sqlite": {
        "trigger gift of table events does not belong to Tallyhook": [
            "CREATE TRIGGER gift AFTER INSERT ON events BEGIN "
            "UPDATE events SET claim='succeeded' WHERE rowid = new.rowid; END"
        ],
        "index mine of table events does not belong to Tallyhook": [
            "CREATE INDEX mine ON events (kind)"
        ],
        "view mine does not belong to Tallyhook": ["CREATE VIEW mine AS SELECT 1"],
        "table mine does not belong to Tallyhook": ["CREATE TABLE mine (a)"],
        "table meta differs from Tallyhook's definition": ["ALTER TABLE meta ADD COLUMN more TEXT"],
        "trigger audit_no_update of table audit is missing": ["DROP TRIGGER audit_no_update"],
        "trigger audit_no_update of table audit differs from Tallyhook's definition": [
            "DROP TRIGGER audit_no_update",
            "CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit BEGIN SELECT 1; END",
        ],
        "index ix_deliveries_unreadable of table deliveries is missing": [
            "DROP INDEX ix_deliveries_unreadable"
        ],
    },
    "postgresql": {
        "function gift() does not belong to Tallyhook": [
            "CREATE FUNCTION gift() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN new.claim := 'succeeded'; RETURN new; END $$"
        ],
        "trigger gift of table events does not belong to Tallyhook": [
            "CREATE TRIGGER gift BEFORE INSERT ON events EXECUTE FUNCTION only_added_to()"
        ],
        "trigger audit_only_added_to of table audit differs from Tallyhook's definition": [
            "ALTER TABLE audit DISABLE TRIGGER USER"
        ],
        "function only_added_to() differs from Tallyhook's definition": [
            "CREATE OR REPLACE FUNCTION only_added_to() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RETURN new; END $$"
        ],
        "index mine of table events does not belong to Tallyhook": [
            "CREATE INDEX mine ON events (kind)"
        ],
        "view mine does not belong to Tallyhook": ["CREATE VIEW mine AS SELECT 1"],
        "rule mine of table events does not belong to Tallyhook": [
            "CREATE RULE mine AS ON DELETE TO events DO INSTEAD NOTHING"
        ],
        "table events differs from Tallyhook's definition": [
            "ALTER TABLE events ENABLE ROW LEVEL SECURITY"
        ],
        "column more of table meta does not belong to Tallyhook": [
            "ALTER TABLE meta ADD COLUMN more text"
        ],
        "column claim of table events differs from Tallyhook's definition": [
            "ALTER TABLE events ALTER COLUMN claim SET DEFAULT 'succeeded'"
        ],
        "constraint mine of table events does not belong to Tallyhook": [
            "ALTER TABLE events ADD CONSTRAINT mine CHECK (claim <> 'refunded')"
        ],
    },
}
"""Statements by the message about what they plant."""


async def put_back(inbox: Inbox) -> Followed:
    """Do what `db restored` does where nobody was ever erased."""
    then = context(inbox)
    await begin_journal(then)
    again = ErasureReplay(then, progress=lambda count: None)
    followed, _ = await after_restore(again, without=None)
    return followed


class RestoringContract:
    """Numbers, people and schema after a restore. A subclass gives `url`."""

    # --- numbers ---------------------------------------------------------------------------------

    async def test_numbers_never_go_back(self, inbox: Inbox) -> None:
        """The next is the larger of two. Only missing numbers are gaps."""
        await publish_orders(inbox, "A", "B")
        done = await put_back(inbox)
        assert (done.head, done.first) == (2, max(2 + 2**40, SECONDS * 2**20))
        assert await head(inbox) == done.first - 1
        assert await gaps(inbox) == []
        await publish_orders(inbox, "C")
        assert await numbers(inbox) == [1, 2, done.first]
        again = await put_back(inbox)
        assert again.head == done.first
        assert again.first == done.first + published_store.AHEAD
        await publish_orders(inbox, "D")
        assert await numbers(inbox) == [1, 2, done.first, again.first]
        assert await gaps(inbox) == []
        await tamper(inbox, "revisions", f"DELETE FROM revisions WHERE seq = {done.first}")
        assert await gaps(inbox) == ["the outcome feed has gaps"]

    @pytest.mark.alike
    async def test_numbers_left_out_by_a_restore_are_not_waited_for(self, inbox: Inbox) -> None:
        await publish_orders(inbox, "A")
        await seal(inbox)
        await put_back(inbox)
        await publish_orders(inbox, "B")
        assert await fetch(inbox, count_unsealed) == 3  # a delivery, a revision, an audit entry
        await seal(inbox)
        assert await fetch(inbox, count_unsealed) == 0

    @pytest.mark.alike
    async def test_a_cursor_beyond_the_head_is_told_where_to_read_on(self, inbox: Inbox) -> None:
        await publish_orders(inbox, "A", "B")
        assert await read_from(context(inbox), after=2) is None
        assert await read_from(context(inbox), after=3) == 0, "no restore was noted"
        first = (await put_back(inbox)).first
        for after in (0, 2, 3, first - 1):
            assert await read_from(context(inbox), after=after) is None
        place = await read_from(context(inbox), after=first)
        assert place == first - 1
        await publish_orders(inbox, "C")
        (found,) = await read_feed(context(inbox), after=place, limit=10, wait_s=0)
        assert found.order == "C"

    async def test_the_log_goes_on_under_another_origin(self, inbox: Inbox) -> None:
        """Twice, if it must. Each origin is that of checkpoints up to its size."""
        assert (await put_back(inbox)).log == FollowedLog(leaves=0)
        async with inbox.database.writing() as connection:
            public = SIGNER.key.public.raw.hex()
            await begin_log(connection, origin=SIGNER.origin, public=public, now=T)
        await publish_orders(inbox, "A")
        await seal(inbox)
        signer, sizes = SIGNER, []
        for number, order in enumerate("BC"):
            followed = await put_back(inbox)
            assert (followed.log.sure, followed.log.renamed) == (False, None)
            assert _words(followed, "run `tallyhook log rename --reason TEXT`")
            known = await rename_log(context(inbox, at=number), by=None, reason="it forked")
            assert known.origins[:-1] == [SIGNER.origin, signer.origin][: number + 1]
            sizes.append(known.earlier[-1].size)
            assert sizes[-1] == followed.log.leaves
            signer = replace(SIGNER, origin=known.origin)
            await publish_orders(inbox, order)
            await seal_all(context(inbox), signer)
        checked = await verify_log(context(inbox), progress=lambda done, of: None)
        assert checked.checkpoints == 3
        assert not [each for each in checked.problems if "checkpoint" in each]
        middle = known.earlier[1].origin
        for size, origin in ((1, SIGNER.origin), (sizes[0], SIGNER.origin),
                             (sizes[0] + 1, middle), (sizes[1], middle),
                             (sizes[1] + 1, signer.origin)):  # fmt: skip
            assert known.origin_at(size) == origin

    # --- people ----------------------------------------------------------------------------------

    async def test_tokens_and_operators_in_force_are_reported(self, inbox: Inbox) -> None:
        at = context(inbox)
        for name in ("old", "new"):
            await issue_token(at, name=name)
        await withdraw_token(at, name="old")
        await register_operator(at, name="Ann", role="admin", by=None)
        await register_operator(at, name="Bob", role="viewer", by="Ann")
        await retire_operator(at, name="Bob", by="Ann")
        await begin_journal(at)
        again = ErasureReplay(at, progress=lambda count: None)
        done, _ = await after_restore(again, without=None)
        assert (done.may.tokens, done.may.operators, done.gone) == (("new",), ("Ann",), None)
        assert _words(done, "These tokens are in force: new", "These operators are in force: Ann")
        (entry,) = await trail(at, action="restored", limit=10)
        assert (entry.role, entry.facts) == ("account", {"head": 0, "first": done.first})

    # --- schema ----------------------------------------------------------------------------------

    async def test_the_kept_digest_is_what_the_migrations_make(self, inbox: Inbox) -> None:
        async with inbox.database.reading() as connection:
            found = schema.schema_digest(await schema.objects_of(connection))
            assert await schema.is_own(connection), f"write {found} into app.database.schema"
        assert await inbox.database.strange_objects() == []

    @pytest.mark.alike
    async def test_a_digest_that_was_not_updated_refuses_nobody(
        self, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(schema.DIGESTS, inbox.database.writer.dialect, "0")
        assert await inbox.database.strange_objects() == []
        await commit(inbox, schema.require_own)

    async def test_every_strange_or_missing_object_is_named(
        self, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The migrations run once for all of them."""
        monkeypatch.setattr(schema, "_made_on_sqlite", cache(schema._made_on_sqlite))
        monkeypatch.setattr(schema, "_made_on_postgresql", _once(schema._made_on_postgresql))
        for expected, statements in PLANTED[inbox.database.writer.dialect].items():
            async with rolled_back(inbox) as connection:
                for sql in statements:
                    await connection.exec_driver_sql(sql)
                found = await schema.strange_objects(connection)
                with pytest.raises(StrangeSchema):
                    await schema.require_own(connection)
            assert any(expected in each for each in found), (expected, found)
        assert await inbox.database.strange_objects() == []

    # --- writes that fail ------------------------------------------------------------------------

    @pytest.mark.alike
    async def test_repeated_failures_to_append_are_reported(self, inbox: Inbox) -> None:
        broken, mended = _REFUSING[inbox.database.writer.dialect]
        await change(inbox, *broken)
        try:
            for number in range(3):
                assert await refusal(context(inbox)) is None, number
                with pytest.raises(driver_errors()):
                    await keep(inbox, arrival(said(f"e{number}", order=f"O{number}")))
            found = await refusal(context(inbox))
            assert found is not None
            assert "accepted deliveries cannot be appended" in found
        finally:
            await change(inbox, *mended)
        before = await rows(inbox, "SELECT count(*) FROM deliveries")
        assert await refusal(context(inbox)) is None
        assert inbox.append_faults == 0
        assert await rows(inbox, "SELECT count(*) FROM deliveries") == before, "nothing is stored"
        await keep(inbox, arrival(said("later", order="later")))


def _once(make: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Make a function return its first result for ever."""
    made: list[Any] = []

    async def kept(*given: Any) -> Any:
        if not made:
            made.append(await make(*given))
        return made[0]

    return kept


_REFUSING = {
    "sqlite": (
        ["CREATE TRIGGER no BEFORE INSERT ON links BEGIN SELECT RAISE(ABORT, 'no'); END",
         "CREATE TRIGGER never BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'no'); END"],
        ["DROP TRIGGER no", "DROP TRIGGER never"],
    ),
    "postgresql": (
        ["CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS "
         "$$ BEGIN RAISE EXCEPTION 'no'; END $$",
         "CREATE TRIGGER no BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION no()"],
        ["DROP TRIGGER no ON events", "DROP FUNCTION no()"],
    ),
}  # fmt: skip


def _words(done: Followed, *wanted: str) -> bool:
    return all(any(each in sentence for sentence in done.sentences()) for each in wanted)
