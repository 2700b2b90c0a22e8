"""Orders found by phone number, through keyed digests."""

from collections.abc import Iterable
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.statements import PlainConnection, insert_rows, run, select_in
from app.receiving.inbox_store import fact, put_fact
from reconcile.instants import Instant

PhoneNote = tuple[bytes, str, str, Instant]
"""Note about a phone number: digest, kind, subject, time."""

RECIPIENT: Final = "recipient"
"""Kind of a note about a payment's recipient."""

NOTES_OF: Final = "SELECT digest, kind, thing, noted_at FROM phones WHERE thing IN ({})"
"""SQL statement for the notes about orders and deliveries."""

KEY: Final = "phone key"

_COLUMNS: Final = ("digest", "kind", "thing", "noted_at")

_ORDERS: Final = (
    "SELECT phones.thing FROM phones WHERE phones.digest = :digest AND phones.kind = 'order' "
    "UNION SELECT events.order_key FROM phones JOIN deliveries ON deliveries.id = phones.thing "
    "JOIN events ON events.event_id = deliveries.event_id AND events.source = deliveries.source "
    "AND events.digest = deliveries.digest "
    "WHERE phones.digest = :digest AND phones.kind = 'delivery' AND events.order_key IS NOT NULL "
    "ORDER BY 1 LIMIT :limit"
)


def phone_note(digest: bytes, order: str | None, delivery_id: str, now: Instant) -> PhoneNote:
    """Return a phone number's note for an order or delivery."""
    kind, thing = ("delivery", delivery_id) if order is None else ("order", order)
    return digest, kind, thing, now


def write_phone_notes(connection: PlainConnection, notes: Iterable[PhoneNote]) -> None:
    """Store notes. A note that is already stored is not changed."""
    first = {note[:3]: note for note in sorted(notes, reverse=True)}
    if first:
        insert_rows(
            connection,
            table="phones",
            columns=_COLUMNS,
            rows=sorted(first.values()),
            conflict="ON CONFLICT DO NOTHING",
        )


async def orders_by_phone(connection: AsyncConnection, digest: bytes, *, limit: int) -> list[str]:
    """Return the orders with this phone number's digest."""
    rows = await connection.execute(text(_ORDERS), {"digest": digest, "limit": limit})
    return [row[0] for row in rows]


async def deliveries_by_phone(connection: AsyncConnection, digest: bytes) -> list[str]:
    """Return the deliveries without an order for this phone number."""
    rows = await connection.execute(
        text("SELECT thing FROM phones WHERE digest = :digest AND kind = 'delivery'"),
        {"digest": digest},
    )
    return [row[0] for row in rows]


def recipient_note(digest: bytes, payment: str, now: Instant) -> PhoneNote:
    """Return a note with the phone digest of a payment's recipient."""
    return digest, RECIPIENT, f"stm:{payment}", now


_OF_RECIPIENTS: Final = (
    "SELECT own.thing, other.thing FROM phones AS own JOIN phones AS other "
    "ON other.digest = own.digest AND other.kind = 'order' "
    "WHERE own.thing >= 'stm:' AND own.thing < 'stm;' AND own.kind = 'recipient' "
    "AND own.noted_at <= :as_of AND other.noted_at <= :as_of "
    "UNION SELECT own.thing, events.order_key FROM phones AS own JOIN phones AS other "
    "ON other.digest = own.digest AND other.kind = 'delivery' "
    "JOIN deliveries ON deliveries.id = other.thing "
    "JOIN events ON events.event_id = deliveries.event_id AND events.source = deliveries.source "
    "AND events.digest = deliveries.digest "
    "WHERE own.thing >= 'stm:' AND own.thing < 'stm;' AND own.kind = 'recipient' "
    "AND own.noted_at <= :as_of AND other.noted_at <= :as_of AND events.order_key IS NOT NULL"
)


async def orders_of_recipients(
    connection: AsyncConnection, *, as_of: Instant
) -> dict[str, set[str]]:
    """Return the orders with a payment recipient's phone number."""
    found: dict[str, set[str]] = {}
    for thing, order in await connection.execute(text(_OF_RECIPIENTS), {"as_of": as_of}):
        found.setdefault(thing.partition(":")[2], set()).add(order)
    return found


async def recipient_notes(connection: AsyncConnection, digests: Iterable[bytes]) -> list[PhoneNote]:
    """Return the notes about payment recipients with these digests."""
    rows = await select_in(
        connection,
        sql="SELECT digest, kind, thing, noted_at FROM phones WHERE kind = 'recipient' "
        "AND digest IN ({})",
        values=digests,
    )
    return [(bytes(row[0]), row[1], row[2], row[3]) for row in rows]


async def key_in_use(connection: AsyncConnection) -> str | None:
    """Return the name of the present phone key, in hex."""
    return await run(connection, fact, KEY)


async def use_key(connection: AsyncConnection, name: bytes) -> None:
    """Store the name of the phone key that the database uses from now on."""
    await run(connection, put_fact, KEY, name.hex())


async def claim_key(connection: AsyncConnection, name: bytes) -> bool:
    """Store this phone key if none is in use. Return whether the key is in use."""
    sql = "INSERT INTO meta (name, value) VALUES (:name, :value) ON CONFLICT DO NOTHING"
    await connection.execute(text(sql), {"name": KEY, "value": name.hex()})
    return await key_in_use(connection) == name.hex()


async def is_other_key(connection: AsyncConnection, used: str | None, name: bytes) -> bool:
    """Return whether the database uses another phone key."""
    return await has_other_keys(connection, name) if used is None else used != name.hex()


async def has_other_keys(connection: AsyncConnection, name: bytes) -> bool:
    """Return whether the database has digests that were made with another phone key."""
    # One key's digests are adjacent, so two index lookups show whether there are others.
    beyond = (int.from_bytes(name) + 1).to_bytes(len(name) + 1)[-len(name) :]
    for sql, bound in (
        ("SELECT 1 FROM phones WHERE digest < :bound LIMIT 1", name),
        ("SELECT 1 FROM phones WHERE digest >= :bound LIMIT 1", beyond),
    ):
        if (await connection.execute(text(sql), {"bound": bound})).first() is not None:
            return True
    return False


async def notes_of(connection: AsyncConnection, things: Iterable[str]) -> list[PhoneNote]:
    rows = await select_in(
        connection,
        sql=NOTES_OF,
        values=things,
    )
    return [(bytes(row[0]), row[1], row[2], row[3]) for row in rows]


async def old_notes(
    connection: AsyncConnection, *, before: Instant, after: PhoneNote | None, limit: int
) -> list[PhoneNote]:
    """Return notes older than `before`, beginning behind `after`."""
    digest, kind, thing, _ = after or (b"", "", "", 0)
    rows = await connection.execute(
        text(
            "SELECT digest, kind, thing, noted_at FROM phones "
            "WHERE (digest, kind, thing) > (:digest, :kind, :thing) AND noted_at <= :before "
            "ORDER BY digest, kind, thing LIMIT :limit"
        ),
        {"digest": digest, "kind": kind, "thing": thing, "before": before, "limit": limit},
    )
    return [(bytes(row[0]), row[1], row[2], row[3]) for row in rows]


async def drop_notes(connection: AsyncConnection, notes: Iterable[PhoneNote]) -> None:
    for digest, kind, thing, _ in notes:
        await connection.execute(
            text("DELETE FROM phones WHERE digest = :digest AND kind = :kind AND thing = :thing"),
            {"digest": digest, "kind": kind, "thing": thing},
        )


async def drop_other_keys(connection: AsyncConnection, name: bytes) -> None:
    """Delete the digests that were made with other phone keys."""
    await connection.execute(
        text("DELETE FROM phones WHERE substr(digest, 1, :length) <> :name"),
        {"length": len(name), "name": name},
    )
