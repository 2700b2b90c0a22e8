"""Many deliveries of the same events at once, through one or several receivers on one database."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from random import Random
from typing import Any

import httpx2
from sqlalchemy import bindparam, text

from app.orders.refold import refold_until_quiet
from reconcile.ledger.fold import fold
from reconcile.ledger.ledger import Ledger
from tests.api.driving import Driver, of_order
from tests.database.builders import histories, rows
from tests.reconcile.build import POLICY, seconds
from tests.waiting import LOOK_S, PATIENCE_S

AT_ONCE = 400
"""Concurrent deliveries."""

Crowd = Sequence[Driver]


async def delivered(crowd: Crowd, bodies: Sequence[bytes]) -> list[str]:
    """Send all bodies at once, to each receiver in turn, and return their verdicts.

    No sender waits for the reader: hundreds that poll it would keep a busy machine from reading.
    """
    async with AsyncExitStack() as stack:
        senders = [
            replace(each, client=await stack.enter_async_context(_plain(each))) for each in crowd
        ]
        sent = (senders[n % len(crowd)].send(body) for n, body in enumerate(bodies))
        answers = await asyncio.gather(*sent)
    assert {answer.status_code for answer in answers} == {200}
    names = [answer.json()["delivery"] for answer in answers]
    async with asyncio.timeout(PATIENCE_S):
        while len(found := await _verdicts(crowd[0], names)) < len(names):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)
    return [found[name] for name in names]


def _plain(driver: Driver) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(app=driver.service.application)
    return httpx2.AsyncClient(transport=transport, base_url="http://service")


async def _verdicts(driver: Driver, names: list[str]) -> dict[str, str]:
    sql = text("SELECT id, verdict FROM deliveries WHERE id IN :names")
    sql = sql.bindparams(bindparam("names", expanding=True))
    async with driver.service.inbox.database.reading() as connection:
        found = await connection.execute(sql, {"names": names})
        return {str(row.id): str(row.verdict) for row in found}


async def ledgers(crowd: Crowd, names: Sequence[str]) -> list[Ledger]:
    """Return the orders as the first receiver's database has them."""
    found: dict[str, Any] = {}
    for start in range(0, len(names), 500):
        found |= await histories(crowd[0].service.inbox, names[start : start + 500])
    return [fold(found[name], policy=POLICY, as_of=seconds(60)) for name in names]


async def count(crowd: Crowd, of: str) -> int:
    return int((await rows(crowd[0].service.inbox, f"SELECT count(*) FROM {of}"))[0][0])


# --- one event many times -------------------------------------------------------------------------


async def many_times(crowd: Crowd, *, events: int, times: int) -> None:
    """Deliver each event many times in mixed order.

    Check that each is stored once, every other delivery is a duplicate, and its money counts once.
    """
    rng = Random(events)
    names = [f"O-{number}" for number in range(events)]
    step = max(1, AT_ONCE // times)
    for start in range(0, events, step):
        chunk = {name: _paid(name, 1500) for name in names[start : start + step]}
        mixed = [*chunk] * times
        rng.shuffle(mixed)
        verdicts = await delivered(crowd, [chunk[name] for name in mixed])
        counts = Counter(zip(mixed, verdicts, strict=True))
        for name in chunk:
            assert counts[name, "stored"] == 1, name
            assert counts[name, "duplicate"] == times - 1, name
    await _counted_once(crowd, names, times)
    print(f"{events} events, each {times} times, at {len(crowd)} receivers: one effect each")


async def _counted_once(crowd: Crowd, names: list[str], times: int) -> None:
    assert await count(crowd, "events") == len(names)
    assert await count(crowd, "deliveries") == len(names) * times
    assert await count(crowd, "deliveries WHERE verdict = 'stored'") == len(names)
    await refold_until_quiet(crowd[0].service.context, limit=500, progress=lambda done: None)
    assert await count(crowd, "revisions") == len(names)
    assert await count(crowd, "ledgers WHERE outcome = 'succeeded'") == len(names)
    for ledger in await ledgers(crowd, names):
        assert [balance.captured for balance in ledger.balances] == [150_000]


def _paid(name: str, amount: int) -> bytes:
    document = of_order(name, f"evt-{name}")
    document["data"]["payment"]["amount"] = amount
    return json.dumps(document).encode()


# --- one id with two bodies -----------------------------------------------------------------------

WAYS = ("the true one first", "the other first", "at once")


async def collisions(crowd: Crowd, *, number: int) -> None:
    """Deliver ids with two bodies each, in both orders and at once.

    Check that both bodies are stored and every contradiction is reported, and that the conclusion
    does not depend on which came first.
    """
    names = [f"O-{each}" for each in range(number)]
    for start in range(0, number, AT_ONCE // 2):
        chunk = names[start : start + AT_ONCE // 2]
        for bodies in _turns(chunk):
            await delivered(crowd, bodies)
    verdicts = await rows(
        crowd[0].service.inbox,
        "SELECT event_id, verdict, body FROM deliveries WHERE body IS NOT NULL",
    )
    kept = {(event_id, bytes(body)) for event_id, _, body in verdicts}
    assert kept == {(f"evt-{n}", _paid(n, amount)) for n in names for amount in (1500, 1)}
    found = Counter((event_id, verdict) for event_id, verdict, _ in verdicts)
    for name in names:
        assert found[f"evt-{name}", "stored"] == 1
        assert found[f"evt-{name}", "duplicate_with_different_body"] == 1
    await _reported_alike(crowd, names)


def _turns(names: list[str]) -> Iterator[list[bytes]]:
    """Yield the batches that are sent at once."""
    true, other = ({name: _paid(name, amount) for name in names} for amount in (1500, 1))
    first, second, together = (names[way :: len(WAYS)] for way in range(len(WAYS)))
    yield [*(true[name] for name in first), *(other[name] for name in second)]
    yield [*(other[name] for name in first), *(true[name] for name in second)]
    yield [body for n, name in enumerate(together) for body in _pair(true, other, name, n)]


def _pair(true: dict[str, bytes], other: dict[str, bytes], name: str, n: int) -> list[bytes]:
    return [true[name], other[name]][:: 1 if n % 2 else -1]


async def _reported_alike(crowd: Crowd, names: list[str]) -> None:
    found = Counter[Any]()
    for ledger in await ledgers(crowd, names):
        codes = tuple(sorted(finding.code for finding in ledger.findings))
        assert "same_id_different_body" in codes
        assert (ledger.outcome, ledger.fulfillable) == ("unresolved", False)
        found[codes, ledger.balances] += 1
    assert list(found.values()) == [len(names)], found
    print(f"{len(names)} collisions at {len(crowd)} receivers: both bodies kept, reported alike")
