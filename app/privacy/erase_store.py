"""Rows that an erasure finds and empties, and the database's copy of the journal of erasures.

The copy has the lines that were carried out in this database. Lines that only the file has are
still to be carried out here: after a crash, or in an older backup.
"""

import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.masking import is_written_out, written_out
from app.database.statements import insert_rows, run, select_in, statement, stream
from app.receiving.inbox_file_store import path_of
from reconcile.instants import Instant

ROWS_AT_ONCE: Final = 1_000

READ_AT_ONCE: Final = 1024 * 1024
"""Bytes in memory at a time."""


def files_with(path: Path, sought: Sequence[bytes], *, log_only: bool = False) -> list[Path]:
    """Return the files of the database and of its inbox, with their logs and the logs' indexes,
    that hold one of these bytes. `log_only`: without the database's own file, which may be long."""
    names = ("", "-wal", "-shm", "-journal")
    files = [Path(f"{each}{name}") for each in (path, path_of(path)) for name in names]
    if log_only:
        files.remove(path)
    return [each for each in files if each.exists() and _contains(each, sought)]


def _contains(path: Path, sought: Sequence[bytes]) -> bool:
    longest = max(map(len, sought))
    rest = b""
    with path.open("rb") as file:
        while part := file.read(READ_AT_ONCE):
            window = rest + part
            if any(each in window for each in sought):
                return True
            rest = window[-longest:]
    return False


TABLES: Final = (
    "attachment_files",
    "attachments",
    "bank_lines",
    "book_lines",
    "deliveries",
    "envelopes",
    "events",
    "inbox",
    "order_keys",
    "phones",
    "rejections",
    "suspects",
    "unanswered",
    "unread_values",
)
"""Tables in which an erasure empties or deletes rows."""

AT_ONCE: Final = 500
"""Deliveries read at a time while their bytes are searched."""

REFUSED: Final = (
    "SELECT id, headers, body, received_at FROM rejections WHERE id > :after "
    "ORDER BY id LIMIT :limit"
)
"""Refused deliveries that are kept."""

READ: Final = (
    "SELECT id, headers, body, received_at FROM deliveries "
    "WHERE pruned_at IS NULL AND id > :after ORDER BY id LIMIT :limit"
)
"""Deliveries that still have their headers."""

WHOLE: Final = (
    "SELECT digest, '', body, 0 FROM envelopes WHERE body IS NOT NULL AND digest > :after "
    "ORDER BY digest LIMIT :limit"
)
"""Whole bodies of several events that are still there, by digest."""

# The verdict stands in the text, not among the values: the index holds this verdict alone.
UNREADABLE: Final = (
    "SELECT id, headers, body, received_at FROM deliveries "
    "WHERE verdict = 'unreadable' AND pruned_at IS NULL AND id > :after ORDER BY id LIMIT :limit"
)
"""Deliveries that could not be read and still have their bytes."""

_OWNERS: Final = (
    "SELECT deliveries.id, deliveries.received_at, deliveries.source, deliveries.pruned_at, "
    "events.order_key, deliveries.verdict FROM deliveries LEFT JOIN events "
    "ON events.event_id = deliveries.event_id AND events.source = deliveries.source "
    "AND events.digest = deliveries.digest WHERE deliveries.id IN ({})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """A delivery and its order; None where it has none. `unread`: it could not be read."""

    delivery_id: str
    received_at: Instant
    source: str
    pruned: bool
    order: str | None
    unread: bool


async def owners(connection: AsyncConnection, deliveries: Iterable[str]) -> list[Owned]:
    """Return these deliveries, by id, with the orders they belong to."""
    rows = await select_in(connection, sql=_OWNERS, values=deliveries)
    return [
        Owned(
            delivery_id=row[0],
            received_at=row[1],
            source=row[2],
            pruned=row[3] is not None,
            order=row[4],
            unread=row[5] == "unreadable",
        )
        for row in sorted(rows)
    ]


class SearchedText(NamedTuple):
    """Headers and body, in which somebody may be named: of a delivery, or of a refused one."""

    id: str
    headers: str
    body: bytes | None
    received_at: Instant

    def whole(self) -> str:
        """Return both, as they are and without their escapes."""
        decoded = (self.body or b"").decode("utf-8", "replace")
        # What is long in a header is a signature, and no document.
        headers = written_out(self.headers) if "%" in self.headers else self.headers
        return f"{headers}\n{written_out(decoded)}"


async def searched_texts(
    connection: AsyncConnection, select: str
) -> AsyncIterator[list[SearchedText]]:
    """Yield the texts of READ, UNREADABLE, REFUSED or WHOLE, some at a time."""
    after = ""
    while True:
        values = {"after": after, "limit": AT_ONCE}
        rows = (await connection.execute(text(select), values)).all()
        if not rows:
            return
        yield [SearchedText(*row) for row in rows]
        after = rows[-1][0]


async def deliveries_that_hold(
    connection: AsyncConnection,
    written: re.Pattern[str],
    hint: re.Pattern[bytes],
    *,
    unreadable: bool = False,
) -> AsyncIterator[tuple[int, list[str]]]:
    """Yield deliveries whose own body or a header holds what a pattern finds, some at a time, with
    how many were looked at: of all, or of those that could not be read.

    hint  what is in every such body, and is found faster
    """
    async for texts in searched_texts(connection, UNREADABLE if unreadable else READ):
        held = [each.id for each in texts if _holds(written, hint, each)]
        yield len(texts), held


async def wholes_that_hold(
    connection: AsyncConnection, written: re.Pattern[str], hint: re.Pattern[bytes]
) -> set[str]:
    """Return the digests of whole bodies of several events that hold what a pattern finds. One of
    the events may have lost its own bytes, and what stands beside the events is in no other
    place."""
    found = set[str]()
    async for texts in searched_texts(connection, WHOLE):
        found |= {each.id for each in texts if _holds(written, hint, each)}
    return found


async def owners_in_wholes(
    connection: AsyncConnection, digests: Iterable[str]
) -> dict[str, list[Owned]]:
    """Return the deliveries that came in these whole bodies, by the body's digest."""
    rows = await select_in(
        connection, sql="SELECT id, envelope FROM deliveries WHERE envelope IN ({})", values=digests
    )
    whole = {row[0]: row[1] for row in rows}
    found: dict[str, list[Owned]] = {}
    for owned in await owners(connection, whole):
        found.setdefault(whole[owned.delivery_id], []).append(owned)
    return found


async def rejections_that_hold(
    connection: AsyncConnection, patterns: Sequence[re.Pattern[str]]
) -> list[tuple[str, Instant]]:
    """Return rejections whose body or a header holds what one of the patterns finds, and when they
    arrived."""
    found: list[tuple[str, Instant]] = []
    async for texts in searched_texts(connection, REFUSED):
        for each in texts:
            if any(pattern.search(each.whole()) for pattern in patterns):
                found.append((each.id, each.received_at))
    return found


def _holds(written: re.Pattern[str], hint: re.Pattern[bytes], each: SearchedText) -> bool:
    headers, body = each.headers.encode("latin-1", "replace"), each.body or b""
    if not (hint.search(headers) or hint.search(body)):
        if b"%" not in headers and is_written_out(body):
            return False
        if hint.search(each.whole().encode("utf-8", "replace")) is None:
            return False
    return written.search(each.whole()) is not None


_REASONS: Final = (
    'SELECT events."row", events.reason FROM deliveries JOIN events '
    "ON events.event_id = deliveries.event_id AND events.source = deliveries.source "
    "AND events.digest = deliveries.digest "
    "WHERE events.reason IS NOT NULL AND deliveries.id IN ({})"
)


async def reasons_of(
    connection: AsyncConnection, deliveries: Iterable[str]
) -> list[tuple[int, str]]:
    """Return the reasons of the events that these deliveries brought, each with the event's row."""
    rows = await select_in(connection, sql=_REASONS, values=deliveries)
    return sorted({(row[0], row[1]) for row in rows})


async def rewrite_reasons(connection: AsyncConnection, reasons: Iterable[tuple[int, str]]) -> None:
    """Write other words in the place of the reasons of these rows: no leaf and no ledger's
    substance holds them."""
    for row, reason in reasons:
        await connection.execute(
            text('UPDATE events SET reason = :reason WHERE "row" = :number'),
            {"reason": reason, "number": row},
        )


Of = Literal["orders", "keys", "deliveries", "all"]
"""How the texts of a place are found: by orders, their keys in books and statements, or their
deliveries; `all` reads a short table whole."""

_BREAKS: Final = "break_id IN (SELECT id FROM breaks WHERE order_ref IN ({}))"
_PROPOSED: Final = "proposal IN (SELECT id FROM proposals WHERE subject IN ({}))"
_ASKED: Final = "event_id IN (SELECT event_id FROM events WHERE order_key IN ({}))"

_PLACES: Final[tuple[tuple[str, str, str, Of], ...]] = (
    (
        "events", "order_key event_id kind order_ref session payment movement capture",
        "order_key IN ({})", "orders",
    ),
    ("records", "order_key session payment reason details", "order_key IN ({})", "orders"),
    ("revisions", "order_key substance because", "order_key IN ({})", "orders"),
    ("ledgers", "order_key substance", "order_key IN ({})", "orders"),
    ("links", "reference order_key", "order_key IN ({})", "orders"),
    ("contested", "order_key other", "order_key IN ({})", "orders"),
    ("order_due", "order_key", "order_key IN ({})", "orders"),
    ("order_listings", "order_key", "order_key IN ({})", "orders"),
    ("notifications", "order_key", "order_key IN ({})", "orders"),
    ("takings", "key order_key payment cite told", "order_key IN ({})", "orders"),
    ("attachments", "subject order_key", "order_key IN ({})", "orders"),
    ("confirmations", "event_id", _ASKED, "orders"),
    ("audit", "subject reason", "subject IN ({})", "orders"),
    ("proposals", "subject sentence given reason", "subject IN ({})", "orders"),
    ("proposal_decisions", "reason", _PROPOSED, "orders"),
    ("breaks", "order_ref payment subject", "order_ref IN ({})", "orders"),
    ("break_deeds", "value reason", _BREAKS, "orders"),
    ("break_turns", "cites", _BREAKS, "orders"),
    ("break_versions", "seen", _BREAKS, "orders"),
    ("deliveries", "event_id", "id IN ({})", "deliveries"),
    ("book_lines", "match_key reference group_key group_name", "match_key IN ({})", "keys"),
    ("statement_lines", "subject match_key payment order_ref payout refund", "match_key IN ({})",
     "keys"),
    ("bookmarks", "label query", "1 = 1", "all"),
    ("imports", "file reason", "1 = 1", "all"),
    ("runs", "result", "1 = 1", "all"),
    ("closings", "document", "1 = 1", "all"),
    ("closing_prints", "content", "1 = 1", "all"),
    ("reopenings", "document", "1 = 1", "all"),
    ("signoffs", "note", "1 = 1", "all"),
)  # fmt: skip
"""Texts that an erasure keeps: the table, its columns, and which of its rows."""


_KEPT: Final = "SELECT {column} FROM {table} WHERE {column} IS NOT NULL AND ({which})"


async def kept_texts(
    connection: AsyncConnection, whom: Mapping[Of, Sequence[str]]
) -> AsyncIterator[tuple[str, list[str]]]:
    """Yield the texts that an erasure keeps, with their place, some at a time. A place may come
    again. Of the short tables, yield all.

    whom  the orders, their keys in books and statements, and their deliveries
    """
    for table, columns, where, of in _PLACES:
        for column in columns.split():
            sql, place = (
                statement(_KEPT, column=column, table=table, which=where),
                f"{table}.{column}",
            )
            if of == "all":
                async for rows in stream(connection, sql, at_once=ROWS_AT_ONCE):
                    yield place, [_as_text(row[0]) for row in rows]
            else:
                found = await select_in(connection, sql=sql, values=whom[of])
                yield place, [_as_text(row[0]) for row in found]


def _as_text(value: str | bytes) -> str:
    return value if isinstance(value, str) else bytes(value).decode("utf-8", "replace")


async def wholes_of(connection: AsyncConnection, deliveries: Iterable[str]) -> dict[str, str]:
    """Return, for the deliveries that came with others in a whole body that is still there, its
    digest."""
    rows = await select_in(
        connection,
        sql="SELECT deliveries.id, envelopes.digest FROM envelopes JOIN deliveries "
        "ON deliveries.envelope = envelopes.digest "
        "WHERE envelopes.body IS NOT NULL AND deliveries.id IN ({})",
        values=deliveries,
    )
    return {row[0]: row[1] for row in rows}


async def orders_asked_for(connection: AsyncConnection, phone: str) -> list[str]:
    """Return orders with a session request that waits for its answer and names this number."""
    rows = await connection.execute(
        text("SELECT order_key FROM unanswered WHERE request LIKE :held"),
        {"held": f'%"{phone}"%'},
    )
    return [row[0] for row in rows]


async def empty_wholes(connection: AsyncConnection, deliveries: Sequence[str]) -> None:
    """Delete whole bodies of several events with the first of them, since they hold all."""
    await select_in(
        connection,
        sql="UPDATE envelopes SET body=NULL WHERE digest IN (SELECT envelope FROM deliveries "
        "WHERE envelope IS NOT NULL AND id IN ({}))",
        values=deliveries,
    )


async def unread_beside(
    connection: AsyncConnection, deliveries: Iterable[str]
) -> dict[str, set[str]]:
    """Return, for the deliveries that came in a whole body that is still there, others in it that
    could not be read, and still have their bytes."""
    rows = await select_in(
        connection,
        sql="SELECT deliveries.id, others.id FROM deliveries "
        "JOIN envelopes ON envelopes.digest = deliveries.envelope "
        "JOIN deliveries AS others ON others.envelope = deliveries.envelope "
        "WHERE envelopes.body IS NOT NULL AND others.verdict = 'unreadable' "
        "AND others.pruned_at IS NULL AND others.id <> deliveries.id AND deliveries.id IN ({})",
        values=deliveries,
    )
    found: dict[str, set[str]] = {}
    for delivery, other in rows:
        found.setdefault(delivery, set()).add(other)
    return found


async def drop_requests(connection: AsyncConnection, orders: Sequence[str]) -> int:
    """Delete session requests of these orders. Return how many there were."""
    gone = await select_in(
        connection,
        sql="DELETE FROM unanswered WHERE order_key IN ({}) RETURNING 1",
        values=orders,
    )
    return len(gone)


_NAME: Final = "erasure journal"
"""Name in `meta`: which journal this database is with."""


async def journal_name(connection: AsyncConnection) -> str | None:
    """Return the journal that this database is with; None before there is one."""
    found: str | None = await connection.scalar(
        text("SELECT value FROM meta WHERE name = :name"), {"name": _NAME}
    )
    return found


async def carried_out(connection: AsyncConnection) -> list[str]:
    """Return the lines of that journal that were carried out here, in its order."""
    rows = await connection.execute(
        text(
            "SELECT line FROM erasures WHERE journal = "
            "(SELECT value FROM meta WHERE name = :name) ORDER BY number"
        ),
        {"name": _NAME},
    )
    return [row[0] for row in rows]


_NOTE: Final = "INSERT INTO meta (name, value) VALUES (:name, :value) ON CONFLICT (name) DO NOTHING"
_NOTE_INSTEAD: Final = (
    "INSERT INTO meta (name, value) VALUES (:name, :value) "
    "ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)


async def note_journal(connection: AsyncConnection, name: str, *, instead: bool = False) -> None:
    """Note that the database is with this journal from now on, unless there is one. `instead`: also
    then."""
    sql = _NOTE_INSTEAD if instead else _NOTE
    await connection.execute(text(sql), {"name": _NAME, "value": name})


async def note_carried_out(
    connection: AsyncConnection, name: str, lines: Iterable[tuple[int, str]]
) -> None:
    """Add lines, with their numbers; those that are there stay."""
    await run(
        connection,
        insert_rows,
        table="erasures",
        columns=("journal", "number", "line"),
        rows=[(name, number, line) for number, line in lines],
        conflict="ON CONFLICT DO NOTHING",
    )


async def known_references(connection: AsyncConnection) -> AsyncIterator[list[str]]:
    """Yield every order's reference, and those in order books, some at a time; a few more than
    once."""
    for sql in ("SELECT order_key FROM order_due", "SELECT DISTINCT reference FROM book_lines"):
        async for rows in stream(connection, sql, at_once=ROWS_AT_ONCE):
            yield [row[0] for row in rows]


async def known_digests(connection: AsyncConnection) -> AsyncIterator[list[bytes]]:
    """Yield the digest of every phone number by which an order is found."""
    sql = "SELECT DISTINCT digest FROM phones"
    async for rows in stream(connection, sql, at_once=ROWS_AT_ONCE):
        yield [bytes(row[0]) for row in rows]


async def known_phones(connection: AsyncConnection) -> AsyncIterator[list[str]]:
    """Yield what stands as phone numbers in order books, the session requests that wait, the texts
    of banks, and what is said of attachments."""
    for sql in (
        "SELECT DISTINCT phone FROM book_lines WHERE phone > ''",
        "SELECT request FROM unanswered",
        "SELECT entry || ' ' || reference || ' ' || counterparty || ' ' || told FROM bank_lines",
        "SELECT details FROM attachments WHERE details IS NOT NULL",
    ):
        async for rows in stream(connection, sql, at_once=ROWS_AT_ONCE):
            yield [row[0] for row in rows]
