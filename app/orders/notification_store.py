"""Outbox of notifications to the shop, written by the transaction that publishes a revision.

Only the first waiting notification of an order may be taken, so that the shop gets revisions in
order. A process that takes a row leases it briefly. A destination is away once notifications of
several orders have failed; one process at a time then sends a probe.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.statements import PlainConnection, insert_rows
from app.orders.published_store import PUBLISHED_COLUMNS, REVISIONS, Published, published_of
from reconcile.instants import HOUR, SECOND, Duration, Instant
from reconcile.ledger.ledger import Outcome
from reconcile.ledger.revise import Revision

State = Literal["waiting", "stuck", "delivered", "dead"]

STATES: Final[tuple[State, ...]] = get_args(State)
"""States of a notification. A `stuck` notification was refused twice, although the shop accepts
others. A `dead` notification was given up."""

_STUCK_AFTER: Final = 2
"""Number of failed tries after which a notification is stuck; one may be a restart."""

_COLUMNS: Final = ("seq", "order_key", "since", "due_at", "tries")

_NOTIFICATIONS: Final = sa.table(
    "notifications", *map(sa.column, (*_COLUMNS, "delivered_at", "problem"))
)
_ROWS: Final = _NOTIFICATIONS.c

_CONDITIONS: Final[dict[State, sa.ColumnElement[bool]]] = {
    "waiting": _ROWS.due_at.is_not(None),
    "stuck": sa.and_(_ROWS.due_at.is_not(None), _ROWS.tries >= _STUCK_AFTER),
    "delivered": _ROWS.delivered_at.is_not(None),
    "dead": sa.and_(_ROWS.due_at.is_(None), _ROWS.delivered_at.is_(None)),
}

LEASE: Final[Duration] = 60 * SECOND
"""Time for which other processes skip a notification that one process has taken. The longest
request takes much less."""

_LONGER_THAN_ANY_PAUSE: Final[Duration] = 2 * HOUR

_END: Final = Instant(2**63 - 1)

_EARLIER: Final = _NOTIFICATIONS.alias("earlier")

# The `+` makes SQLite use the index of waiting notifications instead of scanning all.
_BY_NUMBER: Final[sa.ColumnElement[int]] = sa.literal_column("+notifications.seq")

_HEADS: Final = (
    sa.select(*REVISIONS.c, _ROWS.since, _ROWS.tries)
    .join_from(_NOTIFICATIONS, REVISIONS, REVISIONS.c.seq == _ROWS.seq)
    .where(
        ~sa.select(_EARLIER.c.seq)
        .where(
            _EARLIER.c.order_key == _ROWS.order_key,
            _EARLIER.c.seq < _ROWS.seq,
            _EARLIER.c.due_at.is_not(None),
        )
        .exists()
    )
    .order_by(_ROWS.due_at, _ROWS.seq)
    # SQLite has no such lock, and one process writes there: SQLAlchemy omits the clause.
    .with_for_update(of=_NOTIFICATIONS, skip_locked=True)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """Notification that this process has taken for sending."""

    published: Published
    since: Instant
    """Start of the period after which the notification is given up."""
    tries: int
    """Number of earlier tries."""
    until: Instant
    """End of this process's claim. A later result is ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """Result of sending one notification."""

    sent: Notification
    delivered: bool = False
    problem: str | None = None
    """Code for the reason of a failure."""
    again_at: Instant | None = None
    """Time of the next try, if any."""

    @property
    def given_up(self) -> bool:
        return not self.delivered and self.again_at is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Away:
    """State of a destination at which the last tries have all failed."""

    since: Instant
    """Instant of the first of these failures."""
    failures: int
    """Number of failed tries since then. Simultaneous failures count once."""
    probe_at: Instant
    """Time of the next try."""
    problem: str
    """Code for the reason of the last failure."""
    only: int | None = None
    """Number of the only failed notification, if there is one. All others are sent as usual."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedNotification:
    """Notification as it appears in a list."""

    seq: int
    order: str
    outcome: Outcome
    state: State
    tries: int
    published_at: Instant
    due_at: Instant | None
    delivered_at: Instant | None
    problem: str | None
    """Code for the reason of the last failed try."""


def write_notifications(
    connection: PlainConnection, revisions: Sequence[Revision], *, first: int, now: Instant
) -> None:
    """Queue a notification of each revision, due now.

    first  number of the first revision
    now    present time; revisions can be later
    """
    insert_rows(
        connection,
        table="notifications",
        columns=_COLUMNS,
        rows=[(first + n, each.order, now, now, 0) for n, each in enumerate(revisions)],
    )


async def next_notification(connection: AsyncConnection) -> Instant | None:
    """Return the instant at which the next notification is due. Return None if none waits."""
    found = await connection.execute(
        sa.text("SELECT min(due_at) FROM notifications WHERE due_at IS NOT NULL")
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
    """Take up to `limit` due notifications for this process to send, at most one for each order.

    whenever_due  whether to include notifications that are not due, for a probe

    Untried notifications come first, then retries by waiting time. Retries get a quarter of the
    places.
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
    """Make notifications and probes due now if a fast clock has delayed them.

    beyond  latest time for which a correct clock can have planned a first try or a probe
    """
    await connection.execute(
        sa.text(
            "UPDATE notifications SET due_at=:now, since=:now "
            "WHERE due_at > :beyond AND (tries=0 OR due_at > :never)"
        ),
        {"now": now, "beyond": beyond, "never": now + _LONGER_THAN_ANY_PAUSE},
    )
    await connection.execute(
        sa.text("UPDATE destinations_away SET probe_at=:now WHERE probe_at > :beyond"),
        {"now": now, "beyond": beyond},
    )


async def _move(connection: AsyncConnection, order: str, *, until: Instant) -> None:
    await connection.execute(
        sa.text(
            "UPDATE notifications SET due_at=:until WHERE order_key=:order AND due_at IS NOT NULL"
        ),
        {"order": order, "until": until},
    )


async def settle_notifications(
    connection: AsyncConnection, results: Sequence[SendResult], *, now: Instant
) -> None:
    """Store the results of sent notifications, except those taken by another process.

    Later notifications of an order wait for a retry, and else are due now.
    """
    for one in results:
        found = await connection.execute(
            sa.text(
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
    """Make all waiting notifications due now."""
    await connection.execute(
        sa.text("UPDATE notifications SET due_at=:now WHERE due_at > :now"), {"now": now}
    )


# --- destinations --------------------------------------------------------------------------------


async def failing(connection: AsyncConnection, destination: str) -> Away | None:
    """Return the state of a destination whose last try failed. Return None if the last try
    succeeded."""
    found = await connection.execute(
        sa.text(
            "SELECT since, failures, probe_at, problem, only_seq FROM destinations_away "
            "WHERE destination=:destination"
        ),
        {"destination": destination},
    )
    row = found.first()
    if row is None:
        return None
    return Away(since=row[0], failures=row[1], probe_at=row[2], problem=row[3], only=row[4])


async def away(connection: AsyncConnection, destination: str) -> Away | None:
    """Return the state of a destination that notifications of several orders could not reach.
    Return None for any other destination."""
    found = await failing(connection, destination)
    return None if found is None or found.only is not None else found


async def claim_probe(
    connection: AsyncConnection, destination: str, seen: Away, *, until: Instant
) -> bool:
    """Reserve the next probe of a failing destination for this process. Return False if another
    process was faster."""
    found = await connection.execute(
        sa.text(
            "UPDATE destinations_away SET probe_at=:until WHERE destination=:destination "
            "AND probe_at=:seen RETURNING destination"
        ),
        {"until": until, "destination": destination, "seen": seen.probe_at},
    )
    return found.first() is not None


async def note_away(connection: AsyncConnection, destination: str, found: Away) -> None:
    """Store that a destination accepts no notification now. The instant of its first failure is
    kept."""
    await connection.execute(
        sa.text(
            "INSERT INTO destinations_away "
            "(destination, since, failures, probe_at, problem, only_seq) "
            "VALUES (:destination, :since, :failures, :probe_at, :problem, :only) "
            "ON CONFLICT (destination) DO UPDATE SET failures=excluded.failures, "
            "probe_at=excluded.probe_at, problem=excluded.problem, only_seq=excluded.only_seq"
        ),
        {
            "destination": destination,
            "since": found.since,
            "failures": found.failures,
            "probe_at": found.probe_at,
            "problem": found.problem,
            "only": found.only,
        },
    )


async def note_back(connection: AsyncConnection, destination: str) -> bool:
    """Store that a destination accepts notifications again. Return whether notifications of several
    orders had failed before."""
    found = await connection.execute(
        sa.text("DELETE FROM destinations_away WHERE destination=:destination RETURNING only_seq"),
        {"destination": destination},
    )
    row = found.first()
    return row is not None and row[0] is None


# --- lists of notifications, for people -----------------------------------------------------------


async def send_again(
    connection: AsyncConnection, *, now: Instant, revisions: Iterable[int] | None
) -> int:
    """Make notifications due again, with a new period before they are given up. Return their
    number.

    revisions  numbers of notifications in any state; None for all without success
    """
    await connection.execute(
        sa.text("UPDATE destinations_away SET probe_at=:now WHERE probe_at > :now"), {"now": now}
    )
    again = (
        sa.update(_NOTIFICATIONS)
        .values(due_at=now, since=now, tries=0, delivered_at=None, problem=None)
        .returning(_ROWS.seq)
    )
    if revisions is None:
        in_vain = sa.and_(_CONDITIONS["waiting"], _ROWS.tries > 0)
        found = await connection.execute(again.where(sa.or_(_CONDITIONS["dead"], in_vain)))
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
    is_away: bool = False,
    limit: int,
    order: str | None = None,
    before: int | None = None,
) -> list[ListedNotification]:
    """Return notifications for a list, newest first.

    state    state of the notifications; None for all states
    is_away  whether the destination accepts nothing now; then none counts as stuck
    order    order of the notifications; None for all orders
    before   only notifications with a smaller number; None for all
    """
    if state == "stuck" and is_away:
        return []
    number: sa.ColumnElement[int] = _BY_NUMBER if state in ("waiting", "stuck") else _ROWS.seq
    revision = REVISIONS.c
    listing = (
        sa.select(
            _ROWS.seq,
            _ROWS.order_key,
            revision.outcome,
            _ROWS.tries,
            revision.at,
            _ROWS.due_at,
            _ROWS.delivered_at,
            _ROWS.problem,
        )
        # Not a plain join: SQLite would begin with the revisions, and scan all of them.
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
    return [
        ListedNotification(
            seq=row[0],
            order=row[1],
            outcome=row[2],
            state=_state(row[5], row[6], tries=row[3], is_away=is_away),
            tries=row[3],
            published_at=row[4],
            due_at=row[5],
            delivered_at=row[6],
            problem=row[7],
        )
        for row in await connection.execute(listing)
    ]


def _state(
    due_at: Instant | None, delivered_at: Instant | None, *, tries: int, is_away: bool
) -> State:
    if due_at is None:
        return "dead" if delivered_at is None else "delivered"
    return "stuck" if tries >= _STUCK_AFTER and not is_away else "waiting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """Notifications that a shop refuses although the shop can be reached."""

    count: int
    """Number of stuck notifications, counted up to a limit."""
    order: str
    """Order of the oldest stuck notification."""
    since: Instant
    """Time since which the oldest waits."""
    problem: str
    """Code for the oldest's last failure."""


async def stuck_notifications(connection: AsyncConnection, *, enough: int) -> Stuck | None:
    """Return the number of stuck notifications and facts on the oldest, if any.

    enough  number up to which they are counted

    Only for a destination that accepts notifications.
    """
    some = sa.select(_ROWS.since, _ROWS.order_key, _ROWS.problem).where(_CONDITIONS["stuck"])
    rows = list(await connection.execute(some.order_by(_ROWS.since).limit(enough)))
    if not rows:
        return None
    since, order, problem = rows[0]
    return Stuck(count=len(rows), order=order, since=since, problem=problem)


async def notification_counts(connection: AsyncConnection, *, enough: int) -> tuple[int, int]:
    """Return the number of waiting notifications and the number of notifications that were given
    up. Each is counted up to `enough`."""
    counts = []
    states: tuple[State, ...] = ("waiting", "dead")
    for state in states:
        some = sa.select(_ROWS.seq).where(_CONDITIONS[state])
        bounded = some.limit(enough).subquery("found")
        found = await connection.execute(sa.select(sa.func.count()).select_from(bounded))
        counts.append(int(found.scalar_one()))
    return counts[0], counts[1]
