"""Store news in the shop's own SQLite database, in the shop's own transaction.

For another database, copy this file: it needs two tables and seven statements.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from .outcomes import UNKNOWN, News

TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS tallyhook_told (ref TEXT PRIMARY KEY, revision INTEGER NOT NULL,"
    " shipped INTEGER NOT NULL, undecided INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS tallyhook_feed (one INTEGER PRIMARY KEY CHECK (one = 1),"
    " place INTEGER NOT NULL)",
)

AT_ONCE: Final = 20
"""Maximum number of undecided orders in one round of questions."""

NEWER: Final = (
    "INSERT INTO tallyhook_told (ref, revision, shipped, undecided) VALUES (:ref, :revision, 0, 0)"
    " ON CONFLICT (ref) DO UPDATE SET revision = excluded.revision, undecided = 0"
    " WHERE excluded.revision > tallyhook_told.revision RETURNING shipped"
)

SHIPPED: Final = "UPDATE tallyhook_told SET shipped = 1, undecided = 0 WHERE ref = :ref"

WAITS: Final = "UPDATE tallyhook_told SET undecided = undecided + 1 WHERE ref = :ref"
"""SQL statement that counts the questions about an undecided order."""

UNDECIDED: Final = (
    "SELECT ref, revision FROM tallyhook_told WHERE undecided > 0 AND shipped = 0"
    " ORDER BY undecided, ref LIMIT :limit"
)

DECIDED: Final = (
    "UPDATE tallyhook_told SET undecided = 0 WHERE ref = :ref AND revision = :revision"
    " AND undecided > 0 AND shipped = 0 RETURNING ref"
)

PLACE: Final = "SELECT place FROM tallyhook_feed"

MOVE: Final = (
    "INSERT INTO tallyhook_feed (one, place) VALUES (1, :place)"
    " ON CONFLICT (one) DO UPDATE SET place = excluded.place"
)

Act = Callable[[sqlite3.Connection, News, bool], None]
"""Function that executes the shop's own SQL in the transaction.

The flag tells to ship the order, and is True only once.
"""


class SqliteKeeper:
    """Store of handled news for a shop with SQLite.

    connection  connection of the shop, whose isolation level becomes None
    act         runs the shop's statements; it must do nothing that cannot be rolled back
    """

    def __init__(self, connection: sqlite3.Connection, act: Act) -> None:
        connection.isolation_level = None
        self._connection = connection
        self._act = act
        for statement in TABLES:
            connection.execute(statement)

    def take(self, news: News) -> bool:
        with self._transaction():
            found = self._connection.execute(
                NEWER, {"ref": news.order, "revision": news.id}
            ).fetchall()
            if not found:
                return False
            self._decide(news, shipped=bool(found[0][0]))
        return True

    def undecided(self) -> list[tuple[str, int]]:
        found = self._connection.execute(UNDECIDED, {"limit": AT_ONCE}).fetchall()
        return [(str(order), int(number)) for order, number in found]

    def settle(self, news: News) -> None:
        with self._transaction():
            named = {"ref": news.order, "revision": news.id}
            if news.fulfilled_at == UNKNOWN:
                self._connection.execute(WAITS, {"ref": news.order})
            elif self._connection.execute(DECIDED, named).fetchall():
                self._decide(news, shipped=False)

    def _decide(self, news: News, *, shipped: bool) -> None:
        ship = news.may_ship and not shipped
        if ship:
            self._connection.execute(SHIPPED, {"ref": news.order})
        elif news.fulfillable and news.fulfilled_at == UNKNOWN and not (shipped or news.superseded):
            self._connection.execute(WAITS, {"ref": news.order})
        self._act(self._connection, news, ship)

    def place(self) -> int:
        found = self._connection.execute(PLACE).fetchone()
        return 0 if found is None else int(found[0])

    def move(self, place: int) -> None:
        with self._transaction():
            self._connection.execute(MOVE, {"place": place})

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        # IMMEDIATE: two processes of one shop wait for each other before they read.
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")  # raises if the database is locked
        except BaseException:
            if self._connection.in_transaction:  # a full disk may have ended it
                self._connection.execute("ROLLBACK")
            raise
