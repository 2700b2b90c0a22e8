"""Rows of imports that are taken back: which lines are in force by them, and ending these.

A line stands by the newest import that stated it, of those that were not taken back and take none
back themselves. Where that is the one to be taken back, the newest of the others is stated again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.statements import statement
from app.finance.import_store import TABLES, Import, ImportKind, sum_of, summed
from reconcile.instants import EARLIEST, Instant

_KEYS: Final[dict[ImportKind, tuple[str, ...]]] = {
    "book": ("match_key", "kind"),
    "statement": ("subject", "kind", "source", "ordinal"),
    "bank": ("subject", "ordinal"),
}

_TOLD: Final[dict[ImportKind, str]] = {
    "book": (
        "line, reference, minor, currency, placed_at, status, group_key, group_name, refunded, "
        "refunded_at, phone"
    ),
    "statement": (
        "line, match_key, payment, order_ref, currency, gross, fee, net, settled_at, payout"
    ),
    "bank": "line, account, currency, minor, booked_at, entry, reference, counterparty, told",
}
"""What a version says beside its key and its imports."""

_MONEY: Final[dict[ImportKind, tuple[str, str]]] = {
    "book": ("one.minor", "placed_at"),
    "statement": ("CASE one.gross WHEN 0 THEN one.net ELSE one.gross END", "settled_at"),
    "bank": ("one.minor", "booked_at"),
}
"""The money of a line, and its date; a line that is a fee has its money as net alone."""

_STANDING: Final = (
    "SELECT max(stated.since) FROM {table} AS stated WHERE {same} AND stated.since < :beyond "
    "AND stated.since NOT IN (SELECT number FROM imports WHERE withdraws IS NOT NULL) "
    "AND stated.since NOT IN (SELECT withdraws FROM imports "
    "WHERE withdraws IS NOT NULL AND published_at IS NOT NULL)"
)
"""The import by which a line stands, of those before `:beyond`."""

_BY_IT: Final = "one.since = :number AND one.since = ({standing})"

_IN_FORCE: Final = (
    "SELECT one.currency, count(*), {sums}, "
    "sum(CASE WHEN one.{date} < :before THEN 1 ELSE 0 END) FROM {table} AS one WHERE {by_it} "
    "GROUP BY one.currency"
)

_STATE_AGAIN: Final = (
    "INSERT INTO {table} ({keys}, since, {told}) "
    "SELECT {one_keys}, :by, {told_before} FROM {table} AS one JOIN {table} AS before ON {both} "
    "WHERE {by_it} AND before.since = ({standing_before})"
)

_END: Final = (
    "UPDATE {table} SET until = :by WHERE until IS NULL AND since <> :by AND EXISTS "
    "(SELECT 1 FROM {table} AS one WHERE {of_it} AND {by_it})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """The lines that stand by an import.

    lines   how many
    sums    their money by currency, in minor units, without signs
    before  how many of them are dated before an instant
    """

    lines: int
    sums: dict[str, int]
    before: int


def _sql(form: str, kind: ImportKind) -> str:
    """One of the statements above for one kind of import."""
    table, keys = TABLES[kind], _KEYS[kind]
    minor, date = _MONEY[kind]
    standing = statement(_STANDING, table=table, same=_equal("stated", "one", keys))
    names = {
        "table": table,
        "sums": summed(f"abs({minor})"),
        "date": date,
        "keys": ", ".join(keys),
        "one_keys": ", ".join(f"one.{name}" for name in keys),
        "told": _TOLD[kind],
        "told_before": ", ".join(f"before.{name}" for name in _TOLD[kind].split(", ")),
        "both": _equal("before", "one", keys),
        "of_it": _equal("one", table, keys),
        "by_it": statement(_BY_IT, standing=standing),
        "standing_before": standing.replace(":beyond", ":number"),
    }
    return statement(
        form, **{name: words for name, words in names.items() if f"{{{name}}}" in form}
    )


def _equal(one: str, other: str, keys: tuple[str, ...]) -> str:
    return " AND ".join(f"{one}.{name} = {other}.{name}" for name in keys)


_EVERY: Final = 2**62
"""Beyond the number of every import."""


async def in_force(
    connection: AsyncConnection, found: Import, *, before: Instant = EARLIEST
) -> InForce:
    """What stands by it."""
    values = {"number": found.number, "beyond": _EVERY, "before": before}
    rows = (await connection.execute(text(_sql(_IN_FORCE, found.kind)), values)).all()
    return InForce(
        lines=sum(int(row[1]) for row in rows),
        sums={row[0]: sum_of(row[2], row[3]) for row in rows},
        before=sum(int(row[4]) for row in rows),
    )


async def take_back(connection: AsyncConnection, found: Import, *, by: int) -> int:
    """End the lines that stand by an import, by another one; state again what was stated before.
    Returns how many were. `found` must not be taken back yet by what is published."""
    values: dict[str, Any] = {"number": found.number, "beyond": by, "by": by}
    restored = await connection.execute(text(_sql(_STATE_AGAIN, found.kind)), values)
    await connection.execute(text(_sql(_END, found.kind)), values)
    return restored.rowcount


async def later_imports(connection: AsyncConnection, found: Import) -> tuple[int, ...]:
    """The later imports of its kind that found rows unchanged, and stand."""
    rows = await connection.execute(
        text(
            "SELECT number FROM imports WHERE kind = :kind AND number > :number AND unchanged > 0 "
            "AND withdraws IS NULL AND number NOT IN "
            "(SELECT withdraws FROM imports WHERE withdraws IS NOT NULL) ORDER BY number"
        ),
        {"kind": found.kind, "number": found.number},
    )
    return tuple(row[0] for row in rows)


async def named_by(connection: AsyncConnection, author: str) -> int:
    """Of how many orders this author said what they were paid by."""
    found = await connection.scalar(
        text("SELECT count(DISTINCT order_key) FROM records WHERE author = :author"),
        {"author": author},
    )
    return int(found or 0)
