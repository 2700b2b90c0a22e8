"""The outbox: what the shop is still to be notified of, written in the publishing transaction.

One row is one revision. An order's rows that wait move through time together, and only the first
of them may be taken, so that the shop hears of an order in the order of its revisions. Whoever
takes a row moves it ahead for a while (its lease); if the taker dies, it comes due by itself.

A destination that takes nothing has a row of its own while that lasts. It holds the instant of the
next probe, which whoever probes moves ahead, as with a lease: all processes together send one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from sqlalchemy import (
    ColumnElement,
    and_,
    column,
    func,
    literal_column,
    or_,
    select,
    table,
    text,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.statements import PlainConnection, insert_rows
from app.orders.published_store import PUBLISHED_COLUMNS, REVISIONS, Published, published_of
from reconcile.instants import SECOND, Duration, Instant
from reconcile.ledger.revise import Revision

State = Literal["waiting", "delivered", "dead"]

STATES: Final[tuple[State, ...]] = get_args(State)
"""waiting: due now or later · delivered: the shop said 2xx · dead: given up, until a person asks"""

_COLUMNS: Final = ("seq", "order_key", "since", "due_at", "tries")

_NOTIFICATIONS: Final = table("notifications", *map(column, (*_COLUMNS, "delivered_at", "problem")))
_ROWS: Final = _NOTIFICATIONS.c

_CONDITIONS: Final[dict[State, ColumnElement[bool]]] = {
    "waiting": _ROWS.due_at.is_not(None),
    "delivered": _ROWS.delivered_at.is_not(None),
    "dead": and_(_ROWS.due_at.is_(None), _ROWS.delivered_at.is_(None)),
}

LEASE: Final[Duration] = 60 * SECOND
"""How long others pass over what one has taken: several times the longest request."""

_END: Final = Instant(2**63 - 1)
"""Later than any instant."""

_EARLIER: Final = _NOTIFICATIONS.alias("earlier")

# By `+` SQLite goes by the index of those that wait, and not through all that do not.
_BY_NUMBER: Final[ColumnElement[int]] = literal_column("+notifications.seq")

_HEADS: Final = (
    select(*REVISIONS.c, _ROWS.since, _ROWS.tries)
    .join_from(_NOTIFICATIONS, REVISIONS, REVISIONS.c.seq == _ROWS.seq)
    .where(
        ~select(_EARLIER.c.seq)
        .where(
            _EARLIER.c.order_key == _ROWS.order_key,
            _EARLIER.c.seq < _ROWS.seq,
            _EARLIER.c.due_at.is_not(None),
        )
        .exists()
    )
    .order_by(_ROWS.due_at, _ROWS.seq)
    # SQLite, where one process writes, has no such lock, and SQLAlchemy leaves it out there.
    .with_for_update(of=_NOTIFICATIONS, skip_locked=True)
)
"""The first that waits of each order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """What the shop is to be notified of, taken until an instant.

    since  when the time began after which it is given up
    tries  how often it was sent before
    until  the end of the lease; what is said of the row later counts only while it stands
    """

    published: Published
    since: Instant
    tries: int
    until: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """What became of one that was taken: delivered, to be sent again at an instant, or given up."""

    sent: Notification
    delivered: bool = False
    problem: str | None = None
    again_at: Instant | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Away:
    """A destination that has taken nothing since it first failed.

    since     when that was
    failures  how many tries have failed since then, those at one moment counted as one
    probe_at  when the next may be made
    problem   why the last one failed, a code
    """

    since: Instant
    failures: int
    probe_at: Instant
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationEntry:
    """One notification as a listing shows it. `problem`: why the last try failed, a code."""

    seq: int
    order: str
    outcome: str
    state: State
    tries: int
    published_at: Instant
    due_at: Instant | None
    delivered_at: Instant | None
    problem: str | None


def write_notifications(
    connection: PlainConnection, revisions: Sequence[Revision], *, first: int, now: Instant
) -> None:
    """Write down that the shop is to be notified of these now; they are numbered from `first`.

    What they say may be dated later: see `History.instant_at`.
    """
    insert_rows(
        connection,
        table="notifications",
        columns=_COLUMNS,
        rows=[(first + n, each.order, now, now, 0) for n, each in enumerate(revisions)],
    )


async def next_notification(connection: AsyncConnection) -> Instant | None:
    """When the next is due; None where nothing waits."""
    found = await connection.execute(
        text("SELECT min(due_at) FROM notifications WHERE due_at IS NOT NULL")
    )
    due: Instant | None = found.scalar_one()
    return due


async def take_notifications(
    connection: AsyncConnection,
    *,
    now: Instant,
    limit: int,
    lease: Duration,
    whenever_due: bool = False,
) -> list[Notification]:
    """Up to `limit` that are due, one of an order at most: those that were never tried before
    those that have waited longest since their last try, which have a quarter of the places where
    there are both; others pass over them for `lease`. So neither many that the shop refuses for
    themselves hold up what is new, nor does what is new keep others until they are given up.

    whenever_due  also those that are due later, behind those that are due: one must be tried now.
                  Of those that were never tried the newest, then: if all that wait are refused for
                  themselves, it is the likeliest to show that the shop is there
    """
    due = _HEADS.where(_ROWS.due_at <= (_END if whenever_due else now))
    fresh = due.where(_ROWS.tries == 0)
    if whenever_due:
        fresh = fresh.order_by(None).order_by(_ROWS.due_at.desc(), _ROWS.seq.desc())
    rows = list(await connection.execute(fresh.limit(limit)))
    places = max(limit - len(rows), limit // 4)
    tried = list(await connection.execute(due.where(_ROWS.tries > 0).limit(places)))
    rows = [*rows[: limit - len(tried)], *tried]
    until, width = now + lease, len(PUBLISHED_COLUMNS)
    taken = [
        Notification(
            published=published_of(row[:width]), since=row[width], tries=row[width + 1], until=until
        )
        for row in rows
    ]
    for each in taken:
        await _move(connection, each.published.order, until=until)
    return taken


async def call_up_notifications(
    connection: AsyncConnection, *, now: Instant, beyond: Instant
) -> None:
    """Let those that were never tried and wait for an instant after `beyond` come due now, and
    probes that do."""
    for sql in (
        "UPDATE notifications SET due_at=:now, since=:now WHERE due_at > :beyond AND tries=0",
        "UPDATE destinations_away SET probe_at=:now WHERE probe_at > :beyond",
    ):
        await connection.execute(text(sql), {"now": now, "beyond": beyond})


async def _move(connection: AsyncConnection, order: str, *, until: Instant) -> None:
    """All of an order's that wait come due at this instant."""
    await connection.execute(
        text(
            "UPDATE notifications SET due_at=:until WHERE order_key=:order AND due_at IS NOT NULL"
        ),
        {"order": order, "until": until},
    )


async def settle_notifications(
    connection: AsyncConnection, results: Sequence[SendResult], *, now: Instant
) -> None:
    """Write down what became of what was taken. What comes after one of its order is due now, or
    waits with it. A row whose lease is over, and which another has taken, is left to that one."""
    for one in results:
        found = await connection.execute(
            text(
                "UPDATE notifications SET tries=tries+1, due_at=:again, delivered_at=:delivered, "
                "problem=:problem WHERE seq=:seq AND due_at=:lease RETURNING seq"
            ),
            {
                "again": one.again_at,
                "delivered": now if one.delivered else None,
                "problem": one.problem,
                "seq": one.sent.published.seq,
                "lease": one.sent.until,
            },
        )
        if found.first() is not None:
            until = now if one.again_at is None else one.again_at
            await _move(connection, one.sent.published.order, until=until)


async def call_all_up(connection: AsyncConnection, *, now: Instant) -> None:
    """All that wait for an instant to come are due now."""
    await connection.execute(
        text("UPDATE notifications SET due_at=:now WHERE due_at > :now"), {"now": now}
    )


# --- destinations --------------------------------------------------------------------------------


async def away(connection: AsyncConnection, destination: str) -> Away | None:
    """What is known of a destination that takes nothing; None where the last try succeeded."""
    found = await connection.execute(
        text(
            "SELECT since, failures, probe_at, problem FROM destinations_away "
            "WHERE destination=:destination"
        ),
        {"destination": destination},
    )
    row = found.first()
    if row is None:
        return None
    return Away(since=row[0], failures=row[1], probe_at=row[2], problem=row[3])


async def claim_probe(
    connection: AsyncConnection, destination: str, seen: Away, *, until: Instant
) -> bool:
    """Whether the next probe is ours: the first of all processes that saw the destination so."""
    found = await connection.execute(
        text(
            "UPDATE destinations_away SET probe_at=:until WHERE destination=:destination "
            "AND probe_at=:seen RETURNING destination"
        ),
        {"until": until, "destination": destination, "seen": seen.probe_at},
    )
    return found.first() is not None


async def note_away(connection: AsyncConnection, destination: str, found: Away) -> None:
    """Write down that it takes nothing. The instant since when stays the first one."""
    await connection.execute(
        text(
            "INSERT INTO destinations_away (destination, since, failures, probe_at, problem) "
            "VALUES (:destination, :since, :failures, :probe_at, :problem) "
            "ON CONFLICT (destination) DO UPDATE SET failures=excluded.failures, "
            "probe_at=excluded.probe_at, problem=excluded.problem"
        ),
        {
            "destination": destination,
            "since": found.since,
            "failures": found.failures,
            "probe_at": found.probe_at,
            "problem": found.problem,
        },
    )


async def note_back(connection: AsyncConnection, destination: str) -> bool:
    """Write down that it takes what it is sent. Returns whether it was away."""
    found = await connection.execute(
        text("DELETE FROM destinations_away WHERE destination=:destination RETURNING since"),
        {"destination": destination},
    )
    return found.first() is not None


# --- for people ----------------------------------------------------------------------------------


async def send_again(
    connection: AsyncConnection, *, now: Instant, revisions: Iterable[int] | None
) -> int:
    """Set notifications due again, with the whole time before them: these, whatever became of
    them, or (None) all that were tried and not taken, given up or not; what was never tried goes by
    itself, behind them. Destinations that are away may be tried at once. Returns how many there
    were."""
    await connection.execute(
        text("UPDATE destinations_away SET probe_at=:now WHERE probe_at > :now"), {"now": now}
    )
    again = (
        update(_NOTIFICATIONS)
        .values(due_at=now, since=now, tries=0, delivered_at=None, problem=None)
        .returning(_ROWS.seq)
    )
    if revisions is None:
        in_vain = and_(_CONDITIONS["waiting"], _ROWS.tries > 0)
        found = await connection.execute(again.where(or_(_CONDITIONS["dead"], in_vain)))
        return len(found.all())
    count = 0
    for revision in set(revisions):
        found = await connection.execute(again.where(_ROWS.seq == revision))
        count += len(found.all())
    return count


async def notifications_in(
    connection: AsyncConnection,
    *,
    state: State | None,
    limit: int,
    order: str | None = None,
    before: int | None = None,
) -> list[NotificationEntry]:
    """Notifications, the newest first; of one state, or (None) of all; of one order, or of all;
    with numbers below `before`."""
    number: ColumnElement[int] = _BY_NUMBER if state == "waiting" else _ROWS.seq
    revision = REVISIONS.c
    listing = (
        select(
            _ROWS.seq,
            _ROWS.order_key,
            revision.outcome,
            _ROWS.tries,
            revision.at,
            _ROWS.due_at,
            _ROWS.delivered_at,
            _ROWS.problem,
        )
        # Not a plain join: SQLite would begin with the revisions, and go through all of them.
        .join_from(_NOTIFICATIONS, REVISIONS, revision.seq == _ROWS.seq, isouter=True)
        .order_by(number.desc())
        .limit(limit)
    )
    if state is not None:
        listing = listing.where(_CONDITIONS[state])
    if order is not None:
        listing = listing.where(revision.order_key == order)
    if before is not None:
        listing = listing.where(number < before)
    return [_entry(row) for row in await connection.execute(listing)]


def _entry(row: Sequence[Any]) -> NotificationEntry:
    state: State = "waiting" if row[5] is not None else "dead" if row[6] is None else "delivered"
    return NotificationEntry(
        seq=row[0],
        order=row[1],
        outcome=row[2],
        state=state,
        tries=row[3],
        published_at=row[4],
        due_at=row[5],
        delivered_at=row[6],
        problem=row[7],
    )


async def notification_counts(connection: AsyncConnection, *, enough: int) -> tuple[int, int]:
    """How many wait, and how many were given up; of either no more than `enough`."""
    counts = []
    states: tuple[State, ...] = ("waiting", "dead")
    for state in states:
        some = select(_ROWS.seq).where(_CONDITIONS[state])
        bounded = some.limit(enough).subquery("found")
        found = await connection.execute(select(func.count()).select_from(bounded))
        counts.append(int(found.scalar_one()))
    return counts[0], counts[1]
