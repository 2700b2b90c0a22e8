"""A database with very many deliveries: commands and requests that read all of it, or must not.

Rows are written in bulk: an event each, most without an order, with its leaf in the log and the
digest of its customer's number; every hundredth names an order, which is folded. The program itself
checks the database with `db check`.
"""

import asyncio
import hashlib
import json
import mmap
import os
import sqlite3
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from app.config.settings import Settings
from app.core.clock import SystemClock
from app.core.ids import first_id, new_secret
from app.core.phone_key import PhoneKey, make_phone_key
from app.database.mapping import DELIVERY_COLUMNS, EVENT_COLUMNS, event_row
from app.providers.request import Incoming
from app.receiving.inbox import open_inbox
from app.sealing.leaf_store import DELIVERY, KINDS, leaf_of
from app.sealing.log_queue_store import SWEPT
from reconcile.instants import DAY, MILLISECOND, Instant
from reconcile.transparency.merkle import Tail
from tests.bench import stored
from tests.bench.burst import SERVE, behind, drain, profile, turn
from tests.bench.generator import Generator
from tests.bench.orders import Stretch, after
from tests.bench.processes import environment, server
from tests.bench.report import Figure
from tests.bench.requests import SOURCE, secret_text, source
from tests.bench.sampler import lines
from tests.bench.sizes import BARS, Sizes
from tests.contexts import settings_of

AT_ONCE = 20_000
EVERY = 100
"""One delivery in so many names an order."""

PER_CUSTOMER = 4
HEADERS = "host: bench\ncontent-type: application/json"

_BODY = (
    '{{"id": "evt_{n:024x}", "type": "payment.{kind}", "occurred_at": "2026-01-01T00:00:00Z", '
    '"environment": "sandbox", "data": {{{order}"payment": {{"reference": "pay_{n:012x}", '
    '"amount": "15.00", "currency": "KES"}}, "customer": {{"phone": "{phone}"}}}}}}'
)
_ORDER = '"order": {{"reference": "{}", "amount": "15.00", "currency": "KES"}}, '


def phone_of(number: int) -> str:
    """Return a customer's number, without rows of zeros, as it is searched in the whole file."""
    return f"2547{(12_345_678 + number * 7_919) % 10**8:08d}"


def make_many(path: Path, *, deliveries: int, phone_key: PhoneKey) -> None:
    """Make a database with all deliveries sealed and every order due."""
    url = f"sqlite+aiosqlite:///{path.absolute()}"
    asyncio.run(_make(settings_of(url)))
    writing = _Writing(deliveries, phone_key)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("PRAGMA secure_delete=ON")  # as every connection of the program's
        connection.execute("PRAGMA cache_size=-200000")
        for kind in KINDS:  # as a service does on its first start, while there is nothing yet
            if not kind.numbered:
                key = f"{SWEPT} {kind.name}"
                connection.execute("INSERT OR REPLACE INTO meta VALUES (?, '')", (key,))
        for start in range(0, deliveries, AT_ONCE):
            connection.execute("BEGIN")
            for sql, rows in writing.rows(range(start, min(start + AT_ONCE, deliveries))):
                connection.executemany(sql, rows)
            connection.execute("COMMIT")
            if start % 1_000_000 == 0:
                print(f"many: {start:,} of {deliveries:,} written", file=sys.stderr)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


async def _make(settings: Settings) -> None:
    async with open_inbox(settings):
        pass


class _Writing:
    """Rows as the program writes them, one millisecond after the other."""

    def __init__(self, deliveries: int, key: PhoneKey) -> None:
        self._key = key
        self._customers = deliveries // PER_CUSTOMER | 1  # odd: one customer names orders and none
        self._tail = Tail(0, {})
        self._began: Instant = SystemClock().now() - 100 * DAY
        reader = source(secret_text(new_secret()))
        self._like = [
            reader.read(Incoming([], body), digest=hashlib.sha256(body).hexdigest()).events[0]
            for body in (self._body(1), self._body(0))
        ]

    def _body(self, n: int) -> bytes:
        named = n % EVERY == 0
        return _BODY.format(
            n=n,
            kind="succeeded" if named else "pending",
            order=_ORDER.format(f"ORD-{n:010d}") if named else "",
            phone=phone_of(n % self._customers),
        ).encode()

    def rows(self, numbers: range) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
        deliveries, events, phones, leaves, nodes = [], [], [], [], []
        links, due = [], []
        for n in numbers:
            body, at = self._body(n), self._began + n * MILLISECOND // 2
            order = f"ORD-{n:010d}" if n % EVERY == 0 else None
            digest, name = hashlib.sha256(body).hexdigest(), f"{first_id('dlv_', at)}{n:018x}"
            event = replace(
                self._like[order is not None],
                event_id=f"evt_{n:024x}",
                digest=digest,
                order=order,
                payment=f"pay_{n:012x}",
            )
            row = (name, at, SOURCE, "stored", event.event_id, digest, len(body), HEADERS)
            deliveries.append((*row, body, None, None, None))
            events.append(event_row(event, order_key=order, delivery_id=name, received_at=at))
            kind, thing = ("delivery", name) if order is None else ("order", order)
            phones.append((self._key.digest(phone_of(n % self._customers)), kind, thing, at))
            sealed = (name, at, SOURCE, digest, len(body), HEADERS, None, None)
            leaf = leaf_of(DELIVERY.sealable(sealed), number=n, salt=bytes(16))
            leaves.append(tuple(leaf))
            nodes += [(*node, found) for node, found in self._tail.append(leaf.hash)]
            if order is not None:
                links.append((event.payment, "payment", SOURCE, order))
                due.append((order, 0, 1))
        yield _insert("deliveries", DELIVERY_COLUMNS), deliveries
        yield _insert("events", EVENT_COLUMNS), events
        yield _insert("phones", ("digest", "kind", "thing", "noted_at")), sorted(phones)
        yield _insert("log_leaves", ("number", "kind", "subject", "document", "hash")), leaves
        yield _insert("log_nodes", ("level", "place", "hash")), nodes
        yield _insert("links", ("reference", "kind", "source", "order_key")), links
        yield _insert("order_due", ("order_key", "due_at", "generation")), due


def _insert(table: str, columns: tuple[str, ...]) -> str:
    marks = ", ".join("?" * len(columns))
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"


class Paces(NamedTuple):
    """A leg: deliveries a second, and µs of the processor that the whole way of one takes."""

    acknowledged: float
    drained: float
    us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Many:
    """Results of the commands, and of the same legs with an empty database and with a full one.

    report, erased  what `db check` and `erase --phone` printed; the erasure took `erase_s`
    traces          whether the number that was erased is still in a file
    legs            (empty, full): acknowledged and drained a second, µs of the processor
    whole           whether the full one holds each delivery and ledger, and no other
    bounds          functions in which the full one's readers spend most processor time
    """

    deliveries: int
    database_bytes: int
    report: dict[str, Any]
    legs: list[tuple[Paces, Paces]]
    whole: bool
    bounds: list[str]
    erase_s: float
    erased: dict[str, Any]
    traces: bool


def many(folder: Path, *, sizes: Sizes) -> Many:
    """Make a database of very many deliveries, check it, load it, and erase one customer of it."""
    secret, path, count = secret_text(new_secret()), folder / "many.db", sizes.many_deliveries
    paths, env, sent = (folder / "empty.db", path), environment(path, secret), list[Stretch]()
    make_many(path, deliveries=count, phone_key=make_phone_key(folder / "many.phone.key"))
    size, legs = path.stat().st_size, list[tuple[Paces, Paces]]()
    _command(["refold", "--all"], env)
    _, report = _command(["db", "check", "--format", "json"], env)
    with ExitStack() as stack:
        targets = [
            stack.enter_context(
                server(SERVE, log=each.with_suffix(".log"), env=environment(each, secret))
            )
            for each in paths
        ]
        generator = stack.enter_context(Generator(secret))

        def prepare() -> None:
            sent.append(after(sent, sizes.many_orders))
            generator.prepare(sent[-1])

        for number in range(sizes.many_legs + 1):
            sides = (0, 1) if number % 2 else (1, 0)
            prepare()
            turns = {n: turn(generator, targets[n], sizes, paths[n]) for n in sides}
            prepare()
            drained = {n: drain(generator, targets[n], paths[n], sizes) for n in sides}
            empty, full = (
                Paces(turns[n].leg.rate, drained[n], turns[n].us(turns[n].whole)) for n in (0, 1)
            )
            legs.append((empty, full))
    with stored.opened(path) as connection:
        held = connection.execute("SELECT count(*) FROM deliveries").fetchone()[0]
    orders = len(range(0, count, EVERY)) + sum(each.count for each in sent)
    whole = (held, stored.ledgers(path)) == (count + sum(each.events for each in sent), orders)
    bounds = lines(behind(profile(path, secret, sent, sizes)))
    erase = ["erase", "--phone", f"+{phone_of(0)}", "--reason", "asked", "--format", "json"]
    erase_s, erased = _command(erase, env)
    return Many(
        deliveries=count,
        database_bytes=size,
        report=report,
        legs=legs[1:],
        whole=whole,
        erase_s=erase_s,
        erased=erased,
        bounds=bounds,
        traces=any(_holds(each, phone_of(0).encode()) for each in folder.glob("many.db*")),
    )


def _command(words: list[str], env: dict[str, str]) -> tuple[float, dict[str, Any]]:
    """Run a command; return its seconds and its JSON output."""
    began = perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "app", *words],
        env=os.environ | env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    seconds = perf_counter() - began
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{words[0]} failed; its last words:\n{done.stderr[-2_000:]}")
    print(f"many: {' '.join(words)} took {seconds:.1f} s", file=sys.stderr)
    return seconds, json.loads(done.stdout) if "json" in words else {}


def _holds(path: Path, sought: bytes) -> bool:
    if not path.stat().st_size:
        return False
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as held:
        return held.find(sought) >= 0


def many_figures(folder: Path, sizes: Sizes) -> list[Figure]:
    return figures_of(many(folder, sizes=sizes))


def figures_of(found: Many) -> list[Figure]:
    """Return the shares of an empty database, and the erasure."""
    size = {"GB": found.database_bytes / 1e9}
    checks = {
        "`db check` found nothing before": found.report["found"] == 0
        and found.report["bodies"] == found.deliveries,
        "each delivery and order is there": found.whole,
    }
    shares = [
        [full_value / empty_value for empty_value, full_value in zip(*leg, strict=True)]
        for leg in found.legs
    ]
    acknowledged, drained, us = zip(*shares, strict=True)
    what = f"with {found.deliveries:,} deliveries stored"
    return [
        Figure(
            name=f"backlog drained {what}",
            value=statistics.median(drained),
            unit="share of empty",
            bar=BARS["many drained"],
            checks=checks,
            details={**size, "each": drained, "processor time": statistics.median(us)}
            | {"profile": found.bounds},
        ),
        Figure(
            name=f"acknowledged {what}",
            value=statistics.median(acknowledged),
            unit="share of empty",
            bar=BARS["many acknowledged"],
            checks=checks,
            details={
                "each": acknowledged,
                "a second": [full.acknowledged for _, full in found.legs],
            },
        ),
        Figure(
            name=f"erasure of a customer {what}",
            value=found.erase_s,
            unit="s",
            bar=BARS["many erase"],
            checks={
                "all of the customer's deliveries went": found.erased["deliveries"] == PER_CUSTOMER,
                "nothing of the number is left in a file": not found.traces,
            },
            details={**size, "kept": found.erased["kept"]},
        ),
    ]
