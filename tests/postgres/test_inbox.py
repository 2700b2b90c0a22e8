"""The inbox as a table: several receivers write to it, and rows are read however they commit."""

import socket
from types import SimpleNamespace
from typing import Any

import pytest

from app.database.postgresql import SILENCE_MS, keep_alive
from app.database.statements import run
from app.orders.set_aside import HOLDING
from app.receiving.inbox import Inbox
from app.receiving.inbox_store import keep_row, rows_after
from app.receiving.reader import ReaderContext, read_some
from tests.database.builders import SOURCES, arrival, context, received, rows, said, submit
from tests.postgres.test_sharing import several

pytestmark = pytest.mark.postgres


def reading(inbox: Inbox) -> ReaderContext:
    return ReaderContext(context(inbox), inbox, SOURCES, "sandbox", HOLDING)


async def test_a_row_that_commits_after_a_later_one_was_read_is_read(url: str) -> None:
    """A reader that went by the highest number it has read would lose it."""
    async with several(url) as (one, other):
        async with one.writer.writer.transaction() as connection:
            first = [received(arrival(said("slow", order="A")))]
            number, _ = await run(connection, keep_row, first)
            await submit(other, arrival(said("fast", order="B")))
            assert await read_some(reading(other)) == 1
            assert await rows(other, "SELECT event_id FROM events") == [("fast",)]
        async with other.database.reading() as connection:  # the control: by the number of row 2
            words: dict[str, Any] = {"limit": 9, "most_bytes": 9_999, "in_file": False}
            assert await run(connection, rows_after, number + 1, **words) == []
        assert await read_some(reading(other)) == 1
        found = await rows(other, "SELECT event_id FROM events ORDER BY 1")
        assert found == [("fast",), ("slow",)]
        assert await rows(other, "SELECT count(*) FROM inbox") == [(0,)]


@pytest.mark.parametrize(("family", "asks"), [(socket.AF_INET, 1), (socket.AF_UNIX, 0)])
async def test_a_server_that_is_gone_without_a_word_is_given_up(
    family: socket.AddressFamily, asks: int
) -> None:
    """After half a minute."""
    with socket.socket(family) as ours:
        transport = SimpleNamespace(get_extra_info=lambda name: ours)
        driver = SimpleNamespace(_transport=transport)
        keep_alive(SimpleNamespace(driver_connection=driver))
        assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == asks
        if asks:
            names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_USER_TIMEOUT)
            found = [ours.getsockopt(socket.IPPROTO_TCP, name) for name in names]
            assert found == [5, 2, SILENCE_MS]
