"""Contract of every database for rows to keep or delete: rejections, tokens, the stamp, the
schema."""

import asyncio
import random
from contextlib import suppress
from dataclasses import replace

import pytest

from app.access.operators import trail
from app.access.tokens import (
    TOKEN_SCOPES,
    ending_soon,
    issue_token,
    known_tokens,
    token_of,
    withdraw_token,
)
from app.config.settings import Settings
from app.core.clock import SetClock
from app.core.errors import ConfigurationError, NotFoundError, StoreUnavailable, UsageError
from app.database import mapping, schema, writer
from app.database.mapping import delivery_of, record_of
from app.database.postgresql import Purpose
from app.database.statements import run
from app.database.tables import metadata
from app.monitoring.health import refusal
from app.receiving import inbox_queue, refusal_store
from app.receiving.inbox import Inbox, open_inbox
from reconcile.instants import DAY, HOUR, TICK, format_instant
from tests.database.builders import (
    arrival,
    context,
    differences,
    dump,
    keep,
    opened,
    rejection,
    rows,
    said,
    submit,
)
from tests.reconcile.build import T
from tests.waiting import PATIENCE_S, soon

MAX_COUNT, MAX_BYTES = 20, 30_000
SIZES = [10, 100, 3_000]


async def kept_in_ring(inbox: Inbox) -> tuple[int, int, list[str]]:
    """Return the number, bytes and ids of the rejections in the ring."""
    found = await rows(inbox, "SELECT id, body, headers FROM rejections ORDER BY id")
    size = sum(len(body) + len(headers.encode()) for _, body, headers in found)
    return len(found), size, [row[0] for row in found]


class KeepingContract:
    """Rejections, tokens, the stamp and the schema. A subclass gives `url`."""

    async def test_a_write_that_takes_too_long_keeps_no_sender_waiting(
        self, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Senders are asked to try again. What had begun is stored in the end; the rest is not."""
        monkeypatch.setattr(inbox_queue, "PATIENCE_S", 0.2)
        begun, behind, late = (arrival(said(name, order="A")) for name in ("e1", "e2", "e3"))
        async with opened(url) as inbox:
            writer = inbox.writer.writer
            async with writer.transaction():  # as long as a disk that hangs
                first = asyncio.create_task(submit(inbox, begun))
                for _ in range(20):
                    await asyncio.sleep(0)  # until it is a batch
                second = asyncio.create_task(submit(inbox, behind))
                for each in (first, second):
                    with pytest.raises(StoreUnavailable, match="not finished a write"):
                        await each
                with pytest.raises(StoreUnavailable, match="not finished a write"):
                    await submit(inbox, late)
                assert inbox.queue.depth == 0
                assert await refusal(context(inbox)) == inbox.queue.stalled
            await soon(lambda: inbox.queue.stalled is None)
            rows = await inbox.next_rows(limit=9, most_bytes=9_999)
            kept = [item for row in rows for item in row.items or ()]
            assert [item.delivery_id for item in kept] == [begun.delivery_id]
            assert await refusal(context(inbox)) is None
            assert await submit(inbox, behind) == "accepted"

    async def test_writers_give_up_on_one_that_does_not_end(
        self, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(writer, "TURN_S", 0.05)
        async with inbox.database.writing():
            for _ in range(2):
                with pytest.raises(StoreUnavailable, match="another write has been running"):
                    await issue_token(context(inbox), name="shop")
        assert await issue_token(context(inbox), name="shop")

    async def test_writers_give_up_on_one_that_has_just_got_its_turn(
        self, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(writer, "TURN_S", 0.05)
        over = asyncio.Event()

        async def hang() -> None:
            async with inbox.database.writing():
                await over.wait()

        async with inbox.database.writer._alone():
            next_one = asyncio.create_task(hang())
            await asyncio.sleep(0)
        try:
            with pytest.raises(StoreUnavailable, match="another write has been running"):
                async with asyncio.timeout(PATIENCE_S):
                    await issue_token(context(inbox), name="shop")
        finally:
            over.set()
            await next_one

    @pytest.mark.alike
    async def test_the_ring_is_bounded_after_every_commit(self, url: str) -> None:
        chance = random.Random(5)
        bounds = {"rejections_max_count": MAX_COUNT, "rejections_max_bytes": MAX_BYTES}
        async with opened(url, **bounds) as inbox:
            kept: list[refusal_store.Rejection] = []
            for _ in range(40):
                new = [
                    rejection(
                        body=b"x" * chance.choice([0, 100, 6_000]),
                        headers="é" * chance.choice([10, 3_000]),
                    )
                    for _ in range(chance.randint(1, 6))
                ]
                kept += new
                await keep(inbox, *new)
                count, size, names = await kept_in_ring(inbox)
                assert count <= MAX_COUNT
                assert size <= MAX_BYTES
                assert names == [each.delivery_id for each in kept[len(kept) - count :]]
                assert names, "the ring was emptied"

    @pytest.mark.alike
    async def test_a_ring_within_its_bounds_deletes_nothing(self, url: str) -> None:
        for _ in range(2):
            async with opened(url, rejections_max_count=MAX_COUNT) as inbox:
                await keep(inbox, *(rejection() for _ in range(MAX_COUNT // 2)))
        async with opened(url, rejections_max_count=MAX_COUNT) as inbox:
            assert (await kept_in_ring(inbox))[0] == MAX_COUNT
            await keep(inbox, rejection())
            assert 1 < (await kept_in_ring(inbox))[0] <= MAX_COUNT

    @pytest.mark.alike
    async def test_rejections_come_back_as_they_were_kept(self, inbox: Inbox) -> None:
        refused = [rejection(body=b"{1}", headers="c: d"), rejection()]
        await keep(inbox, *refused)
        async with inbox.database.reading() as connection:
            assert await refusal_store.kept_rejections(connection, after="", at_once=9) == refused
            assert (
                await refusal_store.find_rejection(connection, refused[1].delivery_id) == refused[1]
            )
            assert await refusal_store.find_rejection(connection, "dlv_none") is None

    @pytest.mark.parametrize("bound", ["rejections_max_count", "rejections_max_bytes"])
    async def test_a_ring_of_size_zero_keeps_nothing(self, url: str, bound: str) -> None:
        async with opened(url, **{bound: 0}) as inbox:
            assert await keep(inbox, rejection(), arrival(said("e1", order="A"))) == ["stored"] * 2
            assert (await kept_in_ring(inbox))[0] == 0

    @pytest.mark.alike
    async def test_rejections_of_a_failed_transaction_push_nothing_out(self, inbox: Inbox) -> None:
        ring = refusal_store.RejectionRing(max_count=MAX_COUNT, max_bytes=10**6)
        for number in range(MAX_COUNT):
            with suppress(RuntimeError):
                async with inbox.database.writing() as connection:
                    await run(connection, ring.append, [rejection()])
                    if number >= 5:
                        raise RuntimeError("planned")
        async with inbox.database.writing() as connection:
            await run(connection, ring.append, [rejection()])
        assert (await kept_in_ring(inbox))[0] == 6

    @pytest.mark.alike
    async def test_a_token_is_valid_until_it_is_revoked(self, inbox: Inbox) -> None:
        """Its name is used once."""
        at = context(inbox)
        token = await issue_token(at, name="shop")
        assert token.startswith("thk_sandbox_")
        known = await token_of(at, token)
        assert known is not None
        assert (known.name, known.in_force(at.clock.now())) == ("shop", True)
        for text in ("", token[:-1], token + "x", token.upper(), "\ud800", "shop"):
            assert await token_of(at, text) is None
        with pytest.raises(UsageError):
            await issue_token(at, name="shop")
        await withdraw_token(at, name="shop")
        known = await token_of(at, token)
        assert known is not None
        assert not known.in_force(at.clock.now())
        for name in ("shop", "nobody"):
            with pytest.raises(NotFoundError):
                await withdraw_token(at, name=name)
        with pytest.raises(UsageError):
            await issue_token(at, name="shop")
        (entry,) = await known_tokens(at)
        assert (entry.name, entry.revoked_at) == ("shop", at.clock.now())
        assert entry.changed_at == entry.revoked_at

    @pytest.mark.alike
    async def test_a_token_has_the_scopes_it_was_made_with(self, inbox: Inbox) -> None:
        """Three by default. Making and revoking it are in the trail."""
        at = context(inbox)
        await issue_token(at, name="a")
        await issue_token(at, name="b", scopes=["finance", "read", "read"], until="1d")
        await issue_token(at, name="c", scopes=TOKEN_SCOPES)
        assert [each.scopes for each in await known_tokens(at)] == [
            ("read", "orders", "checkout"),
            ("read", "finance"),
            ("read", "orders", "checkout", "finance", "evidence"),
        ]
        await withdraw_token(at, name="b")
        document = {"scopes": "read finance", "until": format_instant(at.clock.now() + DAY)}
        entries = await trail(at, subject="b", limit=9)
        assert len(str(entries[0].facts["hash_sha256"])) == 64  # by which another one is recognized
        facts = [
            (entry.action, {n: f for n, f in entry.facts.items() if n != "hash_sha256"})
            for entry in entries
        ]
        assert facts == [("token_added", document), ("token_revoked", document)]

    @pytest.mark.alike
    async def test_a_token_is_valid_until_its_end(self, inbox: Inbox) -> None:
        """Tokens that end within two weeks are listed, the first to end first."""
        clock, now = SetClock(T), T
        at = replace(context(inbox), clock=clock)
        ends = {"a": "15d", "b": "13d", "c": format_instant(now + 2 * HOUR), "d": "1h", "e": "3h"}
        tokens = {name: await issue_token(at, name=name, until=end) for name, end in ends.items()}
        await issue_token(at, name="f")
        await withdraw_token(at, name="e")
        clock.put(now + HOUR)
        assert [each.name for each in await ending_soon(at)] == ["c", "b"]
        entry = await token_of(at, tokens["c"])
        assert entry is not None
        assert entry.in_force(now + 2 * HOUR - TICK)
        assert not entry.in_force(now + 2 * HOUR)

    @pytest.mark.alike
    @pytest.mark.parametrize(
        "until",
        [
            "",
            "0d",
            "90",
            "d",
            "-1d",
            "2020-01-01T00:00:00Z",
            "2020-01-01",
            "2027-02-30",
            "1d ",
            "99999999d",
        ],
    )
    async def test_an_end_that_is_none(self, inbox: Inbox, until: str) -> None:
        with pytest.raises(UsageError, match="--until"):
            await issue_token(context(inbox), name="shop", until=until)
        assert await known_tokens(context(inbox)) == []

    @pytest.mark.alike
    @pytest.mark.parametrize("name", ["", "a b", "x" * 61, "é", "a\n"])
    async def test_a_token_name_must_be_typable(self, inbox: Inbox, name: str) -> None:
        with pytest.raises(UsageError):
            await issue_token(context(inbox), name=name)

    @pytest.mark.alike
    @pytest.mark.parametrize(("own", "other"), [("sandbox", "live"), ("live", "sandbox")])
    @pytest.mark.parametrize("purpose", ["serving", "writing", "reading"])
    async def test_a_database_of_one_environment_refuses_the_other(
        self, url: str, own: str, other: str, purpose: Purpose
    ) -> None:
        async with opened(url, environment=own):
            pass
        with pytest.raises(ConfigurationError, match=f"belongs to {own}"):
            async with open_inbox(Settings(database_url=url, environment=other), purpose=purpose):
                pass
        async with open_inbox(Settings(database_url=url), purpose=purpose) as inbox:
            assert inbox.database.environment == own

    @pytest.mark.alike
    async def test_a_new_database_must_be_given_an_environment(self, url: str) -> None:
        with pytest.raises(ConfigurationError, match="TALLYHOOK_ENVIRONMENT"):
            async with open_inbox(Settings(database_url=url), purpose="writing"):
                pass

    async def test_migrations_make_the_declared_tables(self, inbox: Inbox) -> None:
        async with inbox.database.reading() as connection:
            assert await schema.current_version(connection) == schema.NEWEST
            assert await connection.run_sync(differences) == []

    async def test_upgrading_again_changes_nothing(self, inbox: Inbox) -> None:
        await keep(inbox, arrival(said("e1", order="A")), rejection())
        tables = sorted(set(metadata.tables) - {"holders"})
        before = await dump(inbox, *tables)
        newest = schema.NEWEST
        assert await inbox.database.upgrade() == (newest, newest)
        assert await dump(inbox, *tables) == before

    @pytest.mark.alike
    async def test_an_unknown_claim_or_kind_in_a_row_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="cannot read the stored claim"):
            delivery_of(
                (
                    "A",
                    "shop",
                    "e",
                    "d",
                    "dlv",
                    1,
                    "k",
                    "paid",
                    *[None] * len(mapping.EVENT_COLUMNS[8:]),
                )
            )
        with pytest.raises(ValueError, match="does not know the stored kind"):
            record_of(("r", 1, "order_paid", "A", 1, *[None] * len(mapping.RECORD_COLUMNS[5:])))
