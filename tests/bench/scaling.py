"""Gain of several readers and workers on one PostgreSQL, and their waits for one another.

Each is a process that sleeps for most of its work (`slowed.py`), so that two cores stand for many.
The backlog comes with one commit, and is drained once all of it is read, folded and published. The
ceilings are of the parts that only one does at a time, with commits of 10 ms.
"""

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

import asyncpg

from app.core.clock import SystemClock
from app.core.ids import new_id, new_secret
from app.evidence.seal import seal_all
from app.orders.ledger_store import publish
from app.orders.policy_version_store import rules_of
from app.orders.refold import decided, gathered
from app.receiving.append_store import Ready
from app.receiving.due_store import due_orders
from app.receiving.framing import Received
from app.receiving.inbox import Inbox, open_inbox
from app.receiving.inbox_store import inbox_row
from app.receiving.reader import AT_ONCE_SHARED
from app.sealing.log_store import begin_log
from reconcile.ledger.fold import fold
from reconcile.ledger.policy import policy_text
from tests.bench.dataset import HEADERS, arrivals
from tests.bench.machine import cpu_seconds
from tests.bench.orders import Stretch
from tests.bench.processes import START_S, process
from tests.bench.report import Figure
from tests.bench.requests import SOURCE, mixed, secret_text, source
from tests.bench.shared import SECRETS, make_database
from tests.bench.sizes import BARS, Sizes
from tests.bench.slowed import COMMIT_S, SLOWER, late_commits
from tests.contexts import settings_of
from tests.database.builders import SIGNER
from tests.postgres.server import Server, processes_of, running

SEED: Final = 20_261_130
COUNTS: Final = (1, 4, 8)

A_ROW: Final = 64
"""Deliveries in one row of the inbox, as one receiver under load commits them."""

AT_ONCE: Final = 500
"""Orders published in one transaction."""

AT_ONE_TIME: Final = 4
"""Writers beside one another where the ceilings are measured."""

CORES: Final = len(os.sched_getaffinity(0))
LOOK_S: Final = 0.02
DRAINED_S: Final = 900

Item = TypeVar("Item")


def scaling_figures(folder: Path, sizes: Sizes) -> list[Figure]:
    """Drain a backlog by one, four and eight processes, and measure the ceilings."""
    with running() as database:
        found = {count: _drained(folder, database, count, sizes) for count in COUNTS}
        asyncio.run(_make(database, "ceilings"))
        ceilings = asyncio.run(
            measure_ceilings(
                database.url("ceilings"),
                sizes.scaling_orders,
                processor_s=partial(_processor_s, database),
            )
        )
    return [*drained_figures(found), *ceiling_figures(ceilings)]


def _processor_s(database: Server) -> float:
    """Return the processor time of this process and of the server's."""
    return time.process_time() + sum(map(cpu_seconds, processes_of(database.pid)))


async def _make(database: Server, name: str) -> None:
    await make_database(database, name)
    async with open_inbox(settings_of(database.url(name))):  # it belongs to an environment now
        pass


# --- a backlog ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """A backlog drained by so many processes.

    waited     shares of their time for which they waited for each kind of the server's locks
    processor_s  seconds of a processor that they used, and that the server used
    right      whether each delivery is stored once, and each order has its outcome
    unbroken   whether the feed's numbers are whole
    """

    seconds: float
    deliveries: int
    waited: dict[str, float]
    processor_s: tuple[float, float]
    right: bool
    unbroken: bool


def _drained(folder: Path, database: Server, count: int, sizes: Sizes) -> Drained:
    name = f"scaling{count}"
    asyncio.run(_make(database, name))
    env = {
        "TALLYHOOK_ENVIRONMENT": "sandbox",
        "TALLYHOOK_DATABASE_URL": database.url(name),
        "TALLYHOOK_EVIDENCE__KEY_FILE": str(folder / f"{name}.key"),
        SECRETS: secret_text(new_secret()),
    }
    stretch = Stretch(seed=SEED, first=0, count=sizes.scaling_orders)
    pids = list[int]()
    with ExitStack() as stack:
        for number in range(count):
            log = folder / f"{name}-{number}.log"
            worker = process(["tests.bench.slowed", "worker"], log=log, env=env)
            pids.append(stack.enter_context(worker).pid)
            if number == 0:  # it makes the key
                asyncio.run(_connected(database, name, 1))
        asyncio.run(_connected(database, name, count))
        found = asyncio.run(_watched(database, name, stretch, pids))
    print(f"scaling: {count} took {found.seconds:.1f} s", file=sys.stderr)
    return found


_WORKERS: Final = "FROM pg_stat_activity WHERE application_name = 'tallyhook working'"
_WAITING: Final = f"SELECT wait_event {_WORKERS} AND wait_event_type = 'Lock'"
_LEFT: Final = (
    "SELECT EXISTS (SELECT 1 FROM inbox) OR EXISTS (SELECT 1 FROM order_due LEFT JOIN ledgers "
    "USING (order_key) WHERE coalesce(due_at, -1) <> coalesce(next_decision_at, -1))"
)
"""A mark that is not its ledger's next decision is of an order that is due, or is being folded."""


async def _connect(database: Server, name: str) -> asyncpg.Connection:
    return await asyncpg.connect(host=str(database.folder), user="postgres", database=name)


async def _connected(database: Server, name: str, count: int) -> None:
    connection = await _connect(database, name)
    async with asyncio.timeout(START_S):
        while await connection.fetchval(f"SELECT count(*) {_WORKERS}") < count:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)
    await connection.close()


async def _watched(database: Server, name: str, stretch: Stretch, pids: Sequence[int]) -> Drained:
    """Bring the backlog, and look at the server until it is drained."""
    connection = await _connect(database, name)
    await asyncio.sleep(1)  # they have looked at all once
    sql = "INSERT INTO inbox (count, received_at, size, records) VALUES ($1, $2, $3, $4)"
    await connection.executemany(sql, list(_backlog(stretch)))
    parts = (pids, processes_of(database.pid))
    before = [{pid: cpu_seconds(pid) for pid in part} for part in parts]
    began = time.perf_counter()
    looks, waiting = 0, Counter[str]()
    async with asyncio.timeout(DRAINED_S):
        while looks % 10 or await connection.fetchval(_LEFT):
            waiting.update(each[0] for each in await connection.fetch(_WAITING))
            looks += 1
            await asyncio.sleep(LOOK_S)
    seconds = time.perf_counter() - began
    lasting = {*pids, *processes_of(database.pid)}
    used = [
        sum(cpu_seconds(pid) - began_with for pid, began_with in part.items() if pid in lasting)
        for part in before
    ]
    stored = await connection.fetch("SELECT verdict, count(*) FROM deliveries GROUP BY verdict")
    outcomes = await connection.fetch("SELECT outcome, count(*) FROM ledgers GROUP BY outcome")
    feed = await connection.fetchrow("SELECT count(*), min(seq), max(seq) FROM revisions")
    await connection.close()
    return Drained(
        seconds=seconds,
        deliveries=stretch.events,
        waited={event: n / max(1, looks * len(pids)) for event, n in waiting.most_common()},
        processor_s=(used[0], used[1]),
        right=dict(stored) == {"stored": stretch.events} and dict(outcomes) == stretch.outcomes(),
        unbroken=tuple(feed) == (feed[0], 1, feed[0]) and feed[0] >= stretch.count,
    )


def _backlog(stretch: Stretch) -> Iterator[tuple[int, int, int, bytes]]:
    now = SystemClock().now()
    for some in _parts(mixed(stretch, now=now), A_ROW):
        yield inbox_row(
            [
                Received(
                    delivery_id=new_id("dlv_", now), received_at=now, source=SOURCE,
                    headers=HEADERS, body=each.body,
                )
                for each in some
            ]
        )  # fmt: skip


def _parts(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    left = iter(items)
    while part := list(islice(left, size)):
        yield part


def drained_figures(found: Mapping[int, Drained]) -> list[Figure]:
    """Compare several processes with one."""
    one = found[1]
    return [
        figure
        for count, done in found.items()
        if count > 1
        for figure in (
            Figure(
                name=f"PostgreSQL, {count} readers and workers, slowed {SLOWER} times",
                value=one.seconds / done.seconds,
                unit="times one",
                bar=BARS[f"scaling {count}"],
                checks={
                    "each delivery is stored once, and each order has its outcome": done.right,
                    "the feed has no gap": done.unbroken,
                },
                details={
                    "deliveries per second": done.deliveries / done.seconds,
                    "of one": one.deliveries / one.seconds,
                },
            ),
            Figure(
                name=f"time that {count} readers and workers wait for locks",
                value=sum(done.waited.values()),
                unit="of their time",
                bar=BARS["scaling waits"],
                details={
                    "profile": [f"{lock} {share:.1%}" for lock, share in done.waited.items()],
                    "of one": sum(one.waited.values()),
                    "microseconds of a processor for a delivery": 1e6
                    * done.processor_s[0]
                    / done.deliveries,
                    "microseconds of the server for a delivery": 1e6
                    * done.processor_s[1]
                    / done.deliveries,
                    "used of all cores": sum(done.processor_s) / done.seconds / CORES,
                },
            ),
        )
    ]


# --- ceilings -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part that one does at a time.

    processor_s  seconds of the processor that it took, the server's included
    waited_s     seconds that it waited for commits
    """

    name: str
    unit: str
    count: int
    seconds: float
    processor_s: float
    waited_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """Measured parts of the work that one does at a time.

    right  whether all is stored, published under whole numbers and sealed
    """

    parts: Sequence[Part]
    right: bool


async def measure_ceilings(
    url: str, orders: int, *, processor_s: Callable[[], float] = time.process_time
) -> Ceilings:
    """Append, publish and seal what was prepared before, beside others that do the same."""
    parts: list[Part] = []

    async def measure(name: str, unit: str, act: Callable[[], Awaitable[int]]) -> None:
        with late_commits() as waits:
            began, before = time.perf_counter(), processor_s()
            count = await act()
            seconds, used = time.perf_counter() - began, processor_s() - before
        took = {"seconds": seconds, "processor_s": used, "waited_s": sum(waits)}
        parts.append(Part(name=name, unit=unit, count=count, **took))

    stretch, now = Stretch(seed=SEED, first=0, count=orders), SystemClock().now()
    reader = source(secret_text(new_secret()))
    deliveries = list(_parts(arrivals(mixed(stretch, now=now), reader, now), AT_ONCE_SHARED))
    async with AsyncExitStack() as stack:
        stores = [
            await stack.enter_async_context(open_inbox(settings_of(url)))
            for _ in range(AT_ONE_TIME)
        ]

        async def append(inbox: Inbox) -> int:
            count = 0
            while deliveries:
                count += len(await inbox.append([Ready(None, deliveries.pop())]))
            return count

        async def beside(act: Callable[[Inbox], Awaitable[int]]) -> int:
            return sum(await asyncio.gather(*map(act, stores)))

        context = stores[0].context(clock=SystemClock())
        database, rules = context.database, rules_of(policy_text(context.policy))
        await measure("append", "deliveries", partial(beside, append))
        due = await database.on_snapshot(due_orders, now=context.clock.now(), limit=orders)
        folded = []
        for marks in _parts(due, AT_ONCE):
            _, histories = await gathered(context, marks)
            ledgers = (
                fold(each, policy=context.policy, as_of=context.clock.now())
                for each in histories.values()
            )
            folded.append((marks, [decided(each, None, rules=rules) for each in ledgers]))

        async def number(inbox: Inbox) -> int:
            count = 0
            while folded:
                marks, publications = folded.pop()
                await inbox.database.writer.commit(publish, publications, due=marks)
                count += len(publications)
            return count

        async with database.writing() as connection:
            public = SIGNER.key.public.raw.hex()
            await begin_log(connection, origin=SIGNER.origin, public=public, now=now)
        await measure("numbering", "orders", partial(beside, number))
        await measure("sealing", "leaves", partial(seal_all, context, SIGNER))
        numbers = await database.on_snapshot(
            lambda asked: asked.ask("SELECT count(*), max(seq) FROM revisions")
        )
    done = [each.count for each in parts]
    right = done == [stretch.events, orders, stretch.events + orders]
    return Ceilings(parts=parts, right=right and numbers == [(orders, orders)])


def ceiling_figures(found: Ceilings) -> list[Figure]:
    """Return the rates of the parts that one does at a time."""
    return [
        Figure(
            name=f"ceiling of {each.name}, commits of {COMMIT_S * 1_000:.0f} ms",
            value=each.count / each.seconds,
            unit=f"{each.unit} per second",
            bar=BARS[f"{each.name} ceiling"],
            checks={"all are stored, published and sealed": found.right},
            details={
                "profile": [
                    f"processor {each.processor_s / each.count * 1e6:.0f} µs for each",
                    f"waits for commits {each.waited_s / each.count * 1e6:.0f} µs",
                ],
                each.unit: each.count,
            },
        )
        for each in found.parts
    ]
