"""The queue in front of the inbox: how much waits, how it is taken, and how faults are reported."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from io import StringIO
from typing import Any, cast

import pytest

from app.core.errors import StorePoisoned, StoreUnavailable
from app.receiving import inbox_queue
from app.receiving.framing import Item, Received
from app.receiving.inbox_queue import InboxQueue
from app.receiving.inbox_store import keep_row
from reconcile.instants import EARLIEST
from tests.database.builders import rejection
from tests.reconcile.build import T

MIB = 1024 * 1024


class Inbox:
    """Keeps batches in memory, or fails with what is planted; `writer` is itself."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.fault: Exception | None = None
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.tried: list[Sequence[Item]] = []
        self.writer = self

    async def keep(self, items: Sequence[Item]) -> None:
        """Keep one batch, as far as it may."""
        await self.goes_on.wait()
        if self.fault is not None:
            raise self.fault
        self.batches.append([item.delivery_id for item in items])

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Run a transaction, and keep nothing of it."""
        if self.fault is not None:
            raise self.fault
        yield


class Queue:
    """A queue over it."""

    def __init__(self, *, limit: int = 100, batch: int = 100) -> None:
        self.inbox = Inbox()
        self.commits: list[int] = []
        self.queue = InboxQueue(
            cast(Any, self.inbox),
            queue_limit=limit,
            batch_limit=batch,
            on_commit=self.commits.append,
        )

    async def answers(self, *items: Item) -> list[Any]:
        """Submit these items at once; list the answer to each sender."""
        running = asyncio.create_task(self.queue.run())
        found = await asyncio.gather(
            *(self.queue.submit(item) for item in items), return_exceptions=True
        )
        self.queue.close()
        await running
        self.queue._closing = False
        return [None if each is None else getattr(each, "reason", each) for each in found]


def delivery(number: int = 1, size: int = 0) -> Received:
    """Build a delivery of this size."""
    return Received(
        delivery_id=f"dlv_{number}", received_at=T, source="shop", headers="", body=b"x" * size
    )


def deliveries(count: int) -> list[Item]:
    """Build this number of deliveries."""
    return [delivery(number) for number in range(count)]


def lines(log: StringIO) -> list[tuple[str, str]]:
    """Return level and text of the logged lines."""
    logged = [json.loads(line) for line in log.getvalue().splitlines()]
    return [(line["level"], line["event"]) for line in logged]


@pytest.mark.parametrize(
    ("limit", "items", "expected"),
    [
        (3, deliveries(3), [None] * 3),
        (3, deliveries(4), [None] * 3 + ["queue"]),
        (4, [rejection()] * 3, [None, None, "queue"]),
        (3, [rejection()] * 3, [None, None, "queue"]),
        (1, [rejection(), delivery()], [None, "queue"]),
        (2, [rejection(), delivery(), delivery()], [None, None, "queue"]),
    ],
)
async def test_how_many_may_wait(limit: int, items: list[Item], expected: list[Any]) -> None:
    """As many as the limit says, of refused ones half, rounded up."""
    assert await Queue(limit=limit).answers(*items) == expected


@pytest.mark.parametrize(
    ("batch", "sizes", "rows"),
    [
        (4, [0] * 4, [4]),
        (4, [0] * 5, [4, 1]),
        (1, [0, 0], [1, 1]),
        (9, [4 * MIB, 4 * MIB, 0], [3]),
        (9, [4 * MIB, 4 * MIB + 1, 0], [1, 2]),
        (9, [9 * MIB, 9 * MIB], [1, 1]),
        (9, [0, 8 * MIB, 1], [2, 1]),
        (9, [3 * MIB, 3 * MIB, 2 * MIB, 1], [3, 1]),
    ],
)
async def test_what_shares_a_row(batch: int, sizes: list[int], rows: list[int]) -> None:
    """Up to so many, and up to 8 MiB of bodies together, if it is more than one. In their order."""
    made = Queue(batch=batch)
    items = [delivery(number, size) for number, size in enumerate(sizes)]
    assert await made.answers(*items) == [None] * len(items)
    assert [len(each) for each in made.inbox.batches] == rows
    assert [each for row in made.inbox.batches for each in row] == [
        item.delivery_id for item in items
    ]
    assert (made.commits, made.queue.committed) == (rows, len(items))


@pytest.mark.parametrize(
    ("batch", "spacing_s", "rows"), [(9, 1.5, [[0], [1, 2]]), (1, 3_600.0, [[0], [1], [2]])]
)
async def test_commits_keep_a_distance(
    monkeypatch: pytest.MonkeyPatch, batch: int, spacing_s: float, rows: list[list[int]]
) -> None:
    """Who comes while one is under way shares the next with those who come soon; where it is full,
    nobody waits."""
    monkeypatch.setattr(inbox_queue, "SPACING_S", spacing_s)
    made = Queue(batch=batch)
    running = asyncio.create_task(made.queue.run())
    made.inbox.goes_on.clear()
    sent = []
    for number in range(3):
        sent.append(asyncio.create_task(made.queue.submit(delivery(number))))
        await asyncio.sleep(0.01)
        if number == 1:
            made.inbox.goes_on.set()
            await sent[0]
    async with asyncio.timeout(60):
        await asyncio.gather(*sent)
    made.queue.close()
    await running
    assert made.inbox.batches == [[f"dlv_{number}" for number in row] for row in rows]


async def test_who_sends_one_after_the_other_waits_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There is nobody to share a commit with."""
    monkeypatch.setattr(inbox_queue, "SPACING_S", 3_600.0)
    made = Queue()
    running = asyncio.create_task(made.queue.run())
    async with asyncio.timeout(60):
        for number in range(3):
            await made.queue.submit(delivery(number))
    made.queue.close()
    await running
    assert made.commits == [1, 1, 1]


async def test_deliveries_are_counted_and_not_what_was_refused() -> None:
    made = Queue()
    assert await made.answers(delivery(1), rejection(), delivery(2)) == [None] * 3
    assert (made.queue.committed, made.queue.depth, made.commits) == (2, 0, [3])


async def test_who_comes_when_it_has_closed_is_answered_so() -> None:
    """And what waits is refused where nobody writes any more; who has gone is passed over."""
    queue = Queue().queue
    waiting = [asyncio.create_task(queue.submit(each)) for each in deliveries(3)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    await asyncio.sleep(0)
    assert queue.depth == 3
    queue.abandon()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [getattr(each, "reason", type(each)) for each in found] == [
        "stopping", asyncio.CancelledError, "stopping",
    ]  # fmt: skip
    assert queue.depth == 0
    with pytest.raises(StoreUnavailable) as late:
        await queue.submit(delivery())
    assert late.value.reason == "stopping"


def caused(error: Exception, cause: Exception) -> Exception:
    """Return one of our errors with a driver's as its cause."""
    error.__cause__ = cause
    return error


BROKEN: list[tuple[Exception, Any]] = [
    (caused(StoreUnavailable("planted", reason="disk"), OSError("planted")), "disk"),
    (StorePoisoned("planted"), StorePoisoned("planted").reason),
    (ValueError("planted"), "refused"),
]


@pytest.mark.parametrize(("fault", "expected"), BROKEN, ids=["unavailable", "poisoned", "refused"])
async def test_three_batches_that_fail_are_a_fault_of_the_store(
    fault: Exception, expected: Any, log: StringIO
) -> None:
    """Of deliveries: those of refused requests alone say nothing. The log has it once, and when
    it is over; what the database itself refused once a minute."""
    made = Queue()
    made.inbox.fault = fault
    refusals = [("error", "a batch was refused by the database")] * isinstance(fault, ValueError)
    for faults in (1, 2):
        assert await made.answers(delivery()) == [expected]
        assert await made.answers(rejection()) == [expected]
        assert (made.queue.faults, await made.queue.still_faulty()) == (faults, None)
    assert lines(log) == refusals
    assert await made.answers(delivery(), rejection()) == [expected] * 2
    assert lines(log)[len(refusals) :] == [("error", "deliveries cannot be written")]
    first = json.loads(log.getvalue().splitlines()[-1])
    kind = type(fault.__cause__ or fault).__name__
    assert (first["count"], first["error_class"]) == (3, kind)
    for faults in (3, 4):
        assert made.queue.faults == faults
        why = await made.queue.still_faulty()
        if isinstance(fault, StoreUnavailable):  # which says what to do
            assert why == str(fault)
        else:
            assert f"the last {faults} batches" in str(why)
            assert f"({kind})" in str(why)
        before = len(lines(log))
        assert await made.answers(delivery()) == [expected]
        assert lines(log)[before:] == []
    made.inbox.fault = None
    before = len(lines(log))
    assert await made.answers(rejection()) == [None]
    assert made.queue.faults == 5
    assert await made.answers(delivery()) == [None]
    assert (made.queue.faults, lines(log)[before:]) == (
        0, [("info", "deliveries can be written again")]
    )  # fmt: skip
    assert len(made.inbox.batches) == 2


async def test_fewer_that_fail_are_forgotten_after_one_that_does_not(log: StringIO) -> None:
    made = Queue()
    made.inbox.fault = StoreUnavailable("planted", reason="disk")
    for _ in range(2):
        await made.answers(delivery())
    made.inbox.fault = None
    assert await made.answers(delivery()) == [None]
    assert (made.queue.faults, lines(log)) == (0, [])


async def test_a_delivery_of_nobodys_tells_whether_it_is_over(
    monkeypatch: pytest.MonkeyPatch, log: StringIO
) -> None:
    """It is written where it can be, and taken back; one that is, and readiness is back at once."""
    made = Queue()
    made.inbox.fault = StoreUnavailable("planted", reason="disk")
    for _ in range(3):
        await made.answers(delivery())
    written: list[tuple[Any, list[Received]]] = []

    async def run(connection: None, function: Any, items: list[Received]) -> None:
        written.append((function, items))

    monkeypatch.setattr(inbox_queue, "run", run)
    assert await made.queue.still_faulty() is not None
    made.inbox.fault = None
    assert await made.queue.still_faulty() is None
    ((function, (trial,)),) = written
    assert (function, trial.delivery_id, trial.received_at) == (
        keep_row, "dlv_trial", EARLIEST
    )  # fmt: skip
    assert (made.queue.faults, lines(log)[-1]) == (0, ("info", "deliveries can be written again"))


async def test_who_waits_too_long_is_asked_to_try_again(
    monkeypatch: pytest.MonkeyPatch, log: StringIO
) -> None:
    """Those under way and those behind them; the latter are dropped. Nothing more is taken until
    the slow write has ended, and then everything is."""
    made = Queue(batch=2)
    made.inbox.goes_on.clear()
    patience: list[Any] = []
    loop, at = asyncio.get_running_loop(), [100.0]
    monkeypatch.setattr(loop, "time", lambda: at[0])
    later = loop.call_later

    def call_later(seconds: float, function: Any, *words: Any) -> Any:
        patience.append((seconds, function))
        return later(1e6, function, *words)

    monkeypatch.setattr(loop, "call_later", call_later)
    running = asyncio.create_task(made.queue.run())
    waiting = [asyncio.create_task(made.queue.submit(each)) for each in deliveries(3)]
    for _ in range(5):
        await asyncio.sleep(0)
    ((seconds, lose_patience),) = patience
    assert (seconds, made.queue.depth, made.queue.stalled) == (2.5, 1, None)
    lose_patience()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [getattr(each, "reason", each) for each in found] == ["slow"] * 3
    assert made.queue.depth == 0
    with pytest.raises(StoreUnavailable) as late:
        await made.queue.submit(delivery())
    assert (late.value.reason, str(late.value)) == ("slow", made.queue.stalled)
    made.inbox.goes_on.set()
    at[0] += 3.14159
    for _ in range(5):
        await asyncio.sleep(0)
    assert (made.queue.stalled, made.inbox.batches) == (None, [["dlv_0", "dlv_1"]])
    slow, ended = (json.loads(line) for line in log.getvalue().splitlines())
    assert (slow["event"], slow["batch"], slow["queue"]) == ("the store is slow to answer", 2, 1)
    assert (ended["event"], ended["batch"]) == ("the slow write has ended", 2)
    assert (ended["seconds"], ended["error_class"]) == (3.1, None)
    monkeypatch.undo()
    await made.queue.submit(delivery(9))
    made.queue.close()
    await running
    assert made.inbox.batches[1:] == [["dlv_9"]]


@pytest.mark.parametrize("fault", [None, StoreUnavailable("no room", reason="disk")])
async def test_a_write_that_has_ended_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, fault: Exception | None
) -> None:
    """Long after it nothing is told to be slow: no write would come that ends that again."""
    monkeypatch.setattr(inbox_queue, "PATIENCE_S", 0.01)
    made = Queue()
    running = asyncio.create_task(made.queue.run())
    made.inbox.fault = fault
    await asyncio.gather(made.queue.submit(delivery(1)), return_exceptions=True)
    made.inbox.fault = None
    await asyncio.sleep(0.05)
    assert made.queue.stalled is None
    await made.queue.submit(delivery(2))
    made.queue.close()
    await running
