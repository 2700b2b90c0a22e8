"""Whoever was erased is erased again in an older backup that is put back: `restore` and the journal
of erasures."""

import asyncio
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from app.orders.refold import refold_until_quiet
from app.privacy.pending_erasures import PendingErasures
from reconcile.instants import DAY
from tests.api.driving import driving, of_order, reader_of
from tests.cli.test_commands import Ended, Run, run
from tests.contexts import ACCEPTED
from tests.copied import copy_of
from tests.reconcile.build import T
from tests.searching import every
from tests.waiting import soon

__all__ = ["run"]

PHONE = "254711223344"
OTHER = "254799888777"
LATE = "254733444555"
ERASE = ("erase", "--phone", f"+{PHONE}", "--reason", "asked by letter")
WITHOUT = ("--without-erasures", "--reason", "the disk is lost")


def bought(reference: str, phone: str, **more: Any) -> dict[str, Any]:
    """Make a paid order's event with its customer."""
    found = of_order(reference, f"e-{reference}")
    found["data"]["customer"] = {"phone": phone, **more}
    return found


def send(folder: Path, *events: dict[str, Any], days: int = -2) -> None:
    """Deliver these, two days before the commands of a test unless said otherwise."""
    asyncio.run(_sent(folder, *events, days=days))


async def _sent(folder: Path, *events: dict[str, Any], days: int = -2) -> None:
    async with driving(folder, with_worker=False, at=T + days * DAY, looking=True) as driver:
        driver.context = driver.service.context
        for each in events:
            assert (await driver.send(each)).status_code == 200
        await refold_until_quiet(driver.context, limit=100, progress=lambda count: None)


async def _two_who_bought(folder: Path) -> None:
    await _sent(folder, bought("ORD-1", PHONE), bought("ORD-2", OTHER))


def restore(run: Run, file: Path, *more: str) -> Ended:
    """Put a backup back."""
    return run("restore", *ACCEPTED, str(file), "--force", "--format", "json", *more)


def rows(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    """Ask the database."""
    with closing(sqlite3.connect(folder / "t.db")) as database:
        return database.execute(sql).fetchall()


def bodies(folder: Path) -> dict[str, bool]:
    """Return the events that still have their body."""
    found = rows(folder, "SELECT event_id, body IS NOT NULL FROM deliveries ORDER BY id")
    return {event: bool(kept) for event, kept in found}


def journal(folder: Path) -> Path:
    """Return the path of the journal."""
    return folder / "t.erasures"


@pytest.fixture
def file(run: Run, tmp_path: Path) -> Path:
    """Make a backup that has a customer who was erased afterwards."""
    copy_of(_two_who_bought, tmp_path)
    backup = tmp_path / "old.backup"
    assert run("backup", str(backup)).code == 0
    assert run(*ERASE).code == 0
    assert bodies(tmp_path) == {"e-ORD-1": False, "e-ORD-2": True}
    return backup


def test_who_was_erased_since_a_backup_is_not_in_what_it_restores(
    run: Run, tmp_path: Path, file: Path
) -> None:
    """Bodies, headers and digests of the number are gone, nobody else loses anything, and the log
    still verifies."""
    ended = restore(run, file)
    assert ended.code == 0
    replayed = ended.document["erasures"]
    assert (replayed["lines"], replayed["orders"], replayed["pending"]) == (2, 1, [])
    assert bodies(tmp_path) == {"e-ORD-1": False, "e-ORD-2": True}
    assert PHONE.encode() not in (tmp_path / "t.db").read_bytes()
    found = run("orders", "find", f"+{PHONE}", "--format", "json")
    assert "ORD-1" not in found.out
    assert "ORD-2" in run("orders", "find", f"+{OTHER}", "--format", "json").out
    assert run("orders", "show", "ORD-1", "--format", "json").document["outcome"] == "succeeded"
    assert run("log", "verify").code == 0
    assert run("db", "check").code == 0
    again = run("audit", "list", "--format", "json").document
    entries = [each for each in again if each["action"] == "erased"]
    assert [(each["subject"], each["who"]) for each in entries] == [
        ("ORD-1", "tallyhook"),
        ("the journal of erasures", "tallyhook"),
    ]
    assert [each["facts"] for each in entries] == [{}, {"orders": 1, "deliveries": 1}]
    assert run(*ERASE).code == 5, "nothing is stored about the number"


async def _round(folder: Path, *, day: int) -> None:
    """Have the service look at what is pending, so many days after the payment."""
    kept: dict[str, Any] = {"RETENTION_DISPUTES_DAYS": "30", "RETENTION_ACCOUNTS_DAYS": "365"}
    at = T + day * DAY
    async with driving(folder, with_worker=False, at=at, looking=True, **kept) as driver:
        await PendingErasures(driver.service.context).work()


def test_what_an_erasure_kept_is_restricted_erased_by_itself_and_both_again_after_a_restore(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The evidence of a payment that can be disputed: hidden from searches, given to a bank with a
    line in the trail, and gone with the end of its window."""
    copy_of(_two_who_bought, tmp_path)
    monkeypatch.setenv("TALLYHOOK_RETENTION_DISPUTES_DAYS", "30")
    monkeypatch.setenv("TALLYHOOK_RETENTION_ACCOUNTS_DAYS", "365")
    backup, kept = tmp_path / "old.backup", {"e-ORD-1": True, "e-ORD-2": True}
    gone = {"e-ORD-1": False, "e-ORD-2": True}
    assert run("backup", str(backup)).code == 0
    find = ("orders", "find", f"+{PHONE}", "--format", "json")
    assert len(run(*find).document["hits"]) == 1
    looked = run(*ERASE, "--dry-run", "--format", "json").document["restricted"]
    done = run(*ERASE)
    assert (done.code, "restricted: 1." in done.err) == (1, True)
    assert f"hidden from searches until {looked[0]['until']}, then erased automatically" in done.out
    assert "GDPR Art. 17(3)(e)" in looked[0]["ground"]
    assert bodies(tmp_path) == kept
    assert (run(*find).document["hits"], run("deliveries", "list").code) == ([], 0)
    assert run("deliveries", "list", "--order", "ORD-1").code == 2
    assert run("orders", "unmask", "ORD-1", "--reason", "why").code == 2
    shown = run("orders", "show", "ORD-1", "--format", "json").document
    assert (shown["outcome"], shown["restricted"]["why"]) == ("succeeded", "disputable")
    assert "restricted since" in run("orders", "show", "ORD-1").out
    assert "1 thing is kept about erased people" in run("doctor").out
    words = ("--with-personal-data", "--reason", "dispute 12")
    assert run("evidence", "build", "ORD-1", "-o", str(tmp_path / "b.zip"), *words).code == 0
    taken = run("audit", "list", "--action", "evidence_built", "--format", "json").document
    assert [each["subject"] for each in taken] == ["ORD-1"]
    newer = tmp_path / "newer.backup"
    assert run("backup", str(newer)).code == 0
    asyncio.run(_round(tmp_path, day=29))
    assert bodies(tmp_path) == kept
    for file in (None, newer, backup):  # the first time, and both again by the journal
        if file is not None:
            assert restore(run, file).code == 0
            assert len(run(*find).document["hits"]) == 0
            assert bodies(tmp_path) == gone
        asyncio.run(_round(tmp_path, day=30))
        assert bodies(tmp_path) == gone
        assert PHONE.encode() not in (tmp_path / "t.db").read_bytes()
        assert rows(tmp_path, "SELECT thing, why FROM restrictions") == [("ORD-1", "accounts")]
        assert run("db", "check").code == 0


def test_a_restriction_is_put_back_by_a_restore(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a backup of before the erasure, with its end and since when."""
    copy_of(_two_who_bought, tmp_path)
    monkeypatch.setenv("TALLYHOOK_RETENTION_DISPUTES_DAYS", "30")
    backup = tmp_path / "old.backup"
    assert run("backup", str(backup)).code == 0
    assert run(*ERASE).code == 1
    stored = rows(tmp_path, "SELECT * FROM restrictions")
    assert len(stored) == 1
    for _ in range(2):
        assert restore(run, backup).code == 0
        assert rows(tmp_path, "SELECT * FROM restrictions") == stored
        assert bodies(tmp_path) == {"e-ORD-1": True, "e-ORD-2": True}
    found = run("orders", "find", f"+{PHONE}", "--format", "json").document
    assert found["hits"] == []


def test_an_order_that_was_erased_is_erased_again(run: Run, tmp_path: Path) -> None:
    copy_of(_two_who_bought, tmp_path)
    backup = tmp_path / "old.backup"
    assert run("backup", str(backup)).code == 0
    assert run("erase", "--order", "ORD-2", "--reason", "asked").code == 0
    assert restore(run, backup).code == 0
    assert bodies(tmp_path) == {"e-ORD-1": True, "e-ORD-2": False}


def test_what_came_after_an_erasure_is_nobodys_to_erase(run: Run, tmp_path: Path) -> None:
    """The same customer buys again: a later backup brings the new order back, and it stays."""
    send(tmp_path, bought("ORD-1", PHONE), bought("ORD-2", OTHER))
    assert run(*ERASE).code == 0
    send(tmp_path, bought("ORD-3", PHONE), days=1)
    backup = tmp_path / "later.backup"
    assert run("backup", str(backup)).code == 0
    assert restore(run, backup).code == 0
    assert bodies(tmp_path) == {"e-ORD-1": False, "e-ORD-2": True, "e-ORD-3": True}
    assert "ORD-3" in run("orders", "find", f"+{PHONE}", "--format", "json").out


@pytest.mark.parametrize(
    ("note", "found"),
    [
        ("call +254 711-223 344", True),
        ("call (0711) 22-33-44", True),
        ("no 1254711223344", False),
    ],
)
def test_a_number_is_found_however_it_is_written(
    run: Run, tmp_path: Path, note: str, found: bool
) -> None:
    """As `erase` finds it, though the journal holds nothing but its digest."""
    other = bought("ORD-2", OTHER, note=note)
    send(tmp_path, bought("ORD-1", PHONE), other)
    backup = tmp_path / "old.backup"
    assert run("backup", str(backup)).code == 0
    run(*ERASE)  # where a longer number stays, it says that its digits are there
    erased = bodies(tmp_path)
    assert erased == {"e-ORD-1": False, "e-ORD-2": not found}
    assert restore(run, backup).code == 0
    assert bodies(tmp_path) == erased


def test_a_number_that_stands_in_an_attachment_alone_is_found(run: Run, tmp_path: Path) -> None:
    """In its name, or in what was said of it."""
    send(tmp_path, bought("ORD-2", OTHER))
    letter = tmp_path / f"letter of +{PHONE}.txt"
    letter.write_text("x")
    assert run("evidence", "attach", "ORD-2", str(letter), "--kind", "other").code == 0
    backup = tmp_path / "old.backup"
    assert run("backup", str(backup)).code == 0
    assert run(*ERASE).code == 0
    assert restore(run, backup).document["erasures"]["attachments"] == 1
    assert rows(tmp_path, "SELECT details FROM attachments") == [(None,)]
    assert rows(tmp_path, "SELECT count(*) FROM attachment_files") == [(0,)]


async def _accepted_and_unread(folder: Path, *events: dict[str, Any]) -> None:
    """Deliver these while nobody reads, and end."""
    async with driving(folder, with_worker=False, at=T - 2 * DAY, looking=True) as driver:
        reader = reader_of(driver.service)
        reader.stop()
        await soon(lambda: not reader.alive)
        for each in events:
            assert (await driver.send(each)).status_code == 200


def test_what_a_backup_holds_unread_is_read_before_they_are_looked_for(
    run: Run, tmp_path: Path
) -> None:
    """It was accepted before the backup, and read, and erased, after it. It is sealed as it came,
    and of another customer it is read like any other."""
    asyncio.run(_accepted_and_unread(tmp_path, bought("ORD-1", PHONE), bought("ORD-2", OTHER)))
    backup = tmp_path / "old.backup"
    assert run("backup", str(backup)).code == 0
    with closing(sqlite3.connect(backup)) as copy:
        assert copy.execute("SELECT sum(count) FROM inbox").fetchall() == [(2,)]
    send(tmp_path)
    assert run(*ERASE).code == 0
    assert bodies(tmp_path) == {"e-ORD-1": False, "e-ORD-2": True}
    ended = restore(run, backup)
    assert (ended.code, ended.document["erasures"]["deliveries"]) == (0, 1)
    send(tmp_path)
    assert bodies(tmp_path) == {"e-ORD-1": False, "e-ORD-2": True}
    assert run("log", "verify").code == 0
    assert run("db", "check").code == 0
    assert run(*ERASE).code == 5, "nothing is stored about the number"


def test_a_number_of_which_only_the_digest_is_left_is_found(run: Run, tmp_path: Path) -> None:
    """Retention deletes bodies before the digests by which their orders are found."""
    send(tmp_path, bought("ORD-1", PHONE))
    with closing(sqlite3.connect(tmp_path / "t.db", isolation_level=None)) as database:
        database.execute("UPDATE deliveries SET body = NULL, headers = '', pruned_at = 1")
    backup = tmp_path / "old.backup"
    assert run("backup", str(backup)).code == 0
    assert run(*ERASE).code == 0
    assert restore(run, backup).code == 0
    assert rows(tmp_path, "SELECT count(*) FROM phones") == [(0,)]


def test_a_number_in_an_order_book_is_erased_again(run: Run, tmp_path: Path) -> None:
    send(tmp_path, bought("ORD-1", PHONE))
    book = tmp_path / "book.csv"
    book.write_text(f"reference,amount,currency,phone\nORD-9,5,KES,+{PHONE}\n")
    assert run("records", "import", str(book)).code == 0
    backup = tmp_path / "old.backup"
    assert run("backup", str(backup)).code == 0
    assert run(*ERASE).code == 0
    assert restore(run, backup).code == 0
    assert rows(tmp_path, "SELECT phone FROM book_lines") == [("",)]


def test_on_another_machine_the_journal_comes_first(
    run: Run, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup alone does not know who was erased after it: nothing is put in place."""
    new = tmp_path / "new"
    new.mkdir()
    monkeypatch.setenv("TALLYHOOK_DATABASE_URL", f"sqlite+aiosqlite:///{new}/t.db")
    refused = restore(run, file)
    assert (refused.code, refused.out) == (3, "")
    assert "there is no journal of erasures at" in refused.err
    assert "--without-erasures" in refused.err
    assert len(refused.err.splitlines()) == 1
    assert [each.name for each in new.iterdir() if not each.name.startswith("t.db.")] == []
    for name in ("t.erasures", "t.erasures.key"):
        shutil.copy(tmp_path / name, new / name)
    assert restore(run, file).code == 0
    assert bodies(new) == {"e-ORD-1": False, "e-ORD-2": True}


def spoil(path: Path) -> None:
    """Change one digit in the middle of a journal."""
    lines = path.read_bytes().splitlines(keepends=True)
    fields = lines[1].split(b" ")
    fields[4] = fields[4][:-1] + (b"0" if fields[4][-1:] != b"0" else b"1")
    path.write_bytes(b"".join([lines[0], b" ".join(fields), *lines[2:]]))


def cut(path: Path) -> None:
    """Leave the last line out."""
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def replace(path: Path) -> None:
    """Put another installation's there."""
    (elsewhere := path.parent / "elsewhere").mkdir()
    send(elsewhere, bought("ORD-1", PHONE))
    for name in ("t.erasures", "t.erasures.key"):
        shutil.copy(elsewhere / name, path.parent / name)


def lose_both(path: Path) -> None:
    """Remove a journal and its key."""
    path.unlink()
    Path(f"{path}.key").unlink()


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "journal missing": (Path.unlink, "only its key"),
    "key missing": (lambda path: Path(f"{path}.key").unlink(), "the key "),
    "both missing": (lose_both, "there is no journal of erasures at"),
    "changed": (spoil, "line 2 of the journal of erasures was changed"),
    "for everyone": (lambda path: path.chmod(0o644), "any user can access (mode 644)"),
    "key for everyone": (lambda path: Path(f"{path}.key").chmod(0o644), "any user can access"),
    "another's": (replace, "another database's journal"),
    "empty": (lambda path: path.write_bytes(b""), "empty file"),
}


def lasting_files(folder: Path) -> set[str]:
    """Return the names of files, without those that SQLite makes to read a write-ahead log."""
    return {each.name for each in folder.iterdir() if not each.name.endswith(("-shm", "-wal"))}


@pytest.mark.parametrize("name", list(BROKEN)[:: every(3)])
def test_without_its_journal_nobody_is_erased_and_nothing_restored(
    run: Run, tmp_path: Path, file: Path, name: str
) -> None:
    """Exit code 3 and what to do; neither file is made anew, and the database is as it was."""
    breaking, sentence = BROKEN[name]
    breaking(journal(tmp_path))
    before = lasting_files(tmp_path)
    for words in (
        ("erase", "--phone", f"+{OTHER}", "--reason", "asked"),
        ("restore", *ACCEPTED, str(file), "--force"),
    ):
        refused = run(*words)
        assert (refused.code, refused.out) == (3, ""), words
        assert sentence in refused.err
        assert "TALLYHOOK_ERASURE_JOURNAL" in refused.err
        assert len(refused.err.splitlines()) == 1
    assert lasting_files(tmp_path) == before
    assert bodies(tmp_path) == {"e-ORD-1": False, "e-ORD-2": True}
    checked = run("db", "check")
    assert (checked.code, "journal of erasures" in checked.out) == (1, True)
    assert "TALLYHOOK_ERASURE_JOURNAL" in run("doctor").out


def test_an_older_copy_of_the_journal_is_distinguished_from_the_newest(
    run: Run, tmp_path: Path, file: Path
) -> None:
    """Held against the lines that the database knows: one that lacks some does not pass."""
    newer = tmp_path / "newer.backup"
    assert run("backup", str(newer)).code == 0
    cut(journal(tmp_path))
    refused = restore(run, newer)
    assert (refused.code, "old copy" in refused.err) == (3, True)
    assert run("erase", "--order", "ORD-2", "--reason", "asked").code == 3


def test_without_the_journal_the_copy_in_the_backup_is_what_is_left(
    run: Run, tmp_path: Path, file: Path
) -> None:
    """A person says so and why; it is in the trail, and the copy's lines are carried out."""
    newer = tmp_path / "newer.backup"
    assert run("backup", str(newer)).code == 0
    with closing(sqlite3.connect(newer, isolation_level=None)) as database:  # undo the erasure
        database.execute(f"ATTACH '{file}' AS old")
        database.execute("DELETE FROM deliveries")
        database.execute("INSERT INTO deliveries SELECT * FROM old.deliveries")
    journal(tmp_path).unlink()
    for words in (("--without-erasures",), ("--reason", "lost"), ("--accept-gap",)):
        assert run("restore", str(newer), "--force", *words).code == 2
    ended = restore(run, newer, *WITHOUT)
    assert ended.code == 0
    replayed = ended.document["erasures"]
    told = (replayed["from_copy"], replayed["lines"], replayed["deliveries"], replayed["unread"])
    assert told == (True, 2, 1, 0)
    assert bodies(tmp_path) == {"e-ORD-1": False, "e-ORD-2": True}
    entries = run("audit", "list", "--format", "json").document
    assert [
        (each["reason"], each["facts"])
        for each in entries
        if each["action"] == "restored_without_erasures"
    ] == [("the disk is lost", {"lines": 2, "unread": 0})]
    assert run("erase", "--order", "ORD-2", "--reason", "asked").code == 0
    assert restore(run, newer).code == 0
    assert bodies(tmp_path) == {"e-ORD-1": False, "e-ORD-2": False}


def test_without_the_key_the_copy_is_useless_and_a_new_journal_is_begun(
    run: Run, tmp_path: Path, file: Path
) -> None:
    newer = tmp_path / "newer.backup"
    assert run("backup", str(newer)).code == 0
    Path(f"{journal(tmp_path)}.key").unlink()
    ended = restore(run, newer, *WITHOUT)
    assert (ended.code, ended.document["erasures"]["unread"]) == (0, 2)
    assert len(list(tmp_path.glob("t.erasures.aside-*"))) == 1, "what was there is kept"
    assert run("erase", "--order", "ORD-2", "--reason", "asked").code == 0
    assert run("db", "check").code == 0


def test_a_backup_that_knows_no_journal_has_no_line_that_could_not_be_read(
    run: Run, tmp_path: Path
) -> None:
    send(tmp_path, bought("ORD-1", PHONE))
    backup = tmp_path / "before.backup"
    assert run("backup", str(backup)).code == 0
    assert run(*ERASE).code == 0
    journal(tmp_path).write_bytes(b"no journal")
    assert restore(run, backup).code == 3
    ended = restore(run, backup, *WITHOUT)
    assert (ended.code, ended.document["erasures"]["unread"]) == (0, 0)


def test_only_who_may_goes_on_without_the_journal(run: Run, tmp_path: Path, file: Path) -> None:
    send(tmp_path)
    assert run("operators", "add", "Ann", "--role", "admin").code == 0
    assert run("operators", "add", "Sam", "--role", "support", "--by", "Ann").code == 0
    backup = tmp_path / "newer.backup"
    assert run("backup", str(backup)).code == 0
    journal(tmp_path).unlink()
    assert restore(run, backup, *WITHOUT).code == 2
    assert restore(run, backup, *WITHOUT, "--by", "Sam").code == 2
    assert not journal(tmp_path).exists()
    assert restore(run, backup, *WITHOUT, "--by", "Ann").code == 0


def test_a_line_that_a_crash_cut_short_was_never_begun(
    run: Run, tmp_path: Path, file: Path
) -> None:
    """It is distinguished from one that was changed; the next erasure takes its place."""
    with journal(tmp_path).open("ab") as written:
        written.write(b"3 2026-11-20T10:00:00Z phone asked 0123")
    assert run("db", "check").code == 0
    assert "last line is incomplete" in " ".join(run("doctor").out.split())
    assert restore(run, file).code == 0
    assert bodies(tmp_path) == {"e-ORD-1": False, "e-ORD-2": True}
    assert run("erase", "--order", "ORD-2", "--reason", "asked").code == 0
    assert b"0123 " not in journal(tmp_path).read_bytes()
    assert run("db", "check").code == 0


def test_the_subject_is_not_in_the_journal(run: Run, tmp_path: Path, file: Path) -> None:
    held = journal(tmp_path).read_bytes()
    assert PHONE.encode() not in held
    assert PHONE[-8:].encode() not in held
    assert all(len(line) < 256 for line in held.splitlines())
    for path in (journal(tmp_path), Path(f"{journal(tmp_path)}.key")):
        assert path.stat().st_mode & 0o777 == 0o600


def test_postgresql_without_the_setting_erases_nobody() -> None:
    """Said in full in tests/postgres; here only that the place has no default there."""
    from app.config.load import load_settings

    settings = load_settings({"TALLYHOOK_DATABASE_URL": "postgresql+asyncpg://u@127.0.0.1/n"})
    assert settings.erasure_journal_path is None


def test_restored_json_is_one_document(run: Run, tmp_path: Path, file: Path) -> None:
    assert set(json.loads(restore(run, file).out)["erasures"]) == {
        "lines", "orders", "deliveries", "rejections", "session_requests", "book_lines",
        "bank_lines", "attachments", "reasons", "bookmarks", "pending", "from_copy", "unread",
    }  # fmt: skip
