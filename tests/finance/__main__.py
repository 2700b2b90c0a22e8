"""Makes a generated month to play with.

    python -m tests.finance FOLDER [ORDERS]          fills the folder
    python -m tests.finance FOLDER [ORDERS] --late   lets the webhooks come that were missed

The folder then holds a database, the merchant's order book, the provider's statement and the
merchant's rules of October 2024: long past, whatever the clock says.
"""

import argparse
import asyncio
import sys
from pathlib import Path

from app.core.clock import SystemClock
from reconcile.instants import parse_instant
from tests.database.builders import opened
from tests.finance.loading import into_store, keep_arrivals
from tests.finance.month import Month

ORDERS = 40
"""One of each plot."""


def main(words: list[str]) -> None:
    """Fill the folder, or add to it. Raises SystemExit for words that make no sense."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.finance", description="Makes a generated month to play with."
    )
    parser.add_argument("folder", type=Path, help="Where the database and the files go.")
    parser.add_argument(
        "orders", type=int, nargs="?", default=ORDERS, help="Orders of the month; else %(default)s."
    )
    parser.add_argument(
        "--late", action="store_true", help="Let the webhooks come that the folder's month missed."
    )
    asked = parser.parse_args(words)
    if asked.orders < 1:
        parser.error(f"a month has one order or more, and not {asked.orders}")
    database = asked.folder.absolute() / "shop.db"
    if database.exists() is not asked.late:
        there = "is none: fill it without --late" if asked.late else "is one already"
        parser.error(f"{asked.folder} is to hold a month, and there {there}")
    month = Month(orders=asked.orders, starts=parse_instant("2024-10-01T00:00:00Z"))
    url = f"sqlite+aiosqlite:///{database}"
    if asked.late:
        print(f"Webhooks that were missed, and come now: {asyncio.run(_hear_late(url, month))}.")
    else:
        _fill(asked.folder, month, url)


async def _hear_late(url: str, month: Month) -> int:
    late = month.late(SystemClock().now())
    async with opened(url) as inbox:
        await keep_arrivals(inbox, late)
    return len(late)


def _fill(folder: Path, month: Month, url: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(into_store(url, month))
    month.write_book(folder / "book.csv")
    month.write_statement(folder / "statement.csv")
    month.write_rules(folder / "rules.toml")
    truth = month.truth()
    print(
        f"{truth.orders:,} orders, {truth.deliveries:,} deliveries, {truth.book_rows:,} rows of "
        f"the book, {truth.statement_rows:,} lines of the statement, {len(truth.gaps):,} breaks."
    )


if __name__ == "__main__":
    main(sys.argv[1:])
