"""Store the watchdog's rows, alarm notices and alarm owners."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple

from sqlalchemy import bindparam, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.clock import CLOCKS_DIFFER
from app.core.ids import first_id
from app.core.reading import TRIED
from app.database.mapping import DELIVERY_AT
from app.database.statements import Rows, statement
from app.providers.request import FETCHED
from reconcile.instants import DAY, LATEST, MINUTE, SECOND, Instant

# --- what the watchdog reads ----------------------------------------------------------------------

UNREADABLE: Final = (
    # The verdict is a literal, because the partial index has only this verdict.
    "SELECT source, count(*) FROM (SELECT source FROM deliveries "
    "WHERE verdict = 'unreadable' AND id >= :start AND coalesce(problem, '') <> :tried "
    "AND (source NOT IN :unvouched OR substr(headers, 1, 10) = :answers) "
    "AND NOT EXISTS (SELECT 1 FROM audit WHERE subject = deliveries.id "
    "AND action = 'message_judged') "
    "ORDER BY id DESC LIMIT :enough) AS found GROUP BY source "
    "/* deliveries WHERE verdict = 'unreadable' AND id >= $1 */"
)
"""SQL statement that counts each source's latest unreadable deliveries that need a person."""


PAID: Final = (
    "SELECT events.source, coalesce(payment, session, events.event_id), id, events.received_at, "
    "order_key IS NOT NULL FROM (SELECT id, event_id FROM deliveries WHERE id < :until "
    "ORDER BY id DESC LIMIT :looked_at) AS latest JOIN events "
    "ON events.event_id = latest.event_id AND events.delivery_id = latest.id "
    "WHERE claim = 'succeeded' ORDER BY id DESC"
)

TIED_SINCE: Final = (
    'SELECT DISTINCT source FROM (SELECT * FROM events ORDER BY "row" DESC LIMIT :looked_at) '
    "AS latest WHERE claim = 'succeeded' AND order_key IS NOT NULL AND received_at >= :since"
)


_LAST: Final = statement(
    "SELECT {at} FROM deliveries WHERE id < :end ORDER BY id DESC LIMIT 1", at=DELIVERY_AT
)


async def last_delivery(connection: AsyncConnection, now: Instant = LATEST) -> Instant | None:
    """Return the corrected arrival of the last verified delivery, if there is one."""
    ends = (first_id("dlv_", Instant(now + SECOND)), "dlv_g")
    found = [await connection.scalar(text(_LAST), {"end": end}) for end in ends]
    return max((each for each in found if each is not None), default=None)


async def deliveries_between(
    connection: AsyncConnection, start: Instant, end: Instant, *, enough: int
) -> int:
    """Return the number of verified deliveries, counted up to `enough`.

    The span includes `start` but not `end`.
    """
    found = await connection.execute(
        text(
            "SELECT count(*) FROM (SELECT 1 FROM deliveries "
            "WHERE id >= :start AND id < :end LIMIT :enough) AS found"
        ),
        {"start": first_id("dlv_", start), "end": first_id("dlv_", end), "enough": enough},
    )
    return int(found.scalar_one())


async def unreadable_since(
    connection: AsyncConnection, start: Instant, *, unvouched: Sequence[str], enough: int
) -> dict[str, int]:
    """Return how many recent unreadable deliveries each source has.

    Sources in `unvouched` accept anybody's requests, and are not counted.
    """
    values = {
        "start": first_id("dlv_", start),
        "tried": TRIED,
        "unvouched": ["", *unvouched],
        "answers": f"{FETCHED}: ",
        "enough": enough,
    }
    latest = text(UNREADABLE).bindparams(bindparam("unvouched", expanding=True))
    rows = await connection.execute(latest, values)
    return {source: int(count) for source, count in rows}


async def sessions_since(
    connection: AsyncConnection, start: Instant, *, enough: int
) -> list[Instant]:
    """Return the times of the first sessions after `start`, at most `enough`."""
    rows = await connection.execute(
        text(
            "SELECT recorded_at FROM records WHERE id >= :start AND id < 'rec_g' "
            "AND kind = 'session_opened' ORDER BY id LIMIT :enough"
        ),
        {"start": first_id("rec_", start), "enough": enough},
    )
    return [row[0] for row in rows if row[0] > start]


async def paid_until(connection: AsyncConnection, until: Instant, *, looked_at: int) -> Rows:
    """Return the events that state a successful payment before `until`.

    Each row has the source, payment, delivery, arrival, and whether the payment has an order.
    """
    values = {"until": first_id("dlv_", until), "looked_at": looked_at}
    rows = await connection.execute(text(PAID), values)
    return [(*row[:4], bool(row[4])) for row in rows]


async def tied_since(connection: AsyncConnection, since: Instant, *, looked_at: int) -> set[str]:
    """Return the sources of recent payments with orders."""
    values = {"since": since, "looked_at": looked_at}
    return set(await connection.scalars(text(TIED_SINCE), values))


# --- how much came, and how much is stored --------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalRates:
    """Numbers of accepted deliveries in the last ninety days, in UTC."""

    daily: float = 0.0
    """Average number of deliveries in a day, over the last `days` days."""
    days: int = 1
    busiest_day: int = 0
    day: int = 0
    """Busiest day, as a number of days since 1970."""
    busiest_minute: int = 0
    minute: int = 0
    """Busiest minute, as a number of minutes since 1970."""


_BY_DAY: Final = (
    "SELECT minute / 1440 AS day, sum(taken) AS came FROM arrivals WHERE minute <= :last "
    "GROUP BY minute / 1440 ORDER BY came DESC, day DESC"
)
_BUSIEST_MINUTE: Final = (
    "SELECT minute, sum(taken) AS came FROM arrivals WHERE minute <= :last "
    "GROUP BY minute ORDER BY came DESC, minute DESC LIMIT 1"
)
_RECENT: Final = (
    "SELECT coalesce(sum(CASE WHEN minute > :since THEN taken END), 0), min(minute) FROM arrivals "
    "WHERE minute <= :last"
)


async def arrival_rates(connection: AsyncConnection, *, now: Instant) -> ArrivalRates:
    last = now // MINUTE
    since = last - 7 * DAY // MINUTE
    values = {"last": last}
    days = (await connection.execute(text(_BY_DAY), values)).all()
    if not days or not int(days[0][1]):
        return ArrivalRates()
    minute, most = (await connection.execute(text(_BUSIEST_MINUTE), values)).one()
    found = await connection.execute(text(_RECENT), values | {"since": since})
    recent, first = found.one()
    span = -(-(last + 1 - max(since + 1, first)) * MINUTE // DAY)
    return ArrivalRates(
        daily=int(recent) / span,
        days=span,
        busiest_day=int(days[0][1]),
        day=days[0][0],
        busiest_minute=int(most),
        minute=minute,
    )


class Stored(NamedTuple):
    """Number of stored deliveries, and size of the database on its disk in bytes."""

    deliveries: int
    size: int


_STORED: Final = {
    # Deliveries are never deleted, so the last row's number is their number.
    "sqlite": "SELECT (SELECT coalesce(max(rowid), 0) FROM deliveries), "
    "(page_count - freelist_count) * page_size "
    "FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()",
    # An estimate: counting would take longer than a command that looks at everything may.
    "postgresql": "SELECT reltuples, pg_database_size(current_database()) "
    "FROM pg_class WHERE oid = 'deliveries'::regclass",
}
_COUNTED: Final = "SELECT count(*) FROM deliveries"


async def stored_deliveries(connection: AsyncConnection) -> Stored:
    """Return the number and size of stored deliveries. Not for a cluster."""
    found = await connection.execute(text(_STORED[connection.dialect.name]))
    deliveries, size = found.one()
    if deliveries <= 0:  # PostgreSQL has not analyzed the table
        deliveries = await connection.scalar(text(_COUNTED)) or 0
    return Stored(int(deliveries), int(size))


# --- notices --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmMessage:
    """Notice about one alarm over one channel."""

    alarm: str
    way: str
    """Channel: `post` or `mail`."""
    reason: str
    sentence: str
    raised_at: Instant
    seen_at: Instant
    """Time at which a receiver process last saw the alarm."""
    over_at: Instant | None = None
    """Time at which the alarm ended. None while it lasts."""
    told_at: Instant | None = None
    """Time at which the notice of its start was sent, or None."""
    tries: int = 0
    """Number of failed tries to send the due notice."""
    due_at: Instant
    """Time of the next try. During a try, the end of the sender's claim."""


async def put_seen(connection: AsyncConnection, message: AlarmMessage) -> None:
    """Store that an alarm is raised or still lasts."""
    await connection.execute(
        text(
            "INSERT INTO alarm_messages "
            "(alarm, way, reason, sentence, raised_at, seen_at, tries, due_at) VALUES "
            "(:alarm, :way, :reason, :sentence, :raised_at, :seen_at, 0, :due_at) "
            "ON CONFLICT (alarm, way) DO UPDATE SET seen_at = excluded.seen_at, over_at = NULL"
        ),
        asdict(message),
    )


async def any_lasts(connection: AsyncConnection) -> bool:
    """Check whether any alarm lasts."""
    rows = await connection.execute(
        text("SELECT 1 FROM alarm_messages WHERE over_at IS NULL LIMIT 1")
    )
    return rows.first() is not None


async def put_over(connection: AsyncConnection, *, unseen_since: Instant, now: Instant) -> None:
    """Mark the alarms as ended that nobody has seen lately."""
    await connection.execute(
        text(
            "UPDATE alarm_messages SET over_at = :now, tries = 0, "
            "due_at = CASE WHEN told_at IS NULL THEN due_at ELSE :now END "
            "WHERE over_at IS NULL AND (seen_at < :since OR seen_at > :beyond)"
        ),
        {"now": now, "since": unseen_since, "beyond": now + CLOCKS_DIFFER},
    )


async def messages_due(
    connection: AsyncConnection, now: Instant, *, beyond: Instant = LATEST
) -> Sequence[AlarmMessage]:
    """Return the notices that must be sent now."""
    rows = await connection.execute(
        text(
            "SELECT alarm, way, reason, sentence, raised_at, seen_at, over_at, told_at, tries, "
            "due_at FROM alarm_messages WHERE (due_at <= :now OR due_at > :beyond) "
            "AND (told_at IS NULL OR over_at IS NOT NULL) ORDER BY raised_at, alarm, way"
        ),
        {"now": now, "beyond": beyond},
    )
    return [AlarmMessage(**row) for row in rows.mappings()]


async def claim_message(
    connection: AsyncConnection, message: AlarmMessage, *, until: Instant
) -> bool:
    """Claim a notice until the given time. Return False if another process was faster."""
    claimed = await connection.execute(
        text(
            "UPDATE alarm_messages SET due_at = :until "
            "WHERE alarm = :alarm AND way = :way AND due_at = :due_at "
            "AND (told_at IS NULL OR over_at IS NOT NULL)"
        ),
        asdict(message) | {"until": until},
    )
    return claimed.rowcount == 1


async def put_notified(connection: AsyncConnection, message: AlarmMessage, *, now: Instant) -> None:
    await connection.execute(
        text(
            "UPDATE alarm_messages SET told_at = :now, tries = 0, due_at = :now "
            "WHERE alarm = :alarm AND way = :way"
        ),
        asdict(message) | {"now": now},
    )


async def put_failed(
    connection: AsyncConnection, message: AlarmMessage, *, again_at: Instant
) -> None:
    await connection.execute(
        text(
            "UPDATE alarm_messages SET tries = tries + 1, due_at = :again_at "
            "WHERE alarm = :alarm AND way = :way"
        ),
        asdict(message) | {"again_at": again_at},
    )


async def delete_message(connection: AsyncConnection, message: AlarmMessage) -> None:
    """Delete a notice unless the alarm was seen again in the meantime."""
    await connection.execute(
        text(
            "DELETE FROM alarm_messages WHERE alarm = :alarm AND way = :way AND over_at IS NOT NULL"
        ),
        {"alarm": message.alarm, "way": message.way},
    )


# --- owners ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmOwner:
    """Person who handles an alarm."""

    alarm: str
    reason: str
    """Reason of the alarm when the person took it. For another reason, nobody owns it."""
    owner: str
    state: str
    """Progress of the person's work."""
    at: Instant
    """Time since which the person owns the alarm."""


async def alarm_owners(connection: AsyncConnection) -> list[AlarmOwner]:
    rows = await connection.execute(
        text("SELECT alarm, reason, owner, state, at FROM alarm_owners ORDER BY alarm")
    )
    return [AlarmOwner(**row) for row in rows.mappings()]


async def put_alarm_owner(connection: AsyncConnection, taken: AlarmOwner) -> None:
    """Store the owner of an alarm, and replace any earlier owner."""
    await connection.execute(
        text(
            "INSERT INTO alarm_owners (alarm, reason, owner, state, at) "
            "VALUES (:alarm, :reason, :owner, :state, :at) ON CONFLICT (alarm) DO UPDATE SET "
            "reason=excluded.reason, owner=excluded.owner, state=excluded.state, at=excluded.at"
        ),
        asdict(taken),
    )


async def delete_alarm_owner(connection: AsyncConnection, taken: AlarmOwner) -> None:
    """Delete the owner of an alarm, unless somebody has taken the alarm again."""
    await connection.execute(
        text("DELETE FROM alarm_owners WHERE alarm = :alarm AND at = :at"),
        {"alarm": taken.alarm, "at": taken.at},
    )
