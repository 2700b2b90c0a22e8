"""`restore` and `db restored`: what is refused, what goes on, what is reported."""

import os
import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.core.clock import SystemClock
from app.core.errors import StoreUnavailable
from app.orders.published_store import A_SECOND, AHEAD, MAX_NUMBER, first_after_restore
from reconcile.instants import EARLIEST, SECOND
from tests.cli.test_backup import backed_up, fill, flip, names
from tests.cli.test_commands import Ended, Run, run
from tests.contexts import ACCEPTED

__all__ = ["backed_up", "run"]


def change(path: Path, *statements: str) -> None:
    """Change a database as somebody would who has it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        for sql in statements:
            database.execute(sql)


def planted(backup: Path, *statements: str) -> Path:
    """Copy the backup as somebody changed it."""
    copy = backup.with_name("planted.db")
    copy.unlink(missing_ok=True)
    shutil.copy(backup, copy)
    change(copy, *statements)
    return copy


def only_sentence(ended: Ended, code: int) -> str:
    """Return the one sentence that it said, with nothing on standard output."""
    assert (ended.code, ended.out) == (code, ""), ended
    (line,) = ended.err.splitlines()
    return line


# --- damage ---------------------------------------------------------------------------------------


def damaged(backup: Path) -> Iterator[tuple[str, bytes]]:
    """Yield files that cannot be restored."""
    content = backup.read_bytes()
    yield "empty", b""
    yield "no database", b"not a database " * 1_000
    yield "a header only", content[:100]
    for part in (1, 3, 7, 9):
        yield f"cut at {part}/10", content[: len(content) * part // 10]
    yield "cut in a page", content[:-1_000]
    yield "zeros at the end", content[: len(content) // 2] + bytes(len(content) // 2)
    yield "other sizes of page", content[:16] + b"\x02\x00" + content[18:]
    yield "another encoding", content[:56] + b"\x00\x00\x00\x02" + content[60:]
    middle = len(content) // 8192 * 4096
    yield "a page of noise", content[:middle] + b"\xff" * 4096 + content[middle + 4096 :]


def test_a_damaged_backup_ends_with_one_sentence(run: Run, tmp_path: Path, backed_up: Path) -> None:
    """Exit code 4, and what is there is not touched."""
    file, before = tmp_path / "damaged.db", (tmp_path / "t.db").read_bytes()
    for name, content in damaged(backed_up):
        file.write_bytes(content)
        ended = run("restore", *ACCEPTED, str(file), "--force")
        assert (name, ended.code) == (name, 4)
        assert str(file) in only_sentence(ended, 4), name
        assert (tmp_path / "t.db").read_bytes() == before, name
    assert names(tmp_path) == {"t.db", "b.db", "damaged.db"}


@pytest.mark.parametrize("text", [b"%PDF-1.7 " + b"x" * 5_000, b"order,amount\n", b"PK"])
def test_a_file_that_is_no_database_is_reported_as_that(
    run: Run, tmp_path: Path, backed_up: Path, text: bytes
) -> None:
    """And not as a database that is cut off."""
    other = tmp_path / "report.pdf"
    other.write_bytes(text)
    ended = run("restore", *ACCEPTED, str(other), "--force")
    assert "report.pdf is neither an SQLite database" in only_sentence(ended, 4)


@pytest.mark.slow
def test_damage_anywhere_never_ends_in_a_traceback(
    run: Run, tmp_path: Path, backed_up: Path
) -> None:
    """Bytes changed here and there: it is refused in one sentence, or what was changed is a value
    that no check of structure can see."""
    chance, content, refused = random.Random(17), backed_up.read_bytes(), 0
    file = tmp_path / "damaged.db"
    for number in range(60):
        changed = bytearray(content)
        for _ in range(chance.choice((1, 8, 200))):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        file.write_bytes(changed)
        ended = run("restore", *ACCEPTED, str(file), "--force")
        assert ended.code in (0, 3, 4), (number, ended)
        if ended.code:
            refused += 1
            only_sentence(ended, ended.code)
        for kept in tmp_path.glob("t.db.replaced-*"):
            kept.replace(tmp_path / "t.db")
    assert refused > 10


def test_an_index_that_leaves_a_row_out_is_damage(
    run: Run, tmp_path: Path, backed_up: Path
) -> None:
    """What an index does not have is not found: a refund could be hidden so. No backup is made of
    it either: it would be found to be none when it is needed."""
    file = planted(
        backed_up,
        "PRAGMA writable_schema=ON",
        "CREATE TABLE kept AS SELECT sql FROM sqlite_master WHERE name='ix_events_order_key'",
        "UPDATE sqlite_master SET sql = sql || ' AND event_id <> ''e-A''' "
        "WHERE name='ix_events_order_key'",
        "PRAGMA writable_schema=RESET",
        "REINDEX ix_events_order_key",
        "PRAGMA writable_schema=ON",
        "UPDATE sqlite_master SET sql = (SELECT sql FROM kept) WHERE name='ix_events_order_key'",
        "DROP TABLE kept",
    )
    assert "missing from index" in only_sentence(run("restore", *ACCEPTED, str(file), "--force"), 4)
    shutil.copy(file, tmp_path / "t.db")
    again = tmp_path / "again.backup"
    assert "missing from index" in only_sentence(run("backup", str(again)), 4)
    assert not again.exists()


# --- what follows ---------------------------------------------------------------------------------


def test_the_first_number_after_a_restore() -> None:
    """The larger of the two, never one that was given, and always one that JSON takes."""
    assert first_after_restore(10, EARLIEST) == 10 + AHEAD == 10 + 2**40
    assert first_after_restore(10, EARLIEST + 1_800_000_000 * SECOND) == 1_800_000_000 * 2**20
    assert first_after_restore(0, EARLIEST + 1_800_000_000 * SECOND, given=2**52) == 2**52 + 1
    assert (
        first_after_restore(0, EARLIEST + 8_589_934_591 * SECOND)
        == 8_589_934_591 * A_SECOND
        <= MAX_NUMBER
    )
    with pytest.raises(StoreUnavailable, match="no higher number is possible"):
        first_after_restore(2**53 - 1, EARLIEST)


def test_revisions_go_on_higher(run: Run, tmp_path: Path, backed_up: Path) -> None:
    """What is published after a restore has a number that none before it had; the check agrees."""
    before = SystemClock().now() // SECOND * A_SECOND
    restored = run("restore", *ACCEPTED, str(backed_up), "--force", "--format", "json").document
    assert restored["last_revision"] == 1
    assert restored["next_revision"] >= before
    fill(tmp_path, "B", "C")
    with closing(sqlite3.connect(tmp_path / "t.db")) as database:
        found = database.execute("SELECT seq FROM revisions ORDER BY seq").fetchall()
    first = restored["next_revision"]
    assert [row[0] for row in found] == [1, first, first + 1]
    checked = run("db", "check")
    assert checked.code == 0, checked
    (audited,) = run("audit", "list", "--action", "restored", "--format", "json").document
    kept = audited["facts"].pop("kept")
    assert kept.startswith("t.db.replaced-")
    assert audited["facts"] == {"first": first, "head": 1, "file": backed_up.name}


def origin(run: Run) -> str:
    """Return the log's origin, as its newest checkpoint has it."""
    assert run("log", "seal").code == 0
    found: str = run("log", "checkpoint").out.split("\n")[0]
    return found


def test_a_log_that_forks_gets_another_origin(run: Run, tmp_path: Path) -> None:
    """Else two checkpoints of one size with two heads would be signed in one name. Of a log that
    goes on from where it was nothing is said."""
    backup = str(tmp_path / "b.db")
    fill(tmp_path, "A")
    first = origin(run)
    assert run("backup", backup).code == 0
    for _ in range(2):
        ended = run("restore", *ACCEPTED, backup, "--force")
        assert (ended.code, "origin" in ended.err) == (0, False), ended
    assert origin(run) == first
    fill(tmp_path, "B")
    assert origin(run) == first
    ended = run("restore", *ACCEPTED, backup, "--force")
    assert ended.code == 0
    assert "has only" in ended.err
    assert "leaves: it continues under a new origin, tallyhook." in ended.err
    second = origin(run)
    assert second != first
    assert second in ended.err
    checked = run("log", "verify")
    assert (checked.code, "all valid" in checked.out) == (0, True), checked
    (entry, *_) = run("audit", "list", "--action", "restored", "--format", "json").document
    assert entry["facts"]["log"] == second
    # Once more, and again with nothing sealed since: what the first origin signed has ended there.
    for _ in range(2):
        log = run("restore", *ACCEPTED, backup, "--force", "--format", "json").document["log"]
        assert log["compared"]
        assert log["renamed"] not in (None, first, second)
        second = log["renamed"]
    assert origin(run) == second


@pytest.mark.parametrize("instead", [None, b"damaged" * 100, "new"])
def test_where_it_is_unknown_whether_the_log_forked_that_is_said(
    run: Run, tmp_path: Path, instead: bytes | str | None
) -> None:
    """The database is lost, cannot be read, or is another one; `log rename` is then by hand."""
    backup, database = str(tmp_path / "b.db"), tmp_path / "t.db"
    how = ["--force"]
    fill(tmp_path, "A")
    first, key = origin(run), (tmp_path / "t.phone.key").read_bytes()
    assert run("backup", backup).code == 0
    for file in tmp_path.glob("t.db*"):
        file.unlink()
    if instead == "new":
        fill(tmp_path, "B")
        assert origin(run) != first
        (tmp_path / "t.phone.key").write_bytes(key)
        how += ["--without-erasures", "--reason", "it was another shop's"]
    elif isinstance(instead, bytes):
        database.write_bytes(instead)
    ended = run("restore", *ACCEPTED, backup, *how)
    assert ended.code == 0, ended
    assert "after the backup's last checkpoint (" in ended.err
    assert "run `tallyhook log rename --reason TEXT`" in ended.err
    renamed = run("log", "rename", "--reason", "the disk was lost")
    assert renamed.code == 0, renamed
    assert f"leaves keep the origin {first}." in renamed.err
    assert renamed.out.strip() == run("log", "key", "--format", "json").document["log"]
    (entry,) = run("audit", "list", "--action", "log_renamed", "--format", "json").document
    assert (entry["reason"], entry["facts"]["before"]) == ("the disk was lost", first)


def test_who_may_come_in_again(run: Run, tmp_path: Path) -> None:
    """Tokens and operators whom only the backup lets in are named, and those that are gone."""
    fill(tmp_path, "A")
    for name in ("leaked", "good"):
        assert run("tokens", "add", name).code == 0
    assert run("operators", "add", "Ann", "--role", "admin").code == 0
    assert run("operators", "add", "Eve", "--role", "admin", "--by", "Ann").code == 0
    assert run("backup", str(tmp_path / "b.db")).code == 0
    assert run("tokens", "revoke", "leaked", "--by", "Ann").code == 0
    assert run("tokens", "add", "later", "--by", "Ann").code == 0
    assert run("operators", "disable", "Eve", "--by", "Ann").code == 0
    ended = run("restore", *ACCEPTED, str(tmp_path / "b.db"), "--force", "--format", "json")
    found = ended.document
    assert found["compared"] is True
    assert found["in_force"] == {"tokens": ["leaked"], "operators": ["Eve"]}
    assert found["gone"] == {"tokens": ["later"], "operators": []}
    said = " ".join(ended.err.split())
    assert "These tokens are valid again: leaked. End each one that is not wanted with" in said
    assert "These tokens are not in the backup and no longer work: later." in said


def test_a_token_that_has_ended_lets_nobody_in(run: Run, tmp_path: Path) -> None:
    """Neither is it in force again, nor gone; and one is gone that the backup ends sooner."""
    fill(tmp_path, "A")
    for name in ("ended", "open", "sooner"):
        assert run("tokens", "add", name, "--until", "1d").code == 0
    assert run("backup", str(tmp_path / "b.db")).code == 0
    ends = "UPDATE tokens SET until = 1 WHERE name = '{}'"
    change(tmp_path / "t.db", "UPDATE tokens SET revoked_at = created_at WHERE name = 'open'")
    change(tmp_path / "t.db", ends.format("ended"))
    for name in ("ended", "sooner"):
        change(tmp_path / "b.db", ends.format(name))
    found = run(
        "restore", *ACCEPTED, str(tmp_path / "b.db"), "--force", "--format", "json"
    ).document
    assert found["in_force"]["tokens"] == ["open"]
    assert found["gone"]["tokens"] == ["sooner"]


def test_where_nothing_can_be_compared_all_are_named(
    run: Run, tmp_path: Path, backed_up: Path
) -> None:
    """The database that is replaced is damaged, or there is none."""
    for content in (b"no database any more", None):
        (tmp_path / "t.db").unlink()
        if content is not None:
            (tmp_path / "t.db").write_bytes(content)
        fill_token = planted(
            backed_up, "INSERT INTO tokens (name, hash, created_at) VALUES ('x', 'h', 1)"
        )
        found = run("restore", *ACCEPTED, str(fill_token), "--force", "--format", "json").document
        assert (found["compared"], found["gone"]) == (False, None)
        assert found["in_force"]["tokens"] == ["x"]


def test_a_copy_that_was_put_there_by_hand(run: Run, tmp_path: Path, backed_up: Path) -> None:
    """`db restored` does for it what `restore` does, and says what it did."""
    for name in ("t.db", "t.db-wal", "t.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    shutil.copy(backed_up, tmp_path / "t.db")
    refused = run("db", "restored")
    assert refused.code == 3
    assert "the database's newest commits are missing" in refused.err
    done = run("db", "restored", *ACCEPTED, "--format", "json")
    assert done.code == 0
    assert done.document["last_revision"] == 1
    assert done.document["next_revision"] > 2**40
    again = run("db", "restored")
    assert again.out.startswith("Recorded as restored. The last revision in the database is ")
    assert "Revisions continue at" in again.err
    assert run("db", "check").code == 0


def test_flipping_is_seen(backed_up: Path) -> None:
    """The helper that damages a file does."""
    before = backed_up.read_bytes()
    flip(backed_up)
    assert backed_up.read_bytes() != before


# --- that there is a database ---------------------------------------------------------------------


def test_what_was_restored_and_vanishes_before_its_first_start_is_missed(
    run: Run, tmp_path: Path, backed_up: Path
) -> None:
    """A start would make an empty one in its place, and acknowledge into it."""
    assert run("restore", *ACCEPTED, str(backed_up), "--force").code == 0
    (tmp_path / "t.db").unlink()
    copy = str(tmp_path / "copy.db")
    for words in (("tokens", "add", "shop"), ("orders", "list"), ("db", "check"), ("backup", copy)):
        ended = run(*words)
        assert (ended.code, "is missing, but t.db.made shows that it" in ended.err) == (
            3,
            True,
        )
    assert "is missing, but t.db.made" in run("doctor", "--format", "json").out
    assert not (tmp_path / "t.db").exists()


def test_another_shops_database_may_be_restored_here(
    run: Run, tmp_path: Path, backed_up: Path
) -> None:
    """It is meant, whatever was here before; the next start goes on with it."""
    change(backed_up, "UPDATE meta SET value='db_other' WHERE name='id'")
    assert run("restore", *ACCEPTED, str(backed_up), "--force").code == 0
    assert (tmp_path / "t.db.made").read_text() == "db_other\n"
    assert run("tokens", "add", "shop").code == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder to another user")
def test_what_root_puts_back_into_the_services_folder_is_told(
    run: Run, tmp_path: Path, backed_up: Path
) -> None:
    """The service could not open it, and the backup would seem to be at fault."""
    assert "chown" not in run("restore", *ACCEPTED, str(backed_up), "--force").err
    os.chown(tmp_path, 10001, 10001)
    ended = run("restore", *ACCEPTED, str(backed_up), "--force")
    assert ended.code == 0
    assert f"`chown --reference={tmp_path} {tmp_path}/" in ended.err
