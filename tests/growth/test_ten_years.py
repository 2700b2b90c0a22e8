"""Ten years of a shop: its database is served, checked, pruned, backed up and restored.

The program stores and folds one order with two deliveries of 200 bytes. All others are copies of
its rows, with names and times of their own, and a leaf in the log for each row that is sealed.
Leaves name no order, so that the log is smaller than a real one.
"""

import asyncio
import hashlib
import json
import os
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from app.core.clock import SystemClock
from app.core.ids import first_id, new_secret
from app.receiving.append_store import ARRIVALS_KEPT, Ready
from app.receiving.inbox import open_inbox
from app.sealing.leaf_store import DELIVERY, KINDS, REVISION, Sealable, leaf_of
from app.sealing.log_queue_store import SEALED, SWEPT
from reconcile.instants import DAY, MINUTE
from reconcile.transparency.merkle import Tail
from tests.bench import stored
from tests.bench.dataset import arrivals
from tests.bench.generator import Generator
from tests.bench.load import Target
from tests.bench.orders import Message, Stretch
from tests.bench.processes import environment, server
from tests.bench.requests import SOURCE, secret_text, source
from tests.contexts import ACCEPTED, settings_of
from tests.forking import run, start

TEN_YEARS = 3_650 * DAY
KEPT = 730 * DAY
"""Time for which bodies and headers were kept. In the end `prune` deletes a month more."""

FIRST, AT_ONCE, COMMAND_S = "0000000", 5_000, 3_600
"""Digits in all names of the order that the program folds; orders written at a time; seconds that a
command may take."""

TABLES = (
    "deliveries", "events", "links", "order_due", "ledgers", "revisions", "order_listings",
)  # fmt: skip
TIMES = ("received_at", "as_of", "at")
Row = dict[str, Any]


def body(kind: str) -> bytes:
    """Return the body of 200 bytes with which the first order's payment is reported."""
    money = '"amount":15,"currency":"KES"}'
    said = f'{{"id":"evt_{FIRST}{kind}","type":"payment.{kind}","data":{{"order":{{"reference":"O'
    said += f'{FIRST}",{money},"payment":{{"reference":"p{FIRST}",{money}}}}}'
    return said.encode().ljust(200)


class Years:
    """Rows of the orders, each later than the one before, and their leaves."""

    def __init__(self, template: dict[str, list[Row]], orders: int) -> None:
        self._template, self._now, self._orders = template, SystemClock().now(), orders
        self._tail, self._sealed = Tail(0, {}), 0
        self.rows: dict[str, list[Any]] = {}
        for row in template["deliveries"]:
            self._seal(DELIVERY, row)
        self._seal(REVISION, template["revisions"][0])

    def _seal(self, kind: Any, row: Row) -> None:
        sealed: Sealable = kind.sealable([row[name] for name in kind.columns])
        leaf = leaf_of(sealed, number=self._sealed, salt=bytes(16))
        self._sealed += 1
        self._add("log_leaves", leaf._asdict())
        for (level, place), found in self._tail.append(leaf.hash):
            self._add("log_nodes", {"level": level, "place": place, "hash": found})

    def _add(self, table: str, row: Row) -> None:
        self.rows.setdefault(table, []).append(row)

    def add(self, number: int) -> None:
        """Add the rows of one order."""
        digits = f"{number:07d}"
        past = (self._orders - number) * (TEN_YEARS // self._orders)
        copies = {
            table: [_copy(row, digits, past=past) for row in rows]
            for table, rows in self._template.items()
        }
        for place, (delivery, event) in enumerate(
            zip(copies["deliveries"], copies["events"], strict=True)
        ):
            at = delivery["received_at"]
            name = f"{first_id('dlv_', at)}{number * 2 + place:018x}"
            digest = hashlib.sha256(delivery["body"]).hexdigest()
            delivery |= {"id": name, "digest": digest}
            event |= {"row": number * 2 + place + 1, "delivery_id": name, "digest": digest}
            self._seal(DELIVERY, delivery)
            if past > KEPT:
                delivery |= {"headers": "", "body": None, "pruned_at": at + KEPT}
        for row in (*copies["revisions"], *copies["order_listings"]):
            row["seq"] = number + 1
        self._seal(REVISION, copies["revisions"][0])
        for table, rows in copies.items():
            self.rows.setdefault(table, []).extend(rows)

    def write(self, connection: sqlite3.Connection) -> None:
        """Write all rows that were added."""
        came = Counter(row["received_at"] // MINUTE for row in self.rows.get("deliveries", ()))
        oldest = self._now // MINUTE - ARRIVALS_KEPT
        connection.execute("BEGIN")
        connection.executemany(
            "INSERT INTO arrivals VALUES (?, ?, ?, 0) ON CONFLICT DO UPDATE SET taken=taken+?3",
            [(minute, SOURCE, count) for minute, count in came.items() if minute > oldest],
        )
        for table, rows in self.rows.items():
            names = ", ".join(f'"{name}"' for name in rows[0])
            marks = ", ".join("?" * len(rows[0]))
            sql = f"INSERT INTO {table} ({names}) VALUES ({marks})"
            connection.executemany(sql, [tuple(row.values()) for row in rows])
        connection.execute("COMMIT")
        self.rows = {}


def _copy(row: Row, digits: str, *, past: int) -> Row:
    """Return a row of the first order as another order's, so much earlier."""
    copy = dict(row)
    for name, value in row.items():
        if isinstance(value, str):
            copy[name] = value.replace(FIRST, digits)
        elif isinstance(value, bytes):
            copy[name] = value.replace(FIRST.encode(), digits.encode())
        elif name in TIMES:
            copy[name] = value - past
    if "backwards" in row:
        copy["backwards"] = copy["order_key"][::-1].lower()
    return copy


class Shop:
    """One installation."""

    def __init__(self, folder: Path) -> None:
        self.path, self.secret = folder / "years.db", secret_text(new_secret())
        self.env = environment(self.path, self.secret)

    def command(self, *words: str, **settings: str) -> Any:
        """Run a command, and return what it prints as JSON. Print its time."""
        began, form = monotonic(), [] if words[0] == "refold" else ["--format", "json"]
        command = [sys.executable, "-m", "app", *words, *form]
        done = run(command, env=os.environ | self.env | settings, timeout=COMMAND_S)
        assert done.returncode in (0, 1), done.stderr.decode()
        print(f"{' '.join(words[:2])}: {monotonic() - began:,.1f} s")
        return json.loads(done.stdout) if form else None

    @contextmanager
    def served(self) -> Iterator[Target]:
        """Serve the database until the block ends."""
        began, log, words = monotonic(), self.path.with_suffix(".log"), ["app", "serve", "--port"]
        with server(words, log=log, env=self.env, start=start) as target:
            print(f"listens after {monotonic() - began:,.1f} s")
            yield target

    def rows(self, table: str, what: str = "*") -> list[Row]:
        """Return all rows of a table."""
        with stored.opened(self.path) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(f"SELECT {what} FROM {table}")]

    def counts(self) -> dict[str, int]:
        """Return the number of rows of each table."""
        return {table: self.rows(table, "count(*) AS n")[0]["n"] for table in TABLES}


def fill(shop: Shop, *, orders: int) -> None:
    """Write so many orders, all of them folded and sealed."""

    async def store_one() -> None:
        messages = [Message(kind, body(kind)) for kind in ("pending", "succeeded")]
        came = list(arrivals(iter(messages), source(shop.secret), SystemClock().now()))
        async with open_inbox(settings_of(shop.path)) as inbox:
            await inbox.append([Ready(None, came)])

    asyncio.run(store_one())
    shop.command("refold", "--all")
    years = Years({table: shop.rows(table) for table in TABLES}, orders)
    with closing(sqlite3.connect(shop.path, isolation_level=None)) as connection:
        for pragma in ("synchronous=OFF", "secure_delete=ON", "cache_size=-400000"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("DELETE FROM unsealed")
        for kind in KINDS:  # as a service does on its first start, while there is nothing yet
            row = (f"{SWEPT} {kind.name}", "")
            if not kind.numbered:
                connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", row)
        for number in range(1, orders):
            years.add(number)
            if number % AT_ONCE == 0:
                years.write(connection)
        years.write(connection)
        connection.execute(
            "UPDATE counters SET value=? WHERE value=1 AND "
            "(name LIKE 'finding %' OR name LIKE 'outcome %' OR name='revisions')",
            (orders,),
        )
        sealed = (f"{SEALED} {REVISION.name}", orders)
        connection.execute("INSERT OR REPLACE INTO counters VALUES (?, ?)", sealed)


def ten_years(folder: Path, *, orders: int, sent: int) -> None:
    """Do with such a database what its owner would, while `sent` orders of four deliveries come."""
    shop, copy, began = Shop(folder), folder / "backup.db", monotonic()
    fill(shop, orders=orders)
    assert shop.path.stat().st_size <= 12_000_000_000
    with shop.served() as target, Generator(shop.secret) as generator:
        generator.prepare(Stretch(seed=1, first=0, count=sent))
        leg = generator.send(target, connections=16, warm=1)
        print(leg, f"all is read and folded after {stored.settle(shop.path):,.1f} s")
    deliveries, before = 2 * orders + 4 * sent, shop.counts()
    assert leg.refused == []
    assert (before["deliveries"], before["events"]) == (deliveries, deliveries)
    assert before["ledgers"] == orders + sent
    shown = shop.command("orders", "show", f"O{orders // 2:07d}")
    assert shown["outcome"] == "succeeded"
    capacity = shop.command("doctor", "--capacity")
    print(json.dumps(capacity, indent=1))
    assert f" for {deliveries:,} deliveries" in str(capacity)
    checked = shop.command("db", "check")
    assert (checked["problems"], checked["orders"]) == ([], orders + sent)
    assert checked["bodies"] + checked["pruned"] == deliveries
    pruned = shop.command("prune", TALLYHOOK_RETENTION_DAYS=str(KEPT // DAY - 30))
    # Writing the orders took a while, in which the oldest bodies grew older, too.
    days = 30 + (monotonic() - began) / 86_400
    assert abs(pruned["deliveries"] - 2 * orders * days / 3_650) <= 3
    shop.command("backup", str(copy))
    for name in ("", "-wal", "-shm", ".inbox", ".inbox-wal", ".inbox-shm"):
        Path(f"{shop.path}{name}").unlink(missing_ok=True)  # a disk may not hold both
    shop.command("restore", str(copy), "--force", *ACCEPTED)
    copy.unlink()
    with shop.served():
        pass
    # Orders of the accepted gap are held back, which the service publishes as it finds them.
    after = shop.counts()
    assert all(after[each] == before[each] for each in ("deliveries", "events", "ledgers"))
    again = shop.command("orders", "show", f"O{orders // 2:07d}")
    assert again["entries"] == shown["entries"]


def test_a_small_shop_of_ten_years(tmp_path: Path) -> None:
    ten_years(tmp_path, orders=1_500, sent=20)


@pytest.mark.disk
@pytest.mark.soak
@pytest.mark.timeout(4 * COMMAND_S)
def test_ten_years_of_a_thousand_orders_a_day(tmp_path: Path) -> None:
    """7.3 million deliveries; run it with -s to see the figures."""
    try:
        ten_years(tmp_path, orders=3_650_000, sent=2_500)
    finally:
        for each in tmp_path.iterdir():
            each.unlink()
