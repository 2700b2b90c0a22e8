"""The inbox: accepted deliveries that are not read yet.

    receiver ──keep──▶ a row a commit ──next rows──▶ reader ──take out and append──▶ in one
    transaction

A row is durable before its senders are answered, and it is taken out in the transaction that
appends what it says: nothing is read twice, and nothing is lost, whoever dies when.

On PostgreSQL it is a table of the database. Numbers commit out of order where several receive, and
several read: each claims rows first (`claim_store`), and its transaction deletes exactly those that
it has read and that are still its own. On SQLite it is a file of its
own (`inbox_file`), so that no import, fold or backup holds a sender up. Its one writer is the
receiver, in whose commits numbers rise; the reader's transaction keeps its position in the
database. A row is read if it lies at or below the position, and is deleted once the database's file
holds that position without its write-ahead log: a log that vanishes takes no delivery along. The
database has the table, too: a backup carries in it what its copy had not read.

A row under which readers died, or that the database refused, becomes suspects: each of its records
alone in a row of the database. It is claimed before it is read; one whose claim has run out, or
that has failed, three times is set aside.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol

from app.context.unread import EVERYTHING, Backlog, InboxEnd
from app.database.gaps import LAST_COMMIT, FoundGap
from app.database.holders import HELD
from app.database.statements import (
    Plain,
    PlainConnection,
    Result,
    Words,
    insert_rows,
    select_rows,
    statement,
)
from app.receiving.framing import DamagedRow, Item, framed, items_in
from reconcile.instants import EARLIEST, Instant

MOST_TRIES: Final = 3
"""Times that a delivery may fail alone; then it is set aside."""

POSITION: Final = "inbox position"
"""The counter that says up to which number the rows of the file have been read."""

COVERED: Final = "inbox covered"
"""The counter that says up to which number the database's file, without its log, has the rows."""

RECORDS_READ: Final = "inbox records"
"""The counter that says how many records of the file have been read."""

DELETED: Final = "deleted"
"""The counter, in the file, that says up to which number its rows have been deleted."""

RECORDS_DELETED: Final = "records deleted"
"""The counter, in the file, that says how many records its deleted rows held."""

TIDY: Final = "inbox tidy"
"""The counter that says up to which number an erasure wants nothing left of the file's rows."""

TIDIED: Final = "tidied"
"""The counter, in the file, that says up to which number nothing is left."""

BEAT: Final = "reader beat"
"""The counter that says when a reader was last seen, for receivers that run without one."""

CLOSED: Final = "inbox closed"
"""The counter of the database that holds the last number of the file as of an orderly end, plus
one; absent or 0 while the file is written."""

OPENED: Final = "inbox opened"
"""The counter of the database that says when the file was opened with nothing unread."""

IDENTITY: Final = "inbox"
"""The fact that says which file the position is of: an id of its own that the file carries, too."""

_NEW_SUSPECT: Final = ("received_at", "tries", "aside", "orders", "record")


class Unread(NamedTuple):
    """One row with its number of records. items: None where its bytes are damaged; in_file: it is
    of the file, not of the table; taken_by: the claim under which it is read, or None; tries: its
    earlier claims that expired."""

    seq: int
    holds: int
    received_at: Instant
    records: bytes
    items: Sequence[Item] | None
    in_file: bool
    taken_by: str | None = None
    tries: int = 0


class Suspect(NamedTuple):
    """One record that is read alone. tries: how often reading it began without a good end; orders:
    orders that are, or would be, held for it, as far as known; taken_by: the claim under which it
    is read."""

    seq: int
    tries: int
    record: bytes
    item: Item | None
    orders: Sequence[str]
    taken_by: str | None


def ask_to_tidy(connection: PlainConnection, up_to: int) -> None:
    """Have the receiver delete the file's rows up to a number, once they are read."""
    put_counter(connection, TIDY, max(up_to, counter(connection, TIDY)))


def tidied(connection: PlainConnection) -> int:
    """Return the number up to which the file's rows are deleted."""
    return counter(connection, TIDIED)


class Progress(NamedTuple):
    """Numbers of the file's rows, from the database: the last one read, the last that an erasure
    wants deleted, the last that may be deleted; and LAST_COMMIT."""

    position: int
    tidy_up_to: int
    covered: int
    last_commit: int


# --- rows ----------------------------------------------------------------------------------------


def keep_row(connection: PlainConnection, items: Sequence[Item]) -> tuple[int, int]:
    """Add one row that holds these. Returns its number and its bytes."""
    row = inbox_row(items)
    ((seq,),) = connection.ask(KEEP, row)
    return seq, len(row[-1])


def inbox_row(items: Sequence[Item]) -> tuple[int, Instant, int, bytes]:
    """Return the values of KEEP for a row with these items."""
    records = framed(items)
    return len(items), min(item.received_at for item in items), len(records), records


KEEP: Final = (
    "INSERT INTO inbox (count, received_at, size, records) VALUES (?, ?, ?, ?) RETURNING seq"
)
"""Adds a row; gives its number."""

KEEP_HELD: Final = statement(
    "WITH held AS ({held}) INSERT INTO inbox (count, received_at, size, records) "
    "SELECT ?::bigint, ?::bigint, ?::bigint, ?::bytea FROM held RETURNING (SELECT ctid FROM held)",
    held=HELD,
)
"""Adds a row as a transaction of its own on PostgreSQL, in one round trip."""


def rows_after(
    connection: PlainConnection, after: int, *, limit: int, most_bytes: int, in_file: bool
) -> list[Unread]:
    """Return the next rows with a number above `after`: at least one if there is any, then as many
    as fit into `limit` records and `most_bytes`."""
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
    """Return the items of a row; None where its bytes are damaged."""
    try:
        return list(items_in(records))
    except DamagedRow:
        return None


def delete_up_to(connection: PlainConnection, last: int) -> None:
    """Delete read rows of the file, and note their numbers."""
    rows = connection.ask("DELETE FROM inbox WHERE seq <= ? RETURNING seq, count", (last,))
    if rows:
        put_counter(connection, DELETED, max(seq for seq, _ in rows))
        add_to_counter(connection, RECORDS_DELETED, sum(count for _, count in rows))


def cover(connection: PlainConnection) -> None:
    """Note that the database's file has all that was read: its log has just been folded."""
    position = position_of(connection)
    if position > counter(connection, COVERED):
        put_counter(connection, COVERED, position)


def take_out(connection: PlainConnection, rows: Sequence[Unread]) -> list[Unread]:
    """Delete rows that are read in this transaction, all of one claim or of none. Return the rows
    that were still there and still in the claim: another reader may have claimed some meanwhile. A
    reader of a row that is being deleted waits for the commit."""
    in_file = [row for row in rows if row.in_file]
    table = [row for row in rows if not row.in_file]
    claim = table[0].taken_by or "" if table else ""
    gone = {
        row[0]
        for row in select_rows(
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


def position_of(connection: PlainConnection) -> int:
    """Return the number up to which the file's rows have been read."""
    return counter(connection, POSITION)


def counter(connection: PlainConnection, name: str) -> int:
    """Return one counter; 0 before it was written."""
    rows = connection.ask("SELECT value FROM counters WHERE name=?", (name,))
    return int(rows[0][0]) if rows else 0


def put_counter(connection: PlainConnection, name: str, value: int) -> None:
    """Write one counter."""
    connection.ask(_PUT_COUNTER, (name, value))


_PUT_COUNTER: Final = (
    "INSERT INTO counters (name, value) VALUES (?, ?) "
    "ON CONFLICT (name) DO UPDATE SET value=excluded.value"
)


def add_to_counter(connection: PlainConnection, name: str, more: int) -> None:
    """Add to one counter."""
    connection.ask(_ADD_TO_COUNTER, (name, more))


_ADD_TO_COUNTER: Final = (
    "INSERT INTO counters (name, value) VALUES (?, ?) "
    "ON CONFLICT (name) DO UPDATE SET value=counters.value+excluded.value"
)


def fact(connection: PlainConnection, name: str) -> str | None:
    """Return one fact about the database itself; None where it is not known."""
    rows = connection.ask("SELECT value FROM meta WHERE name=?", (name,))
    return str(rows[0][0]) if rows else None


def put_fact(connection: PlainConnection, name: str, value: str) -> None:
    """Write one fact about the database itself."""
    connection.ask(
        "INSERT INTO meta (name, value) VALUES (?, ?) "
        "ON CONFLICT (name) DO UPDATE SET value=excluded.value",
        (name, value),
    )


class FileFacts(NamedTuple):
    """Facts that the file keeps: its id, the noted LAST_COMMIT, the number of the last deleted row,
    and how many records the deleted rows held."""

    identity: str
    last_commit: int
    deleted: int
    records_deleted: int


def adopt(connection: PlainConnection, file: FileFacts | None) -> None:
    """Let the position count for this file from now on, with nothing read of it; None: for the file
    that will be made."""
    if file is None:
        connection.ask("DELETE FROM meta WHERE name=?", (IDENTITY,))
        return
    put_fact(connection, IDENTITY, file.identity)
    for name in (POSITION, COVERED, RECORDS_READ, CLOSED, OPENED):
        put_counter(connection, name, 0)
    go_on_from(connection, file)


def go_on_from(connection: PlainConnection, file: FileFacts) -> None:
    """Count the rows that have left the file as read, and its noted commits as made."""
    for name, value in (
        (POSITION, file.deleted),
        (RECORDS_READ, file.records_deleted),
        (LAST_COMMIT, file.last_commit),
    ):
        put_counter(connection, name, max(value, counter(connection, name)))


def found_gap(
    connection: PlainConnection, file: FileFacts | None, *, now: Instant
) -> FoundGap | None:
    """Return the commits that the database lacks, by the file that it reads; None if it lacks none.
    A database that knows of no file may have lost the commit that said so."""
    if file is None or fact(connection, IDENTITY) not in (None, file.identity):
        return None
    since, lost = Instant(counter(connection, LAST_COMMIT)), 0
    if position_of(connection) < file.deleted:  # a backup brings what its copy had not read
        has = (
            counter(connection, RECORDS_READ)
            + counted_after(connection, 0, up_to=EVERYTHING.table).records
        )
        lost = max(0, file.records_deleted - has)
    elif since >= file.last_commit:
        return None
    if lost:  # what is lost came after what was read last
        for (arrived,) in connection.ask(LAST_ARRIVAL):
            since = min(since, arrived)
    found = FoundGap(
        kind="database",
        since=since,
        until=Instant(max(since, file.last_commit)),
        deliveries=lost,
        detail="the database's newest commits are gone",
    )
    return until_now(connection, found, now=now)


def until_now(connection: PlainConnection, found: FoundGap, *, now: Instant) -> FoundGap:
    """Return the gap with no part of it in the future. Where a clock was ahead, it began after the
    newest arrival that is not."""
    since = found.since
    if since > now:
        ((arrived,),) = connection.ask(_ARRIVED_BY, (now,))
        since = EARLIEST if arrived is None else arrived
    return replace(found, since=since, until=max(since, min(found.until, now)))


_ARRIVED_BY: Final = "SELECT max(received_at) FROM deliveries WHERE received_at <= ?"


def gap_since_backup(
    connection: PlainConnection, file: FileFacts | None, *, last: int | None, now: Instant
) -> FoundGap | None:
    """Return the commits that a copy lacks which takes the database's place; None if it lacks none.

    file  the inbox that lies there
    last  LAST_COMMIT of the database that is replaced; None where there is none that can be read
    """
    has = Instant(counter(connection, LAST_COMMIT))
    if file is not None and fact(connection, IDENTITY) == file.identity:
        noted = max(file.last_commit, last or 0)
        if (found := found_gap(connection, file._replace(last_commit=noted), now=now)) is None:
            return None
        return replace(found, detail=_SINCE_BACKUP)
    if last is not None and last <= has:
        return None
    until = now if last is None else Instant(last)
    found = FoundGap(kind="database", since=has, until=until, deliveries=None, detail=_SINCE_BACKUP)
    return until_now(connection, found, now=now)


_SINCE_BACKUP: Final = "what came after the backup is not in it"


def gap_of_inbox(
    connection: PlainConnection, file: FileFacts | None, *, now: Instant
) -> FoundGap | None:
    """Return the loss where the database has read another file than this one, or there is none;
    None if it is this one, or none was read yet."""
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
        detail="the inbox file is gone, or another one, and with it what was not read yet",
    )
    return until_now(connection, found, now=now)


LAST_ARRIVAL: Final = "SELECT received_at FROM deliveries ORDER BY id DESC LIMIT 1"


# --- suspects ------------------------------------------------------------------------------------


def suspect(connection: PlainConnection, rows: Sequence[Unread]) -> None:
    """Put each record of these rows into its own row, to be read alone. Damaged rows can't be."""
    alone: list[tuple[Any, ...]] = []
    for row in take_out(connection, rows):
        if row.items is None:
            alone.append((row.received_at, MOST_TRIES, 0, "", row.records))
            continue
        alone += [(item.received_at, 0, 0, "", framed([item])) for item in row.items]
    insert_rows(connection, table="suspects", columns=_NEW_SUSPECT, rows=alone)


def next_suspects(connection: PlainConnection, *, aside: bool, limit: int) -> list[Suspect]:
    """Return suspects to read, the oldest first; or suspects that are set aside."""
    rows = connection.ask(_SUSPECTS, (int(aside), limit))
    return [suspect_of(row) for row in rows]


SUSPECT_COLUMNS: Final = "seq, tries, orders, record, taken_by"
"""Columns from which a suspect is made."""

_SUSPECTS: Final = statement(
    "SELECT {columns} FROM suspects WHERE aside=? ORDER BY seq LIMIT ?", columns=SUSPECT_COLUMNS
)


def suspect_of(row: Sequence[Any]) -> Suspect:
    """Return the suspect in a row of SUSPECT_COLUMNS."""
    seq, tries, orders, record, taken_by = row
    items = items_of(bytes(record))
    named = orders.split("\n") if orders else []
    return Suspect(seq, tries, bytes(record), items[0] if items else None, named, taken_by)


def note_orders(connection: PlainConnection, one: Suspect, *, orders: Sequence[str]) -> None:
    """Note the orders that a suspect mentions, which are held if it is set aside. Another reader's
    suspect stays as it is."""
    connection.ask(
        "UPDATE suspects SET orders=? WHERE seq=? AND aside=0 AND coalesce(taken_by, '')=?",
        ("\n".join(orders), one.seq, one.taken_by or ""),
    )


def set_aside(connection: PlainConnection, one: Suspect, *, orders: Sequence[str]) -> bool:
    """Read it no more until a person says so. Return False where another reader has it.

    orders  those that are held meanwhile
    """
    found = connection.ask(
        "UPDATE suspects SET aside=1, taken_by=NULL, orders=? "
        "WHERE seq=? AND coalesce(taken_by, '')=? RETURNING seq",
        ("\n".join(orders), one.seq, one.taken_by or ""),
    )
    return bool(found)


def take_suspect_out(connection: PlainConnection, one: Suspect) -> bool:
    """Delete a suspect read in this transaction. Return False where another reader has it."""
    found = connection.ask(
        "DELETE FROM suspects WHERE seq=? AND coalesce(taken_by, '')=? RETURNING seq",
        (one.seq, one.taken_by or ""),
    )
    return bool(found)


def orders_waiting(connection: PlainConnection) -> set[str]:
    """Return orders that are held because of unread suspects, or may be soon."""
    rows = connection.ask("SELECT orders FROM suspects WHERE orders <> ''")
    return {order for (orders,) in rows for order in orders.split("\n")}


def try_again(connection: PlainConnection) -> int:
    """Have all suspects that are set aside read again. Returns their number."""
    return len(connection.ask("UPDATE suspects SET aside=0, tries=0 WHERE aside=1 RETURNING seq"))


def count_set_aside(connection: PlainConnection) -> int:
    """Count the suspects that are set aside."""
    return int(connection.ask("SELECT count(*) FROM suspects WHERE aside=1")[0][0])


# --- all of it -----------------------------------------------------------------------------------


class Lender(Protocol):
    """Interface to snapshots of a database, or of the file beside it."""

    async def on_snapshot(
        self, function: Plain[Words, Result], *args: Words.args, **words: Words.kwargs
    ) -> Result:
        """Run a plain function on one snapshot."""
        ...


class FileLender(Lender, Protocol):
    """The file of an SQLite database, for who reads it."""

    def is_there(self) -> bool:
        """Return whether there is such a file."""
        ...


class InboxRows:
    """The content of the inbox, wherever its rows are, for readers of the database."""

    def __init__(self, database: Lender, file: FileLender | None) -> None:
        """file: None on PostgreSQL."""
        self._database = database
        self._lender = file

    @property
    def _file(self) -> Lender | None:
        """The file; None where there is none: a database that was never served has none."""
        lender = self._lender
        return None if lender is None or not lender.is_there() else lender

    async def next_rows(
        self, *, limit: int, most_bytes: int, brought: bool = False
    ) -> list[Unread]:
        """Return unread rows, the oldest first; see `rows_after`. Rows from a backup come first;
        with `brought` only those."""
        file = None if brought else self._file
        rows, position = await self._database.on_snapshot(_next_in_database, limit, most_bytes)
        if rows or file is None:
            return rows
        return await file.on_snapshot(
            rows_after, position, limit=limit, most_bytes=most_bytes, in_file=True
        )

    async def progress(self) -> Progress:
        """Return how far the file has been read."""
        return await self._database.on_snapshot(_progress)

    async def kept_bytes(self) -> int:
        """Return the bytes of the file's rows that were read and are not deleted yet."""
        file = self._file
        if file is None:
            return 0
        return await file.on_snapshot(_kept_bytes, (await self.progress()).position)

    async def rows_of_file(self) -> tuple[list[tuple[int, int, int, Instant]], int, int]:
        """Return number, records, bytes and arrival of every row of the file, in order; the number
        up to which rows were read and deleted; and LAST_COMMIT as noted."""
        file = self._file
        assert file is not None
        return await file.on_snapshot(_rows_of_file)

    async def backlog(self, *, up_to: InboxEnd = EVERYTHING) -> Backlog:
        """Count the unread rows up to these numbers, and all suspects."""
        return (await self.backlog_and_end(up_to=up_to))[0]

    async def backlog_and_end(self, *, up_to: InboxEnd = EVERYTHING) -> tuple[Backlog, InboxEnd]:
        """Count like `backlog`; return each kind's present last number, whatever `up_to` is."""
        file, asked_before = self._file, -1
        while True:
            # The position first: what is read meanwhile is then counted, and not passed over.
            found, position, table = await self._database.on_snapshot(_in_database, up_to.table)
            if file is None:
                return found, InboxEnd(table, 0)
            more, last, complete = await file.on_snapshot(_in_file, position, up_to.file)
            # What has left the file meanwhile may be suspect, and so unread, in the database.
            if complete or position == asked_before:
                return found + more, InboxEnd(table, last)
            asked_before = position


def _next_in_database(
    connection: PlainConnection, limit: int, most_bytes: int
) -> tuple[list[Unread], int]:
    """Return the next rows of the table, and the position in the file."""
    rows = rows_after(connection, 0, limit=limit, most_bytes=most_bytes, in_file=False)
    return rows, position_of(connection)


def _progress(connection: PlainConnection) -> Progress:
    rows = connection.ask("SELECT name, value FROM counters WHERE name IN (?, ?, ?, ?)", _PROGRESS)
    found = {str(name): int(value) for name, value in rows}
    return Progress(*(found.get(name, 0) for name in _PROGRESS))


_PROGRESS: Final = (POSITION, TIDY, COVERED, LAST_COMMIT)


def _rows_of_file(
    connection: PlainConnection,
) -> tuple[list[tuple[int, int, int, Instant]], int, int]:
    rows = connection.ask("SELECT seq, count, size, received_at FROM inbox ORDER BY seq")
    noted = counter(connection, LAST_COMMIT)
    found = [(seq, count, size, at) for seq, count, size, at in rows]
    return found, counter(connection, TIDIED), noted


def _kept_bytes(connection: PlainConnection, position: int) -> int:
    ((size,),) = connection.ask("SELECT sum(size) FROM inbox WHERE seq <= ?", (position,))
    return int(size or 0)


def last_number(connection: PlainConnection) -> int:
    """Return the highest number ever given to a row of the file."""
    rows = connection.ask("SELECT seq FROM sqlite_sequence WHERE name='inbox'")
    return int(rows[0][0]) if rows else 0


def counted_after(connection: PlainConnection, after: int, *, up_to: int) -> Backlog:
    """Count the rows above one number, up to another."""
    ((records, size, oldest, newest),) = connection.ask(
        "SELECT sum(count), sum(size), min(received_at), max(received_at) FROM inbox "
        "WHERE seq > ? AND seq <= ?",
        (after, up_to),
    )
    return Backlog(records=int(records or 0), size=int(size or 0), oldest=oldest, newest=newest)


def _in_file(connection: PlainConnection, after: int, up_to: int) -> tuple[Backlog, int, bool]:
    """Count the unread rows of the file; return its last number, and whether every row above
    `after` is still there: numbers are consecutive."""
    last = last_number(connection)
    ((first,),) = connection.ask("SELECT min(seq) FROM inbox WHERE seq > ?", (after,))
    complete = (last if first is None else first - 1) <= after
    return counted_after(connection, after, up_to=up_to), last, complete


def _in_database(connection: PlainConnection, up_to: int) -> tuple[Backlog, int, int]:
    """Count the table's unread rows; return the file's position, and the table's last number."""
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
"""The table's last number, and up to when a standby has replayed its primary's commits."""
