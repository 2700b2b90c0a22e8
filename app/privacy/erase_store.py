"""Read and empty the rows of an erasure."""

import json
import re
import zlib
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from sqlalchemy import LargeBinary, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.jobs import silent
from app.core.masking import hint_pattern, is_written_out, written_out, written_pattern
from app.database import statements
from app.database.marks import MARK
from app.finance.book_line_store import LineKey
from app.receiving.inbox_file_store import path_of
from app.receiving.phone_store import PhoneNote
from reconcile.instants import Instant

Key = tuple[Any, ...]

ROWS_AT_ONCE: Final = 1_000

MOST_ASIDE: Final = 10_000
"""Maximum number of set-aside deliveries that are searched. Normally no delivery is set aside."""

READ_AT_ONCE: Final = 1024 * 1024
"""Number of bytes of a file that are in memory at a time."""


def files_with(path: Path, sought: Sequence[bytes]) -> list[Path]:
    """Return the database's files with one of these byte strings."""
    names = ("", "-wal", "-shm", "-journal")
    files = [Path(f"{each}{name}") for each in (path, path_of(path)) for name in names]
    return [each for each in files if each.exists() and _contains(each, sought)]


def _contains(path: Path, sought: Sequence[bytes]) -> bool:
    longest = max(map(len, sought))
    rest = b""
    with path.open("rb") as file:
        while part := file.read(READ_AT_ONCE):
            window = rest + part.lower()  # addresses are searched in lower case
            if any(each in window for each in sought):
                return True
            rest = window[-longest:]
    return False


TABLES: Final = (
    "attachment_files",
    "attachments",
    "bank_lines",
    "book_lines",
    "bookmarks",
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

AT_ONCE: Final = 500
"""Number of deliveries whose bytes are searched at a time."""

REFUSED: Final = (
    "SELECT id, headers, body, received_at FROM rejections WHERE id > :after "
    "ORDER BY id LIMIT :limit"
)

_OWNERS: Final = (
    "SELECT deliveries.id, deliveries.received_at, deliveries.source, deliveries.pruned_at, "
    "events.order_key, deliveries.verdict FROM deliveries LEFT JOIN events "
    "ON events.event_id = deliveries.event_id AND events.source = deliveries.source "
    "AND events.digest = deliveries.digest WHERE deliveries.id IN ({})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """Delivery with its order. `unread` means that reading failed."""

    delivery_id: str
    received_at: Instant
    source: str
    pruned: bool
    order: str | None
    unread: bool


async def owners(connection: AsyncConnection, deliveries: Iterable[str]) -> list[Owned]:
    """Return these deliveries with their orders, sorted by id."""
    rows = await statements.select_in(connection, sql=_OWNERS, values=deliveries)
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
    """Headers and body of a delivery, to be searched for a person."""

    id: str
    headers: str
    body: bytes | None
    received_at: Instant

    def whole(self) -> str:
        """Return headers and body as one text, with escapes decoded."""
        decoded = (self.body or b"").decode("utf-8", "replace")
        # A long run in a header is a signature, not a document.
        headers = written_out(self.headers) if "%" in self.headers else self.headers
        return f"{headers}\n{written_out(decoded)}"


async def searched_texts(
    connection: AsyncConnection, select: str
) -> AsyncIterator[list[SearchedText]]:
    """Yield the texts of refused deliveries in batches."""
    after = ""
    while True:
        values = {"after": after, "limit": AT_ONCE}
        rows = (await connection.execute(text(select), values)).all()
        if not rows:
            return
        yield [SearchedText(*row) for row in rows]
        after = rows[-1][0]


async def owners_in_wholes(
    connection: AsyncConnection, digests: Iterable[str]
) -> dict[str, list[Owned]]:
    """Return the deliveries of requests with these digests, by digest."""
    rows = await statements.select_in(
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
    """Return (id, arrival) for each refused delivery that matches a pattern."""
    found: list[tuple[str, Instant]] = []
    async for texts in searched_texts(connection, REFUSED):
        for each in texts:
            if any(pattern.search(each.whole()) for pattern in patterns):
                found.append((each.id, each.received_at))
    return found


async def rejections_received(
    connection: AsyncConnection, names: Iterable[str]
) -> list[tuple[str, Instant]]:
    """Return (id, arrival) for each delivery in `names` that is stored as refused."""
    sql = "SELECT id, received_at FROM rejections WHERE id IN ({})"
    return [
        (row[0], row[1]) for row in await statements.select_in(connection, sql=sql, values=names)
    ]


async def first_arrival(connection: AsyncConnection, deliveries: Iterable[str]) -> Instant | None:
    sql = "SELECT min(received_at) FROM deliveries WHERE id IN ({})"
    rows = await statements.select_in(connection, sql=sql, values=deliveries)
    return min((row[0] for row in rows if row[0] is not None), default=None)


_REASONS: Final = (
    'SELECT deliveries.id, events."row", events.reason FROM deliveries JOIN events '
    "ON events.event_id = deliveries.event_id AND events.source = deliveries.source "
    "AND events.digest = deliveries.digest "
    "WHERE events.reason IS NOT NULL AND deliveries.id IN ({})"
)


async def reasons_of(
    connection: AsyncConnection, deliveries: Iterable[str]
) -> list[tuple[str, int, str]]:
    """Return the delivery, event row and reason of each event."""
    rows = await statements.select_in(connection, sql=_REASONS, values=deliveries)
    return sorted({(row[0], row[1], row[2]) for row in rows})


async def published_reasons(
    connection: AsyncConnection, orders: Iterable[str]
) -> list[tuple[int, str]]:
    """Return (revision, reason) for each published outcome of these orders."""
    sql = "SELECT seq, because FROM revisions WHERE order_key IN ({})"
    rows = await statements.select_in(connection, sql=sql, values=orders)
    return sorted((row[0], " ".join(json.loads(row[1]))) for row in rows)


async def deliveries_of_events(connection: AsyncConnection, rows: Iterable[Key]) -> list[str]:
    """Return the deliveries that brought these events. The events are given by their keys."""
    sql = 'SELECT delivery_id FROM events WHERE "row" IN ({})'
    found = await statements.select_in(connection, sql=sql, values=[each[0] for each in rows])
    return [row[0] for row in found]


async def drop_bookmarks(connection: AsyncConnection, bookmarks: Iterable[Key]) -> None:
    """Delete operators' bookmarks, each given as (operator, kind, label)."""
    for operator, kind, label in bookmarks:
        await connection.execute(
            text("DELETE FROM bookmarks WHERE operator = :who AND kind = :kind AND label = :label"),
            {"who": operator, "kind": kind, "label": label},
        )


async def wholes_by_name(connection: AsyncConnection, deliveries: Iterable[str]) -> set[Key]:
    """Return the digests of the whole bodies of requests in which these deliveries came."""
    sql = "SELECT envelope FROM deliveries WHERE envelope IS NOT NULL AND id IN ({})"
    return {
        tuple(row) for row in await statements.select_in(connection, sql=sql, values=deliveries)
    }


async def orders_waiting_for(connection: AsyncConnection, requests: Iterable[Key]) -> list[str]:
    """Return the orders of these session requests, which have no answer yet."""
    sql = "SELECT order_key FROM unanswered WHERE key IN ({})"
    found = await statements.select_in(connection, sql=sql, values=[each[0] for each in requests])
    return [row[0] for row in found]


async def rewrite_reasons(connection: AsyncConnection, reasons: Iterable[tuple[int, str]]) -> None:
    """Replace the reasons of events, which no leaf of the sealed log includes."""
    for row, reason in reasons:
        await connection.execute(
            text('UPDATE events SET reason = :reason WHERE "row" = :number'),
            {"reason": reason, "number": row},
        )


Rows = Mapping[str, set[Key]]

OWNED: Final[Mapping[str, str]] = {
    "deliveries": "SELECT id FROM deliveries WHERE pruned_at IS NULL AND id IN ({})",
    "envelopes": "SELECT envelopes.digest FROM envelopes JOIN deliveries "
    "ON deliveries.envelope = envelopes.digest "
    "WHERE envelopes.body IS NOT NULL AND deliveries.id IN ({})",
    "unread_values": "SELECT value, delivery_id FROM unread_values WHERE delivery_id IN ({})",
    "phones": "SELECT digest, kind, thing FROM phones WHERE thing IN ({})",
    "unanswered": "SELECT key FROM unanswered WHERE order_key IN ({})",
    "attachments": "SELECT id FROM attachments WHERE gone_at IS NULL AND order_key IN ({})",
    "attachment_files": "SELECT sha256 FROM attachments "
    "WHERE gone_at IS NULL AND order_key IN ({})",
    "order_keys": "SELECT number FROM order_keys WHERE order_key IN ({})",
}
"""SQL for the rows that an erasure empties, by table."""


async def owned_rows(connection: AsyncConnection, things: Collection[str]) -> dict[str, set[Key]]:
    """Return these orders' and deliveries' personal rows, by table."""
    return {
        table: {
            tuple(row) for row in await statements.select_in(connection, sql=sql, values=things)
        }
        for table, sql in OWNED.items()
    }


IN_TRANSIT: Final = ("inbox", "suspects")
"""Tables that are searched apart, because their rows are judged separately."""

_SEARCHED: Final = "SELECT {key}, {texts} FROM {table}"
_ONE: Final = "SELECT {columns} FROM {table} WHERE {key}"
_BESIDE: Final = "\n"

BODIES_AT_ONCE: Final = 128
FILES_AT_ONCE: Final = 8
"""Number of attached files in memory at a time; each can have several MiB."""

_DEFLATED: Final = b"\x78"

MOST_INFLATED: Final = 64 * 1024 * 1024
"""Maximum number of bytes of a decompressed content that are searched."""


async def rows_that_hold(
    connection: AsyncConnection,
    phones: Sequence[str],
    *,
    among: Rows | None = None,
    progress: Callable[[int], None] = silent,
) -> dict[str, set[Key]]:
    """Return the rows that contain one of these numbers, by `table.column`.

    `among` is an earlier result, to search only its rows.
    """
    found: dict[str, set[Key]] = {}
    if not phones:
        return found
    hint = re.compile(b"|".join(hint_pattern(each).pattern for each in phones))
    written = [written_pattern(each) for each in phones]

    for name, table in sorted(statements.tables().tables.items()):
        if name in IN_TRANSIT:
            continue
        key = [each.name for each in table.primary_key]
        marked = {each.name: each.info[MARK] for each in table.columns if MARK in each.info}
        blobs = {each.name for each in table.columns if isinstance(each.type, LargeBinary)}
        # Text from outside may have any encoding; our own texts have one, and are searched as
        # stored.
        plain = [n for n, mark in marked.items() if n not in blobs and mark.personal != "personal"]
        whole = [n for n, mark in marked.items()
                 if n not in plain and (n not in blobs or mark.personal != "not")]  # fmt: skip
        joined = f" || '{_BESIDE}' || ".join(f"coalesce(\"{each}\", '')" for each in plain)
        sql = statements.statement(
            _SEARCHED,
            key=", ".join(f'"{each}"' for each in key),
            texts=", ".join([joined or "''", *(f'"{each}"' for each in whole)]),
            table=name,
        )
        bodies = FILES_AT_ONCE if name == "attachment_files" else BODIES_AT_ONCE
        at_once = bodies if blobs & {*whole} else ROWS_AT_ONCE
        maybe = set[Key]()
        if among is not None:
            maybe.update(*(among.get(f"{name}.{each}", ()) for each in (*plain, *whole)))
        else:
            async for rows in statements.stream(connection, sql, at_once=at_once):
                maybe |= {
                    tuple(row[: len(key)])
                    for row in rows
                    if any(content and _may_hold(hint, content) for content in row[len(key) :])
                }
                progress(len(rows))
        sql = statements.statement(
            _ONE,
            columns=", ".join(f'"{each}"' for each in (*plain, *whole)),
            table=name,
            key=" AND ".join(f'"{each}" = :k{place}' for place, each in enumerate(key)),
        )
        for each in maybe:
            values = {f"k{place}": value for place, value in enumerate(each)}
            row = (await connection.execute(text(sql), values)).first()
            for column, content in zip((*plain, *whole), row or (), strict=row is not None):
                if content and any(pattern.search(_whole(content)) for pattern in written):
                    found.setdefault(f"{name}.{column}", set()).add(each)
    return found


def _may_hold(hint: re.Pattern[bytes], content: str | bytes) -> bool:
    if isinstance(content, str):
        raw = content.encode("utf-8", "replace")
        is_plain = b"%" not in raw and b"\\u" not in raw
    else:
        raw, is_plain = content, content[:1] != _DEFLATED and is_written_out(content)
    if hint.search(raw) is not None:
        return True
    return not is_plain and hint.search(_whole(content).encode("utf-8", "replace")) is not None


def _whole(content: str | bytes) -> str:
    if isinstance(content, str):
        # A long run in a text without escapes is a digest or a signature, not a document.
        return written_out(content) if "%" in content or "\\u" in content else content
    if content[:1] == _DEFLATED:
        with suppress(zlib.error):
            content = zlib.decompressobj().decompress(content, MOST_INFLATED)
    return written_out(content.decode("utf-8", "replace"))


async def wholes_of(connection: AsyncConnection, deliveries: Iterable[str]) -> dict[str, str]:
    """Return the digest of each delivery's whole request body."""
    rows = await statements.select_in(
        connection,
        sql="SELECT deliveries.id, envelopes.digest FROM envelopes JOIN deliveries "
        "ON deliveries.envelope = envelopes.digest "
        "WHERE envelopes.body IS NOT NULL AND deliveries.id IN ({})",
        values=deliveries,
    )
    return {row[0]: row[1] for row in rows}


async def empty_wholes(connection: AsyncConnection, deliveries: Sequence[str]) -> None:
    """Delete the whole request bodies of these deliveries, even with other events inside."""
    await statements.select_in(
        connection,
        sql="UPDATE envelopes SET body=NULL WHERE digest IN (SELECT envelope FROM deliveries "
        "WHERE envelope IS NOT NULL AND id IN ({}))",
        values=deliveries,
    )


async def unread_beside(
    connection: AsyncConnection, deliveries: Iterable[str]
) -> dict[str, set[str]]:
    """Return the unreadable deliveries of each delivery's stored request."""
    rows = await statements.select_in(
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
    """Delete the session requests of these orders, and return the number of deleted requests."""
    gone = await statements.select_in(
        connection,
        sql="DELETE FROM unanswered WHERE order_key IN ({}) RETURNING 1",
        values=orders,
    )
    return len(gone)


_NAME: Final = "erasure journal"


async def journal_name(connection: AsyncConnection) -> str | None:
    """Return the name of this database's journal of erasures, or None."""
    found: str | None = await connection.scalar(
        text("SELECT value FROM meta WHERE name = :name"), {"name": _NAME}
    )
    return found


async def known_lines(connection: AsyncConnection) -> list[str]:
    """Return the journal's lines that this database knows, in order."""
    rows = await connection.execute(
        text(
            "SELECT line FROM erasures WHERE journal = "
            "(SELECT value FROM meta WHERE name = :name) ORDER BY number"
        ),
        {"name": _NAME},
    )
    return [row[0] for row in rows]


async def note_pending(
    connection: AsyncConnection, numbers: Iterable[int], *, since: Instant
) -> None:
    """Store the numbers of newly pending journal lines."""
    await statements.run(
        connection,
        statements.insert_rows,
        table="pending_erasures",
        columns=("number", "since", "why"),
        rows=[(number, since, "") for number in numbers],
        conflict="ON CONFLICT DO NOTHING",
    )


async def note_outcome(connection: AsyncConnection, number: int, why: str | None) -> None:
    """Store a pending line's reason. None deletes a finished line."""
    sql = "UPDATE pending_erasures SET why = :why WHERE number = :number"
    if why is None:
        sql = "DELETE FROM pending_erasures WHERE number = :number"
    await connection.execute(text(sql), {"number": number} | ({} if why is None else {"why": why}))


async def forget_pending(connection: AsyncConnection) -> None:
    """Delete all pending lines of a lost journal."""
    await connection.execute(text("DELETE FROM pending_erasures"))


_NOTE: Final = "INSERT INTO meta (name, value) VALUES (:name, :value) ON CONFLICT (name) DO NOTHING"
_NOTE_INSTEAD: Final = (
    "INSERT INTO meta (name, value) VALUES (:name, :value) "
    "ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)


async def note_journal(connection: AsyncConnection, name: str, *, instead: bool = False) -> None:
    """Store the name of the database's journal."""
    sql = _NOTE_INSTEAD if instead else _NOTE
    await connection.execute(text(sql), {"name": _NAME, "value": name})


async def note_lines(
    connection: AsyncConnection, name: str, lines: Iterable[tuple[int, str]]
) -> None:
    """Store lines of the journal with their numbers, except lines that are already stored."""
    await statements.run(
        connection,
        statements.insert_rows,
        table="erasures",
        columns=("journal", "number", "line"),
        rows=[(name, number, line) for number, line in lines],
        conflict="ON CONFLICT DO NOTHING",
    )


async def known_references(connection: AsyncConnection) -> AsyncIterator[list[str]]:
    """Yield every order's reference, in batches."""
    async for rows in statements.stream(
        connection, "SELECT order_key FROM order_due", at_once=ROWS_AT_ONCE
    ):
        yield [row[0] for row in rows]


async def lines_with_phones(connection: AsyncConnection) -> AsyncIterator[list[LineKey]]:
    """Yield the keys of order-book lines with a phone number."""
    sql = "SELECT match_key, kind, since FROM book_lines WHERE phone > ''"
    async for rows in statements.stream(connection, sql, at_once=ROWS_AT_ONCE):
        yield [(row[0], row[1], row[2]) for row in rows]


async def notes_of_recipients(connection: AsyncConnection) -> AsyncIterator[list[PhoneNote]]:
    """Yield the notes on payment recipients' phone numbers, in batches."""
    sql = "SELECT digest, kind, thing, noted_at FROM phones WHERE kind = 'recipient'"
    async for rows in statements.stream(connection, sql, at_once=ROWS_AT_ONCE):
        yield [(bytes(row[0]), row[1], row[2], row[3]) for row in rows]


async def bookmark_keys(connection: AsyncConnection) -> AsyncIterator[list[Key]]:
    """Yield operators' bookmarks as (operator, kind, label), in batches."""
    async for rows in statements.stream(
        connection, "SELECT operator, kind, label FROM bookmarks", at_once=ROWS_AT_ONCE
    ):
        yield [tuple(row) for row in rows]
