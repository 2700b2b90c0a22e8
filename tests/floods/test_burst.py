"""Far more deliveries at once than on any day: each is stored, or asked to come again."""

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
"""Room for so few that a short pause of the disk fills it."""

LOOK_S = 0.05
"""Seconds between two looks at the queue."""

QUEUE = b"tallyhook_journal_queue "

FULL = b'"event":"deliveries are not stored","reason":"queue"'
"""The log line when the queue is full."""


def written(count: int) -> tuple[list[Message], list[bytes]]:
    """Return so many events, and their requests."""
    now, signer = SystemClock().now(), source(SECRET)
    stretch = Stretch(seed=RATE, first=0, count=count // EVENTS_PER_ORDER)
    messages = list(mixed(stretch, now=now))
    return messages, [signed_request(signer, message, now=now) for message in messages]


@contextmanager
def watched(process: Process) -> Iterator[list[float]]:
    """Watch the length of the queue until the block ends."""
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


def sent_held(process: Process, requests: Sequence[bytes], inbox: Path) -> tuple[Burst, float]:
    """Send, with writing held until the queue was full and somebody was refused.

    There are no metrics meanwhile, since they ask whether anything can be written.
    """
    sender = Sender(process.port, requests, rate=RATE)
    with (
        watched(process) as waiting,
        closing(sqlite3.connect(inbox, isolation_level=None)) as holding,
        ThreadPoolExecutor(1) as pool,
    ):
        holding.execute("BEGIN IMMEDIATE")
        running = pool.submit(sender.run)
        try:
            until(lambda: running.done() or FULL in process.log)
        finally:
            holding.execute("ROLLBACK")
        return running.result(), max(waiting)


def check(folder: Path, burst: Burst, messages: Sequence[Message]) -> Counter[int]:
    """Check what holds of every burst; return the count of each status."""
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


@pytest.mark.parametrize(
    "seconds", [pytest.param(1, marks=pytest.mark.slow), pytest.param(30, marks=pytest.mark.soak)]
)
def test_a_burst(tmp_path: Path, seconds: int) -> None:
    """Each is stored once, or asked to come again."""
    messages, requests = written(RATE * seconds)
    with serving(tmp_path) as process:
        with watched(process) as waiting:
            burst = Sender(process.port, requests, rate=RATE).run()
        assert process.end() == 0
    check(tmp_path, burst, messages)
    print(f"{max(waiting):.0f} waited at most")


@pytest.mark.parametrize(
    "seconds", [pytest.param(1, marks=pytest.mark.slow), pytest.param(30, marks=pytest.mark.soak)]
)
def test_a_burst_that_fills_the_queue(tmp_path: Path, seconds: int) -> None:
    """With room for few some are asked to come again; the queue keeps its bound."""
    messages, requests = written(RATE * seconds)
    with serving(tmp_path, INBOX_QUEUE=str(FEW), INBOX_BATCH=str(FEW // 2)) as process:
        burst, waiting = sent_held(process, requests, tmp_path / "t.db.inbox")
        assert process.end() == 0
    statuses = check(tmp_path, burst, messages)
    print(f"{waiting:.0f} waited at most")
    assert waiting <= FEW
    assert FULL in process.log
    assert min(statuses[200], statuses[503]) > 0
