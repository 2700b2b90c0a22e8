"""A database with a month of ledger lines, book, statement and bank, loaded with SQL.

Its ledger lines are those that the service keeps beside its ledgers; nothing is folded. Month and
truth come from `tests.reconcile.books_truth`."""

import asyncio
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from app.finance import ledger_line_store
from app.finance.ledger_line_store import row_of
from app.receiving.inbox import open_inbox
from reconcile.instants import DAY
from reconcile.matching.books import StatementLine, match_key
from reconcile.matching.rows import subject_of
from tests.contexts import settings_of
from tests.reconcile.books_truth import AS_OF, SOURCE, START, Case, Month

AT_ONCE = 20_000

RULES = """
[tolerance]
KES = "0.05"
[[fee]]
source = "checkout"
currency = "KES"
percent = "1.5"
"""
"""The rules that the truth goes by, as a merchant would write them."""

BOOK = ("match_key", "kind", "since", "line", "reference", "minor", "currency", "placed_at",
        "status", "group_key", "group_name")  # fmt: skip
STATEMENT = ("subject", "kind", "source", "ordinal", "since", "line", "match_key", "payment",
             "order_ref", "currency", "gross", "fee", "net", "settled_at", "payout")  # fmt: skip
BANK = ("subject", "ordinal", "since", "line", "account", "currency", "minor", "booked_at", "entry",
        "reference", "counterparty", "told")  # fmt: skip
IMPORT = ("number", "kind", "file", "sha256", "who", "started_at", "published_at", "written",
          "read", "new", "changed", "unchanged", "rejected")  # fmt: skip
DELIVERY = ("id", "received_at", "source", "verdict", "digest", "size", "headers")
DUE = ("order_key", "due_at", "generation")


def fill(path: Path, month: Month) -> None:
    asyncio.run(_make(f"sqlite+aiosqlite:///{path.absolute()}"))
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA synchronous=OFF")
        for table, columns, rows in tables(month):
            print(f"reconcile: writing {table}", file=sys.stderr)
            _write(connection, table, columns, rows)
    connection.close()


COVERED = ("number", "kind", "name", "since", "until", "who", "at")


def tables(month: Month) -> Iterator[tuple[str, tuple[str, ...], Iterable[Any]]]:
    """Yield tables, columns and rows of the month.

    Webhooks and files cover the whole time, and the import is published."""
    book = ("~", "order", 1, "bok_~", "~", 1, "KES", AS_OF, "unpaid", None, None)
    fees = [
        ("~", "fee", SOURCE, place, 1, f"stm_{place}", "~", None, "~", "KES", 0, 1, -1, at, None)
        for place, at in enumerate((START, AS_OF))
    ]
    yield "imports", IMPORT, [(1, "book", "month", "", "bench", START, START, *(0,) * 6)]
    yield "deliveries", DELIVERY, [("dlv_0", START, SOURCE, "unreadable", "", 0, "")]
    yield "takings", ledger_line_store.COLUMNS, _takings(month)
    yield "order_due", DUE, _due(month)
    yield "book_lines", BOOK, chain(_book(month), [book])
    paid_out = PaidOut()
    yield "statement_lines", STATEMENT, chain(_statement(month, paid_out), fees)
    yield "bank_lines", BANK, paid_out.bank_lines()
    names = ("book", "book"), ("statement", SOURCE), ("bank", "main")
    covered = [
        (number, *name, START, AS_OF + DAY, "file", START) for number, name in enumerate(names, 1)
    ]
    yield "coverage", COVERED, covered


async def _make(url: str) -> None:
    async with open_inbox(settings_of(url), purpose="alone"):
        pass


def _write(
    connection: sqlite3.Connection, table: str, columns: Sequence[str], rows: Iterable[Any]
) -> None:
    marks = ", ".join("?" * len(columns))
    names = ", ".join(columns)
    taken = iter(rows)
    while batch := list(islice(taken, AT_ONCE)):
        connection.executemany(f"INSERT INTO {table} ({names}) VALUES ({marks})", batch)


def _takings(month: Month) -> Iterator[tuple[Any, ...]]:
    for case in month.cases():
        for each in case.takings:
            yield row_of(each, 1, None)


def _due(month: Month) -> Iterator[tuple[str, None, int]]:
    return ((each.order, None, 1) for case in month.cases() for each in case.takings)


def _book(month: Month) -> Iterator[tuple[Any, ...]]:
    for case in month.cases():
        kinds = iter(("order", "invoice", "entry"))
        for each in case.book:
            group = None if each.group is None else match_key(each.group)
            # Two lines of one reference are of two kinds, or the second is a version of the first.
            yield (
                match_key(each.reference), next(kinds), 1, subject_of(each.line_id),
                each.reference, each.money.minor, each.money.currency, each.placed_at, each.status,
                group, each.group,
            )  # fmt: skip


class PaidOut:
    """The payouts of the statement, one a day and currency, all of them in the bank."""

    def __init__(self) -> None:
        self._sums: Counter[tuple[str, str, int]] = Counter()

    def add(self, line: StatementLine) -> str | None:
        """Return the payout of a line; None for a line without a day."""
        if line.settled_at is None:
            return None
        day = line.settled_at // DAY
        self._sums[f"PO-{day:07}", line.currency, day] += line.net
        return f"PO-{day:07}"

    def bank_lines(self) -> Iterator[tuple[Any, ...]]:
        """Yield a line for each payout, and as many of other business."""
        for name, currency, day in sorted(self._sums):
            minor, at = self._sums[name, currency, day], (day + 2) * DAY
            told = ("main", currency, minor, at, "", "", "PROVIDER", f"PAYOUT {name}")
            rent = ("main", currency, -minor - 1, at, "", "", "LANDLORD", "RENT")
            for place, row in enumerate((told, rent)):
                yield (f"{name}{currency}{place}", 0, 1, f"bnk_{name}{currency}{place}", *row)


def _statement(month: Month, paid_out: PaidOut) -> Iterator[tuple[Any, ...]]:
    for case in month.cases():
        yield from _lines(case, paid_out)


def _lines(case: Case, paid_out: PaidOut) -> Iterator[tuple[Any, ...]]:
    told: Counter[tuple[str | None, str]] = Counter()
    for each in case.lines:
        ordinal = told[each.payment, each.kind]
        told[each.payment, each.kind] += 1
        key = None if each.order is None else match_key(each.order)
        yield (
            f"p:{each.payment}", each.kind, SOURCE, ordinal, 1, subject_of(each.line_id), key,
            each.payment, each.order, each.currency, each.gross, each.fee, each.net,
            each.settled_at, paid_out.add(each),
        )  # fmt: skip
