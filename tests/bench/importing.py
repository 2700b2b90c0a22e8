"""An order book from a file: `records import` as a command, on one core, into an empty database.

The rows are seeded and in no order. Beside the speed stands what the database then holds, against
what was written into the file.
"""

from __future__ import annotations

import json
import random
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from app.core.ids import new_secret
from tests.bench.ingest import SEED, environment
from tests.bench.processes import Ran, last_core, run
from tests.bench.report import Figure
from tests.bench.requests import secret_text
from tests.bench.sizes import BARS

HEADING = "reference,kind,amount,currency,placed_at,status,phone,group\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedBook:
    """What came of it.

    ran    the command over the whole file
    again  the same file again, when all of it is known
    empty  the same command with one row, into a database of its own: what a process costs
    """

    rows: int
    ran: Ran
    again: Ran
    empty: Ran
    complete: bool
    unchanged: bool


def import_book(folder: Path, *, rows: int) -> ImportedBook:
    """Write a book of so many rows, and import it twice."""
    print("import: an order book, the first time and again", file=sys.stderr)
    secret = secret_text(new_secret())
    (folder / "one.csv").write_text(HEADING + "one,order,1.00,KES,,,,\n")
    minor = write_book(folder / "book.csv", rows)

    def imported(name: str, database: str) -> Ran:
        words = ("app", "records", "import", str(folder / name), "--format", "json")
        env = environment(folder / database, secret)
        return run(words, log=folder / f"{name}.log", env=env, cores={last_core()})

    empty = imported("one.csv", "empty.db")
    ran = imported("book.csv", "book.db")
    complete = held_lines(folder / "book.db") == (rows, minor)
    again = imported("book.csv", "book.db")
    told = json.loads((folder / "book.csv.log").read_text())
    return ImportedBook(
        rows=rows,
        ran=ran,
        again=again,
        empty=empty,
        complete=complete,
        unchanged=told["unchanged"] == rows and held_lines(folder / "book.db") == (rows, minor),
    )


def write_book(path: Path, rows: int) -> int:
    """Write the file; the sum of its amounts in minor units."""
    chance, total = random.Random(SEED), 0
    with path.open("w") as file:
        file.write(HEADING)
        for number in _in_no_order(chance, rows):
            minor = chance.randrange(100, 10**8)
            total += minor
            file.write(
                f"ORD-{number},order,{minor // 100}.{minor % 100:02},KES,"
                f"2026-10-{1 + number % 31:02}T{number % 24:02}:{number % 60:02}:00Z,"
                f"{'paid' if number % 9 else 'unpaid'},2547{number:08},\n"
            )
    return total


def _in_no_order(chance: random.Random, rows: int) -> Iterator[int]:
    numbers = list(range(rows))
    chance.shuffle(numbers)
    return iter(numbers)


def held_lines(path: Path) -> tuple[int, int]:
    """Lines that are in force, and the sum of their amounts."""
    with closing(sqlite3.connect(path)) as connection:
        count, total = connection.execute(
            "SELECT count(*), sum(minor) FROM book_lines WHERE until IS NULL"
        ).fetchone()
        return count, total


def import_figures(done: ImportedBook) -> list[Figure]:
    """Speed without the start of the process, and peak memory."""
    seconds = done.ran.seconds - done.empty.seconds
    speed = Figure(
        name="import of an order book",
        value=done.rows / seconds,
        unit="rows per second",
        bar=BARS["import"],
        checks={
            "the database holds every row and the sum of all amounts": done.complete,
            "the same file again changes nothing": done.unchanged,
        },
        details={
            "rows": done.rows,
            "seconds, whole command": done.ran.seconds,
            "rows per second of processor time": done.rows
            / (done.ran.processor - done.empty.processor),
            "seconds, the same file again": done.again.seconds,
            "seconds, the same command with one row": done.empty.seconds,
        },
    )
    memory = Figure(
        name="import's peak memory",
        value=done.ran.peak_rss_mib,
        unit="MiB",
        details={"MiB with one row": done.empty.peak_rss_mib},
    )
    return [speed, memory]
