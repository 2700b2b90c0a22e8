"""Rows of a lost inbox file: what is noted of them, which can be read, and what their loss is."""

import json
import sqlite3
from collections.abc import Collection
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from app.database.gaps import FoundGap
from app.receiving import inbox_loss_store
from app.receiving.inbox_loss_store import (
    DAMAGED,
    NOTE_BYTES,
    Kept,
    Left,
    Noted,
    go_on_without,
    kept_of,
    left,
    loss_after,
    loss_among,
    mend_length,
    move_aside,
    note_closed,
    note_lost,
    note_of,
    note_open,
    noted_in,
    readable,
    save,
    wrong_with,
)
from app.receiving.inbox_store import (
    POSITION,
    FileFacts,
    adopt,
    inbox_row,
    keep_row,
    put_counter,
    rows_after,
)
from reconcile.instants import EARLIEST, TICK, Instant
from tests.database.builders import rejection
from tests.database.made import put_new
from tests.receiving.test_inbox_rows import DELIVERED, Plain, item, kept, plain

__all__ = ["plain"]

LOSS = FoundGap(
    kind="inbox", since=Instant(10), until=Instant(40), deliveries=3, detail="it is gone"
)


# --- the note beside the file ---------------------------------------------------------------------


def test_a_note_names_the_last_row_of_its_file_and_is_complete_until_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    note = note_of("inbox_1", 7)
    assert (len(note), note[-1:]) == (NOTE_BYTES, b"\n")
    assert noted_in(note, "inbox_1") == Noted(7, True)
    assert noted_in(note, "inbox_2") is None
    for boot in ("another", ""):
        content = json.dumps({"inbox": "inbox_1", "last": 7, "boot": boot}).encode()
        assert noted_in(content, "inbox_1") == Noted(7, False)
    monkeypatch.setattr(inbox_loss_store, "_this_boot", lambda: "")
    assert noted_in(note_of("inbox_1", 8), "inbox_1") == Noted(8, False)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"inbox": "inbox_1"}', b'{"inbox": "inbox_1", "last": null}']
)
def test_what_is_no_note_says_nothing(content: bytes) -> None:
    assert noted_in(content, "inbox_1") is None


# --- rows -----------------------------------------------------------------------------------------


def test_the_deliveries_of_a_row_are_counted_without_its_rejections() -> None:
    refused = replace(rejection(), received_at=Instant(3))
    assert kept_of([item(9), item(5), refused]) == Kept(2, Instant(3), Instant(9))


def test_rows_are_readable_if_they_are_whole(plain: Plain) -> None:
    """A row whose pages were not all written has zeros in it, which no row has otherwise."""
    kept(plain, 2, 1)
    zeros = [item(50)._replace(body=bytes(count)) for count in (31, 32)]
    for each in zeros:
        keep_row(plain, [each])
    plain.ask("INSERT INTO inbox (count, received_at, size, records) VALUES (1, 5, 3, x'00ff00')")
    rows = rows_after(plain, 0, limit=9, most_bytes=10**9, in_file=True)
    found = readable(plain, [9, 1, 2, 3, 4, 5])
    assert found == [
        (row.seq, row.holds, row.received_at, len(row.records), row.records) for row in rows[:3]
    ]


@pytest.mark.parametrize(
    ("lost", "loss"),
    [
        ({1, 2}, (Instant(3), Instant(9), 5)),
        ({2}, (Instant(3), Instant(7), 1)),
        ({1, 3}, (EARLIEST, Instant(99), None)),
        (set[int](), (Instant(99), Instant(99), 0)),
    ],
    ids=["both", "one", "one that nobody knows", "none"],
)
def test_a_loss_of_rows_is_exact_if_all_of_them_are_known(
    lost: Collection[int], loss: tuple[Instant, Instant, int | None]
) -> None:
    rows = {1: Kept(4, Instant(5), Instant(9)), 2: Kept(1, Instant(3), Instant(7))}
    since, until, deliveries = loss
    assert loss_among(lost, rows, detail="it is gone", now=Instant(99)) == FoundGap(
        kind="inbox", since=since, until=until, deliveries=deliveries, detail="it is gone"
    )


@pytest.mark.parametrize(
    ("since", "begins", "ends"),
    [(None, EARLIEST, Instant(99)), (Instant(104), Instant(99), Instant(99)),
     (Instant(110), Instant(105), Instant(105))],
)  # fmt: skip
def test_a_loss_that_a_start_finds_begins_with_what_was_on_its_way(
    since: Instant | None, begins: Instant, ends: Instant
) -> None:
    state = Left(known="inbox_1", position=5, closed=None, lost=None, since=since)
    found = loss_after(state, detail="it is gone", found=(), on_its_way=5 * TICK, now=Instant(99))
    assert found == FoundGap(
        kind="inbox", since=begins, until=ends, deliveries=None, detail="it is gone"
    )


# --- what the database has of them ----------------------------------------------------------------


def test_a_database_has_the_state_of_its_inbox(plain: Plain) -> None:
    """Its file, how far it was read, how it was closed, what is lost of it, and since when nothing
    can be lost."""
    nothing = Left(known=None, position=0, closed=None, lost=None, since=None)
    assert left(plain) == nothing
    adopt(plain, FileFacts("inbox_1", 0, 4, 9))
    note_closed(plain, 0)
    assert left(plain) == Left(known="inbox_1", position=4, closed=0, lost=None, since=None)
    note_closed(plain, 6)
    assert left(plain).closed == 6
    note_open(plain, last=5, now=Instant(20))
    assert (left(plain).closed, left(plain).since) == (None, None)
    note_open(plain, last=4, now=Instant(20))
    assert left(plain).since == 20
    plain.ask(DELIVERED, ("dlv_1", 15))
    assert left(plain).since == 20
    plain.ask(DELIVERED, ("dlv_2", 30))
    assert left(plain).since == 30
    assert note_lost(plain, LOSS, now=Instant(35)) == replace(LOSS, until=Instant(35))
    note_closed(plain, 6)
    assert left(plain) == Left(
        known="inbox_1", position=4, closed=6, lost=replace(LOSS, until=Instant(35)),
        since=Instant(30),
    )  # fmt: skip
    go_on_without(plain)
    assert left(plain) == Left(known=None, position=4, closed=None, lost=None, since=Instant(30))


@pytest.mark.parametrize(("position", "after"), [(3, 5), (9, 9)])
def test_rows_that_are_saved_are_read_again_from_the_database(
    plain: Plain, position: int, after: int
) -> None:
    """And no more from their file, in which the position never goes back."""
    put_counter(plain, POSITION, position)
    whole = inbox_row([item(7), item(8)])
    save(plain, [(4, *whole)], 5)
    (row,) = rows_after(plain, 0, limit=9, most_bytes=10**9, in_file=False)
    assert (row.seq, row.holds, row.received_at, row.records) == (1, 2, 7, whole[-1])
    assert left(plain).position == after


# --- the file -------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file with the tables of an inbox, of several pages."""
    put_new(tmp_path / "t.db")
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("INSERT INTO inbox (count, received_at, size, records) "
                           "VALUES (1, 5, 9, zeroblob(50000))")  # fmt: skip
        connection.commit()
    return tmp_path / "t.db"


def test_a_file_that_was_cut_off_gets_its_length_back_and_no_other_file_is_changed(
    path: Path,
) -> None:
    """Only a whole header says which length that is."""
    whole = path.read_bytes()
    for content, size in (
        (whole[:5_000], len(whole)),
        (whole[:32], len(whole)),
        (whole[:31], 31),
        (whole + b"more", len(whole) + 4),
        (b"another form of file, as long as" + bytes(9), 41),
        (b"", 0),
    ):
        path.write_bytes(content)
        mend_length(path)
        assert (path.stat().st_size, path.read_bytes()[: len(content)]) == (size, content)


def test_what_is_wrong_with_a_file_is_found_as_far_as_it_is_looked_at(path: Path) -> None:
    whole = path.read_bytes()

    def wrong(content: bytes, *, look: bool) -> str | None:
        path.write_bytes(content)
        return wrong_with(path, look=lambda: look)

    assert [wrong(whole, look=look) for look in (True, False)] == [None, None]
    damaged = whole[:-8_192] + b"\xff" * 8_192
    assert [wrong(damaged, look=look) for look in (True, False)] == [DAMAGED, None]
    assert wrong(b"no database" * 99, look=False) == DAMAGED
    assert wrong(b"", look=True) == "was emptied"
    for sql, said in (
        ("DELETE FROM meta", "was removed or emptied"),
        ("DROP TABLE inbox", "was emptied"),
    ):
        path.write_bytes(whole)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(sql)
            connection.commit()
        assert wrong_with(path, look=lambda: True) == said
    path.unlink()
    assert wrong_with(path, look=lambda: True) == "is gone"


def test_nothing_is_put_aside_of_a_file_of_which_nothing_is_left(tmp_path: Path) -> None:
    assert move_aside(tmp_path / "t") is None
    assert list(tmp_path.iterdir()) == []
