"""The inbox: accepted deliveries that are not read yet.

    receiver ──keep──▶ one row for each commit ──next rows──▶ reader ──take out, append──▶ order

The transaction that stores a row's content also deletes the row, so nothing is lost or stored
twice. After three failures, a record is set aside.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol

from app.context.unread import EVERYTHING, Backlog, InboxEnd
from app.database import statements
from app.database.gaps import LAST_COMMIT, FoundGap
from app.database.holders import HELD
from app.receiving.framing import DamagedRow, Item, framed, items_in
from reconcile.instants import EARLIEST, Instant

MOST_TRIES: Final = 3
"""Failures after which a single record is set aside."""

POSITION: Final = "inbox position"
"""Counter with the last row that was read from the inbox file."""

COVERED: Final = "inbox covered"
"""Counter of inbox rows that the database's file contains."""

RECORDS_READ: Final = "inbox records"

DELETED: Final = "deleted"

RECORDS_DELETED: Final = "records deleted"

TIDY: Final = "inbox tidy"
"""Name of the counter of inbox rows whose traces an erasure wants deleted."""

TIDIED: Final = "tidied"
"""Counter with the last row whose traces were deleted."""

BEAT: Final = "reader beat"
"""Counter with the time of a reader's last heartbeat."""

CLOSED: Final = "inbox closed"
"""Counter of the closed inbox file's last row, plus one; 0 while open."""

OPENED: Final = "inbox opened"
"""Counter with the last opening of an empty inbox file."""

LAST_BACKUP: Final = "last backup"
"""Counter with the last backup's time in microseconds, which compose.yaml sets, too."""

IDENTITY: Final = "inbox"
"""Name of the fact with the inbox file's id."""

_NEW_SUSPECT: Final = ("received_at", "tries", "aside", "orders", "record")


class Unread(NamedTuple):
    """One unread row of the inbox. The items of a damaged row are None."""

    seq: int
    holds: int
    received_at: Instant
    records: bytes
    items: Sequence[Item] | None
    in_file: bool
    taken_by: str | None = None
    tries: int = 0


class Suspect(NamedTuple):
    """Record of the inbox that is read alone after failures."""

    seq: int
    tries: int
    record: bytes
    item: Item | None
    orders: Sequence[str]
    taken_by: str | None


def ask_to_tidy(connection: statements.PlainConnection, up_to: int) -> None:
    """Ask the receiver to delete read rows."""
    put_counter(connection, TIDY, max(up_to, counter(connection, TIDY)))


def tidied(connection: statements.PlainConnection) -> int:
    """Return the row number up to which traces are deleted."""
    return counter(connection, TIDIED)


class Progress(NamedTuple):
    """Progress in reading the inbox file."""

    position: int
    """Number of the last row that was read."""
    tidy_up_to: int
    """Number of the last row that an erasure wants deleted."""
    covered: int
    """Number of the last row that can be deleted."""
    last_commit: int


# --- rows of the inbox ----------------------------------------------------------------------------


def keep_row(connection: statements.PlainConnection, items: Sequence[Item]) -> tuple[int, int]:
    """Insert one inbox row. Return its number and size in bytes."""
    row = inbox_row(items)
    ((seq,),) = connection.ask(KEEP, row)
    return seq, len(row[-1])


def inbox_row(items: Sequence[Item]) -> tuple[int, Instant, int, bytes]:
    """Return an inbox row's values: count, arrival, size and records."""
    records = framed(items)
    return len(items), min(item.received_at for item in items), len(records), records


KEEP: Final = (
    "INSERT INTO inbox (count, received_at, size, records) VALUES (?, ?, ?, ?) RETURNING seq"
)

KEEP_HELD: Final = statements.statement(
    "WITH held AS ({held}) INSERT INTO inbox (count, received_at, size, records) "
    "SELECT ?::bigint, ?::bigint, ?::bigint, ?::bytea FROM held RETURNING (SELECT ctid FROM held)",
    held=HELD,
)
"""SQL statement that inserts an inbox row on PostgreSQL in one round trip."""


def rows_after(
    connection: statements.PlainConnection,
    after: int,
    *,
    limit: int,
    most_bytes: int,
    in_file: bool,
) -> list[Unread]:
    """Return the next inbox rows, up to both limits."""
    heads = connection.ask(_HEADS, (after, limit))
    last, records, size = after, 0, 0
    for seq, holds, its_size in heads:
        records, size = records + holds, size + its_size
        if last != after and (records > limit or size > most_bytes):
            break
        last = seq
    rows = connection.ask(_ROWS, (after, last)) if heads else []
    return [
        Unread(seq, holds, at, bytes(found), items_of(bytes(found)), in_file)
        for seq, holds, at, found in rows
    ]


_HEADS: Final = "SELECT seq, count, size FROM inbox WHERE seq > ? ORDER BY seq LIMIT ?"
_ROWS: Final = (
    "SELECT seq, count, received_at, records FROM inbox WHERE seq > ? AND seq <= ? ORDER BY seq"
)


def items_of(records: bytes) -> list[Item] | None:
    """Return the items of an inbox row; None if its bytes are damaged."""
    try:
        return list(items_in(records))
    except DamagedRow:
        return None


def delete_up_to(connection: statements.PlainConnection, last: int) -> None:
    """Delete the inbox file's read rows up to this number."""
    rows = connection.ask("DELETE FROM inbox WHERE seq <= ? RETURNING seq, count", (last,))
    if rows:
        put_counter(connection, DELETED, max(seq for seq, _ in rows))
        add_to_counter(connection, RECORDS_DELETED, sum(count for _, count in rows))


def cover(connection: statements.PlainConnection) -> None:
    """Record that the database's file contains everything read."""
    position = position_of(connection)
    if position > counter(connection, COVERED):
        put_counter(connection, COVERED, position)


def take_out(connection: statements.PlainConnection, rows: Sequence[Unread]) -> list[Unread]:
    """Delete these rows in the transaction that stores their content. Return the deleted rows.

    All rows must share one claim, or have none.
    """
    in_file = [row for row in rows if row.in_file]
    table = [row for row in rows if not row.in_file]
    claim = table[0].taken_by or "" if table else ""
    gone = {
        row[0]
        for row in statements.select_rows(
            connection, sql=_DELETE, values=[row.seq for row in table], first=(claim,)
        )
    }
    ours = [row for row in table if row.seq in gone]
    if in_file:
        position = position_of(connection)
        read = [row for row in in_file if row.seq > position]
        put_counter(connection, POSITION, max(position, in_file[-1].seq))
        add_to_counter(connection, RECORDS_READ, sum(row.holds for row in read))
        ours += read
    return ours


_DELETE: Final = "DELETE FROM inbox WHERE coalesce(taken_by, '') = ? AND seq IN ({}) RETURNING seq"


def position_of(connection: statements.PlainConnection) -> int:
    """Return the number of the inbox file's last row that was read."""
    return counter(connection, POSITION)


def counter(connection: statements.PlainConnection, name: str) -> int:
    """Return the value of a counter; 0 if it was never written."""
    rows = connection.ask("SELECT value FROM counters WHERE name=?", (name,))
    return int(rows[0][0]) if rows else 0


def last_backup(connection: statements.PlainConnection) -> Instant | None:
    """Return the time of the last recorded backup, or None."""
    noted = counter(connection, LAST_BACKUP)
    return Instant(noted) if noted else None


def put_counter(connection: statements.PlainConnection, name: str, value: int) -> None:
    connection.ask(_PUT_COUNTER, (name, value))


_PUT_COUNTER: Final = (
    "INSERT INTO counters (name, value) VALUES (?, ?) "
    "ON CONFLICT (name) DO UPDATE SET value=excluded.value"
)


def add_to_counter(connection: statements.PlainConnection, name: str, more: int) -> None:
    connection.ask(_ADD_TO_COUNTER, (name, more))


_ADD_TO_COUNTER: Final = (
    "INSERT INTO counters (name, value) VALUES (?, ?) "
    "ON CONFLICT (name) DO UPDATE SET value=counters.value+excluded.value"
)


def fact(connection: statements.PlainConnection, name: str) -> str | None:
    """Return one stored fact about the database itself; None if it is not stored."""
    rows = connection.ask("SELECT value FROM meta WHERE name=?", (name,))
    return str(rows[0][0]) if rows else None


def put_fact(connection: statements.PlainConnection, name: str, value: str) -> None:
    connection.ask(
        "INSERT INTO meta (name, value) VALUES (?, ?) "
        "ON CONFLICT (name) DO UPDATE SET value=excluded.value",
        (name, value),
    )


class FileFacts(NamedTuple):
    """Facts that the inbox file stores about itself."""

    identity: str
    last_commit: int
    deleted: int
    records_deleted: int


def adopt(connection: statements.PlainConnection, file: FileFacts | None) -> None:
    """Make this file the inbox file, with all rows unread."""
    if file is None:
        connection.ask("DELETE FROM meta WHERE name=?", (IDENTITY,))
        return
    put_fact(connection, IDENTITY, file.identity)
    for name in (POSITION, COVERED, RECORDS_READ, CLOSED, OPENED):
        put_counter(connection, name, 0)
    go_on_from(connection, file)


def go_on_from(connection: statements.PlainConnection, file: FileFacts) -> None:
    """Record rows up to the last deleted row as read."""
    for name, value in (
        (POSITION, file.deleted),
        (RECORDS_READ, file.records_deleted),
        (LAST_COMMIT, file.last_commit),
    ):
        put_counter(connection, name, max(value, counter(connection, name)))


def found_gap(
    connection: statements.PlainConnection, file: FileFacts | None, *, now: Instant
) -> FoundGap | None:
    """Return the gap if recorded commits are missing."""
    if file is None or fact(connection, IDENTITY) not in (None, file.identity):
        return None
    since, lost = Instant(counter(connection, LAST_COMMIT)), 0
    if position_of(connection) < file.deleted:  # a backup contains rows that its copy had not read
        has = (
            counter(connection, RECORDS_READ)
            + counted_after(connection, 0, up_to=EVERYTHING.table).records
        )
        lost = max(0, file.records_deleted - has)
    elif since >= file.last_commit:
        return None
    if lost:  # lost deliveries arrived after the last read one
        for (arrived,) in connection.ask(LAST_ARRIVAL):
            since = min(since, arrived)
    found = FoundGap(
        kind="database",
        since=since,
        until=Instant(max(since, file.last_commit)),
        deliveries=lost,
        detail="the database's newest commits are missing",
    )
    return until_now(connection, found, now=now)


def until_now(connection: statements.PlainConnection, found: FoundGap, *, now: Instant) -> FoundGap:
    """Return the gap, ending at `now` at the latest."""
    since = found.since
    if since > now:
        ((arrived,),) = connection.ask(_ARRIVED_BY, (now,))
        since = EARLIEST if arrived is None else arrived
    return replace(found, since=since, until=max(since, min(found.until, now)))


_ARRIVED_BY: Final = "SELECT max(received_at) FROM deliveries WHERE received_at <= ?"


def gap_since_backup(
    connection: statements.PlainConnection,
    file: FileFacts | None,
    *,
    last: int | None,
    now: Instant,
) -> FoundGap | None:
    """Return the gap of commits since a restored backup."""
    has = Instant(counter(connection, LAST_COMMIT))
    if file is not None and fact(connection, IDENTITY) == file.identity:
        noted = max(file.last_commit, now if last is None else last)
        if (found := found_gap(connection, file._replace(last_commit=noted), now=now)) is None:
            return None
        return replace(found, detail=_SINCE_BACKUP)
    if last is not None and last <= has:
        return None
    until = now if last is None else Instant(last)
    found = FoundGap(kind="database", since=has, until=until, deliveries=None, detail=_SINCE_BACKUP)
    return until_now(connection, found, now=now)


_SINCE_BACKUP: Final = "the backup lacks everything since it was made"


def gap_of_inbox(
    connection: statements.PlainConnection, file: FileFacts | None, *, now: Instant
) -> FoundGap | None:
    """Return a gap for a missing or replaced inbox file."""
    known = fact(connection, IDENTITY)
    if known is None or (file is not None and file.identity == known):
        return None
    since = Instant(counter(connection, LAST_COMMIT))
    for (arrived,) in connection.ask(LAST_ARRIVAL):
        since = min(since, arrived)
    found = FoundGap(
        kind="inbox",
        since=since,
        until=now,
        deliveries=None,
        detail="the inbox file is missing or was replaced, so its unread deliveries are missing",
    )
    return until_now(connection, found, now=now)


LAST_ARRIVAL: Final = "SELECT received_at FROM deliveries ORDER BY id DESC LIMIT 1"


# --- suspects, which are read one by one ----------------------------------------------------------


def suspect(connection: statements.PlainConnection, rows: Sequence[Unread]) -> None:
    """Split these rows into single records that are read alone."""
    alone: list[tuple[Any, ...]] = []
    for row in take_out(connection, rows):
        if row.items is None:
            alone.append((row.received_at, MOST_TRIES, 0, "", row.records))
            continue
        alone += [(item.received_at, 0, 0, "", framed([item])) for item in row.items]
    statements.insert_rows(connection, table="suspects", columns=_NEW_SUSPECT, rows=alone)


def next_suspects(
    connection: statements.PlainConnection, *, aside: bool, limit: int
) -> list[Suspect]:
    """Return up to `limit` single records, oldest first."""
    rows = connection.ask(_SUSPECTS, (int(aside), limit))
    return [suspect_of(row) for row in rows]


SUSPECT_COLUMNS: Final = "seq, tries, orders, record, taken_by"

_SUSPECTS: Final = statements.statement(
    "SELECT {columns} FROM suspects WHERE aside=? ORDER BY seq LIMIT ?", columns=SUSPECT_COLUMNS
)


def suspect_of(row: Sequence[Any]) -> Suspect:
    seq, tries, orders, record, taken_by = row
    items = items_of(bytes(record))
    named = orders.split("\n") if orders else []
    return Suspect(seq, tries, bytes(record), items[0] if items else None, named, taken_by)


def note_orders(
    connection: statements.PlainConnection, one: Suspect, *, orders: Sequence[str]
) -> None:
    """Store the orders that an unclaimed record mentions."""
    connection.ask(
        "UPDATE suspects SET orders=? WHERE seq=? AND aside=0 AND coalesce(taken_by, '')=?",
        ("\n".join(orders), one.seq, one.taken_by or ""),
    )


def set_aside(
    connection: statements.PlainConnection, one: Suspect, *, orders: Sequence[str]
) -> bool:
    """Set a record aside for a person. Return False if claimed."""
    found = connection.ask(
        "UPDATE suspects SET aside=1, taken_by=NULL, orders=? "
        "WHERE seq=? AND coalesce(taken_by, '')=? RETURNING seq",
        ("\n".join(orders), one.seq, one.taken_by or ""),
    )
    return bool(found)


def take_suspect_out(connection: statements.PlainConnection, one: Suspect) -> bool:
    """Delete a single record. Return False under another reader's claim."""
    found = connection.ask(
        "DELETE FROM suspects WHERE seq=? AND coalesce(taken_by, '')=? RETURNING seq",
        (one.seq, one.taken_by or ""),
    )
    return bool(found)


def orders_waiting(connection: statements.PlainConnection) -> set[str]:
    """Return the orders that an unread record can concern."""
    rows = connection.ask("SELECT orders FROM suspects WHERE orders <> ''")
    return {order for (orders,) in rows for order in orders.split("\n")}


def try_again(connection: statements.PlainConnection) -> int:
    """Make all records that were set aside readable again. Return their number."""
    return len(connection.ask("UPDATE suspects SET aside=0, tries=0 WHERE aside=1 RETURNING seq"))


def count_set_aside(connection: statements.PlainConnection) -> int:
    return int(connection.ask("SELECT count(*) FROM suspects WHERE aside=1")[0][0])


# --- reading rows and suspects --------------------------------------------------------------------


class Lender(Protocol):
    """Interface to snapshots of a database, or of its inbox file."""

    async def on_snapshot(
        self,
        function: statements.Plain[statements.Words, statements.Result],
        *args: statements.Words.args,
        **words: statements.Words.kwargs,
    ) -> statements.Result: ...


class FileLender(Lender, Protocol):
    """Interface to the inbox file of an SQLite database, for readers."""

    def is_there(self) -> bool: ...


class InboxRows:
    """Unread rows of the inbox for readers, in the database and in the inbox file."""

    def __init__(self, database: Lender, file: FileLender | None) -> None:
        self._database = database
        self._lender = file

    @property
    def _file(self) -> Lender | None:
        lender = self._lender
        return None if lender is None or not lender.is_there() else lender

    async def next_rows(
        self, *, limit: int, most_bytes: int, brought: bool = False
    ) -> list[Unread]:
        """Return the oldest unread rows, up to both limits."""
        file = None if brought else self._file
        rows, position = await self._database.on_snapshot(_next_in_database, limit, most_bytes)
        if rows or file is None:
            return rows
        return await file.on_snapshot(
            rows_after, position, limit=limit, most_bytes=most_bytes, in_file=True
        )

    async def progress(self) -> Progress:
        """Return how far the inbox file was read."""
        return await self._database.on_snapshot(_progress)

    async def kept_bytes(self) -> int:
        """Return the size of rows that were read but not deleted."""
        file = self._file
        if file is None:
            return 0
        return await file.on_snapshot(_kept_bytes, (await self.progress()).position)

    async def rows_of_file(self) -> tuple[list[tuple[int, int, int, Instant]], int, int]:
        """Return number, records, size and arrival of each row in the inbox file.

        Also return the last row with deleted traces, and the recorded last commit.
        """
        file = self._file
        assert file is not None
        return await file.on_snapshot(_rows_of_file)

    async def backlog(self, *, up_to: InboxEnd = EVERYTHING) -> Backlog:
        """Return how many records are unread, with size and arrivals, except those set aside."""
        return (await self.backlog_and_end(up_to=up_to))[0]

    async def backlog_and_end(self, *, up_to: InboxEnd = EVERYTHING) -> tuple[Backlog, InboxEnd]:
        """Return the unread records' number and the last rows' numbers."""
        file, asked_before = self._file, -1
        while True:
            # The position first, so that rows read meanwhile are still counted.
            found, position, table = await self._database.on_snapshot(_in_database, up_to.table)
            if file is None:
                return found, InboxEnd(table, 0)
            more, last, complete = await file.on_snapshot(_in_file, position, up_to.file)
            # Rows that left the file meanwhile may be unread suspects in the database.
            if complete or position == asked_before:
                return found + more, InboxEnd(table, last)
            asked_before = position


def _next_in_database(
    connection: statements.PlainConnection, limit: int, most_bytes: int
) -> tuple[list[Unread], int]:
    rows = rows_after(connection, 0, limit=limit, most_bytes=most_bytes, in_file=False)
    return rows, position_of(connection)


def _progress(connection: statements.PlainConnection) -> Progress:
    rows = connection.ask("SELECT name, value FROM counters WHERE name IN (?, ?, ?, ?)", _PROGRESS)
    found = {str(name): int(value) for name, value in rows}
    return Progress(*(found.get(name, 0) for name in _PROGRESS))


_PROGRESS: Final = (POSITION, TIDY, COVERED, LAST_COMMIT)


def _rows_of_file(
    connection: statements.PlainConnection,
) -> tuple[list[tuple[int, int, int, Instant]], int, int]:
    rows = connection.ask("SELECT seq, count, size, received_at FROM inbox ORDER BY seq")
    noted = counter(connection, LAST_COMMIT)
    found = [(seq, count, size, at) for seq, count, size, at in rows]
    return found, counter(connection, TIDIED), noted


def _kept_bytes(connection: statements.PlainConnection, position: int) -> int:
    ((size,),) = connection.ask("SELECT sum(size) FROM inbox WHERE seq <= ?", (position,))
    return int(size or 0)


def last_number(connection: statements.PlainConnection) -> int:
    """Return the highest row number that the inbox file has ever assigned."""
    rows = connection.ask("SELECT seq FROM sqlite_sequence WHERE name='inbox'")
    return int(rows[0][0]) if rows else 0


def counted_after(connection: statements.PlainConnection, after: int, *, up_to: int) -> Backlog:
    """Return the counts of the rows between two numbers."""
    ((records, size, oldest, newest),) = connection.ask(
        "SELECT sum(count), sum(size), min(received_at), max(received_at) FROM inbox "
        "WHERE seq > ? AND seq <= ?",
        (after, up_to),
    )
    return Backlog(records=int(records or 0), size=int(size or 0), oldest=oldest, newest=newest)


def _in_file(
    connection: statements.PlainConnection, after: int, up_to: int
) -> tuple[Backlog, int, bool]:
    last = last_number(connection)
    ((first,),) = connection.ask("SELECT min(seq) FROM inbox WHERE seq > ?", (after,))
    complete = (last if first is None else first - 1) <= after
    return counted_after(connection, after, up_to=up_to), last, complete


def _in_database(connection: statements.PlainConnection, up_to: int) -> tuple[Backlog, int, int]:
    rows = counted_after(connection, 0, up_to=up_to)
    ((records, size, oldest, newest),) = connection.ask(
        "SELECT count(*), sum(length(record)), min(received_at), max(received_at) "
        "FROM suspects WHERE aside=0"
    )
    ((last_in_table, copied),) = connection.ask(
        _LAST_ON_SQLITE if connection.dialect == "sqlite" else _LAST_ON_POSTGRESQL
    )
    suspects = Backlog(
        records=int(records),
        size=int(size or 0),
        oldest=oldest,
        newest=newest,
        copied_up_to=copied,
    )
    return rows + suspects, position_of(connection), int(last_in_table)


_LAST_ON_SQLITE: Final = "SELECT coalesce(max(seq), 0), NULL FROM inbox"
_LAST_ON_POSTGRESQL: Final = """
SELECT coalesce(max(seq), 0), CASE WHEN pg_is_in_recovery() THEN CAST(1000000 * extract(
    epoch FROM coalesce(pg_last_xact_replay_timestamp(), pg_postmaster_start_time())
) AS bigint) END FROM inbox
"""
