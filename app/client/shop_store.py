"""Store news in the shop's own SQLite database, in one transaction with what the shop does.

    BEGIN IMMEDIATE ─▶ is it newer? ─▶ store its id ─▶ the shop's own statements ─▶ COMMIT

A process that dies before the last step has done nothing, and gets the news again. For another
database copy this file: it needs two tables and four statements.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from .outcomes import News

TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS tallyhook_told (ref TEXT PRIMARY KEY, revision INTEGER NOT NULL,"
    " shipped INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS tallyhook_feed (one INTEGER PRIMARY KEY CHECK (one = 1),"
    " place INTEGER NOT NULL)",
)

NEWER: Final = (
    "INSERT INTO tallyhook_told (ref, revision, shipped) VALUES (:ref, :revision, 0)"
    " ON CONFLICT (ref) DO UPDATE SET revision = excluded.revision"
    " WHERE excluded.revision > tallyhook_told.revision RETURNING shipped"
)

SHIPPED: Final = "UPDATE tallyhook_told SET shipped = 1 WHERE ref = :ref"

PLACE: Final = "SELECT place FROM tallyhook_feed"

MOVE: Final = (
    "INSERT INTO tallyhook_feed (one, place) VALUES (1, :place)"
    " ON CONFLICT (one) DO UPDATE SET place = excluded.place"
)

Act = Callable[[sqlite3.Connection, News, bool], None]
"""The shop's own statements: called with the connection, in the transaction, the news, and whether
to ship now. That is `True` once for each order, and never with superseded news."""


class SqliteKeeper:
    """Keeper for a shop with SQLite.

    connection  the shop's own; its isolation level is set to None, so that transactions are ours
    act         what the shop does in the transaction; nothing that cannot be rolled back
    """

    def __init__(self, connection: sqlite3.Connection, act: Act) -> None:
        connection.isolation_level = None
        self._connection = connection
        self._act = act
        for statement in TABLES:
            connection.execute(statement)

    def take(self, news: News) -> bool:
        """See `outcomes.Keeper`."""
        with self._transaction():
            found = self._connection.execute(
                NEWER, {"ref": news.order, "revision": news.id}
            ).fetchall()
            if not found:
                return False
            ship = news.fulfillable and not news.superseded and not found[0][0]
            if ship:
                self._connection.execute(SHIPPED, {"ref": news.order})
            self._act(self._connection, news, ship)
        return True

    def place(self) -> int:
        """See `outcomes.Keeper`."""
        found = self._connection.execute(PLACE).fetchone()
        return 0 if found is None else int(found[0])

    def move(self, place: int) -> None:
        """See `outcomes.Keeper`."""
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
            if self._connection.in_transaction:  # a full disk ends it by itself
                self._connection.execute("ROLLBACK")
            raise
