"""Rows of the inbox, its positions and its suspects, asked as the reader and the receiver ask."""

import itertools
import json
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from app.context.unread import Backlog
from app.database.gaps import LAST_COMMIT
from app.receiving.claim_store import (
    Claimant,
    claim_suspect,
    failed_alone,
    heads_of_suspects,
)
from app.receiving.framing import DamagedRow, Received, framed, items_in
from app.receiving.inbox_loss_store import numbers_in
from app.receiving.inbox_store import (
    IDENTITY,
    POSITION,
    RECORDS_READ,
    TIDY,
    FileFacts,
    Suspect,
    Unread,
    _in_database,
    adopt,
    ask_to_tidy,
    count_set_aside,
    counted_after,
    counter,
    delete_up_to,
    fact,
    found_gap,
    go_on_from,
    keep_row,
    next_suspects,
    note_orders,
    orders_waiting,
    put_counter,
    rows_after,
    set_aside,
    suspect,
    take_out,
    take_suspect_out,
    try_again,
)
from reconcile.instants import EARLIEST, Instant
from tests.database.builders import rejection
from tests.database.made import put_new

DELIVERED = (
    "INSERT INTO deliveries (id, received_at, source, verdict, digest, size, headers) "
    "VALUES (?, ?, 'shop', 'stored', '', 0, '')"
)


STEPS_A_ROW = 20
"""Steps of SQLite's that a statement for one row may take."""


class Plain:
    """A new database, as functions over one connection see it."""

    dialect = "sqlite"
    spread = False

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._steps = itertools.count()
        connection.set_progress_handler(lambda: next(self._steps) < 0, 1)

    def steps(self) -> int:
        """Return how many steps SQLite has taken."""
        return next(self._steps)

    def ask(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement."""
        return self._connection.execute(sql, values).fetchall()


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Plain]:
    """Return a connection without rows."""
    put_new(tmp_path / "t.db")
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection:
        yield Plain(connection)


def item(at: int, size: int = 1) -> Received:
    """Build an item that came then."""
    return Received(
        delivery_id=f"dlv_{at}",
        received_at=Instant(at),
        source="shop",
        headers="",
        body=b"x" * size,
    )


def kept(plain: Plain, *counts: int) -> list[int]:
    """Keep rows with these numbers of records; return the bytes of each."""
    sizes = []
    for number, count in enumerate(counts, 1):
        items = [item(10 * number + n) for n in reversed(range(count))]
        seq, size = keep_row(plain, items)
        assert (seq, size) == (number, len(framed(items)))
        sizes.append(size)
    return sizes


def found(plain: Plain, after: int, limit: int, most_bytes: int) -> list[int]:
    """List the numbers of the next rows."""
    rows = rows_after(plain, after, limit=limit, most_bytes=most_bytes, in_file=False)
    assert [row.in_file for row in rows] == [False] * len(rows)
    return [row.seq for row in rows]


def test_the_next_rows_up_to_their_bounds(plain: Plain) -> None:
    """Of records and of bytes, each included; but one row at least, whatever it holds."""
    first, second, third, _ = kept(plain, 2, 1, 3, 1)
    every = first + second + third
    for after, limit, most_bytes, rows in (
        (0, 3, 10**9, [1, 2]),
        (0, 2, 10**9, [1]),
        (0, 5, 10**9, [1, 2]),
        (0, 6, 10**9, [1, 2, 3]),
        (0, 7, 10**9, [1, 2, 3, 4]),
        (0, 1, 0, [1]),
        (2, 1, 0, [3]),
        (0, 9, every, [1, 2, 3]),
        (0, 9, every - 1, [1, 2]),
        (1, 9, second + third, [2, 3]),
        (3, 9, 10**9, [4]),
        (4, 9, 10**9, []),
    ):
        assert found(plain, after, limit, most_bytes) == rows, (after, limit, most_bytes)


def test_a_row_says_what_it_holds(plain: Plain) -> None:
    """When the oldest of it came, and its records as they came; none where it is damaged."""
    kept(plain, 2)
    plain.ask("INSERT INTO inbox (count, received_at, size, records) VALUES (1, 5, 3, x'00ff00')")
    one, other = rows_after(plain, 0, limit=9, most_bytes=10**9, in_file=True)
    assert one == Unread(
        1, 2, Instant(10), framed([item(11), item(10)]), [item(11), item(10)], True
    )
    assert (other.received_at, other.records, other.items) == (5, b"\0\xff\0", None)


def test_what_lies_beyond_a_number_and_up_to_another(plain: Plain) -> None:
    """Records, bytes, and when the oldest and the newest came."""
    sizes = kept(plain, 2, 1, 3)
    for after, up_to, backlog in (
        (0, 3, Backlog(records=6, size=sum(sizes), oldest=Instant(10), newest=Instant(30))),
        (
            1,
            3,
            Backlog(records=4, size=sizes[1] + sizes[2], oldest=Instant(20), newest=Instant(30)),
        ),
        (1, 2, Backlog(records=1, size=sizes[1], oldest=Instant(20), newest=Instant(20))),
        (3, 9, Backlog()),
        (2, 2, Backlog()),
    ):
        assert counted_after(plain, after, up_to=up_to) == backlog
    delete_up_to(plain, 2)
    assert counted_after(plain, 0, up_to=9).records == 3


def test_a_sum_of_backlogs() -> None:
    """The oldest of both, where there is one."""
    one, other = Backlog(records=1, size=10, oldest=Instant(5)), Backlog(records=2, size=20)
    late = Backlog(records=4, size=40, oldest=Instant(7))
    assert one + other == Backlog(records=3, size=30, oldest=Instant(5))
    assert other + other == Backlog(records=4, size=40)
    assert late + one == one + late == Backlog(records=5, size=50, oldest=Instant(5))


def test_rows_are_taken_out_once(plain: Plain) -> None:
    """Those of the table by their numbers, those of the file by the position, which never goes
    back."""
    kept(plain, 1, 1)
    rows = rows_after(plain, 0, limit=9, most_bytes=10**9, in_file=False)
    in_file = [row._replace(in_file=True) for row in rows]
    assert take_out(plain, [rows[0], *in_file]) == [rows[0], *in_file]
    assert (counter(plain, POSITION), found(plain, 0, 9, 9**9)) == (2, [2])
    assert take_out(plain, [*rows, *in_file]) == [rows[1]]
    assert take_out(plain, in_file[:1]) == []
    assert counter(plain, POSITION) == 2
    third = in_file[1]._replace(seq=3)
    assert take_out(plain, [in_file[1], third]) == [third]
    assert counter(plain, POSITION) == 3


def test_counters_and_facts(plain: Plain) -> None:
    """What was never written is nothing; what is written again is replaced."""
    assert (counter(plain, "new"), fact(plain, "new")) == (0, None)
    for value in (7, 5):
        put_counter(plain, "new", value)
        assert counter(plain, "new") == value
    ask_to_tidy(plain, 4)
    ask_to_tidy(plain, 3)
    assert counter(plain, TIDY) == 4


@pytest.mark.parametrize(
    ("known", "there", "position"),
    [("a", "a", 0), ("a", "b", 0), (None, "b", 0), ("a", None, 9), (None, None, 9)],
)
def test_a_file_that_is_gone_on_with(
    plain: Plain, known: str | None, there: str | None, position: int
) -> None:
    """From its beginning, be it the one that was read or another. Where there is none, the one
    that will be made is."""
    adopt(plain, None if known is None else FileFacts(known, 0, 0, 0))
    put_counter(plain, POSITION, 9)
    adopt(plain, None if there is None else FileFacts(there, 0, 0, 0))
    assert (fact(plain, IDENTITY), counter(plain, POSITION)) == (there, position)


@pytest.mark.parametrize(
    ("noted", "deleted", "held", "lost"),
    [
        (70, 3, 6, None),
        (71, 3, 6, 0),
        (70, 4, 6, 1),
        (70, 4, 9, 4),
    ],
)
def test_what_a_database_lacks_of_what_it_had(
    plain: Plain, noted: int, deleted: int, held: int, lost: int | None
) -> None:
    """By the file that it reads: a later commit was noted, or rows were deleted that it has not
    read. Five records were read up to the third row."""
    adopt(plain, FileFacts("a", 0, 0, 0))
    for name, value in ((POSITION, 3), (RECORDS_READ, 5), (LAST_COMMIT, 70)):
        put_counter(plain, name, value)
    file = FileFacts("a", noted, deleted, held)
    now = Instant(99)
    found = found_gap(plain, file, now=now)
    assert found_gap(plain, file._replace(identity="b"), now=now) is None
    assert found_gap(plain, None, now=now) is None
    if lost is None:
        assert found is None
        return
    assert found is not None
    assert (found.kind, found.since, found.until) == ("database", 70, noted)
    assert found.deliveries == lost
    go_on_from(plain, file)
    assert found_gap(plain, file, now=now) is None


@pytest.mark.parametrize(
    ("now", "since", "until"), [(80, 70, 80), (60, 40, 60), (30, EARLIEST, 30)]
)
def test_no_gap_lies_in_the_future_where_a_clock_was_ahead(
    plain: Plain, now: int, since: int, until: int
) -> None:
    """It began after the newest delivery that is not dated by that clock, if there is one."""
    for at in (40, 70):
        plain.ask(DELIVERED, (f"dlv_{at}", at))
    put_counter(plain, LAST_COMMIT, 70)
    found = found_gap(plain, FileFacts("a", 90, 0, 0), now=Instant(now))
    assert found is not None
    assert (found.since, found.until) == (since, until)


def test_the_search_for_what_a_damaged_file_still_holds_grows_with_its_rows(plain: Plain) -> None:
    kept(plain, *[1] * 200)
    begun = plain.steps()
    assert numbers_in(plain, 0) == {*range(1, 201)}
    assert plain.steps() - begun < 200 * STEPS_A_ROW


def test_a_suspect_has_its_tries_and_is_set_aside(plain: Plain) -> None:
    """Each record of a row by itself; what is damaged has had all of its tries."""
    kept(plain, 2)
    plain.ask("INSERT INTO inbox (count, received_at, size, records) VALUES (1, 5, 3, x'00ff00')")
    suspect(plain, rows_after(plain, 0, limit=9, most_bytes=10**9, in_file=False))
    assert found(plain, 0, 9, 9**9) == []
    first, second, damaged = next_suspects(plain, aside=False, limit=9)
    assert first == Suspect(1, 0, framed([item(11)]), item(11), [], None)
    assert (second.item, second.tries) == (item(10), 0)
    assert (damaged.item, damaged.tries, damaged.record) == (None, 3, b"\0\xff\0")
    size = len(first.record) + len(second.record) + 3
    assert _in_database(plain, 9)[0] == Backlog(
        records=3, size=size, oldest=Instant(5), newest=Instant(11)
    )
    assert next_suspects(plain, aside=False, limit=1) == [first]
    claimant, heads = Claimant(), heads_of_suspects(plain)
    for tries in (1, 2):
        claimed = claim_suspect(plain, claimant, heads_of_suspects(plain)[1])
        assert claimed is not None
        failed_alone(plain, claimed)
        assert [each.tries for each in next_suspects(plain, aside=False, limit=9)] == [0, tries, 3]
    assert claim_suspect(plain, Claimant(), heads[1]) is not None
    assert [take_suspect_out(plain, second), set_aside(plain, second, orders=[])] == [False, False]
    note_orders(plain, second, orders=["C"])  # another reader has it
    assert not orders_waiting(plain)
    assert claim_suspect(plain, claimant, heads[1]) is None
    (claimed,) = [e for e in next_suspects(plain, aside=False, limit=9) if e.taken_by is not None]
    assert set_aside(plain, claimed, orders=["A", "B"])
    assert [each.seq for each in next_suspects(plain, aside=False, limit=9)] == [1, 3]
    (aside,) = next_suspects(plain, aside=True, limit=9)
    note_orders(plain, claimed, orders=["C"])
    note_orders(plain, aside, orders=["C"])
    assert (aside.seq, aside.tries, aside.orders) == (2, 2, ["A", "B"])
    assert orders_waiting(plain) == {"A", "B"}
    assert (count_set_aside(plain), _in_database(plain, 9)[0].records) == (1, 2)
    assert [try_again(plain), try_again(plain), count_set_aside(plain)] == [1, 0, 0]
    assert [each.tries for each in next_suspects(plain, aside=False, limit=9)] == [0, 0, 3]
    assert [take_suspect_out(plain, first), take_suspect_out(plain, first)] == [True, False]
    assert [each.seq for each in next_suspects(plain, aside=False, limit=9)] == [2, 3]


# --- frames ---------------------------------------------------------------------------------------


def test_the_bytes_of_a_frame() -> None:
    """Sizes of head and body, the head in JSON, the body: as every version must read it."""
    refused = rejection(body=b"\xff", headers="é")
    heads = [
        ["dlv_5", 5, "shop", "", "/w?é", "public", 7],
        [refused.delivery_id, refused.received_at, "shop", "é", "signature_mismatch", "0" * 64, 1,
         "not genuine", 1],
    ]  # fmt: skip
    one = Received(
        delivery_id="dlv_5",
        received_at=Instant(5),
        source="shop",
        headers="",
        body=b"ab",
        url="/w?é",
        peer="public",
        lane=7,
    )
    row = b""
    for head, body in zip(heads, (b"ab", b"\xff"), strict=True):
        written = json.dumps(head, separators=(",", ":")).encode()
        row += struct.pack(">II", len(written), len(body)) + written + body
    assert framed([one, refused]) == row
    assert list(items_in(row)) == [one, refused]
    assert list(items_in(b"")) == []


@pytest.mark.parametrize(
    "row",
    [
        b"\0",
        struct.pack(">II", 2, 0) + b"{",
        struct.pack(">II", 2, 0) + b"{}",
        struct.pack(">II", 4, 0) + b"null",
        struct.pack(">II", 0, 0),
        framed([item(1)])[:-1],
        framed([item(1)]) + b"\0\0\0",
        struct.pack(">II", 19, 1) + b'["d",1,"s","","u"]\n',
    ],
)
def test_what_is_no_frame_is_damage(row: bytes) -> None:
    with pytest.raises(DamagedRow):
        list(items_in(row))
