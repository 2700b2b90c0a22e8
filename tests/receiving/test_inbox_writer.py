"""The receiver's side of the inbox: what it counts as unread, what it deletes, and when."""

import asyncio
import json
from collections.abc import Callable
from io import StringIO
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.context.unread import Backlog
from app.core.errors import StorePoisoned, StoreUnavailable
from app.receiving import inbox_writer_store
from app.receiving.framing import Received
from app.receiving.inbox_store import KEEP_HELD, Progress, put_counter
from app.receiving.inbox_writer_store import InboxWriter
from reconcile.instants import Instant
from tests.reconcile.build import T

KIB = 1024
MIB = 1024 * KIB


class Files:
    """Stands for the file and the database: what is committed, and what is read."""

    def __init__(self) -> None:
        self.space = SimpleNamespace(reserved=None)
        self.trouble: str | None = None
        self.rows: list[tuple[int, int, int]] = []
        self.position = self.tidy = self.tidied = self.looks = self.places = 0
        self.covered: int | None = None
        self.last_commit = self.last_noted = 0
        self.kept: list[tuple[int, int | None]] = []
        self.deleted: list[int] = []
        self.noted: list[int] = []
        self.folds: list[str] = []
        self.folding = True
        self.counters: list[tuple[str, int]] = []
        self.checkpoints = [True]
        self.fault: StoreUnavailable | None = None
        self.gone: Callable[[], bool] = lambda: False

    async def commit(self, function: Callable[..., Any], *words: Any) -> Any:
        """Note it."""
        if self.fault is not None:
            raise self.fault
        if function is put_counter:
            self.counters.append(cast(Any, words))
            return None
        items, deleted, noted = words
        if items:
            self.kept.append((len(items), deleted))
        elif deleted is not None:
            self.deleted.append(deleted)
        if noted is not None:
            self.noted.append(noted)
        return len(self.rows) + len(self.kept), sum(len(item.body) for item in items)

    async def commit_statement(self, sql: str, values: tuple[Any, ...]) -> None:
        """Note it."""
        assert sql == KEEP_HELD
        self.kept.append((values[0], None))

    async def checkpoint(self) -> bool:
        """Return whether the log was folded."""
        return self.checkpoints.pop(0)

    async def try_checkpoint(self, mode: str) -> bool:
        """Cover all read rows, unless a reader is in the way."""
        self.folds.append(mode)
        if self.folding:
            self.covered = self.position
        return self.folding

    def check_place(self) -> None:
        """Count the looks, and fail once the database is gone."""
        self.places += 1
        if self.gone():
            raise StorePoisoned("gone")

    async def rows_of_file(self) -> tuple[list[tuple[int, int, int, Instant]], int, int]:
        return [(*each, T) for each in self.rows], self.tidied, self.last_noted

    async def progress(self) -> Progress:
        self.looks += 1
        covered = self.position if self.covered is None else self.covered
        return Progress(self.position, self.tidy, covered, self.last_commit)

    async def backlog(self) -> Backlog:
        return Backlog(records=7, size=700)


def writer_of(files: Files, *, shared: bool = False, max_bytes: int = 10**9) -> InboxWriter:
    """Build a writer over them."""
    every: Any = files
    return InboxWriter(every, every, database=every, shared=shared, max_bytes=max_bytes)


def item(size: int) -> Received:
    return Received(delivery_id="dlv_1", received_at=T, source="shop", headers="", body=b"x" * size)


ROWS = [(1, 2, 100), (2, 1, 50), (3, 4, 9_000)]


@pytest.mark.parametrize(
    ("position", "records", "size", "reserved"),
    [
        (0, 7, 9_150, 28_672),
        (1, 5, 9_050, 27_150),
        (2, 4, 9_000, 27_000),
        (3, 0, 0, 0),
        (9, 0, 0, 0),
    ],
)
async def test_what_is_unread_when_it_begins(
    position: int, records: int, size: int, reserved: int
) -> None:
    """Rows above the position. Room is kept for three times their bytes, 4 KiB for each at
    least."""
    files = Files()
    files.rows, files.position = ROWS, position
    writer = writer_of(files)
    assert (writer.records, writer.size, files.space.reserved()) == (0, 0, 0)
    await writer.load()
    assert (writer.records, writer.size, files.space.reserved()) == (records, size, reserved)


async def test_what_is_unread_where_several_receive() -> None:
    """What the database counts, and nothing is deleted there; what is kept is not counted here."""
    files = Files()
    writer = writer_of(files, shared=True)
    await writer.load()
    await writer.keep([item(5)])
    assert (writer.records, writer.size, files.looks, files.places) == (7, 700, 0, 1)
    assert (files.kept, files.deleted) == ([(1, None)], [])


async def test_as_many_bytes_as_may_be_unread() -> None:
    """At the bound one more is taken, beyond it none."""
    files = Files()
    writer = writer_of(files, max_bytes=100)
    await writer.keep([item(60), item(40)])
    await writer.keep([item(1)])
    with pytest.raises(StoreUnavailable, match="100 bytes of deliveries are unread") as raised:
        await writer.keep([item(0)])
    assert (raised.value.reason, files.kept) == ("queue", [(2, None), (1, None)])
    assert (writer.records, writer.size) == (3, 101)


@pytest.mark.parametrize(
    ("sizes", "kept", "deleted"),
    [
        ([100 * KIB, 156 * KIB, 1], 0, 2),
        ([100 * KIB, 156 * KIB + 1, 1], 0, 1),
        ([256 * KIB + 1, 0], 0, 1),
        ([256 * KIB, 0, 0], 0, 3),
        ([300 * KIB, 100 * KIB, 1], 400 * KIB, 2),
        ([1, 1, 1], 0, 3),
        ([], 0, None),
    ],
)
async def test_what_is_deleted_beside_what_is_kept(
    sizes: list[int], kept: int, deleted: int | None
) -> None:
    """Up to 256 KiB, or as many bytes as are kept, but one row at least."""
    files = Files()
    files.rows = [(number, 1, size) for number, size in enumerate(sizes, 1)]
    files.position = len(sizes)
    writer = writer_of(files)
    await writer.load()
    await writer.keep([item(kept)])
    assert files.kept == [(1, deleted)]
    assert [seq for seq, _ in writer._read] == list(range((deleted or 0) + 1, len(sizes) + 1))


async def test_after_a_commit_that_was_not_made_the_next_deletes_nothing() -> None:
    """To delete takes room, too."""
    files = Files()
    files.rows, files.position, files.trouble = ROWS, 3, "the disk is full"
    writer = writer_of(files)
    await writer.load()
    await writer.keep([item(1)])
    files.trouble = None
    await writer.keep([item(1)])
    await writer.keep([item(1)])
    assert files.kept == [(1, None), (1, 3), (1, None)]


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Make a clock that shows the one number in this list."""
    now = [100.0]
    monkeypatch.setattr(inbox_writer_store, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize(("after", "deletes"), [(0.9, False), (1.0, False), (1.1, True)])
async def test_where_nothing_comes_rows_go_by_themselves(
    seconds: list[float], after: float, deletes: bool
) -> None:
    """A second after what came last, and not before."""
    files = Files()
    files.rows = ROWS
    writer = writer_of(files)
    await writer.load()
    await writer.keep([item(1)])
    files.position, seconds[0] = 2, 100.0 + after
    await writer._look()
    assert files.deleted == ([2] if deletes else [])
    assert writer.records == 5
    await writer._look()
    assert (files.deleted, files.places) == ([2] if deletes else [], 7)


async def test_four_mebibytes_of_them_at_a_time(seconds: list[float]) -> None:
    files = Files()
    files.rows = [(n, 1, size) for n, size in enumerate((3 * MIB, MIB, 1, 4 * MIB, 4 * MIB), 1)]
    files.position = 5
    writer = writer_of(files)
    await writer.load()
    for _ in range(4):
        await writer._look()
    assert files.deleted == [2, 3, 4, 5]


@pytest.mark.parametrize("when", [[False], [True, False]], ids=["before", "meanwhile"])
async def test_nothing_while_no_reader_has_made_sure(
    seconds: list[float], when: list[bool]
) -> None:
    """Be it known before the position was looked at, or only afterwards."""
    files = Files()
    files.rows = ROWS
    writer = writer_of(files)
    await writer.load()
    files.position = 3
    answers = iter([*when, True, True])
    writer.may_delete = lambda: next(answers)
    await writer._look()
    assert (files.deleted, writer.records) == ([], 7)
    await writer._look()
    assert (files.deleted, writer.records) == ([3], 0)


async def test_nothing_beside_what_is_kept_either_while_no_reader_has_made_sure() -> None:
    """What was seen to be read before that stays until then."""
    files = Files()
    files.rows, files.position = ROWS, 3
    writer = writer_of(files)
    await writer.load()
    for may in (False, True):
        writer.may_delete = lambda may=may: may  # type: ignore[misc]
        await writer.keep([item(1)])
    assert files.kept == [(1, None), (1, 3)]


async def test_the_position_of_another_database_is_not_believed(seconds: list[float]) -> None:
    """One that took the place of ours while it was asked for: nothing counts as read by it."""
    files = Files()
    files.rows = ROWS
    writer = writer_of(files)
    await writer.load()
    asked, files.position = files.looks, 3
    files.gone = lambda: files.looks > asked
    with pytest.raises(StorePoisoned):
        await writer._look()
    assert (files.deleted, writer.records) == ([], 7)


async def test_what_is_kept_beside_a_database_that_is_gone_is_not_acknowledged() -> None:
    """Though the inbox has it."""
    files = Files()
    writer = writer_of(files)
    files.gone = lambda: True
    with pytest.raises(StorePoisoned):
        await writer.keep([item(1)])
    assert files.kept == [(1, None)]


async def test_nothing_is_left_of_what_an_erasure_names(seconds: list[float]) -> None:
    """All rows up to it are deleted, and the log is checkpointed; it is notified once that is done.
    What lies behind it goes as ever."""
    files = Files()
    files.rows = [(n, 1, 3 * MIB) for n in range(1, 5)]
    writer = writer_of(files)
    await writer.load()
    files.position, files.tidy, files.checkpoints = 4, 3, [False, True]
    await writer._look()
    assert (files.deleted, files.counters) == ([1, 2, 3], [])
    await writer._look()
    assert (files.deleted, files.counters) == ([1, 2, 3], [("tidied", 3)])
    await writer._look()
    assert (files.deleted, files.counters, files.checkpoints) == ([1, 2, 3, 4], [("tidied", 3)], [])


async def test_an_erasure_folds_the_databases_log_before_rows_are_deleted(
    seconds: list[float],
) -> None:
    files = Files()
    files.rows, files.position, files.covered, files.tidy = ROWS, 3, 2, 3
    writer = writer_of(files)
    await writer.load()
    await writer._look()
    assert (files.deleted, files.folds, files.counters) == ([], ["PASSIVE"], [])
    await writer._look()
    assert (files.deleted, files.counters) == ([3], [("tidied", 3)])


async def test_what_was_tidied_before_is_not_again(seconds: list[float]) -> None:
    files = Files()
    files.rows, files.tidied, files.tidy = ROWS, 3, 3
    writer = writer_of(files)
    await writer.load()
    await writer._look()
    assert (files.counters, files.checkpoints) == ([], [True])


async def test_it_looks_until_it_is_asked_to_end(
    monkeypatch: pytest.MonkeyPatch, log: StringIO
) -> None:
    """What cannot be deleted stays, and the log says why, once."""
    monkeypatch.setattr(inbox_writer_store, "LOOK_S", 0.0)
    files = Files()
    files.rows, files.position = ROWS, 3
    files.fault = StoreUnavailable("planted", reason="disk")
    writer = writer_of(files)
    await writer.load()
    closing = asyncio.Event()
    looking = writer._look
    looks = 0

    async def look() -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            files.fault = None
        if looks == 4:
            closing.set()
        await looking()

    monkeypatch.setattr(writer, "_look", look)
    await writer.watch(closing)
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [(line["level"], line["event"], line["reason"]) for line in lines] == [
        ("warning", "read deliveries cannot be deleted from the inbox yet", "disk")
    ]
    assert (files.deleted, looks) == ([3], 4)


@pytest.mark.parametrize(("shared", "every"), [(False, 0.1), (True, 1.0)])
async def test_how_often_it_looks(
    shared: bool, every: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten times a second where it deletes, once where it only counts."""
    writer, closing, waited = writer_of(Files(), shared=shared), asyncio.Event(), []

    def timeout(seconds: float) -> Any:
        waited.append(seconds)
        closing.set()
        return asyncio.Timeout(None)

    monkeypatch.setattr(asyncio, "timeout", timeout)
    await writer.watch(closing)
    assert waited == [every]


# --- what only the database's log has ------------------------------------------------------------


async def test_no_row_is_deleted_that_only_the_databases_log_has_as_read(
    seconds: list[float],
) -> None:
    """Neither beside what is kept nor by itself; their bytes are counted meanwhile."""
    files = Files()
    files.rows, files.position, files.covered = ROWS, 3, 1
    writer = writer_of(files)
    await writer.load()
    await writer.keep([item(1)])
    seconds[0] += 2.0
    await writer._look()
    assert (files.kept, files.deleted, writer.records, writer.kept_size) == ([(1, 1)], [], 1, 9_050)
    files.covered = 3
    await writer._look()
    assert (files.deleted, writer.kept_size) == ([3], 0)


async def test_the_databases_log_is_folded_after_five_quiet_seconds(seconds: list[float]) -> None:
    """Once for each last commit; where a reader is in the way, again five seconds later."""
    files = Files()
    files.rows, files.position, files.covered, files.folding = ROWS, 3, 0, False
    writer = writer_of(files)
    await writer.load()
    found = []
    for files.last_commit, at in ((7, 0.0), (8, 4.0), (8, 8.9), (8, 9.0), (8, 13.9), (8, 14.0)):
        seconds[0] = 200.0 + at
        await writer._look()
        found.append(len(files.folds))
    assert (found, files.folds[0]) == ([0, 0, 0, 1, 1, 2], "TRUNCATE")
    files.folding = True
    for seconds[0] in (220.0, 230.0):
        await writer._look()
    assert len(files.folds) == 3


async def test_what_a_start_writes_after_its_fold_is_folded_too(seconds: list[float]) -> None:
    """That the file is written from now on is such a commit."""
    files = Files()
    files.rows, files.position, files.last_commit = ROWS, 3, 7
    writer = writer_of(files)
    await writer.load()
    seconds[0] += 60.0
    await writer._look()
    assert len(files.folds) == 1


async def test_the_newest_commit_is_noted_beside_deliveries_or_once_a_second(
    seconds: list[float],
) -> None:
    files = Files()
    files.last_commit = files.last_noted = 5
    writer = writer_of(files)
    await writer.load()
    await writer._look()
    assert files.noted == []
    noted = []
    for files.last_commit, at in ((6, 0.0), (7, 0.9), (7, 1.0), (7, 5.0)):
        seconds[0] = 200.0 + at
        await writer._look()
        noted.append(files.noted[-1])
    assert noted == [6, 6, 7, 7]
    files.last_commit = 8
    await writer._look()
    await writer.keep([item(1)])
    await writer.keep([item(1)])
    assert files.noted == [6, 7, 8]
