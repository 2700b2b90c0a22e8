"""Makes a generated month to play with.

    python -m tests.finance FOLDER [ORDERS]          fills the folder
    python -m tests.finance FOLDER [ORDERS] --late   lets the webhooks come that were missed

The folder then holds a database, the merchant's order book, the provider's statement and the
merchant's rules of October 2024: long past, whatever the clock says.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from app.clock import SystemClock
from reconcile.instants import parse_instant
from tests.finance.loading import into_store, keep_arrivals
from tests.finance.month import Month
from tests.store.builders import opened

ORDERS = 40
"""One of each plot."""


def main(words: list[str]) -> None:
    """Fill the folder, or add to it."""
    late = "--late" in words
    folder, *orders = [Path(word) for word in words if word != "--late"]
    count = int(str(orders[0])) if orders else ORDERS
    month = Month(orders=count, starts=parse_instant("2024-10-01T00:00:00Z"))
    url = f"sqlite+aiosqlite:///{folder.absolute()}/shop.db"
    if late:
        print(f"Webhooks that were missed, and come now: {asyncio.run(_hear_late(url, month))}.")
    else:
        _fill(folder, month, url)


async def _hear_late(url: str, month: Month) -> int:
    late = month.late(SystemClock().now())
    async with opened(url) as store:
        await keep_arrivals(store, late)
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
