"""Loss of an SQLite database's inbox file.

1 notice  that the file is gone, damaged, replaced or truncated
2 save    readable unread rows, in the database's inbox table
3 report  the number and arrivals of possibly lost deliveries
4 resume  at once without a loss, or else after a person's acceptance
"""

import json
import sqlite3
import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

from app.core.errors import ConfigurationError
from app.database.faults import as_store_error
from app.database.gaps import ACCEPT, FoundGap
from app.database.statements import PlainConnection
from app.receiving import inbox_store
from app.receiving.framing import DamagedRow, Item, Received, items_in
from reconcile.instants import EARLIEST, Duration, Instant

LOST: Final = "inbox lost"
"""Name of the fact that a service has noticed the loss of its inbox."""

AT_ONCE: Final = 8
"""Number of inbox rows that are saved in one transaction."""

UNWRITTEN: Final = bytes(32)


class Kept(NamedTuple):
    """Deliveries of an inbox row: their number, and the times of the first and the last arrival."""

    deliveries: int
    since: Instant
    until: Instant


def kept_of(items: Sequence[Item]) -> Kept:
    """Return an inbox row's number of deliveries and arrivals."""
    arrivals = [item.received_at for item in items]
    count = sum(isinstance(item, Received) for item in items)
    return Kept(count, min(arrivals), max(arrivals))


def refusal(lost: FoundGap) -> ConfigurationError:
    """Return the error that refuses a start after a loss."""
    return ConfigurationError(
        [
            f"TALLYHOOK_DATABASE_URL: {lost.sentence()}; put the file back unchanged, or continue "
            f"without it: `tallyhook db adopt-inbox {ACCEPT}`"
        ]
    )


# --- beside both ---------------------------------------------------------------------------------

NOTE_BYTES: Final = 256
"""Length of every note in bytes."""

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


@cache
def _this_boot() -> str:
    try:
        return _BOOT.read_text().strip()
    except OSError:  # another operating system, where no note is complete
        return ""


def note_of(identity: str, last: int) -> bytes:
    """Return the note about the inbox file's last row."""
    note = json.dumps({"inbox": identity, "last": last, "boot": _this_boot()})
    return note.ljust(NOTE_BYTES - 1).encode() + b"\n"


class Noted(NamedTuple):
    """Last row number in a note."""

    last: int
    complete: bool


def noted_in(content: bytes, identity: str) -> Noted | None:
    """Return a note's facts about this inbox file."""
    try:
        note = json.loads(content)
        if note["inbox"] != identity:
            return None
        return Noted(int(note["last"]), bool(note["boot"]) and note["boot"] == _this_boot())
    except (ValueError, KeyError, TypeError):
        return None


# --- in the database -----------------------------------------------------------------------------


class Left(NamedTuple):
    """State of the inbox, as last stored in the database."""

    known: str | None
    """Id of the file that the database has read from, if any."""
    position: int
    """Number of the last row that the database has read."""
    closed: int | None
    """Number of the last row at a proper close, or None."""
    lost: FoundGap | None
    since: Instant | None
    """Time up to which every delivery was read, if known."""


def left(connection: PlainConnection) -> Left:
    """Return the state of the inbox that the database stores."""
    noted, newest = inbox_store.fact(connection, LOST), connection.ask(inbox_store.LAST_ARRIVAL)
    since = max(inbox_store.counter(connection, inbox_store.OPENED), newest[0][0] if newest else 0)
    return Left(
        inbox_store.fact(connection, inbox_store.IDENTITY),
        inbox_store.position_of(connection),
        inbox_store.counter(connection, inbox_store.CLOSED) - 1
        if inbox_store.counter(connection, inbox_store.CLOSED)
        else None,
        None if noted is None else FoundGap(**json.loads(noted)),
        Instant(since) if since else None,
    )


def note_closed(connection: PlainConnection, last: int) -> None:
    """Record a proper close of the inbox file."""
    inbox_store.put_counter(connection, inbox_store.CLOSED, last + 1)


def note_open(connection: PlainConnection, *, last: int, now: Instant) -> None:
    """Record that the inbox file is open for writing."""
    connection.ask("DELETE FROM counters WHERE name=?", (inbox_store.CLOSED,))
    if inbox_store.position_of(connection) >= last:
        inbox_store.put_counter(connection, inbox_store.OPENED, now)


def note_lost(connection: PlainConnection, lost: FoundGap, *, now: Instant) -> FoundGap:
    """Record a loss of the inbox for the next start."""
    found = inbox_store.until_now(connection, lost, now=now)
    inbox_store.put_fact(connection, LOST, json.dumps(asdict(found)))
    return found


def save(connection: PlainConnection, rows: Sequence[Sequence[Any]], up_to: int) -> None:
    """Copy rows to the database and count them as read."""
    for _, *row in rows:
        connection.ask(inbox_store.KEEP, row)
    inbox_store.put_counter(
        connection, inbox_store.POSITION, max(up_to, inbox_store.position_of(connection))
    )


def go_on_without(connection: PlainConnection) -> None:
    """Delete the recorded loss, so that the next start creates a new inbox file."""
    connection.ask("DELETE FROM meta WHERE name=?", (LOST,))
    connection.ask("DELETE FROM counters WHERE name=?", (inbox_store.CLOSED,))
    inbox_store.adopt(connection, None)


# --- in the file ---------------------------------------------------------------------------------


def numbers_in(connection: PlainConnection, after: int) -> set[int]:
    """Return the readable row numbers in a damaged file."""
    found = set[int]()
    for sql in (_FORWARD, _BACKWARD):
        least, most = after, LAST_NUMBER
        try:
            while rows := connection.ask(sql, (least, most)):
                ((number,),) = rows
                found.add(number)
                least, most = (number, most) if sql is _FORWARD else (least, number)
        except sqlite3.DatabaseError:
            continue
        break  # the whole file could be read
    return found


LAST_NUMBER: Final = 2**63 - 1

_FORWARD: Final = "SELECT seq FROM inbox WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT 1"
_BACKWARD: Final = "SELECT seq FROM inbox WHERE seq > ? AND seq < ? ORDER BY seq DESC LIMIT 1"


def readable(connection: PlainConnection, numbers: Iterable[int]) -> list[tuple[Any, ...]]:
    """Return the intact rows with these numbers."""
    found = []
    for number in numbers:
        try:
            rows = connection.ask(_WHOLE, (number,))
            if rows and UNWRITTEN not in rows[0][-1]:
                list(items_in(bytes(rows[0][-1])))
                found.append(rows[0])
        except (sqlite3.DatabaseError, DamagedRow):
            continue
    return found


_WHOLE: Final = "SELECT seq, count, received_at, size, records FROM inbox WHERE seq=?"


def wrong_with(path: Path, *, look: Callable[[], bool]) -> str | None:
    """Return a file's fault, or None."""
    if not path.exists():
        return "is gone"
    if not path.stat().st_size:  # opening it would delete its log
        return "was emptied"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as inbox:
            if not inbox.execute("SELECT 1 FROM sqlite_master WHERE name='inbox'").fetchall():
                return "was emptied"
            if not inbox.execute("SELECT value FROM meta").fetchall():  # see `mend_emptied`
                return "was removed or emptied"
            found = inbox.execute("PRAGMA quick_check(1)").fetchall() if look() else [("ok",)]
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in (
            sqlite3.SQLITE_CORRUPT,
            sqlite3.SQLITE_NOTADB,
        ):
            return DAMAGED
        raise as_store_error(error) or error from error
    return None if found == [("ok",)] else DAMAGED


DAMAGED: Final = "was cut off or overwritten"
WITHOUT_LOG: Final = (
    "is older than before: its log was removed or cut off, or an old copy was put in its place"
)


def loss_among(
    lost: Collection[int], kept: Mapping[int, Kept], *, detail: str, now: Instant
) -> FoundGap:
    """Return the gap that the loss of these rows leaves."""
    known = [kept[number] for number in lost if number in kept]
    exact = len(known) == len(lost)
    return FoundGap(
        kind="inbox",
        since=min((each.since for each in known), default=now) if exact else EARLIEST,
        until=max((each.until for each in known), default=now) if exact else now,
        deliveries=sum(each.deliveries for each in known) if exact else None,
        detail=detail,
    )


def loss_after(
    state: Left, *, detail: str, found: Collection[int], on_its_way: Duration, now: Instant
) -> FoundGap:
    """Return the loss that a service finds at its start."""
    if state.closed is not None and all(
        number in found for number in range(state.position + 1, state.closed + 1)
    ):
        return FoundGap(kind="inbox", since=now, until=now, deliveries=0, detail=detail)
    since = EARLIEST if state.since is None else Instant(state.since - on_its_way)
    until = max(since, now)
    return FoundGap(kind="inbox", since=since, until=until, deliveries=None, detail=detail)


_MAGIC: Final = b"SQLite format 3\0"
_SIZES: Final = struct.Struct(">H10xI")


def mend_length(path: Path) -> None:
    """Extend a truncated file to its former length. No process may have the file open."""
    with path.open("rb+") as file:
        head = file.read(len(_MAGIC) + _SIZES.size)
        if head.startswith(_MAGIC) and len(head) == len(_MAGIC) + _SIZES.size:
            page, pages = _SIZES.unpack(head[len(_MAGIC) :])
            file.truncate(max(path.stat().st_size, page * pages))


LOST_AS: Final = ".lost-"


def move_aside(path: Path) -> Path | None:
    """Rename the rest of a file and its log."""
    suffixes = ("-shm", "-wal", "")
    left = [suffix for suffix in suffixes if Path(f"{path}{suffix}").exists()]
    for number in count(1):
        kept = Path(f"{path}{LOST_AS}{number}")
        if not any(Path(f"{kept}{suffix}").exists() for suffix in suffixes):
            break
    for suffix in left:
        Path(f"{path}{suffix}").rename(f"{kept}{suffix}")
    return kept if left else None
