"""Makes a generated month to play with: `python -m tests.finance FOLDER [ORDERS]`.

The folder then holds a database, the merchant's order book, the provider's statement and the
merchant's rules of October 2024: long past, whatever the clock says.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from reconcile.instants import parse_instant
from tests.finance.loading import into_store
from tests.finance.month import Month


def main(words: list[str]) -> None:
    """Fill the folder."""
    folder = Path(words[0])
    orders = int(words[1]) if len(words) > 1 else 200
    month = Month(orders=orders, starts=parse_instant("2024-10-01T00:00:00Z"))
    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(into_store(f"sqlite+aiosqlite:///{folder.absolute()}/shop.db", month))
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
