"""Published checkpoints, and the state of their witnesses."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from sqlalchemy import bindparam, text
from sqlalchemy.ext.asyncio import AsyncConnection

from reconcile.instants import Instant
from reconcile.transparency.merkle import Hash

DepartureWay = Literal["published", "folder", "mail", "post"]
"""Ways to publish a checkpoint without a witness."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """Publication of one checkpoint."""

    size: int
    way: str
    """A DepartureWay, or the verifier key of the witness that cosigned."""
    head: Hash
    at: Instant
    line: str | None = None
    """The witness's signature line. None for a DepartureWay."""


async def add_departure(connection: AsyncConnection, departure: Departure) -> None:
    """Store that a checkpoint was published on a channel, unless that is stored already."""
    await connection.execute(
        text(
            "INSERT INTO log_departures (size, way, head, at, line) "
            "VALUES (:size, :way, :head, :at, :line) ON CONFLICT DO NOTHING"
        ),
        asdict(departure),
    )


async def departures_after(
    connection: AsyncConnection, size: int, way: str, *, limit: int
) -> list[Departure]:
    """Return up to `limit` published checkpoints after (`size`, `way`), sorted by size and
    channel."""
    rows = await connection.execute(
        text(
            "SELECT size, way, head, at, line FROM log_departures "
            "WHERE size > :size OR (size = :size AND way > :way) ORDER BY size, way LIMIT :limit"
        ),
        {"size": size, "way": way, "limit": limit},
    )
    return [Departure(**row._mapping) for row in rows]


async def newest_departures(connection: AsyncConnection) -> list[Departure]:
    """Return the largest published checkpoint of each channel, largest first."""
    rows = await connection.execute(
        text(
            "SELECT size, way, head, at, line FROM log_departures AS one WHERE size = "
            "(SELECT max(size) FROM log_departures WHERE way = one.way) ORDER BY size DESC, way"
        )
    )
    return [Departure(**row._mapping) for row in rows]


async def last_to_leave(connection: AsyncConnection) -> tuple[int, Instant] | None:
    """Return the largest published checkpoint's size and last publication."""
    rows = await connection.execute(
        text(
            "SELECT size, max(at) FROM log_departures "
            "WHERE size = (SELECT max(size) FROM log_departures) GROUP BY size"
        )
    )
    row = rows.first()
    return None if row is None else (int(row[0]), Instant(row[1]))


async def last_by(connection: AsyncConnection, way: DepartureWay) -> Departure | None:
    """Return the newest checkpoint that was published on a channel."""
    rows = await connection.execute(
        text(
            "SELECT size, way, head, at, line FROM log_departures "
            "WHERE way = :way ORDER BY size DESC LIMIT 1"
        ),
        {"way": way},
    )
    row = rows.first()
    return None if row is None else Departure(**row._mapping)


async def cosignatures_of(
    connection: AsyncConnection, *, size: int, head: Hash
) -> Sequence[Departure]:
    """Return every cosignature of one checkpoint, sorted by the witnesses' verifier keys."""
    rows = await connection.execute(
        text(
            "SELECT size, way, head, at, line FROM log_departures "
            "WHERE size = :size AND head = :head AND line IS NOT NULL ORDER BY way"
        ),
        {"size": size, "head": head},
    )
    return [Departure(**row._mapping) for row in rows]


async def first_cosigned_over(
    connection: AsyncConnection, number: int, *, witnesses: Collection[str], quorum: int
) -> int | None:
    """Return the smallest checkpoint over a leaf with enough cosignatures."""
    found = await connection.scalar(
        text(
            "SELECT size FROM log_departures WHERE size > :number AND way IN :witnesses "
            "GROUP BY size HAVING count(*) >= :quorum ORDER BY size LIMIT 1"
        ).bindparams(bindparam("witnesses", expanding=True)),
        {"number": number, "witnesses": list(witnesses), "quorum": quorum},
    )
    return None if found is None else int(found)


async def last_cosigned(
    connection: AsyncConnection, *, witnesses: Collection[str], quorum: int
) -> int:
    """Return the largest cosigned checkpoint's size; 0 without one."""
    found = await connection.scalar(
        text(
            "SELECT size FROM log_departures WHERE way IN :witnesses "
            "GROUP BY size HAVING count(*) >= :quorum ORDER BY size DESC LIMIT 1"
        ).bindparams(bindparam("witnesses", expanding=True)),
        {"witnesses": list(witnesses), "quorum": quorum},
    )
    return int(found or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessState:
    """Known state of one witness."""

    witness: str
    size: int = 0
    """Size of the largest cosigned checkpoint; 0 without one."""
    cosigned_at: Instant | None = None
    next_at: Instant
    failures: int = 0
    """Number of failed requests since the last cosignature."""
    since: Instant | None = None
    """Time of the first of these failed requests."""
    problem: str | None = None


async def witness_states(connection: AsyncConnection) -> dict[str, WitnessState]:
    """Return each known witness's state, by verifier key."""
    rows = await connection.execute(
        text(
            "SELECT witness, size, cosigned_at, next_at, failures, since, problem "
            "FROM log_witnesses"
        )
    )
    return {row[0]: WitnessState(**row._mapping) for row in rows}


async def claim_witness(
    connection: AsyncConnection, witness: str, *, before: Instant | None, until: Instant
) -> bool:
    """Reserve a witness for this worker until `until`. Return False after another reservation.

    `before` is the witness's `next_at`; None for a new witness.
    """
    rows = await connection.execute(
        text(
            "INSERT INTO log_witnesses (witness, size, next_at, failures) "
            "VALUES (:witness, 0, :until, 0) ON CONFLICT (witness) DO UPDATE "
            "SET next_at = :until WHERE log_witnesses.next_at = :before RETURNING witness"
        ),
        {"witness": witness, "until": until, "before": before},
    )
    return rows.first() is not None


async def forget_witnesses(connection: AsyncConnection) -> None:
    """Delete the states of all witnesses."""
    await connection.execute(text("DELETE FROM log_witnesses"))


async def change_witness(connection: AsyncConnection, state: WitnessState) -> None:
    """Store the result of asking a witness."""
    await connection.execute(
        text(
            "UPDATE log_witnesses SET size = :size, cosigned_at = :cosigned_at, "
            "next_at = :next_at, failures = :failures, since = :since, problem = :problem "
            "WHERE witness = :witness"
        ),
        asdict(state),
    )
