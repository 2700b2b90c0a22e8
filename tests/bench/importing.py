"""An order book imported by the command `records import`, on one core, into an empty database.

The rows are seeded and shuffled. The database is then compared with the file.
"""

import json
import random
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from app.core.ids import new_secret
from tests.bench.orders import SEED
from tests.bench.processes import Ran, environment, last_core, run
from tests.bench.report import Figure
from tests.bench.requests import secret_text
from tests.bench.sizes import BARS, Sizes

HEADING = "reference,kind,amount,currency,placed_at,status,phone,group\n"


def import_figures(folder: Path, sizes: Sizes) -> list[Figure]:
    """Import a book twice; return the rate without the start of the process, and peak memory."""
    print("import: an order book, the first time and again", file=sys.stderr)
    secret, rows = secret_text(new_secret()), sizes.import_rows
    (folder / "one.csv").write_text(HEADING + "one,order,1.00,KES,,,,\n")
    minor = write_book(folder / "book.csv", rows)

    def imported(name: str, database: str) -> Ran:
        words = ("app", "records", "import", str(folder / name), "--format", "json")
        env = environment(folder / database, secret)
        return run(words, log=folder / f"{name}.log", env=env, cores={last_core()})

    empty, ran = imported("one.csv", "empty.db"), imported("book.csv", "book.db")
    complete = held_lines(folder / "book.db") == (rows, minor)
    again = imported("book.csv", "book.db")
    unchanged = json.loads((folder / "book.csv.log").read_text())["unchanged"] == rows
    speed = Figure(
        name="import of an order book",
        value=rows / (ran.seconds - empty.seconds),
        unit="rows per second",
        bar=BARS["import"],
        checks={
            "the database holds every row and the sum of all amounts": complete,
            "the same file again changes nothing": (
                unchanged and held_lines(folder / "book.db") == (rows, minor)
            ),
        },
        details={
            "rows": rows,
            "seconds, whole command": ran.seconds,
            "rows per second of processor time": rows / (ran.processor - empty.processor),
            "seconds, the same file again": again.seconds,
            "seconds, the same command with one row": empty.seconds,
        },
    )
    memory = Figure(
        name="import's peak memory",
        value=ran.peak_rss_mib,
        unit="MiB",
        details={"MiB with one row": empty.peak_rss_mib},
    )
    return [speed, memory]


def write_book(path: Path, rows: int) -> int:
    """Write the file; return the sum of its amounts in minor units."""
    chance, total = random.Random(SEED), 0
    numbers = list(range(rows))
    chance.shuffle(numbers)
    with path.open("w") as file:
        file.write(HEADING)
        for number in numbers:
            minor = chance.randrange(100, 10**8)
            total += minor
            file.write(
                f"ORD-{number},order,{minor // 100}.{minor % 100:02},KES,"
                f"2026-10-{1 + number % 31:02}T{number % 24:02}:{number % 60:02}:00Z,"
                f"{'paid' if number % 9 else 'unpaid'},2547{number:08},\n"
            )
    return total


def held_lines(path: Path) -> tuple[int, int]:
    """Return the number of lines in force, and the sum of their amounts."""
    with closing(sqlite3.connect(path)) as connection:
        count, total = connection.execute(
            "SELECT count(*), sum(minor) FROM book_lines WHERE until IS NULL"
        ).fetchone()
        return count, total
