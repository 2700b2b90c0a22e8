"""Time limits: what may take long, and what may not."""

import asyncio
from threading import current_thread, main_thread

import pytest

from app.access.operators import register_operator
from app.core.errors import StoreUnavailable
from app.core.jobs import LARGE
from app.database import postgresql
from app.database.statements import PlainConnection, compute
from app.receiving.inbox import Inbox
from tests.database.builders import context, opened, rows
from tests.postgres.test_sharing import several

pytestmark = pytest.mark.postgres

IDLE_MS = 3_000
TOO_LONG_S = 4.5


async def test_a_snapshot_is_held_for_as_long_as_others_work(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than a writing transaction may be idle."""
    monkeypatch.setattr(postgresql, "IDLE_MS", IDLE_MS)
    async with opened(url) as inbox:
        async with inbox.database.reading() as connection:
            before = await connection.exec_driver_sql("SELECT count(*) FROM operators")
            assert before.scalar_one() == 0
            await register_operator(context(inbox), name="ada", role="admin", by=None)
            await asyncio.sleep(TOO_LONG_S)
            after = await connection.exec_driver_sql("SELECT count(*) FROM operators")
            assert after.scalar_one() == 0
        assert await rows(inbox, "SELECT name FROM operators") == [("ada",)]


async def idle_after_a_write(inbox: Inbox) -> None:
    async with inbox.database.writing() as connection:
        await connection.exec_driver_sql(
            "INSERT INTO operators (name, role, created_at) VALUES ('ada', 'admin', 1)"
        )
        await asyncio.sleep(TOO_LONG_S)


async def test_a_writing_transaction_may_not_be_idle(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql, "IDLE_MS", IDLE_MS)
    async with opened(url) as inbox:
        with pytest.raises(StoreUnavailable):
            await idle_after_a_write(inbox)
        await register_operator(context(inbox), name="bea", role="admin", by=None)
        assert await rows(inbox, "SELECT name FROM operators") == [("bea",)]


async def test_what_computes_for_long_does_so_in_another_thread_on_one_snapshot(url: str) -> None:
    """The loop goes on meanwhile; what is small is computed at once."""

    def read(connection: PlainConnection, size: int) -> tuple[bool, list[int]]:
        asked = "SELECT count(*) FROM operators"
        before = connection.ask(asked)[0][0]
        in_loop = compute(connection, lambda: current_thread() is main_thread(), size=size)
        return in_loop, [before, connection.ask(asked)[0][0]]

    async with opened(url) as inbox:
        assert await inbox.database.on_snapshot(read, LARGE) == (False, [0, 0])
        assert await inbox.database.on_snapshot(read, LARGE - 1) == (True, [0, 0])


async def test_no_statement_of_a_writer_is_compiled(url: str) -> None:
    """Before version 18 each plan with a disabled scan would be compiled; a start took 16
    seconds."""
    async with opened(url) as inbox, inbox.database.writing() as connection:
        found = await connection.exec_driver_sql(
            "SELECT current_setting('enable_seqscan'), current_setting('jit')"
        )
        assert tuple(found.one()) == ("off", "off")


async def test_tables_may_be_vacuumed_for_long(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgresql, "ANSWER_S", 3)
    async with several(url) as (one, other):
        async with other.database.writing() as connection:
            await connection.exec_driver_sql("LOCK TABLE phones IN SHARE UPDATE EXCLUSIVE MODE")
            tidying = asyncio.create_task(one.database.writer.tidy(["deliveries", "phones"]))
            await asyncio.sleep(TOO_LONG_S)
            assert not tidying.done()
        assert await tidying


async def test_a_machine_that_is_gone_without_a_word_is_noticed_by_the_server(url: str) -> None:
    """It probes its clients, which is set for each connection; a Unix socket shows no value."""
    sql = "SELECT name, source FROM pg_settings WHERE name LIKE 'tcp_keepalives%'"
    wanted = dict.fromkeys(postgresql.SERVER_KEEPALIVE, "session")
    async with opened(url) as inbox:
        assert {str(row[0]): str(row[1]) for row in await rows(inbox, sql)} == wanted
        async with inbox.database.writing() as connection:
            found = await connection.exec_driver_sql(sql)
            assert {row.name: row.source for row in found} == wanted
