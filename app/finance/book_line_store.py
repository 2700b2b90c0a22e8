"""Read the lines of order books as of an instant."""

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.statements import Rows, select_in, statement, stream
from app.finance import import_store
from app.finance.line_version_store import ERASED_PHONE, lines_known
from reconcile.instants import EARLIEST, Instant
from reconcile.matching.books import BookLine, Methods
from reconcile.money import Money

AT_ONCE: Final = 4_000

_ROW: Final = (
    "match_key, line || '.' || since, reference, kind, minor, currency, placed_at, status, "
    "group_name, refunded, refunded_at, method"
)
_ROWS: Final = "SELECT {row} FROM book_lines WHERE {known} AND {keys} ORDER BY match_key, kind"
_ROWS_FROM: Final = statement(_ROWS, row=_ROW, known=import_store.KNOWN, keys="match_key >= :first")
_ROWS_BETWEEN: Final = statement(
    _ROWS, row=_ROW, known=import_store.KNOWN, keys="match_key >= :first AND match_key < :beyond"
)
_METHODS: Final = "SELECT DISTINCT method FROM book_lines WHERE method IS NOT NULL"


async def book_rows(
    connection: AsyncConnection, *, as_of: Instant, first: str = "", beyond: str | None = None
) -> AsyncIterator[Rows]:
    """Yield the order book's lines in batches sorted by key."""
    values: dict[str, Any] = {
        "first": first,
        "number": await import_store.newest_published(connection, as_of=as_of),
    }
    if beyond is not None:
        values["beyond"] = beyond
    sql = _ROWS_FROM if beyond is None else _ROWS_BETWEEN
    async for rows in stream(connection, sql, at_once=AT_ONCE, values=values):
        yield rows


async def book_rows_of(connection: AsyncConnection, keys: Iterable[str], *, as_of: Instant) -> Rows:
    """Return the order book's rows with these keys."""
    return await lines_known(connection, "book", _ROW, as_of=as_of, match_key=keys)


async def outside_orders(
    connection: AsyncConnection, *, methods: Methods, named: Iterable[str], as_of: Instant
) -> list[BookLine]:
    """Return the order-book lines that no provider handles."""
    cells = [row[0] for row in await connection.execute(text(_METHODS))]
    chosen = [cell for cell in cells if methods.parts(cell) & {"outside", "bank"}]
    rows = await lines_known(connection, "book", _ROW, as_of=as_of, method=chosen, line=named)
    return [book_line_of(row) for row in sorted(rows, key=lambda row: row[1])]


async def book_lines_of(
    connection: AsyncConnection, keys: Iterable[str], *, as_of: Instant
) -> list[tuple[str, BookLine]]:
    """Return the lines whose reference or group has these keys."""
    wanted = set(keys)
    rows = await lines_known(
        connection, "book", _ROW, as_of=as_of, match_key=wanted, group_key=wanted
    )
    return [(row[0], book_line_of(row)) for row in sorted(rows, key=lambda row: row[:2])]


def book_line_of(row: Sequence[Any]) -> BookLine:
    return BookLine(
        line_id=row[1],
        reference=row[2],
        kind=row[3],
        money=Money(minor=row[4], currency=row[5]),
        placed_at=row[6],
        status=row[7],
        group=row[8],
        refunded=row[9],
        refunded_at=row[10],
        method=row[11],
    )


LineKey = tuple[str, str, int]
"""Key of one version of one line: (match_key, kind, since)."""

_OF_PHONES: Final = "SELECT match_key, kind, since FROM book_lines WHERE phone IN ({})"
_WITH_PHONES: Final = (
    "SELECT match_key, kind, since FROM book_lines WHERE phone > '' AND match_key IN ({})"
)
_OLD: Final = (
    "SELECT match_key, kind, since FROM book_lines WHERE phone > '' AND since <= :number "
    "AND (match_key, kind, since) > (:match_key, :kind, :since) "
    "ORDER BY match_key, kind, since LIMIT :limit"
)


async def lines_with(
    connection: AsyncConnection,
    *,
    phones: Iterable[str] = (),
    keys: Iterable[str] = (),
) -> list[LineKey]:
    """Return the keys of lines with these phone numbers or orders."""
    found = await select_in(connection, sql=_OF_PHONES, values=phones)
    found += await select_in(connection, sql=_WITH_PHONES, values=keys)
    return sorted({(row[0], row[1], row[2]) for row in found})


async def old_lines(
    connection: AsyncConnection, *, before: Instant, after: LineKey | None, limit: int
) -> list[LineKey]:
    """Return the sorted keys of old line versions with a phone number."""
    match_key, kind, since = after or ("", "", 0)
    rows = await connection.execute(
        text(_OLD),
        {
            "number": await import_store.newest_published(connection, as_of=before),
            "match_key": match_key,
            "kind": kind,
            "since": since,
            "limit": limit,
        },
    )
    return [(row[0], row[1], row[2]) for row in rows]


async def last_import_at(connection: AsyncConnection) -> Instant:
    """Return the last import's time, or EARLIEST."""
    found = await connection.execute(
        text("SELECT coalesce(max(published_at), :none) FROM imports"), {"none": EARLIEST}
    )
    return Instant(found.scalar_one())


async def empty_lines(connection: AsyncConnection, lines: Sequence[LineKey]) -> None:
    """Erase the phone numbers in these line versions."""
    for match_key, kind, since in lines:
        await connection.execute(
            text(
                "UPDATE book_lines SET phone = :erased "
                "WHERE match_key = :match_key AND kind = :kind AND since = :since"
            ),
            {"erased": ERASED_PHONE, "match_key": match_key, "kind": kind, "since": since},
        )
