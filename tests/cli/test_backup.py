"""`backup` and `restore`: what they refuse, what they leave behind, what they print."""

import asyncio
import json
import os
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from app.cli import main
from app.core.clock import SystemClock
from app.orders.refold import refold_until_quiet
from app.privacy import backup as operation
from app.privacy import backup_store as copying
from app.privacy import backup_store as restoring
from tests.api.driving import driving, of_order
from tests.cli.test_commands import Ended, Run, run
from tests.contexts import ACCEPTED
from tests.copied import copy_of

__all__ = ["run"]


async def _send(folder: Path, *orders: str) -> None:
    async with driving(folder, with_worker=False) as driver:
        for order in orders:
            assert (await driver.send(of_order(order, f"e-{order}"))).status_code == 200
        await refold_until_quiet(driver.context, limit=10, progress=lambda count: None)


def fill(folder: Path, *orders: str) -> None:
    """Make a database with one paid order for each reference, published."""
    if (folder / "t.db").exists():
        asyncio.run(_send(folder, *orders))
    else:
        copy_of(_send, folder, *orders)


def orders_in(path: Path) -> list[str]:
    """List the orders of a database file."""
    with closing(sqlite3.connect(path)) as database:
        found = database.execute("SELECT DISTINCT order_key FROM events ORDER BY order_key")
        return [row[0] for row in found]


OWN = (
    *(f"t.db{name}" for name in (".serving", ".writing", ".waiting", ".reading", ".made")),
    *("t.phone.key", "t.erasures", "t.erasures.key"),
)
"""Files beside every database that was served."""


def names(folder: Path) -> set[str]:
    """Name the files in a folder, but the database's locks, logs, inbox, keys and journal."""
    return {
        each.name
        for each in folder.iterdir()
        if not each.name.startswith(("t.db-", "t.db.inbox")) and each.name not in OWN
    }


def flip(path: Path) -> None:
    """Damage a page in the middle of a file."""
    content = bytearray(path.read_bytes())
    middle = len(content) // 8192 * 4096
    content[middle : middle + 4096] = b"\xff" * 4096
    path.write_bytes(content)


def test_a_backup_says_what_it_holds(run: Run, tmp_path: Path) -> None:
    """One plain file, for its owner only, with counts, stamp and the last place in the feed."""
    fill(tmp_path, "A", "B")
    file = tmp_path / "b.db"
    made = run("backup", str(file), "--format", "json")
    assert made.code == 0
    held = made.document
    assert (held["environment"], held["deliveries"], held["events"]) == ("sandbox", 2, 2)
    assert (held["revisions"], held["last_revision"], held["records"]) == (2, 2, 0)
    assert held["bytes"] == file.stat().st_size
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert names(tmp_path) == {"t.db", "b.db"}
    assert orders_in(file) == ["A", "B"]
    again = run("backup", str(tmp_path / "c.db"))
    assert "2 deliveries, 2 events" in again.out
    assert again.out.endswith("checked.\n")
    for name in (".evidence.key", ".phone.key", ".erasures", ".erasures.key"):
        assert name in again.err


def noted(path: Path) -> list[int]:
    """Return when a database says that it was backed up."""
    with closing(sqlite3.connect(path)) as database:
        sql = "SELECT value FROM counters WHERE name = 'last backup'"
        return [row[0] for row in database.execute(sql)]


def test_a_backup_is_noted_once_it_is_complete(run: Run, tmp_path: Path) -> None:
    """As of its beginning, in the database and not in the copy; one that was refused is not."""
    fill(tmp_path, "A")
    file, database = tmp_path / "b.db", tmp_path / "t.db"
    assert run("backup", str(database), "--force").code == 2
    assert noted(database) == []
    began = SystemClock().now()
    assert run("backup", str(file)).code == 0
    (at,) = noted(database)
    assert began <= at <= SystemClock().now()
    assert noted(file) == []


def test_a_backup_that_cannot_be_noted_is_one(run: Run, tmp_path: Path) -> None:
    """Such as that of a database which is to be upgraded next: it is whole, and that is said."""
    fill(tmp_path, "A")
    with closing(sqlite3.connect(tmp_path / "t.db")) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '0028'")
    file = tmp_path / "b.db"
    made = run("backup", str(file))
    assert made.code == 0
    assert "complete, but /metrics and the audit trail will not show it" in made.err
    assert orders_in(file) == ["A"]


def test_a_backup_replaces_only_with_force(run: Run, tmp_path: Path) -> None:
    """A file that exists stays as it is, unless --force; then it is replaced whole."""
    fill(tmp_path, "A")
    file = tmp_path / "b.db"
    file.write_bytes(b"mine")
    file.chmod(0o644)
    refused = run("backup", str(file))
    assert (refused.code, file.read_bytes()) == (2, b"mine")
    assert "--force" in refused.err
    assert run("backup", str(file), "--force").code == 0
    assert orders_in(file) == ["A"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["t.db", "t.db-wal", "t.db.serving", "link", "folder", "no/b.db"])
def test_a_backup_never_takes_the_databases_place(run: Run, tmp_path: Path, name: str) -> None:
    """The database's own files, links to it, folders and paths without one are refused."""
    fill(tmp_path, "A")
    (tmp_path / "link").symlink_to(tmp_path / "t.db")
    (tmp_path / "folder").mkdir()
    before = names(tmp_path)
    assert run("backup", str(tmp_path / name), "--force").code == 2
    assert names(tmp_path) == before
    assert orders_in(tmp_path / "t.db") == ["A"]


def test_a_backup_that_cannot_be_finished_leaves_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the disk full in the middle, or a copy that is damaged, the older file stays."""
    fill(tmp_path, "A")
    file = tmp_path / "b.db"
    assert run("backup", str(file)).code == 0
    before = file.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("app.privacy.backup_store.os.fsync", full)
        ended = run("backup", str(file), "--force")
    assert ended.code == 4
    assert "No space left" in ended.err
    sound = copying._copy

    def damaging(source: Path, part: Path, progress: copying.Progress) -> None:
        sound(source, part, progress)
        flip(part)

    with monkeypatch.context() as patched:
        patched.setattr(copying, "_copy", damaging)
        ended = run("backup", str(file), "--force")
    assert ended.code == 4
    assert "t.db is " in ended.err
    assert file.read_bytes() == before
    assert names(tmp_path) == {"t.db", "b.db"}


def test_what_a_killed_backup_left_does_no_harm(run: Run, tmp_path: Path) -> None:
    """A half-made copy and its journal are thrown away, not played into the next one."""
    fill(tmp_path, "A")
    (tmp_path / "b.db.part").write_bytes(b"half a page")
    (tmp_path / "b.db.part-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + b"\0" * 600)
    assert run("backup", str(tmp_path / "b.db")).code == 0
    assert names(tmp_path) == {"t.db", "b.db"}


def test_postgresql_has_its_own_tools(run: Run, tmp_path: Path,
                                      monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """Both commands name what to use instead, with exit code 2, without asking the server."""
    url = "postgresql+asyncpg://nobody:secret@127.0.0.1:1/none"
    monkeypatch.setenv("TALLYHOOK_DATABASE_URL", url)
    for words, tool in ((["backup", "x"], "pg_dump"), (["restore", "x"], "pg_restore")):
        ended = run(*words)
        assert (ended.code, ended.out) == (2, "")
        assert tool in ended.err


@pytest.mark.disk
def test_no_database_and_the_other_environment(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a database there is no backup; one environment leaves the other's alone."""
    assert run("backup", str(tmp_path / "b.db")).code == 4
    assert names(tmp_path) == set()
    fill(tmp_path, "A")
    assert run("backup", str(tmp_path / "b.db")).code == 0
    monkeypatch.setenv("TALLYHOOK_ENVIRONMENT", "live")
    for words in (
        ["backup", str(tmp_path / "c.db")],
        ["restore", str(tmp_path / "b.db"), "--force"],
    ):
        ended = run(*words)
        assert ended.code == 3
        assert "sandbox" in ended.err
    assert names(tmp_path) == {"t.db", "b.db"}


# --- restore --------------------------------------------------------------------------------------


@pytest.fixture
def backed_up(run: Run, tmp_path: Path) -> Path:
    """Back up order A; add B to the database afterwards."""
    fill(tmp_path, "A")
    file = tmp_path / "b.db"
    assert run("backup", str(file)).code == 0
    fill(tmp_path, "B")
    return file


def kept(ended: Ended) -> Path:
    """Return where the former database is kept."""
    return Path(json.loads(ended.out)["kept"])


@pytest.mark.slow
def test_the_log_of_the_old_database_is_not_played_into_the_new(
    run: Run, tmp_path: Path, backed_up: Path
) -> None:
    """With a log and an index left by a killed process, the restored database is the backup."""
    with closing(sqlite3.connect(tmp_path / "t.db", isolation_level=None)) as database:
        database.execute("UPDATE events SET order_key = 'C' WHERE order_key = 'B'")
        left = {name: (tmp_path / f"t.db{name}").read_bytes() for name in ("-wal", "-shm")}
        before = (tmp_path / "t.db").read_bytes()
    (tmp_path / "t.db").write_bytes(before)
    for name, content in left.items():
        (tmp_path / f"t.db{name}").write_bytes(content)
    ended = run("restore", *ACCEPTED, str(backed_up), "--force", "--format", "json")
    assert ended.code == 0
    assert not (tmp_path / "t.db-wal").exists()
    assert orders_in(tmp_path / "t.db") == ["A"]
    assert orders_in(kept(ended)) == ["A", "C"], "the old log is in the file that was kept"
    assert names(tmp_path) == {"t.db", "b.db", kept(ended).name}
    assert "readers of the feed and of notifications need no change" in ended.err
    assert run("db", "check").code == 0
    fill(tmp_path, "B")
    assert orders_in(tmp_path / "t.db") == ["A", "B"]


def test_a_damaged_database_is_replaced_too(run: Run, tmp_path: Path, backed_up: Path) -> None:
    """A file that is no database any more is set aside together with its log."""
    (tmp_path / "t.db").write_bytes(b"not a database " * 1_000)
    (tmp_path / "t.db-wal").write_bytes(b"its log")
    ended = run("restore", *ACCEPTED, str(backed_up), "--force", "--format", "json")
    assert ended.code == 0
    assert orders_in(tmp_path / "t.db") == ["A"]
    assert kept(ended).read_bytes().startswith(b"not a database")
    assert Path(f"{kept(ended)}-wal").read_bytes() == b"its log"


@pytest.mark.slow
def test_nobody_is_signed_in_after_a_restore(run: Run, tmp_path: Path) -> None:
    """Sessions and invitations of the backup have ended: they may have been revoked since."""
    fill(tmp_path, "ORD-1")
    with closing(sqlite3.connect(tmp_path / "t.db")) as database:
        database.execute("INSERT INTO sessions VALUES ('h', 'Ann', 1, 1, 9, NULL, 'password', 1)")
        database.execute("INSERT INTO invitations VALUES ('h', 'invite', 'Ben', 1, 9, NULL, NULL)")
        database.commit()
    assert run("backup", str(tmp_path / "b.db")).code == 0
    assert run("restore", *ACCEPTED, str(tmp_path / "b.db"), "--force").code == 0
    with closing(sqlite3.connect(tmp_path / "t.db")) as database:
        for table in ("sessions", "invitations"):
            assert database.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


def test_what_restore_refuses(run: Run, tmp_path: Path, backed_up: Path) -> None:
    """Without --force, from no file, from itself, from a damaged file: nothing is changed."""
    broken, text = tmp_path / "broken.db", tmp_path / "text.db"
    shutil.copy(backed_up, broken)
    flip(broken)
    text.write_text("no database")
    foreign = tmp_path / "foreign.db"
    with closing(sqlite3.connect(foreign)) as database:
        database.execute("CREATE TABLE t (a)")
    newer = tmp_path / "newer.db"
    shutil.copy(backed_up, newer)
    with closing(sqlite3.connect(newer, isolation_level=None)) as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    before = names(tmp_path)
    for words, code in (
        ([str(backed_up)], 2),
        ([str(tmp_path / "none.db"), "--force"], 5),
        ([str(tmp_path / "t.db"), "--force"], 2),
        ([str(broken), "--force"], 4),
        ([str(text), "--force"], 4),
        ([str(foreign), "--force"], 4),
        ([str(newer), "--force"], 3),
    ):
        ended = run("restore", *ACCEPTED, *words)
        assert (ended.code, ended.out) == (code, ""), words
        assert len(ended.err.splitlines()) == 1
        assert orders_in(tmp_path / "t.db") == ["A", "B"]
    assert names(tmp_path) == before


@pytest.mark.parametrize("step", ["_set_aside", "sync_folder", "put_in_place"])
def test_a_restore_that_is_cut_short(
    run: Run, tmp_path: Path, backed_up: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Ended before any step, the database is the old one, whole; done again, it is the backup."""

    def planned(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(restoring, step, planned)
        assert main.run(["restore", *ACCEPTED, str(backed_up), "--force"]) == 130
    assert orders_in(tmp_path / "t.db") == ["A", "B"]
    monkeypatch.setattr(operation, "SECOND", 1)  # two within one second need two names
    assert run("restore", *ACCEPTED, str(backed_up), "--force").code == 0
    assert orders_in(tmp_path / "t.db") == ["A"]


def test_writing_does_not_make_a_backup_begin_again(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a commit at every step the copy still goes forward, and is of one moment."""
    fill(tmp_path, "A")
    monkeypatch.setattr(copying, "PAGES_AT_ONCE", 3)
    steps: list[int] = []
    with closing(sqlite3.connect(tmp_path / "t.db", isolation_level=None)) as writer:

        def writing(done: int, total: int) -> None:
            steps.append(done)
            assert len(steps) <= total
            writer.execute("INSERT INTO counters VALUES (?, 1)", (f"step {len(steps)}",))

        with copying.copied(tmp_path / "t.db", tmp_path / "b.db", progress=writing) as (part, _):
            copying.put_in_place(part, tmp_path / "b.db")
    assert len(steps) > 5
    assert steps == sorted(set(steps))
    with closing(sqlite3.connect(tmp_path / "b.db")) as database:
        found = database.execute("SELECT count(*) FROM counters WHERE name LIKE 'step%'")
        assert found.fetchone() == (0,)


@pytest.mark.parametrize("laid", ["by somebody else", "as a second name"])
def test_nothing_is_copied_into_what_a_stranger_laid_there(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, laid: str
) -> None:
    """In a folder that others may write to, the copy would be theirs, and they read all of it; or
    another file would be overwritten."""
    fill(tmp_path, "ORD-1")
    part, other = tmp_path / "copy.db.part", tmp_path / "other"
    other.write_text("kept")
    if laid == "as a second name":
        part.hardlink_to(other)
    else:
        part.write_text("theirs")
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    ended = run("backup", str(tmp_path / "copy.db"))
    assert ended.code == 2
    assert "remove it" in ended.err
    assert part.stat().st_size < 10
    assert other.read_text() == "kept"
    assert not (tmp_path / "copy.db").exists()
