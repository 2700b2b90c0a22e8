"""Counters of orders by outcome and by finding, kept by the transaction that writes the ledgers.

To count the ledgers themselves reads the row of every order, and figures are asked for all the
time. Each counter is a row of `counters`, named by what it counts: `outcome succeeded`, `finding
overpaid`. Like the ledgers they are a cache: `refold --all` counts anew, and `db check` compares.

Leaves out: which orders these are; listings read the ledgers.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.statements import PlainConnection, insert_rows, run, select_rows

OUTCOME: Final = "outcome "
FINDING: Final = "finding "

LedgerWords = tuple[str, str]
"""An outcome, and findings as a cached ledger has them: `|one|other|`."""

_STANDING: Final = "SELECT order_key, outcome, findings FROM ledgers WHERE order_key IN ({})"
_FULL_COUNT: Final = "SELECT outcome, findings, count(*) FROM ledgers GROUP BY outcome, findings"
_KEPT: Final = (
    "SELECT name, value FROM counters WHERE (name >= 'outcome ' AND name < 'outcome!') "
    "OR (name >= 'finding ' AND name < 'finding!')"
)
_FORGET: Final = (
    "DELETE FROM counters WHERE (name >= 'outcome ' AND name < 'outcome!') "
    "OR (name >= 'finding ' AND name < 'finding!')"
)
_ADD: Final = "ON CONFLICT (name) DO UPDATE SET value=counters.value+excluded.value"


def counters_standing(connection: PlainConnection, orders: Iterable[str]) -> dict[str, LedgerWords]:
    """What the ledgers of these orders say before they are replaced, by order."""
    rows = select_rows(connection, sql=_STANDING, values=orders)
    return {row[0]: (row[1], row[2]) for row in rows}


def tally(
    connection: PlainConnection, *, before: Iterable[LedgerWords], after: Iterable[LedgerWords]
) -> None:
    """Count ledgers that replace others. Last in a transaction: its rows stay locked until the
    commit, and are locked in the order of their names."""
    change = Counter(name for words in after for name in words_of(*words))
    change.subtract(name for words in before for name in words_of(*words))
    _add(connection, change)


def _add(connection: PlainConnection, change: Counter[str]) -> None:
    rows = sorted((name, count) for name, count in change.items() if count)
    if rows:
        insert_rows(
            connection, table="counters", columns=("name", "value"), rows=rows, conflict=_ADD
        )


def words_of(outcome: str, findings: str) -> list[str]:
    """The counters that one ledger counts in: its outcome, and each of its findings."""
    return [OUTCOME + outcome, *(FINDING + code for code in findings.split("|") if code)]


async def count_anew(connection: AsyncConnection) -> None:
    """Put the counters at what a full count gives."""
    counted = await _full_count(connection)
    await connection.execute(text(_FORGET))
    await run(connection, _add, counted)


async def differing_tallies(connection: AsyncConnection) -> list[str]:
    """Counters that are not what a full count gives, one sentence each."""
    kept, counted = await _kept(connection), await _full_count(connection)
    return [
        f"the counter of orders with the {name} is {kept[name]:,}, and there are {counted[name]:,};"
        " `tallyhook refold --all` counts them again"
        for name in sorted(kept.keys() | counted.keys())
        if kept[name] != counted[name]
    ]


async def outcome_counts(connection: AsyncConnection) -> dict[str, int]:
    """How many orders have each outcome, as the cache has them; without those that none has."""
    kept = await _kept(connection)
    return {
        name.removeprefix(OUTCOME): count
        for name, count in kept.items()
        if count and name.startswith(OUTCOME)
    }


async def finding_counts(connection: AsyncConnection, codes: Iterable[str]) -> dict[str, int]:
    """How many orders have each finding, as the cache has them."""
    kept = await _kept(connection)
    return {code: kept[FINDING + code] for code in codes}


async def _kept(connection: AsyncConnection) -> Counter[str]:
    rows = await connection.execute(text(_KEPT))
    return Counter({name: int(value) for name, value in rows})


async def _full_count(connection: AsyncConnection) -> Counter[str]:
    counted = Counter[str]()
    for outcome, findings, count in await connection.execute(text(_FULL_COUNT)):
        for name in words_of(outcome, findings):
            counted[name] += int(count)
    return counted
