"""Every end of the commands on periods."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from app.finance import close_period
from reconcile.reporting.closing import CONDITIONS
from tests.finance.month import Month
from tests.finance.plots import ORDINARY
from tests.finance.shop import LONG_AGO, Shop
from tests.rows import for_each


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """Make a quiet October that nobody has closed; only the text of commands is returned."""
    monkeypatch.setattr(close_period, "REPORT_FORMATS", ("json", "csv"))
    made = Shop(tmp_path, Month(orders=len(ORDINARY), starts=LONG_AGO))
    made.fill()
    made.settle()
    return made


def _change_closing(shop: Shop, change: str) -> None:
    """Change a closing in the file, past the triggers, as whoever holds the file can."""
    with closing(sqlite3.connect(shop.folder / "t.db")) as database:
        guards = database.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'closings'"
        ).fetchall()
        for name, _ in guards:
            database.execute(f"DROP TRIGGER {name}")
        database.execute(f"UPDATE closings SET {change}")
        for _, sql in guards:
            database.execute(sql)
        database.commit()


@pytest.mark.slow
def test_the_database_check_finds_a_closing_that_was_changed(shop: Shop) -> None:
    """Its document, or when and by whom it was closed; and nothing where none was."""
    shop.did("reindex")  # notes the customers, whom a generated month has not
    shop.did("period", "close", "2024-10", "--by", "Ann")
    assert b"no problem was found" in shop.did("db", "check").out
    for change, back in (
        ("document = document || ' '", "document = rtrim(document)"),
        ("who = 'Ben'", "who = 'Ann'"),
        ("as_of = as_of - 1", "as_of = as_of + 1"),
    ):
        _change_closing(shop, change)
        found = shop.run("db", "check")
        _change_closing(shop, back)
        assert found.code == 1, change
        assert b"the closing of 2024-10 differs from the trail" in found.out, change
    shop.did("db", "check")


@pytest.mark.slow
def test_a_month_is_closed_listed_shown_and_verified(shop: Shop) -> None:
    """From nothing closed to a closed month, in a table and as JSON."""
    assert shop.did("period", "list", "--format", "json").document == []
    assert shop.did("period", "verify", "--format", "json").document == []
    closed = shop.did("period", "close", "2024-10", "--by", "Ann", "--format", "json").document
    (listed,) = shop.did("period", "list", "--format", "json").document
    assert (listed["period"], listed["closed_by"], listed["digest"]) == (
        "2024-10",
        "Ann",
        closed["digest"],
    )
    shown = shop.did("period", "show", "2024-10", "--format", "json")
    assert (shown.document["from"], shown.document["to"]) == (
        "2024-10-01T00:00:00Z",
        "2024-11-01T00:00:00Z",
    )
    file = shop.folder / "october.csv"
    shop.did("period", "show", "2024-10", "--format", "csv", "-o", str(file))
    assert file.read_bytes() == shop.did("period", "show", "2024-10", "--format", "csv").out
    assert b"figures follow from the evidence" in shop.did("period", "verify", "2024-10").out
    again = shop.did("report", "period", "--from", "2024-10-01", "--to", "2024-10-31")
    assert "`tallyhook period show 2024-10` prints the closed report" in again.err
    assert b"Not a closed report: its figures may still change" in again.out
    after = shop.did("report", "period", "--from", "2024-11-01", "--to", "2024-11-30")
    assert "was closed" not in after.err


@for_each(
    ("words", "code", "message"),
    [
        (("close", "2024-13"), 2, "a period is a month, such as 2026-10"),
        (("close", "2024-10", "--as-of", "yesterday"), 2, "--as-of: write a date"),
        (("close", "2024-10", "--as-of", "9999-01-01"), 2, "is in the future"),
        (("close", "9999-10"), 1, "9999-10 stays open. Problems that prevent closing: 1."),
        (("show", "2024-10"), 5, "2024-10 is not closed"),
        (("show", "2024-10", "--format", "xlsx"), 2, "XLSX is a binary format"),
        (("verify", "2024-10"), 5, "2024-10 is not closed"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(
    shop: Shop, words: tuple[str, ...], code: int, message: str
) -> None:
    """Usage, refusal and not found have exit codes of their own; nothing is written."""
    ended = shop.run("period", *words)
    assert (ended.code, message in ended.err) == (code, True), ended.err
    assert shop.did("period", "list", "--format", "json").document == []


def test_when_a_month_can_be_closed_is_said_in_the_merchants_zone(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLYHOOK_TIMEZONE", "Africa/Nairobi")
    ended = shop.run("period", "close", "9998-10")
    assert (ended.code, "from 9998-11-11 00:00 EAT on" in ended.out.decode()) == (1, True)


def test_everything_that_must_hold_is_listed_before_a_month_is_closed(shop: Shop) -> None:
    """An exception is a proposal, which a person makes with a token of their own."""
    assert {
        each["line"]: each["holds"]
        for each in shop.did("period", "ready", "2024-10", "--format", "json").document
    } == dict.fromkeys(CONDITIONS, True)
    shop.did("coverage", "withdraw", "2", "--reason", "it was of another shop")
    ready = shop.run("period", "ready", "2024-10", "--format", "json")
    red = [each for each in ready.document if not each["holds"]]
    assert (ready.code, [each["line"] for each in red]) == (1, ["coverage:shop"])
    close = ("period", "close", "2024-10", "--except", "coverage:shop=the portal is gone")
    assert "an exception needs two people" in shop.run(*close).err
    assert "needs LINE=REASON" in shop.run("period", "close", "2024-10", "--except", "ties").err
    shop.did("operators", "add", "Root", "--role", "admin")
    proposed = shop.run(*close, "--reason", "it is complete", "--by", "Root")
    assert "--token-file" in proposed.err
    assert shop.did("period", "list", "--format", "json").document == []


def test_a_verification_that_fails_ends_with_one(shop: Shop) -> None:
    """The step that fails is reported with all others."""
    shop.did("period", "close", "2024-10")
    with closing(sqlite3.connect(shop.folder / "t.db")) as database, database:
        database.execute("UPDATE events SET amount = amount + 1 WHERE claim = 'succeeded'")
    ended = shop.run("period", "verify", "--format", "json")
    assert ended.code == 1
    assert {each["step"]: each["passed"] for each in ended.document} == {
        "chain": True,
        "prints": True,
        "history": False,
        "figures": False,
        "journal": False,
    }
