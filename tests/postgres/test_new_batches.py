"""A batch that is taken for new is one statement, which finds out whether it is."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy.engine import make_url

from app.store.arrivals.intake import keep_arrivals
from tests.postgres.conftest import ask_in_loop, migrate
from tests.postgres.test_scripts import sent_while
from tests.store.builders import arrival, events_in, histories, keep, opened, rows, said

pytestmark = pytest.mark.postgres

SUPPOSING = "WITH arrived "
"""What the one statement begins with that asks before it writes."""


async def test_a_new_batch_is_one_statement(url: str) -> None:
    """Whoever has made its links."""
    async with opened(url) as one, opened(url) as other:
        await keep(one, arrival(said("e", order="O0", payment="p0")))
        await keep(one, arrival(said("n", payment="waits", session="for its order")))
        items = [arrival(said(f"e{n}", order=f"O{n}", payment=f"p{n}")) for n in range(5)]
        sent = await sent_while(other, *items)
        assert [sql[: len(SUPPOSING)] for sql in sent] == [SUPPOSING]


@pytest.mark.parametrize(
    ("known", "new", "questions"),
    [
        ({"event_id": "e", "order": "A"}, {"order": "A"}, 1),
        ({"event_id": "e", "order": "A", "payment": "p"}, {"order": "A"}, 2),
        ({"order": "B", "payment": "p"}, {"order": "A", "payment": "p"}, 1),
        ({"order": "B", "session": "s"}, {"order": "A", "payment": "p", "session": "s"}, 1),
        ({"payment": "p"}, {"order": "A", "payment": "p"}, 3),
        ({"session": "s"}, {"order": "A", "session": "s"}, 3),
    ],
    ids=["duplicate", "another body", "its payment", "its session", "orphan", "orphan's session"],
)
async def test_what_is_known_of_a_batch_is_asked_for(
    url: str, known: dict[str, str], new: dict[str, str], questions: int
) -> None:
    """Where something stored speaks against it nothing is written, and four round trips follow: the
    beginning with the lock, all questions, all writes, the commit; one more where what is known
    leads to more."""
    async with opened(url) as one, opened(url) as other:
        await keep(one, arrival(said(**{"event_id": "known", **known})))
        sent = await sent_while(other, arrival(said("e", **new)), arrival(said("f", order="F")))
        whole, begin, *between, commit = sent
        assert whole.startswith(SUPPOSING)
        assert begin == "BEGIN; SELECT pg_advisory_xact_lock(7411003)"
        assert len(between) == questions + 1
        assert commit == "COMMIT"
        assert await rows(one, "SELECT count(*) FROM deliveries") == [(5,)]


async def test_an_event_without_an_order_is_not_taken_for_new(url: str) -> None:
    """Which order it belongs to is in the database, or nowhere yet."""
    async with opened(url) as one, opened(url) as other:
        await keep(one, arrival(said("e", order="A", payment="p")))
        assert len(await sent_while(other, arrival(said("n", payment="p")))) == 4
        assert len(events_in((await histories(one, ["A"]))["A"])) == 2


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
async def test_what_comes_while_one_waits_is_seen(empty_url: str, isolation: str) -> None:
    """A batch that waited for another's commit is judged by what that has written, however the
    server isolates transactions by itself."""
    await migrate(empty_url)
    name = make_url(empty_url).database
    await ask_in_loop(
        empty_url, f"ALTER DATABASE {name} SET default_transaction_isolation TO '{isolation}'"
    )
    same = said("e1", order="A", payment="p")
    async with opened(empty_url) as one, opened(empty_url) as other:
        async with one.writing() as connection:
            await keep_arrivals(connection, [arrival(same)])
            waiting = asyncio.create_task(keep(other, arrival(same)))
            await until_one_waits(empty_url)
        assert await waiting == ["duplicate"]


async def until_one_waits(url: str) -> None:
    """Until somebody waits for a lock that another holds."""
    sql = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    async with asyncio.timeout(20):
        while not await ask_in_loop(url, sql):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
