"""Query a matching's rows, also for synchronous code."""

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final, TypeVar

from sqlalchemy import column, select, table, text
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.util import await_only

from app.database.statements import select_in, statement, stream
from app.finance.book_line_store import book_rows_of
from app.finance.import_store import KNOWN, newest_published
from app.finance.line_version_store import lines_known
from app.finance.statement_store import ROW_FIELDS
from reconcile.instants import Instant
from reconcile.matching.books import match_key
from reconcile.matching.rows import BookRow, StatementRow
from reconcile.matching.rules import HandMatch

Item = TypeVar("Item")
Result = TypeVar("Result")


async def in_step(connection: AsyncConnection, work: Callable[[], Result]) -> Result:
    """Run a synchronous function that can call `rows_of`."""
    return await connection.run_sync(lambda _: work())


async def share_snapshot(connection: AsyncConnection) -> str:
    """Share this transaction's snapshot, and return its name. Call this before any other
    statement."""
    if connection.dialect.name == "sqlite":
        await newest_published(connection)  # a transaction begins with its first read
        return ""
    return str(await connection.scalar(text("SELECT pg_export_snapshot()")))


async def hold_snapshot(connection: AsyncConnection, name: str) -> None:
    """Use the shared snapshot in this transaction."""
    if connection.dialect.name != "sqlite":
        # A parameter is not possible here. The server makes names of digits and dashes only.
        assert name.replace("-", "").isalnum()
        sql = statement("SET TRANSACTION SNAPSHOT '{name}'", name=name)
        await connection.execute(text(sql))
    await newest_published(connection)


def rows_of(batches: AsyncIterator[list[Item]], progress: Callable[[int], None]) -> Iterator[Item]:
    """Yield an asynchronous stream's rows for code in `in_step`."""
    return chain.from_iterable(_counted_batches(batches, progress))


def _counted_batches(
    batches: AsyncIterator[list[Item]], progress: Callable[[int], None]
) -> Iterator[list[Item]]:
    while (batch := await_only(anext(batches, None))) is not None:
        progress(len(batch))
        yield batch


def wait_for(work: Awaitable[Result]) -> Result:
    """Return an awaitable's result, for synchronous code that `in_step` runs."""
    return await_only(work)


async def rows_to_read(connection: AsyncConnection) -> tuple[int, int]:
    found = await connection.execute(
        text(
            "SELECT (SELECT count(*) FROM order_due), coalesce(sum(new), 0) FROM imports "
            "WHERE published_at IS NOT NULL"
        )
    )
    orders, lines = found.one()
    return int(orders), int(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRules:
    """Saved version of the matching rules, numbered from 1."""

    number: int
    at: Instant
    who: str
    digest: str
    toml: str


_RULES: Final = table("match_rules", *map(column, ("number", "at", "who", "digest", "toml")))


async def rules_in_force(
    connection: AsyncConnection, *, as_of: Instant | None = None
) -> SavedRules | None:
    """Return the saved rules in force, or None."""
    newest = select(_RULES).order_by(_RULES.c.number.desc()).limit(1)
    if as_of is not None:
        newest = newest.where(_RULES.c.at <= as_of)
    found = (await connection.execute(newest)).first()
    if found is None:
        return None
    number, at, who, digest, toml = found
    return SavedRules(number=number, at=at, who=who, digest=digest, toml=toml)


async def add_rules(connection: AsyncConnection, *, at: Instant, who: str, toml: str) -> SavedRules:
    last = await rules_in_force(connection)
    saved = SavedRules(
        number=1 if last is None else last.number + 1,
        at=at,
        who=who,
        digest=hashlib.sha256(toml.encode()).hexdigest(),
        toml=toml,
    )
    await connection.execute(
        text(
            "INSERT INTO match_rules (number, at, who, digest, toml) "
            "VALUES (:number, :at, :who, :digest, :toml)"
        ),
        {name: getattr(saved, name) for name in ("number", "at", "who", "digest", "toml")},
    )
    return saved


AT_ONCE: Final = 4_000

_GROUPED: Final = statement(
    "SELECT match_key, group_key FROM book_lines WHERE group_key IS NOT NULL AND {known}",
    known=KNOWN,
)

_ELSEWHERE: Final = statement(
    "SELECT match_key, {row}, order_key FROM statement_lines "
    "JOIN (SELECT reference, order_key FROM links WHERE kind = 'payment') "
    "AS paid ON paid.reference = statement_lines.payment "
    "WHERE match_key IS NOT NULL AND order_ref <> order_key AND {known}",
    row=ROW_FIELDS,
    known=KNOWN,
)

_CONTESTED: Final = statement(
    "SELECT '', {row} FROM statement_lines WHERE match_key IS NULL AND payment IS NOT NULL "
    "AND (SELECT count(DISTINCT order_key) FROM links WHERE links.kind = 'payment' "
    "AND links.reference = statement_lines.payment) > 1 AND {known}",
    row=ROW_FIELDS,
    known=KNOWN,
)

_NAMED_BOOK: Final = "SELECT match_key FROM book_lines WHERE line IN ({})"

_NAMED_LINES: Final = statement("coalesce(match_key, ''), {row}", row=ROW_FIELDS)

_ORDERS: Final = "SELECT order_key FROM links WHERE kind = 'payment' AND reference IN ({})"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedLines:
    """Keys of orders that may be joined, with the joining lines."""

    keys: Collection[str]
    book: list[BookRow]
    statements: list[StatementRow]


async def joined_lines(
    connection: AsyncConnection, hands: Iterable[HandMatch], *, as_of: Instant
) -> JoinedLines:
    """Return the keys of orders that belong together."""
    number = await newest_published(connection, as_of=as_of)
    keys: set[str] = set()
    async for rows in stream(connection, _GROUPED, at_once=AT_ONCE, values={"number": number}):
        keys.update(key for row in rows for key in row)
    lines: dict[str, StatementRow] = {}
    async for rows in stream(connection, _ELSEWHERE, at_once=AT_ONCE, values={"number": number}):
        for row in rows:
            if match_key(row[-1]) != row[0]:  # otherwise it is another spelling of one order
                keys.update((row[0], match_key(row[-1])))
                lines[row[1]] = StatementRow(*row[:-1])
    async for rows in stream(connection, _CONTESTED, at_once=AT_ONCE, values={"number": number}):
        lines.update({row[1]: StatementRow(*row) for row in rows})
    names = {name for hand in hands for name in (hand.one, hand.other)}
    subjects = {name for name in names if name.startswith(("bok_", "stm_"))}
    keys.update(match_key(name) for name in names - subjects)
    keys.update(row[0] for row in await select_in(connection, sql=_NAMED_BOOK, values=subjects))
    named = await lines_known(connection, "statement", _NAMED_LINES, as_of=as_of, line=subjects)
    for row in named:
        lines[row[1]] = StatementRow(*row)
        keys.add(row[0])
    payments = {line.payment for line in lines.values() if line.payment is not None}
    owners = await select_in(connection, sql=_ORDERS, values=payments)
    keys.update(match_key(row[0]) for row in owners)
    keys.discard("")
    book = await book_rows_of(connection, keys, as_of=as_of)
    return JoinedLines(
        keys=keys, book=[BookRow(*row) for row in book], statements=list(lines.values())
    )
