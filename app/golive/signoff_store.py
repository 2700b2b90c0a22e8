"""Store the results of the go-live checklist, from checks and from people.

Rows are never changed or deleted.
"""

from dataclasses import asdict, dataclass
from typing import Literal

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.access.operator_store import acting_alone
from reconcile.instants import Instant

Judged = Literal["passed", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signoff:
    """Statement of a person or of the program about an item of the checklist."""

    item: str
    state: Judged
    at: Instant
    signer: str
    note: str


async def add_signoff(connection: AsyncConnection, signoff: Signoff) -> None:
    """Store a statement about an item of the checklist, with the next number."""
    await acting_alone(connection)
    await connection.execute(
        text(
            "INSERT INTO signoffs (number, item, state, at, signer, note) "
            "SELECT coalesce(max(number), 0) + 1, :item, :state, :at, :signer, :note FROM signoffs"
        ),
        asdict(signoff),
    )


async def signoffs(connection: AsyncConnection) -> list[Signoff]:
    """Return all statements about items of the checklist, oldest first."""
    rows = await connection.execute(
        text("SELECT item, state, at, signer, note FROM signoffs ORDER BY number")
    )
    return [
        Signoff(item=row[0], state=row[1], at=row[2], signer=row[3], note=row[4]) for row in rows
    ]
