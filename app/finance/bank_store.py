"""Lines of bank accounts as of an instant, and payouts: the sums of the statement lines that name
one.

A line is known by what the bank says of it (`subject`) and, where several are alike, by its place
among them (`ordinal`). A later file that has it again changes nothing; one that states another
text of it is a new version.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import groupby
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database.statements import (
    PlainConnection,
    Rows,
    insert_rows,
    run,
    select_rows,
    statement,
    stream,
)
from app.finance import import_store
from reconcile.instants import Instant
from reconcile.matching.bank import BankLine, Payout

# --- writing --------------------------------------------------------------------------------------


CONTENT: Final = (
    "account",
    "currency",
    "minor",
    "booked_at",
    "entry",
    "reference",
    "counterparty",
    "told",
)

_TEXTS_FROM: Final = CONTENT.index("entry")
"""From it on stand texts, in which numbers may be erased."""

STAGED: Final = ("subject", *CONTENT)
"""What an import brings of a line."""

LINE_COLUMNS: Final = ("subject", "ordinal", "since", "line", *CONTENT)


def bank_line_id(subject: str, ordinal: int) -> str:
    """What all versions of a line share: `bnk_` and 20 hex digits."""
    digest = hashlib.blake2b(f"{subject}\x1f{ordinal}".encode(), digest_size=10)
    return "bnk_" + digest.hexdigest()


def payout_id(source: str, reference: str, currency: str) -> str:
    """What a payout is called: `pyt_` and 20 hex digits."""
    digest = hashlib.blake2b("\x1f".join((source, reference, currency)).encode(), digest_size=10)
    return "pyt_" + digest.hexdigest()


def subject_digest(subject: str) -> str:
    """The subject as it is kept: it holds names, which can be erased elsewhere and not in a key."""
    return hashlib.blake2b(subject.encode(), digest_size=16).hexdigest()


async def write_bank(
    connection: AsyncConnection, rows: Sequence[tuple[Any, ...]], *, number: int
) -> import_store.WrittenVersions:
    """Add the versions that rows of STAGED make, as of an import.

    The rows are in order of their subjects, and those of one subject are all there.
    """
    return await run(connection, _write, rows, number)


async def compare_bank(
    connection: AsyncConnection, rows: Sequence[tuple[Any, ...]]
) -> import_store.WrittenVersions:
    """What `write_bank` would write."""
    return (await run(connection, _decide, rows))[0]


def _write(
    connection: PlainConnection, rows: Sequence[tuple[Any, ...]], number: int
) -> import_store.WrittenVersions:
    counts, fresh, behind = _decide(connection, rows)
    if behind:
        keys = ("subject", "ordinal", "since")
        import_store.supersede(
            connection, table="bank_lines", keys=keys, rows=behind, number=number
        )
    insert_rows(
        connection,
        table="bank_lines",
        columns=LINE_COLUMNS,
        rows=[
            (subject, ordinal, number, bank_line_id(subject, ordinal), *content)
            for subject, ordinal, content in fresh
        ],
    )
    return counts


_VERSIONS: Final = statement(
    "SELECT subject, ordinal, since, until, {content} FROM bank_lines WHERE subject IN ({})",
    content=", ".join(CONTENT),
)

_Place = tuple[str, int]

_Fresh = list[tuple[str, int, tuple[Any, ...]]]


def _decide(
    connection: PlainConnection, rows: Sequence[tuple[Any, ...]]
) -> tuple[import_store.WrittenVersions, _Fresh, Rows]:
    """The counts, the versions to be added, and the keys of those that they supersede."""
    given = [(subject_digest(row[0]), row[1:]) for row in rows]
    known, erased = dict[_Place, tuple[Any, ...]](), dict[_Place, tuple[Any, ...]]()
    found = select_rows(connection, sql=_VERSIONS, values={subject for subject, _ in given})
    for subject, ordinal, since, until, *rest in sorted(found, key=lambda row: row[2]):
        if until is None:
            known[subject, ordinal] = (since, *rest)
        if _erased(rest):  # in force or not: one that was taken back may come again
            erased[subject, ordinal] = tuple(rest[_TEXTS_FROM:])
    counts, fresh, behind = import_store.WrittenVersions(), _Fresh(), list[tuple[Any, ...]]()
    for subject, group in groupby(given, key=lambda row: row[0]):
        for ordinal, content in enumerate(sorted(row[1] for row in group)):
            place = (subject, ordinal)
            before, texts = known.get(place), erased.get(place)
            if before is None:
                counts.new += 1
                content = content if texts is None else (*content[:_TEXTS_FROM], *texts)
            elif before[1:] == content or texts is not None:
                counts.unchanged += 1
                continue
            else:
                counts.changed += 1
                behind.append((subject, ordinal, before[0]))
            fresh.append((subject, ordinal, content))
    return counts, fresh, behind


ERASED: Final = "•"
"""Stands where a number was that has been erased."""


def _erased(before: Sequence[Any]) -> bool:
    """Whether something of it was erased: a file that still has it must not bring it back."""
    return any(isinstance(each, str) and ERASED in each for each in before)


# --- reading --------------------------------------------------------------------------------------


AT_ONCE: Final = 4_000
"""Lines in memory at a time, less than half a kilobyte each."""

_LINES: Final = statement(
    "SELECT line || '.' || since, account, currency, minor, booked_at, reference, counterparty, "
    "told FROM bank_lines WHERE {known} ORDER BY subject, ordinal",
    known=import_store.KNOWN,
)

_ANY: Final = statement("SELECT 1 FROM bank_lines WHERE {known} LIMIT 1", known=import_store.KNOWN)

_PAYOUTS: Final = statement(
    "SELECT source, payout, currency, {halves}, max(settled_at), count(*) FROM statement_lines "
    "WHERE payout IS NOT NULL AND {known} GROUP BY source, payout, currency",
    halves=import_store.summed("net"),
    known=import_store.KNOWN,
)


async def any_bank_line(connection: AsyncConnection, *, as_of: Instant) -> bool:
    """Whether any file of a bank was imported by then."""
    number = await import_store.newest_published(connection, as_of=as_of)
    return await connection.scalar(text(_ANY), {"number": number}) is not None


async def bank_lines(connection: AsyncConnection, *, as_of: Instant) -> AsyncIterator[Rows]:
    """Lines as they were known at an instant, some thousand at a time, for `bank_line_of`."""
    values = {"number": await import_store.newest_published(connection, as_of=as_of)}
    async for rows in stream(connection, _LINES, at_once=AT_ONCE, values=values):
        yield rows


def bank_line_of(row: Sequence[Any]) -> BankLine:
    """The value of a row of `bank_lines`."""
    line_id, account, currency, minor, booked_at, reference, counterparty, words = row
    return BankLine(
        line_id=line_id,
        account=account,
        currency=currency,
        minor=minor,
        booked_at=booked_at,
        reference=reference or None,
        counterparty=counterparty or None,
        text=words or None,
    )


async def payouts(connection: AsyncConnection, *, as_of: Instant) -> list[Payout]:
    """Every payout that statement lines name, as they were known at an instant."""
    values = {"number": await import_store.newest_published(connection, as_of=as_of)}
    found: list[Payout] = []
    async for rows in stream(connection, _PAYOUTS, at_once=AT_ONCE, values=values):
        for source, reference, currency, high, low, paid_at, count in rows:
            found.append(
                Payout(
                    payout_id=payout_id(source, reference, currency),
                    source=source,
                    reference=reference,
                    currency=currency,
                    minor=import_store.sum_of(high, low),
                    paid_at=paid_at,
                    lines=count,
                )
            )
    return found


# --- the phone numbers in texts of banks ----------------------------------------------------------


BankKey = tuple[str, int, int]
"""(subject, ordinal, since): one version of one line."""

BankTexts = tuple[str, str, str, str]
"""What a line states in words: entry, reference, counterparty, and the rest."""

_TEXTS: Final = (
    "SELECT subject, ordinal, since, entry, reference, counterparty, told FROM bank_lines"
)


async def bank_texts(
    connection: AsyncConnection, *, until: Instant | None = None
) -> AsyncIterator[list[tuple[BankKey, BankTexts]]]:
    """The texts of all versions of lines, some thousand at a time. `until`: only of those that
    were imported by then."""
    newest = None if until is None else await import_store.newest_published(connection, as_of=until)
    async for rows in stream(connection, _TEXTS, at_once=AT_ONCE):
        yield [
            ((row[0], row[1], row[2]), (row[3], row[4], row[5], row[6]))
            for row in rows
            if newest is None or row[2] <= newest
        ]


async def rewrite_bank_texts(
    connection: AsyncConnection, texts: Iterable[tuple[BankKey, BankTexts]]
) -> None:
    """Put these texts in the place of those that are there."""
    for (subject, ordinal, since), (entry, reference, counterparty, words) in texts:
        await connection.execute(
            text(
                "UPDATE bank_lines SET entry = :entry, reference = :reference, "
                "counterparty = :counterparty, told = :told "
                "WHERE subject = :subject AND ordinal = :ordinal AND since = :since"
            ),
            {
                "entry": entry,
                "reference": reference,
                "counterparty": counterparty,
                "told": words,
                "subject": subject,
                "ordinal": ordinal,
                "since": since,
            },
        )
