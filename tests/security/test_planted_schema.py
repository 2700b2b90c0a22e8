"""A backup in which somebody has planted what the database itself would run, such as a trigger that
turns an event into a payment: it is neither restored nor served."""

from pathlib import Path

import pytest

from tests.cli.test_backup import fill, names, orders_in
from tests.cli.test_commands import Run, run
from tests.cli.test_restore import backed_up, change, only_sentence, planted
from tests.postgres.conftest import ask, empty_url, server_url
from tests.searching import every

__all__ = ["backed_up", "empty_url", "run", "server_url"]

GIFT = (
    "CREATE TRIGGER gift AFTER INSERT ON events BEGIN "
    "UPDATE events SET claim='succeeded' WHERE event_id = new.event_id; END"
)
"""Makes an order that nobody paid fulfillable."""


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        ([GIFT], "the database's trigger gift of table events does not belong to Tallyhook"),
        (["DROP TRIGGER revisions_no_delete"], "revisions_no_delete of table revisions is missing"),
        (
            ["ALTER TABLE ledgers RENAME TO l", "CREATE VIEW ledgers AS SELECT * FROM l"],
            "does not belong to Tallyhook",
        ),
        (["CREATE VIEW paid AS SELECT 1"], "the database's view paid does not belong to Tallyhook"),
        (
            ["CREATE UNIQUE INDEX one ON events (claim)"],
            "the database's index one of table events does not belong to Tallyhook",
        ),
        (
            [
                "PRAGMA writable_schema=ON",
                "INSERT INTO sqlite_master SELECT type, 'sqlite_stat1', tbl_name, 0, "
                "replace(sql, 'audit_no_update', 'sqlite_stat1') FROM sqlite_master "
                "WHERE name='audit_no_update'",
            ],
            "trigger sqlite_stat1 of table audit does not belong to Tallyhook",
        ),
    ],
)
def test_an_sqlite_backup_with_other_objects_is_refused(
    run: Run, tmp_path: Path, backed_up: Path, statements: list[str], message: str
) -> None:
    """One sentence names the first; the database that is there stays as it is."""
    file = planted(backed_up, *statements)
    before = names(tmp_path)
    sentence = only_sentence(run("restore", str(file), "--force"), 4)
    assert message in sentence
    assert "nothing was changed" in sentence
    assert names(tmp_path) == before
    assert orders_in(tmp_path / "t.db") == ["A", "B"]


def test_a_planted_trigger_stops_a_start_and_is_found_by_the_check(
    run: Run, tmp_path: Path
) -> None:
    """Whoever put it there, and however: nothing is served or written from that file."""
    fill(tmp_path, "A")
    change(tmp_path / "t.db", GIFT)
    for words in (["refold", "--all"], ["tokens", "add", "x"]):
        sentence = only_sentence(run(*words), 4)
        assert (
            "trigger gift of table events does not belong to Tallyhook; Tallyhook does not use"
            in sentence
        )
    checked = run("db", "check")
    assert checked.code == 1
    assert "trigger gift of table events" in checked.out
    change(tmp_path / "t.db", "DROP TRIGGER gift")
    assert run("db", "check").code == 0


def test_what_the_planner_keeps_for_itself_is_no_stranger(run: Run, tmp_path: Path) -> None:
    """ANALYZE by hand makes tables that change no answer."""
    fill(tmp_path, "A")
    change(tmp_path / "t.db", "ANALYZE")
    assert run("db", "check").code == 0


@pytest.mark.costly
@pytest.mark.postgres
def test_a_postgresql_dump_with_other_objects_is_refused(
    run: Run, empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`db restored`, commands that write, and the check each name the trigger, the rule or the
    function. Without it all is well."""
    monkeypatch.setenv("TALLYHOOK_DATABASE_URL", empty_url)
    assert run("db", "upgrade").code == 0
    (made,) = ask(empty_url, "SELECT pg_get_functiondef('only_added_to'::regproc)")[0]
    gift = "CREATE {} gift() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN new; END $$"
    for plant, message, undo in (
        (
            [
                "CREATE TRIGGER gift BEFORE INSERT ON events FOR EACH ROW "
                "EXECUTE FUNCTION only_added_to()"
            ],
            "trigger gift of table events does not belong to Tallyhook",
            "DROP TRIGGER gift ON events",
        ),
        (
            ["CREATE RULE gift AS ON DELETE TO events DO INSTEAD NOTHING"],
            "rule gift of table events does not belong to Tallyhook",
            "DROP RULE gift ON events",
        ),
        (
            [gift.replace("gift()", "only_added_to()").format("OR REPLACE FUNCTION")],
            "function only_added_to() differs from Tallyhook's definition",
            made,
        ),
        (
            [gift.format("FUNCTION")],
            "function gift() does not belong to Tallyhook",
            "DROP FUNCTION gift",
        ),
    )[:: every(2)]:
        ask(empty_url, *plant)
        for words in (["db", "restored"], ["tokens", "add", "x"]):
            assert f"{message}; Tallyhook does not use" in only_sentence(run(*words), 4)
        checked = run("db", "check")
        assert (checked.code, message in checked.out) == (1, True)
        ask(empty_url, undo)
    assert run("db", "check").code == 0
    assert run("db", "restored").code == 0
