"""A receiver that is killed between any two of its steps ships each order exactly once."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from app.client.asking import Answer, Ask, ask
from app.client.outcomes import News, follow, verify_notification
from app.client.shop_store import SqliteKeeper
from tests.client.world import SECRET, entry, notification

NOW = 1_795_000_000
HISTORY = [
    entry(1, "A", fulfillable=False),
    entry(2, "A", fulfillable=True),
    entry(3, "B", fulfillable=True),
    entry(4, "A", fulfillable=False),
    entry(5, "A", fulfillable=True),
]
AFTER_THE_RESTORE = [*HISTORY[:2], entry(1_000, "B", fulfillable=True), entry(1_001, "C", True)]
"""The feed after a backup was restored: what came after the second entry came again."""


class Killed(BaseException):
    """The process was killed."""


class Power:
    """Steps of a process that fail from one step on, as nothing happens in a dead process."""

    def __init__(self, at: int) -> None:
        self.left = at

    def step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed

    @property
    def gone(self) -> bool:
        return self.left < 0


class Connection(sqlite3.Connection):
    """Connection that takes a step before and after each statement."""

    power: Power

    def execute(self, *words: Any) -> sqlite3.Cursor:
        self.power.step()
        done = super().execute(*words)
        self.power.step()
        return done


def act(shop: sqlite3.Connection, news: News, ship: bool) -> None:
    shop.execute("INSERT INTO heard VALUES (?, ?)", (news.order, news.id))
    if ship:
        shop.execute("INSERT INTO parcels VALUES (?)", (news.order,))


def feed(entries: list[dict[str, Any]], power: Power) -> Callable[[Ask], Answer]:
    """Serve a feed: two entries a page, and 410 beyond the last; and each order by its last."""

    def send(wanted: Ask) -> Answer:
        power.step()
        if "/orders/" in wanted.path:
            known = {each["order"]: each for each in entries}
            document = known[wanted.path.rpartition("/")[2]]
            return Answer(status=200, body=json.dumps(document).encode())
        after = int(parse_qs(urlsplit(wanted.path).query)["after"][0])
        power.step()
        if after > max(each["id"] for each in entries):
            return Answer(status=410, body=json.dumps({"read_from": 0}).encode())
        page = [each for each in entries if each["id"] > after][:2]
        cursor = page[-1]["id"] if page else after
        return Answer(status=200, body=json.dumps({"outcomes": page, "cursor": cursor}).encode())

    return send


def by_feed(entries: list[dict[str, Any]], keeper: SqliteKeeper, power: Power) -> None:
    ask(follow(keeper), feed(entries, power))


def by_notifications(entries: list[dict[str, Any]], keeper: SqliteKeeper, power: Power) -> None:
    """Post every entry, as after a crash all are that were not answered."""
    for each in entries:
        headers, body = notification(each, now=NOW)
        power.step()
        keeper.take(verify_notification(SECRET, headers, body, now=NOW))
        power.step()


def by_both(entries: list[dict[str, Any]], keeper: SqliteKeeper, power: Power) -> None:
    by_notifications(entries[::-1], keeper, power)
    by_feed(entries, keeper, power)


def lives(path: Path, hear: Callable[..., None], at: int) -> Iterator[Power]:
    """Yield the lives of the process: the first ends at a step, the next gets all news."""
    for entries in (HISTORY, AFTER_THE_RESTORE):
        for power in (Power(at), Power(10**9)):
            with closing(sqlite3.connect(path, factory=Connection)) as shop:
                shop.power = power
                with suppress(Killed):
                    shop.execute("PRAGMA synchronous = OFF")
                    hear(entries, SqliteKeeper(shop, act), power)
            yield power


@pytest.mark.parametrize("hear", [by_feed, by_notifications, by_both])
def test_it_may_die_at_every_step(tmp_path: Path, hear: Callable[..., None]) -> None:
    """At each step: every parcel is packed once, no news is acted on twice, and each order's last
    news arrives, before a restore and after it."""
    at, died = 0, True
    while died:
        path = tmp_path / f"{at}.db"
        with closing(sqlite3.connect(path)) as shop:
            shop.execute("CREATE TABLE heard (ref TEXT, id INT, UNIQUE (ref, id))")
            shop.execute("CREATE TABLE parcels (ref TEXT)")
        died = any(tuple(power.gone for power in lives(path, hear, at)))
        with closing(sqlite3.connect(path)) as shop:
            parcels = shop.execute("SELECT ref FROM parcels ORDER BY ref").fetchall()
            last = dict(shop.execute("SELECT ref, max(id) FROM heard GROUP BY ref").fetchall())
        assert parcels == [("A",), ("B",), ("C",)], at
        assert last == {"A": 5, "B": 1_000, "C": 1_001}, at
        at += 1
    assert at > 40
