"""Many more deliveries at once than on any day: each is stored, or told to come again; none waits
in vain, and no more wait than may."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event

import pytest

from app.core.clock import SystemClock
from tests.api.driving import SECRET
from tests.bench.orders import EVENTS_PER_ORDER, Message, Stretch
from tests.bench.requests import mixed, signed_request, source
from tests.e2e.processes import Process, serving
from tests.e2e.test_service import rows
from tests.floods.burst import Burst, Sender
from tests.floods.test_limits import figure
from tests.floods.wire import status_of
from tests.waiting import until

RATE = 2_000
"""Deliveries a second."""

FEW = 64
"""Room for so few that a disk which stands still for a moment fills it."""

LOOK_S = 0.05
"""Seconds between two looks at the queue."""

QUEUE = b"tallyhook_journal_queue "

FULL = b'"event":"deliveries are not stored","reason":"queue"'
"""What is logged when somebody finds the queue full."""


def written(count: int) -> tuple[list[Message], list[bytes]]:
    """So many events, and the requests that bring them."""
    now, signer = SystemClock().now(), source(SECRET)
    stretch = Stretch(seed=RATE, first=0, count=count // EVENTS_PER_ORDER)
    messages = list(mixed(stretch, now=now))
    return messages, [signed_request(signer, message, now=now) for message in messages]


@contextmanager
def watched(process: Process) -> Iterator[list[float]]:
    """What waits in the queue, looked at again and again until the block ends."""
    seen, over = list[float](), Event()

    def look() -> None:
        while not over.wait(LOOK_S):
            seen.append(figure(process, QUEUE))

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        try:
            yield seen
        finally:
            over.set()
        looking.result()


def sent(process: Process, requests: Sequence[bytes]) -> tuple[Burst, float]:
    """Send them. What came of it, and how many waited in the queue at most."""
    with watched(process) as waiting:
        return Sender(process.port, requests, rate=RATE).run(), max(waiting)


def sent_held(process: Process, requests: Sequence[bytes], inbox: Path) -> tuple[Burst, float]:
    """The same; nothing is written until the queue was full and somebody was refused. Nor are there
    figures meanwhile: what makes them asks whether anything can be written."""
    sender = Sender(process.port, requests, rate=RATE)

    def was_full() -> bool:
        return FULL in process.log

    with (
        watched(process) as waiting,
        closing(sqlite3.connect(inbox, isolation_level=None)) as holding,
        ThreadPoolExecutor(1) as pool,
    ):
        holding.execute("BEGIN IMMEDIATE")
        running = pool.submit(sender.run)
        try:
            until(lambda: running.done() or was_full())
        finally:
            holding.execute("ROLLBACK")
        return running.result(), max(waiting)


def check(folder: Path, burst: Burst, messages: Sequence[Message]) -> Counter[int]:
    """What must hold of every burst. How often there was which status."""
    answers = burst.answers
    statuses = Counter(status_of(answer) for answer in answers.values())
    sending, answering = burst.seconds
    print(
        f"{len(messages):,} at {RATE:,} a second, sent in {sending:.1f} s and answered in "
        f"{answering:.1f} s: {dict(statuses)}, {len(burst.lost)} lost, {burst.late} sent late, "
        f"the slowest {burst.slowest:.2f} s, {burst.opened} connections"
    )
    assert burst.lost == []
    assert len(answers) == len(messages)
    assert set(statuses) <= {200, 503}
    for answer in answers.values():
        assert (b'"accepted"' if status_of(answer) == 200 else b"\r\nretry-after: 5\r\n") in answer
    acknowledged = {
        messages[place].event_id for place, each in answers.items() if status_of(each) == 200
    }
    kept = Counter(row[0] for row in rows(folder, "SELECT event_id FROM deliveries"))
    assert acknowledged <= set(kept)
    assert set(kept.values()) == {1}
    return statuses


def with_room(folder: Path, *, seconds: int) -> None:
    """A burst at a service as it is by itself."""
    messages, requests = written(RATE * seconds)
    with serving(folder) as process:
        burst, waiting = sent(process, requests)
        assert process.end() == 0
    check(folder, burst, messages)
    print(f"{waiting:.0f} waited at most")


def with_room_for_few(folder: Path, *, seconds: int) -> None:
    """A burst at a service whose queue it fills."""
    messages, requests = written(RATE * seconds)
    with serving(folder, INBOX_QUEUE=str(FEW), INBOX_BATCH=str(FEW // 2)) as process:
        burst, waiting = sent_held(process, requests, folder / "t.db.inbox")
        assert process.end() == 0
    statuses = check(folder, burst, messages)
    print(f"{waiting:.0f} waited at most")
    assert waiting <= FEW
    assert FULL in process.log
    assert min(statuses[200], statuses[503]) > 0


@pytest.mark.slow
def test_a_burst_of_a_second(tmp_path: Path) -> None:
    """Each is stored once, or told to come again; the queue keeps its bound."""
    with_room(tmp_path, seconds=1)


@pytest.mark.slow
def test_a_burst_that_fills_the_queue(tmp_path: Path) -> None:
    """The same where there is room for few: some are told to come again."""
    with_room_for_few(tmp_path, seconds=1)


@pytest.mark.soak
def test_a_burst_of_half_a_minute(tmp_path: Path) -> None:
    """The first at full length."""
    with_room(tmp_path, seconds=30)


@pytest.mark.soak
def test_a_burst_of_half_a_minute_that_fills_the_queue(tmp_path: Path) -> None:
    """The second at full length."""
    with_room_for_few(tmp_path, seconds=30)
