"""The phone numbers in imported order books: found, counted, and let go of one by one.

What was let go stays empty, not NULL, so that a later version of the line does not bring it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.statements import select_in
from app.finance.book_line_store import ERASED
from app.finance.import_store import newest_published
from reconcile.instants import Instant

LineKey = tuple[str, str, int]
"""(match_key, kind, since): one version of one line."""

_KEYS = "SELECT match_key, kind, since FROM book_lines "


async def lines_with(
    connection: AsyncConnection,
    *,
    phones: Iterable[str] = (),
    keys: Iterable[str] = (),
    until: Instant | None = None,
) -> list[LineKey]:
    """All versions of lines that name one of these numbers, or that have one of these keys and
    name any. `until`: only those that were imported by then."""
    found = await select_in(connection, sql=f"{_KEYS} WHERE phone IN ({{}})", values=phones)
    found += await select_in(
        connection, sql=f"{_KEYS} WHERE phone > '' AND match_key IN ({{}})", values=keys
    )
    newest = await newest_published(connection, as_of=until) if found else 0
    lines = {(row[0], row[1], row[2]) for row in found}
    return sorted(line for line in lines if until is None or line[2] <= newest)


async def old_lines(
    connection: AsyncConnection, *, before: Instant, after: LineKey | None, limit: int
) -> list[LineKey]:
    """Versions with a number that were imported before an instant, by key."""
    match_key, kind, since = after or ("", "", 0)
    rows = await connection.execute(
        text(
            f"{_KEYS} WHERE phone > '' AND since <= :number "
            "AND (match_key, kind, since) > (:match_key, :kind, :since) "
            "ORDER BY match_key, kind, since LIMIT :limit"
        ),
        {
            "number": await newest_published(connection, as_of=before),
            "match_key": match_key,
            "kind": kind,
            "since": since,
            "limit": limit,
        },
    )
    return [(row[0], row[1], row[2]) for row in rows]


async def empty_lines(connection: AsyncConnection, lines: Sequence[LineKey]) -> None:
    """Let the numbers of these versions go."""
    for match_key, kind, since in lines:
        await connection.execute(
            text(
                "UPDATE book_lines SET phone = :erased "
                "WHERE match_key = :match_key AND kind = :kind AND since = :since"
            ),
            {"erased": ERASED, "match_key": match_key, "kind": kind, "since": since},
        )
