"""Holders: the processes that write to a PostgreSQL database, one row for each connection.

A transaction begins by locking its holder's row, which must still have the epoch of its
registration. Another process takes over by increasing the epoch. So two processes that exclude each
other never both write, even with a wrong clock.
"""

import socket
from collections.abc import Sequence
from itertools import count
from typing import Any, Final, NamedTuple

from app.core.clock import Clock, SystemClock
from app.core.errors import StorePoisoned, StoreUnavailable, UsageError
from app.core.ids import new_id
from app.core.process import has_ended, process_id, process_name
from app.database.faults import POOLED
from app.database.locks import SERVING, take_lock
from app.database.statements import PlainConnection
from reconcile.instants import DAY, EARLIEST, SECOND, Duration, Instant, format_instant

SESSION: Final = "tallyhook.session"
"""Name of the PostgreSQL setting that marks our connections, and that a pooler's lack."""

HOLD: Final[Duration] = 60 * SECOND
"""Time after a holder's last sign of life until another process may take over."""

BEAT_S: Final = 15.0
"""Seconds after which a holder that writes nothing renews its row: a quarter of the time until a
takeover."""

KEPT: Final[Duration] = 7 * DAY
"""Time for which a former holder's row is kept, so that the former holder notices that another
process took over."""

_numbers = count()


class Holder:
    """Registration of a writing connection among all writers of a PostgreSQL database. The
    registration stays valid when the process reconnects."""

    def __init__(self, kind: str, *, clock: Clock | None = None) -> None:
        """Prepare a registration that is not in the database yet.

        kind  name of the process's work; `alone` excludes all other processes
        """
        self.kind = kind
        self.id = f"{process_name()}/{next(_numbers)}"
        self.session = new_id("ses_", EARLIEST)
        """Mark of the holder's connections. SESSION explains it."""
        self.newest: tuple[str, ...] = ()
        """Marks of transactions, exactly one of which is in the holder's row: the mark of the last
        transaction that was certainly committed, and marks of later transactions whose commit was
        not confirmed. Empty before the first transaction."""
        self.epoch = 0
        self.row: tuple[int, int] | None = None
        """Location (`ctid`) of the holder's row after the last transaction, for HELD."""
        self.clock = clock or SystemClock()
        self._begun = ""

    def begin(self) -> tuple[Any, ...]:
        """Start a new transaction, and return the parameters of the statement that locks the
        holder's row."""
        now = self.clock.now()
        self._begun = new_id("tx_", now)
        return self._begun, now + HOLD, self.row, self.id, self.epoch, self.session

    def committing(self) -> None:
        """Remember the running transaction's id, which later shows whether its commit happened."""
        # Until the first commit, the row still has the empty mark with which it was entered.
        self.newest = (*(self.newest or ("",)), self._begun)

    def committed(self) -> None:
        self.newest = (self._begun,)


HELD: Final = (
    "UPDATE holders SET newest = ?, until = ? WHERE ctid = ? AND holder = ? AND epoch = ? "
    "AND current_setting('tallyhook.session', true) = ? RETURNING ctid"
)
"""SQL statement that locks a holder's row until the transaction ends.

If no row is returned, the transaction must not write. The row is found by its location (`ctid`),
because a search by key would be slow.
"""

_FIND: Final = "SELECT ctid FROM holders WHERE holder = ? AND epoch = ?"


def hold(connection: PlainConnection, holder: Holder) -> None:
    """Begin a holder's transaction by locking the holder's row.

    Raises StoreUnavailable behind a pooler, and StorePoisoned after a takeover.
    """
    held = connection.ask(HELD, holder.begin())
    if not held:
        find(connection, holder)
        held = connection.ask(HELD, holder.begin())
    if not held:
        raise StorePoisoned(TAKEN_OVER)
    ((holder.row,),) = held


def find(connection: PlainConnection, holder: Holder) -> None:
    """Find a holder's row again after a rollback or a commit with an unknown outcome.

    Raises StoreUnavailable if a pooler has replaced the connection, and StorePoisoned if another
    process took over.
    """
    ((session,),) = connection.ask("SELECT current_setting(?, true)", (SESSION,))
    if session != holder.session:
        raise StoreUnavailable(POOLED)
    found = connection.ask(_FIND, (holder.id, holder.epoch))
    if not found:
        raise StorePoisoned(TAKEN_OVER)
    ((holder.row,),) = found


TAKEN_OVER: Final = (
    "this process was silent for a minute, so another one took its place; this one writes nothing "
    "more: start it again"
)


class Found(NamedTuple):
    """Row of the table of holders: one registered writer."""

    holder: str
    kind: str
    host: str
    epoch: int
    until: Instant
    newest: str


_ALL: Final = "SELECT holder, kind, host, epoch, until, newest FROM holders"
_DELETE: Final = "DELETE FROM holders WHERE holder = ANY(?)"
_ENTER: Final = (
    "INSERT INTO holders (holder, kind, host, epoch, until, newest) VALUES (?, ?, ?, ?, ?, '')"
)
_TAKE_OVER: Final = (
    "UPDATE holders SET epoch = epoch + 1, kind = 'ended', until = ? WHERE holder = ? "
    "AND newest = ? RETURNING holder"
)
"""SQL statement that takes over from a holder without commits since its row was read."""


def enter(
    connection: PlainConnection, holder: Holder, *, silent: Sequence[Found] = ()
) -> list[Found]:
    """Register a writer of the database, or renew its registration.

    If holders in conflict seem to have stopped, they are returned and nothing is registered. Wait
    for more than BEAT_S seconds, then call again with these holders as `silent`.

    Raises StorePoisoned if another process took over from this holder, StoreUnavailable if another
    excludes all others, and UsageError if this holder must exclude holders that still run.
    """
    take_lock(connection, SERVING)
    now = holder.clock.now()
    rows = [Found(*row) for row in connection.ask(_ALL)]
    own = next((each for each in rows if each.holder == holder.id), None)
    is_lost = bool(holder.newest) if own is None else own.epoch != holder.epoch
    if is_lost:
        raise StorePoisoned(TAKEN_OVER)
    gone = [
        each.holder
        for each in rows
        if (each.kind == "ended" and each.until < now - KEPT) or has_ended(_process(each.holder))
    ]
    if gone:
        connection.ask(_DELETE, (gone,))
    in_way = [
        each
        for each in rows
        if "alone" in (each.kind, holder.kind)
        and each.kind != "ended"
        and each.holder not in (holder.id, *gone)
    ]
    watched = {each.holder for each in silent}
    for each in in_way:
        heard_of = each.holder in watched and each not in silent
        if heard_of or now < each.until <= now + HOLD:
            raise _refusal(each, now=now, alone=holder.kind == "alone")
    if unheard := [each for each in in_way if each not in silent]:
        return unheard
    for each in in_way:
        if not connection.ask(_TAKE_OVER, (now, each.holder, each.newest)):
            raise _refusal(each, now=now, alone=holder.kind == "alone")
    if own is None:
        holder.epoch += 1
        host = socket.gethostname()
        connection.ask(_ENTER, (holder.id, holder.kind, host, holder.epoch, now + HOLD))
    return []


def _process(holder: str) -> str:
    return holder.rpartition("/")[0]


def processes_here(connection: PlainConnection) -> list[int]:
    """Return the ids of this machine's processes that are registered as writers of the database."""
    holders = {_process(Found(*row).holder) for row in connection.ask(_ALL)}
    return sorted(filter(None, map(process_id, holders)))


def leave(connection: PlainConnection, holder: Holder) -> None:
    """Delete the holder's registration."""
    connection.ask(_DELETE, ([holder.id],))


def _refusal(other: Found, *, now: Instant, alone: bool) -> Exception:
    number = _process(other.holder).rsplit(":", 2)[1]
    who = f"process {number} on {other.host}, {other.kind}"
    if now < other.until <= now + HOLD:
        who += f"; if that machine is lost, wait until {format_instant(other.until)}"
    if alone:
        return UsageError(f"other processes use this database; stop all of them first ({who})")
    return StoreUnavailable(
        f"another process rebuilds this database; try again when it has finished ({who})"
    )
