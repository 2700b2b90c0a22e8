"""Counters of orders for each outcome and each finding.

The transaction that writes ledgers also updates the counters, because counting would read every
order. `refold --all` counts again, and `db check` compares.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.statements import PlainConnection, Rows, insert_rows, run, select_rows, statement

OUTCOME: Final = "outcome "
FINDING: Final = "finding "
FEED: Final = "revisions"

LedgerWords = tuple[str, str]
"""Outcome and findings of a cached ledger. The findings are one text, such as `|one|other|`."""

_OURS: Final = (
    "(name >= 'outcome ' AND name < 'outcome!') OR (name >= 'finding ' AND name < 'finding!')"
)
_KEPT: Final = statement("SELECT name, value FROM counters WHERE {ours}", ours=_OURS)
_FORGET: Final = statement("DELETE FROM counters WHERE {ours}", ours=_OURS)


def standing(connection: PlainConnection, orders: Iterable[str]) -> dict[str, LedgerWords]:
    """Return the cached outcome and findings of each order. The keys are the orders' references."""
    sql = "SELECT order_key, outcome, findings FROM ledgers WHERE order_key IN ({})"
    return {row[0]: (row[1], row[2]) for row in select_rows(connection, sql=sql, values=orders)}


def tally(
    connection: PlainConnection,
    *,
    before: Iterable[LedgerWords],
    after: Iterable[LedgerWords],
    revisions: int,
) -> int:
    """Update the counters after ledgers were replaced, and return the first of the reserved
    revision numbers.

    before, after  outcome and findings of the replaced ledgers, and of their replacements
    revisions      number of new revisions

    Other publications wait until the transaction ends, so call this late in it.
    """
    change = Counter(name for words in after for name in words_of(*words))
    change.subtract(name for words in before for name in words_of(*words))
    change[FEED] = revisions
    last: dict[str, int] = dict(_add(connection, change))
    return last.get(FEED, 0) - revisions + 1


def _add(connection: PlainConnection, change: Counter[str]) -> Rows:
    return insert_rows(
        connection,
        table="counters",
        columns=("name", "value"),
        rows=sorted((name, count) for name, count in change.items() if count),
        conflict="ON CONFLICT (name) DO UPDATE SET value=counters.value+excluded.value "
        "RETURNING name, value",
    )


def words_of(outcome: str, findings: str) -> list[str]:
    """Return the names of the counters that count a ledger: one for its outcome, and one for each
    finding."""
    return [OUTCOME + outcome, *(FINDING + code for code in findings.split("|") if code)]


async def count_anew(connection: AsyncConnection) -> None:
    """Count all cached ledgers again, and store the result in the counters."""
    counted = await full_counts(connection)
    await connection.execute(text(_FORGET))
    await run(connection, _add, counted)


async def outcome_counts(connection: AsyncConnection) -> dict[str, int]:
    """Return the number of orders for each outcome. Outcomes without orders are left out."""
    kept = await stored_counts(connection)
    return {
        name.removeprefix(OUTCOME): count
        for name, count in kept.items()
        if count and name.startswith(OUTCOME)
    }


async def finding_counts(connection: AsyncConnection, codes: Iterable[str]) -> dict[str, int]:
    """Return the number of orders for each of these findings."""
    kept = await stored_counts(connection)
    return {code: kept[FINDING + code] for code in codes}


async def stored_counts(connection: AsyncConnection) -> Counter[str]:
    """Return the stored counters that are not zero, by name."""
    rows = await connection.execute(text(_KEPT))
    return Counter({name: int(value) for name, value in rows if value})


async def full_counts(connection: AsyncConnection) -> Counter[str]:
    """Count all cached ledgers again. The keys of the result are the counters' names."""
    counted = Counter[str]()
    sql = text("SELECT outcome, findings, count(*) FROM ledgers GROUP BY outcome, findings")
    for outcome, findings, count in await connection.execute(sql):
        for name in words_of(outcome, findings):
            counted[name] += int(count)
    return counted
