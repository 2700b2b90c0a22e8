"""The reader where something fails or nothing is left: what it counts, reports and waits for."""

import asyncio
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.context.unread import EVERYTHING, Backlog, InboxEnd
from app.core.clock import SetClock
from app.core.errors import StorePoisoned, StoreUnavailable
from app.orders.set_aside import HOLDING
from app.receiving import caught_up
from app.receiving.caught_up import FAR_BEHIND, Patience, behind_s
from app.receiving.claim_store import Claimant, Head, heads_of_rows, heads_of_suspects
from app.receiving.inbox_store import Suspect, Unread
from app.receiving.pace import SHORT_S, Pace
from app.receiving.reader import Holding, Reader, ReaderContext, read_some
from reconcile.instants import SECOND, TICK, Duration, Instant
from tests.database.builders import SOURCES, arrival, context, opened, received, said
from tests.reconcile.build import T, seconds
from tests.waiting import PATIENCE_S, soon


class Store:
    """The parts of a store that the reader uses. The test controls each step."""

    def __init__(self, *, shared: bool = False) -> None:
        self.shared = shared
        self.accepted, self.drained = asyncio.Event(), asyncio.Event()
        self.writer = self
        self.turn: Any = None if shared else self
        self.turns: list[Any] = []
        self.committed: list[tuple[Any, ...]] = []
        self.rows: list[Unread] = []
        self.suspects: list[Suspect] = []
        self.fault: Exception | None = None
        self.commit_fault: Exception | None = None
        self.cannot: str | None = None
        self.appended: list[int] = []
        self.asked: list[tuple[int, int]] = []
        self.released = 0
        self.was_wanted, self.held_s = False, SHORT_S * 4

    def take(self) -> bool:
        """Return whether it is our turn."""
        found = self.turns.pop(0)
        if isinstance(found, Exception):
            raise found
        return bool(found)

    def release(self) -> None:
        """Give the turn back."""
        self.released += 1

    async def commit(self, function: Callable[..., Any], *words: Any, **named: Any) -> Any:
        """Note it; a beginning is the first one."""
        if self.commit_fault is not None:
            raise self.commit_fault
        told = [word for word in words if not isinstance(word, Claimant)]
        self.committed.append((function.__name__, *told, *named.values()))
        if function.__name__ == "claim_suspect":
            return self.suspects[0] if self.suspects else None
        return self.rows if function.__name__ == "claim_rows" else 1

    async def on_snapshot(self, function: Any) -> list[Head]:
        """List what may be claimed."""
        if function is heads_of_rows:
            if self.turns:
                self.take()
            return [Head(row.seq, row.holds, 1, "") for row in self.rows]
        assert function is heads_of_suspects
        return [head_of(each) for each in self.suspects]

    async def next_rows(
        self, *, limit: int, most_bytes: int, brought: bool = False
    ) -> list[Unread]:
        """List the rows that are there."""
        assert not brought
        self.asked.append((limit, most_bytes))
        return self.rows

    async def append(self, ready: Any) -> list[Any]:
        """Append it, or fail."""
        self.appended.append(len(ready))
        if self.fault is not None:
            raise self.fault
        return []

    async def cannot_append(self) -> str | None:
        """Return why nothing can be appended, if so."""
        return self.cannot


def head_of(one: Suspect) -> Head:
    """Return a suspect as a look sees it."""
    return Head(one.seq, 1, len(one.record), one.taken_by or "")


class Held:
    """Record of holds and releases of orders."""

    def __init__(self) -> None:
        self.done: list[tuple[Any, ...]] = []
        self.fault: Exception | None = None
        self.left = 0
        self.holding = Holding(self.orders_of, self.hold, self.release, self.release_left)

    async def orders_of(self, context: Any, arrivals: Any) -> list[str]:
        return ["A"]

    async def hold(self, context: Any, one: Suspect, orders: Any) -> None:
        self.done.append(("held", one.seq, list(orders)))

    async def release(self, context: Any, orders: Any) -> None:
        if self.fault is not None:
            raise self.fault
        self.done.append(("released", list(orders)))

    async def release_left(self, context: Any) -> None:
        self.left += 1


class Reading:
    """A reader over such a store."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, shared: bool = False) -> None:
        self.store, self.held, self.clock = Store(shared=shared), Held(), SetClock(T)
        every: Any = SimpleNamespace(database=self.store, signals=self.store, clock=self.clock)
        fake: Any = self.store
        self.context = ReaderContext(every, fake, SOURCES, "sandbox", self.held.holding)
        self.reader = Reader(self.context)

        self.pauses: list[float] = []

        async def pause(seconds: float) -> None:
            self.pauses.append(seconds)

        monkeypatch.setattr(self.reader, "_pause", pause)


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Reading:
    """Return a reader's context on SQLite."""
    return Reading(monkeypatch)


def row_of(count: int, seq: int = 1) -> Unread:
    """Build a row with this number of records."""
    return Unread(seq, count, T, b"", [received(arrival(said("e1", order="A")))] * count, False)


def alone(*, tries: int = 0, damaged: bool = False) -> Suspect:
    """Make a record that is read alone."""
    item = None if damaged else received(arrival(said("e1", order="A")))
    return Suspect(7, tries, b"", item, ["B"], None)


def lines(log: StringIO) -> list[tuple[str, str, Any]]:
    """Return level, text and reason or count of the logged lines."""
    logged = [json.loads(line) for line in log.getvalue().splitlines()]
    return [
        (line["level"], line["event"], line.get("reason", line.get("count"))) for line in logged
    ]


@pytest.mark.parametrize("shared", [False, True])
async def test_how_long_it_waits(
    monkeypatch: pytest.MonkeyPatch, log: StringIO, shared: bool
) -> None:
    """Where it is not its turn, where nothing is to be read, and where the store cannot say. On a
    database of several processes, where each may read, it leaves a sign of life."""
    reading = Reading(monkeypatch, shared=shared)
    reading.store.turns = [
        *([] if shared else [False]),
        True,
        StoreUnavailable("planted", reason="busy"),
        RuntimeError("the end"),
    ]
    if shared:
        reading.store.drained.set()
    with pytest.raises(RuntimeError, match="the end"):
        await reading.reader.run()
    assert reading.pauses == ([0.05, 0.5] if shared else [0.5, 1.0, 0.5])
    assert lines(log) == [("warning", "the inbox is not being read", "busy")]
    assert (reading.reader.alive, reading.store.released) == (False, not shared)
    assert reading.store.drained.is_set()
    told = [("put_counter", "reader beat", T)] if shared else [("_begin",)]
    assert reading.store.committed == told


async def test_a_full_disk_is_not_filled_by_the_log_of_it(reading: Reading, log: StringIO) -> None:
    """A line for the reason, and none for each of the tries, of which there are two a second."""
    full = [StoreUnavailable("planted", reason="disk") for _ in range(100)]
    reading.store.turns = [*full, StoreUnavailable("planted", reason="busy"), RuntimeError("end")]
    with pytest.raises(RuntimeError, match="end"):
        await reading.reader.run()
    assert [reason for _, _, reason in lines(log)] == ["disk", "busy"]


async def test_a_sign_of_life_every_five_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, now = Reading(monkeypatch, shared=True), [100.0]
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now[0])
    for now[0] in (100.0, 104.9, 105.0, 109.9, 110.0):
        await reading.reader._beat()
    assert len(reading.store.committed) == 3


@pytest.mark.parametrize("drain", [True, False])
async def test_how_it_ends(reading: Reading, drain: bool) -> None:
    """Once nothing is left, or at once. That it ended by itself is written down."""
    reading.store.turns = [True, True]
    reading.store.rows = [row_of(1)]
    reading.reader.stop(drain=drain)

    async def append(ready: Any) -> list[Any]:
        reading.store.rows = []
        return []

    reading.store.append = append  # type: ignore[method-assign]
    await reading.reader.run()
    assert len(reading.store.rows) == (not drain)
    begun = [("_begin",), ("_end",)]
    assert reading.store.committed == (begun if drain else [])
    assert reading.pauses == ([0.0] if drain else [])


async def test_an_end_that_cannot_be_written_is_reported(reading: Reading, log: StringIO) -> None:
    reading.reader._began = True
    reading.store.commit_fault = StoreUnavailable("planted", reason="disk")
    await reading.reader._end()
    assert lines(log) == [("warning", "the inbox is not being read", "disk")]


@pytest.mark.parametrize(
    ("counts", "drained"),
    [((256,), True), ((257,), False), ((200, 56), True), ((200, 57), False)],
)
async def test_when_there_is_a_backlog(
    reading: Reading, counts: tuple[int, ...], drained: bool
) -> None:
    """More than half of what is read at once: there is more behind it."""
    reading.store.rows = [row_of(count, seq) for seq, count in enumerate(counts)]
    for before in (reading.store.drained.set, reading.store.drained.clear):
        before()
        assert await read_some(reading.context) == len(counts)
        assert reading.store.drained.is_set() is drained
    assert reading.store.appended == [len(counts)] * 2
    assert reading.store.asked == [(512, 4 * 1024 * 1024)] * 2


async def test_while_others_wait_it_takes_as_much_as_is_short(reading: Reading) -> None:
    """By how long the last transaction held the database, and of a full one all the same."""
    pace, store = Pace(first=512, most=512), reading.store
    store.rows = [row_of(400)]
    for store.was_wanted in (False, True, False):
        await read_some(reading.context, pace=pace)
        store.held_s = SHORT_S
    assert [records for records, _ in store.asked] == [512, 100, 512]


async def test_a_row_that_is_larger_than_what_is_short_says_that_there_is_more(
    reading: Reading,
) -> None:
    """More than half of what was asked for."""
    pace, store = Pace(first=512, most=512), reading.store
    pace.size, store.was_wanted = 100, True
    for count, drained in ((50, True), (51, False)):
        store.rows = [row_of(count)]
        store.held_s = 0.0
        await read_some(reading.context, pace=pace)
        assert store.drained.is_set() is drained
        pace.size = 100


@pytest.mark.parametrize("shared", [False, True])
async def test_where_there_is_nothing_nothing_is_done(
    monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    reading = Reading(monkeypatch, shared=shared)
    reading.store.drained.set()
    assert await read_some(reading.context) == 0
    assert (reading.store.appended, reading.store.committed) == ([], [])


async def test_a_damaged_row_makes_suspects_of_all_that_came_with_it(
    reading: Reading, log: StringIO
) -> None:
    reading.store.rows = [row_of(1), row_of(1, 2)._replace(items=None)]
    assert await read_some(reading.context) == 2
    assert reading.store.committed == [("suspect", reading.store.rows)]
    assert (reading.store.appended, lines(log)) == (
        [], [("error", "a row of the inbox is damaged", None)]
    )  # fmt: skip


@pytest.mark.parametrize("tries", [1, 2])
async def test_rows_under_which_two_readers_have_ended_are_read_alone(
    monkeypatch: pytest.MonkeyPatch, log: StringIO, tries: int
) -> None:
    """The first end may be any reader's."""
    reading = Reading(monkeypatch, shared=True)
    reading.store.rows = [row_of(1), row_of(1, 2)._replace(tries=tries)]
    assert await read_some(reading.context) == 2
    claimed = ("claim_rows", 1_024, 4 * 1024 * 1024)
    made = [("suspect", reading.store.rows)] if tries == 2 else []
    assert reading.store.committed == [claimed, *made]
    assert reading.store.appended == ([] if made else [2])
    told = [("warning", "a reader ended while it was appending these rows", 2)]
    assert lines(log) == (told if made else [])


@pytest.mark.parametrize("fault", [StoreUnavailable("no", reason="disk"), StorePoisoned("no")])
async def test_what_the_store_cannot_do_is_no_fault_of_the_rows(
    reading: Reading, fault: Exception
) -> None:
    reading.store.rows, reading.store.fault = [row_of(1)], fault
    with pytest.raises(type(fault)):
        await read_some(reading.context)
    assert reading.store.committed == []


@pytest.mark.parametrize("cannot", [None, "nothing can be appended"])
async def test_rows_that_are_refused_become_suspects(
    reading: Reading, log: StringIO, cannot: str | None
) -> None:
    """Unless nothing at all can be appended."""
    reading.store.rows, reading.store.fault = [row_of(1)], ValueError("planted")
    reading.store.cannot = cannot
    if cannot is None:
        assert await read_some(reading.context) == 1
    else:
        with pytest.raises(StoreUnavailable, match=cannot) as raised:
            await read_some(reading.context)
        assert raised.value.reason == "refused"
    suspects = [] if cannot else [("suspect", reading.store.rows)]
    assert reading.store.committed == suspects
    assert lines(log) == [("error", "rows of the inbox cannot be appended", 1)]


# --- one that is read alone -----------------------------------------------------------------------


async def test_what_could_not_be_released_is_released_when_nothing_is_left_to_read(
    reading: Reading,
) -> None:
    """The database may be busy just when a delivery has been read alone; else once is enough."""
    for _ in range(2):
        await reading.reader._round()
        assert reading.held.left == 1
    reading.store.suspects, reading.held.fault = [alone()], StoreUnavailable("busy")
    with pytest.raises(StoreUnavailable):
        await reading.reader._round()
    reading.store.suspects = []
    for _ in range(2):
        await reading.reader._round()
        assert reading.held.left == 2


async def test_one_that_is_read_alone_is_tried_and_released(reading: Reading) -> None:
    """It is claimed before, and its orders are released afterwards."""
    suspect = alone(tries=2)
    reading.store.suspects = [suspect]
    assert await reading.reader._read_suspect() == 1
    assert reading.store.committed == [("claim_suspect", head_of(suspect))]
    assert (reading.store.appended, reading.held.done) == ([1], [("released", ["B"])])
    reading.store.suspects = []
    assert await reading.reader._read_suspect() == 0


@pytest.mark.parametrize(("tries", "noted"), [(0, []), (1, ["A"]), (2, ["A"])])
async def test_one_that_has_failed_before_says_first_whose_it_is(
    reading: Reading, tries: int, noted: list[str]
) -> None:
    """Whoever sets it aside after the next end does not read it; where it is read, they are let
    go."""
    suspect = alone(tries=tries)._replace(orders=[])
    reading.store.suspects = [suspect]
    assert await reading.reader._read_suspect() == 1
    notes = [("note_orders", suspect, noted)] if noted else []
    assert reading.store.committed == [("claim_suspect", head_of(suspect)), *notes]
    assert reading.held.done == [("released", noted)]


@pytest.mark.parametrize(
    ("suspect", "done", "tried"),
    [
        (alone(damaged=True), [("held", 7, ["B"])], False),
        (alone(tries=3), [("held", 7, ["B"])], False),
        (alone(tries=1), [], True),
        (alone(tries=2), [("held", 7, ["A"])], True),
    ],
)
async def test_one_that_cannot_be_read_is_set_aside_after_three_tries(
    reading: Reading, log: StringIO, suspect: Suspect, done: list[Any], tried: bool
) -> None:
    """Without another, where it is damaged or has had them; with the orders that it speaks of."""
    reading.store.suspects, reading.store.fault = [suspect], ValueError("planted")
    assert await reading.reader._read_suspect() == 1
    assert reading.held.done == done
    counted = [("failed_alone", suspect)] if tried and not done else []
    assert reading.store.committed == [("claim_suspect", head_of(suspect)), *counted]
    expected = [("error", "a delivery cannot be appended", None)] if tried else []
    assert lines(log) == expected


async def test_a_try_that_failed_for_another_reason_is_not_counted(reading: Reading) -> None:
    """Where nothing can be appended, or the store gave up, the same reader tries again."""
    suspect = alone(tries=2)
    reading.store.suspects, reading.store.fault = [suspect], ValueError("planted")
    reading.store.cannot = "nothing can be appended"
    with pytest.raises(StoreUnavailable, match="nothing can be") as raised:
        await reading.reader._read_suspect()
    assert raised.value.reason == "refused"
    reading.store.fault = StoreUnavailable("planted", reason="busy")
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="planted"):
            await reading.reader._read_suspect()
    assert reading.store.committed == [("claim_suspect", head_of(suspect))] * 3
    assert reading.held.done == []


async def test_one_that_another_reader_has_claimed_first_is_left_to_it(reading: Reading) -> None:
    """There may be more to do."""

    async def commit(function: Any, *words: Any) -> None:
        return None

    reading.store.suspects = [alone()]
    reading.store.commit = commit  # type: ignore[method-assign]
    assert await reading.reader._read_suspect() == 1
    assert (reading.store.appended, reading.held.done) == ([], [])


@pytest.mark.parametrize(
    ("starts", "rows", "suspects", "made"),
    [
        (1, 1, 0, False),
        (2, 1, 0, True),
        (2, 0, 0, False),
        (2, 1, 1, False),
    ],
)
async def test_rows_under_which_the_one_before_ended(
    reading: Reading, log: StringIO, starts: int, rows: int, suspects: int, made: bool
) -> None:
    """They are read alone, unless there are suspects that are."""
    committed = reading.store.commit

    async def commit(function: Any, *words: Any) -> Any:
        await committed(function, *words)
        return starts

    reading.store.commit = commit  # type: ignore[method-assign]
    reading.store.rows = [row_of(1)] * rows
    reading.store.suspects = [alone()] * suspects
    await reading.reader._begin()
    expected = [("_begin",), *([("suspect", reading.store.rows)] if made else [])]
    assert reading.store.committed == expected
    assert lines(log) == (
        [("warning", "a reader ended while it was appending these rows", 1)] if made else []
    )  # fmt: skip
    assert reading.store.asked == ([] if starts == 1 else [(512, 4 * 1024 * 1024)])


async def test_what_is_read_is_in_the_log(tmp_path: Path, log: StringIO) -> None:
    """Each delivery with its verdict and what it says, and how long it had waited."""
    event = said("e1", order="A")
    async with opened(f"sqlite+aiosqlite:///{tmp_path}/t.db") as inbox:
        one, other = received(arrival(event)), received(arrival(None))
        for item in (one, other):
            await inbox.queue.submit(item)
        await read_some(ReaderContext(context(inbox, at=2), inbox, SOURCES, "sandbox", HOLDING))
    logged = [json.loads(line) for line in log.getvalue().splitlines()]
    first, second = [line for line in logged if line["event"] == "delivery"]
    assert (first["verdict"], first["event_id"], first["kind"], first["order"]) == (
        "stored", "e1", "payment.pending", "A",
    )  # fmt: skip
    assert (first["source"], first["digest"], first["duration_ms"]) == (
        "shop", hashlib.sha256(one.body).hexdigest(), 2000,
    )  # fmt: skip
    assert second["verdict"] == "unreadable"
    assert [second.get(name) for name in ("event_id", "kind", "order", "peer")] == [None] * 4


# --- who waits for it -----------------------------------------------------------------------------


def waiting_for(oldest: Instant | None) -> tuple[Any, list[InboxEnd]]:
    """Make what `behind_s` uses, five seconds after T, with this as the oldest unread arrival; and
    the list of ends up to which it asked."""
    asked: list[InboxEnd] = []

    async def backlog(*, up_to: InboxEnd = EVERYTHING) -> Backlog:
        asked.append(up_to)
        return Backlog(oldest=oldest)

    async def backlog_and_end() -> tuple[Backlog, InboxEnd]:
        return await backlog(), InboxEnd(3, 4)

    inbox = SimpleNamespace(backlog_and_end=backlog_and_end, backlog=backlog)
    signals, clock = SimpleNamespace(read=asyncio.Event()), SetClock(Instant(T + 5 * SECOND))
    return SimpleNamespace(signals=signals, inbox=inbox, clock=clock), asked


@pytest.mark.parametrize(
    ("oldest", "expected"),
    [(None, 0), (T, 5), (seconds(5), 1), (seconds(4), 1), (seconds(3), 2), (seconds(6), 1)],
)
async def test_how_far_behind_it_is(
    monkeypatch: pytest.MonkeyPatch, oldest: Instant | None, expected: int
) -> None:
    """In whole seconds, at least one; nothing where all was read that was there at the question."""
    monkeypatch.setattr(caught_up, "READ_WITHIN_S", 0.0)
    every, asked = waiting_for(oldest)
    every.signals.read.set()
    assert await behind_s(every) == expected
    assert asked == [EVERYTHING]
    assert not every.signals.read.is_set()


@pytest.mark.parametrize(("age", "patience", "waits"), [
    (FAR_BEHIND, "short", False),
    (FAR_BEHIND - TICK, "short", True),
    (FAR_BEHIND, "long", True),
])  # fmt: skip
async def test_who_has_little_patience_does_not_wait_for_what_is_far_behind(
    monkeypatch: pytest.MonkeyPatch, age: Duration, patience: Patience, waits: bool
) -> None:
    """From a fifth of a second on. Who waits looks again at what was there at the first look, and
    at nothing that came later."""
    for bound in ("SOON_S", "READ_WITHIN_S"):  # a slow machine ends no wait here
        monkeypatch.setattr(caught_up, bound, 3_600.0)
    every, asked = waiting_for(Instant(T + 5 * SECOND - age))
    asking = asyncio.create_task(behind_s(every, patience=patience))
    await soon(lambda: asking.done() or len(asked) > 1)
    assert asking.done() != waits
    assert asked[:2] == [EVERYTHING, InboxEnd(3, 4)][: 1 + waits]
    asking.cancel()


@pytest.mark.parametrize(
    ("age", "as_of", "expected"),
    [
        (2 * SECOND, None, 2),
        (2 * SECOND - TICK, None, 0),
        (5 * SECOND, T, 5),
        (5 * SECOND, Instant(T - TICK), 0),
    ],
)
async def test_a_list_does_not_wait_and_names_what_is_unread_for_two_seconds(
    age: Duration, as_of: Instant | None, expected: int
) -> None:
    """Of what came by the instant whose knowledge is asked for."""
    every, asked = waiting_for(Instant(T + 5 * SECOND - age))
    assert await behind_s(every, as_of=as_of, patience="none") == expected
    assert asked == [EVERYTHING]


@pytest.mark.parametrize("patience", ["long", "short"])
async def test_how_long_a_question_with_much_or_little_patience_waits(
    monkeypatch: pytest.MonkeyPatch, patience: Patience
) -> None:
    """Each by a bound of its own."""
    monkeypatch.setattr(caught_up, "SOON_S", 3_600.0 if patience == "long" else 0.0)
    monkeypatch.setattr(caught_up, "READ_WITHIN_S", 0.0 if patience == "long" else 3_600.0)
    every, asked = waiting_for(Instant(T + 5 * SECOND - TICK))
    async with asyncio.timeout(PATIENCE_S):
        assert await behind_s(every, patience=patience) == 1
    assert asked == [EVERYTHING]


async def test_what_came_while_it_looked_for_the_last_time_is_read_before_it_ends(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delivery is accepted after a look that found nothing, and the service ends at once."""
    store = reading.store
    store.turns = [True] * 3

    async def asked_to_end_just_then(context: Any) -> None:
        store.rows = [row_of(1)]
        reading.reader.stop()

    async def append(ready: Any) -> list[Any]:
        store.rows = []
        store.appended.append(len(ready))
        return []

    monkeypatch.setattr(store, "append", append)
    holding = reading.held.holding._replace(release_left=asked_to_end_just_then)
    monkeypatch.setattr(reading.reader, "_reading", replace(reading.context, holding=holding))
    await reading.reader.run()
    assert store.appended == [1]


async def test_what_another_reader_has_left_held_is_looked_for_when_the_turn_comes_back(
    reading: Reading,
) -> None:
    """Once at the beginning, not at each look, and once more after another had the turn."""
    reading.store.turns = [True, True, False, True, RuntimeError("the end")]
    with pytest.raises(RuntimeError, match="the end"):
        await reading.reader.run()
    assert reading.held.left == 2
