"""Balances of bank statements. Rows are only added, and count while their import stands."""

from collections.abc import Iterable
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.statements import statement
from reconcile.instants import Instant
from reconcile.matching.balances import StatementBalances

_COLUMNS: Final = tuple(StatementBalances.__dataclass_fields__)

_ADD: Final = statement(
    "INSERT INTO bank_balances ({columns}) VALUES ({values})",
    columns=", ".join(_COLUMNS),
    values=", ".join(f":{name}" for name in _COLUMNS),
)

_STANDING: Final = statement(
    "SELECT {columns} FROM bank_balances JOIN imports ON imports.number = of_import "
    "WHERE imports.published_at <= :as_of AND NOT EXISTS (SELECT 1 FROM imports AS other "
    "WHERE other.withdraws = of_import AND other.published_at <= :as_of)",
    columns=", ".join(_COLUMNS),
)


async def add_balances(
    connection: AsyncConnection, found: Iterable[StatementBalances], *, of_import: int
) -> None:
    for each in found:
        values = {name: getattr(each, name) for name in _COLUMNS} | {"of_import": of_import}
        await connection.execute(text(_ADD), values)


async def standing_balances(
    connection: AsyncConnection, *, as_of: Instant
) -> list[StatementBalances]:
    """Return the balances of the imports that stood at an instant, in no order."""
    rows = await connection.execute(text(_STANDING), {"as_of": as_of})
    return [StatementBalances(**dict(zip(_COLUMNS, row, strict=True))) for row in rows]
