"""A process that is killed while it brings an SQLite database up to date."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from app.database import schema
from app.receiving.inbox import Inbox
from tests.contexts import settings_of
from tests.database.contract_upgrading import before_each_statement
from tests.database.old_versions import VERSIONS, bring_to, make_version, version_of


def open_at(path: Path) -> Inbox:
    """A store that has not been brought up to date."""
    return Inbox(settings_of(path), purpose="upgrading")


MANY = 1_100
"""Orders: more than are read at once, with more findings than one statement could list."""

INSERT_MANY = (
    "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers "
    f"WHERE n < {MANY}) INSERT INTO {{}} SELECT {{}} FROM numbers"
)
CODES = "|".join(f"code{n}" for n in range(24))


async def test_orders_are_listed_some_at_a_time(tmp_path: Path) -> None:
    """Of a large table neither its rows nor one statement of all of them is held in memory."""
    read, written = [], []

    def note(_c: Any, _cursor: Any, statement: str, given: Any, _context: Any, _m: bool) -> None:
        if "FROM ledgers" in statement:
            read.append(given)
        if statement.startswith("INSERT INTO order_listings"):
            written.append(len(given))

    inbox = open_at(tmp_path / "t.db")
    try:
        await make_version(inbox, "0028")
        ledger = f"'order' || n, 1, 'succeeded', 1, '{CODES}', '', NULL, ''"
        revision = "5000 + n, 'order' || n, 1, 'succeeded', 1, '', NULL, NULL, ''"
        async with inbox.database.writing() as connection:
            for name, values in (("ledgers", ledger), ("revisions", revision)):
                await connection.exec_driver_sql(INSERT_MANY.format(name, values))
            event.listen(connection.sync_connection, "before_cursor_execute", note)
            await connection.run_sync(bring_to, "0029")
            listed = await connection.exec_driver_sql(
                "SELECT word, count(*), max(seq) FROM order_listings GROUP BY word ORDER BY word"
            )
            found = [tuple(row) for row in listed]
    finally:
        await inbox.close()
    words = ["outcome succeeded", *(f"finding {code}" for code in CODES.split("|"))]
    assert found == [(word, MANY, 5_000 + MANY) for word in sorted(words)]
    assert len(read) >= 3
    assert max(written) <= 3_000


async def killed_at_each_statement(
    folder: Path, version: str, *, spill: bool, every: int
) -> tuple[str, list[Path]]:
    """Upgrade a database of this version. Returns what was in it, and what a kill before each
    statement, and before the commit, would have left: the files as they were then.

    every  before every so-manieth, the first of them
    spill  write every changed page into the log at once, as an upgrade of many rows does
    """
    found: list[Path] = []
    (folder / "now").mkdir(parents=True)

    def keep_some(number: int, _: object) -> None:
        if number % every == 1 % every:
            keep(number)

    def keep(name: object) -> None:
        place = folder / str(name)
        # By another process: to close the file in this one would drop the locks held on it.
        subprocess.run(["cp", "-r", str(folder / "now"), str(place)], check=True)
        found.append(place / "t.db")

    inbox = open_at(folder / "now" / "t.db")
    try:
        await make_version(inbox, version)
        before = contents(copied(folder / "now", folder / "before"))
        if spill:
            async with inbox.database.writer.transaction() as connection:
                for pragma in ("PRAGMA cache_size=1", "PRAGMA cache_spill=1"):
                    await connection.exec_driver_sql(pragma)
        event.listen(inbox.database.writer._engine.sync_engine, "commit", lambda _: keep("commit"))
        with before_each_statement(inbox, keep_some):
            assert await inbox.database.upgrade() == (version, schema.newest_version())
    finally:
        await inbox.close()
    return before, found


def copied(folder: Path, place: Path) -> Path:
    """The database in a copy of the folder."""
    shutil.copytree(folder, place)
    return place / "t.db"


def contents(path: Path) -> str:
    """The whole database as SQL, as any program finds it that opens it after the kill."""
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA quick_check").fetchall() == [("ok",)]
        return "\n".join(database.iterdump())


async def whole_after_any_kill(folder: Path, version: str, *, spill: bool, every: int = 1) -> int:
    """The old version is there to the last row, though half of the new one may be in the log, and
    the next start brings it up to date. Returns the number of kills."""
    before, found = await killed_at_each_statement(folder, version, spill=spill, every=every)
    logs = [path.with_name("t.db-wal").stat().st_size for path in found]
    assert (logs[-1] > logs[0]) == spill
    assert len(found) > len([each for each in VERSIONS if each > version])
    for path in found:
        assert contents(path) == before, path.parent.name
    inbox = open_at(found[-1])
    try:
        assert await inbox.database.upgrade() == (version, schema.newest_version())
        assert await version_of(inbox) == schema.newest_version()
    finally:
        await inbox.close()
    return len(found)


@pytest.mark.parametrize("spill", [False, True])
async def test_a_kill_before_some_statements_of_an_upgrade(tmp_path: Path, spill: bool) -> None:
    """From the first version, which goes through every migration."""
    await whole_after_any_kill(tmp_path, VERSIONS[0], spill=spill, every=3)


@pytest.mark.soak
async def test_a_kill_before_any_statement_of_an_upgrade_from_each_version(tmp_path: Path) -> None:
    """The long form: from every version before the newest."""
    kills = 0
    for version, spill in product(VERSIONS[:-1], (False, True)):
        kills += await whole_after_any_kill(tmp_path / f"{version}{spill}", version, spill=spill)
    print(f"killed {kills} times on the way from {len(VERSIONS) - 1} versions: no row lost")
