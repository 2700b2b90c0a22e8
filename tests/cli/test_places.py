"""Commands where the store is not as it should be, and the form in which results are printed."""

import json
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from app.database import database
from app.database.locks import ServiceLock
from tests.api.driving import SECRET
from tests.cli.test_commands import READING, Ended, filled, run

__all__ = ["filled", "run"]  # the fixtures of every command's tests

Run = Callable[..., Ended]


def one_sentence(ended: Ended, code: int) -> str:
    """Return what a command said that ended with this code: one line, and no result."""
    assert (ended.code, ended.out) == (code, "")
    assert len(ended.err.splitlines()) == 1
    assert ended.err.startswith("tallyhook: ")
    return ended.err


# --- a store that cannot be opened ----------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [["serve", "--port", "0"], ["db", "upgrade"], ["tokens", "add", "x"], ["refold"],
     ["refold", "--all"], ["reindex"], *READING],
    ids=" ".join,
)  # fmt: skip
def test_a_folder_that_cannot_be_made(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """Where a file stands in the folder's place, every command ends with 4 and one sentence."""
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TALLYHOOK_DATABASE_URL", f"sqlite+aiosqlite:///{tmp_path}/file/t.db")
    assert "database" in one_sentence(run(*words), 4)
    assert (tmp_path / "file").read_text() == "in the way"


PASSWORD = "hunter2-of-the-database"


@pytest.mark.parametrize(
    "words",
    [["serve", "--port", "0"], ["db", "upgrade"], ["orders", "list"], ["db", "check"]],
    ids=" ".join,
)
def test_a_server_that_is_not_there(
    run: Run, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """Where no PostgreSQL listens it is 4 and one sentence, without the password. What serves waits
    for it first, as it may still be starting, and logs so once."""
    monkeypatch.setattr(database, "SERVER_S", 0.3)
    with socket.socket() as taken:  # bound and not listening: nobody else can have the port
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        url = f"postgresql+asyncpg://shop:{PASSWORD}@127.0.0.1:{port}/shop"
        monkeypatch.setenv("TALLYHOOK_DATABASE_URL", url)
        ended = run(*words)
    *logged, said = ended.err.splitlines()
    assert (ended.code, ended.out) == (4, "")
    assert said.startswith("tallyhook: the database")
    assert PASSWORD not in ended.err
    waits = words[0] in ("serve", "worker")
    lines = [json.loads(line) for line in logged]
    assert [line["event"] for line in lines] == [
        "waiting for the database server, which does not answer yet"
    ] * waits


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_reading_makes_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """A command that only reads makes neither database nor lock file nor folder."""
    for folder in (tmp_path, tmp_path / "not" / "there"):
        monkeypatch.setenv("TALLYHOOK_DATABASE_URL", f"sqlite+aiosqlite:///{folder}/t.db")
        assert "there is no database" in one_sentence(run(*words), 4)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SHOP__PROFILE", "unheard-of"),
        ("SHOP__SECRETS", "whsec_no-base64-at-all!"),
        ("OTHER__SECRETS", "whsec_AAAA"),
    ],
)
def test_a_wrong_source_makes_no_database(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """A new database is stamped for ever: none is made by a configuration that cannot serve."""
    monkeypatch.setenv(f"TALLYHOOK_SOURCES__{name}", value)
    folder = tmp_path / "var"
    monkeypatch.setenv("TALLYHOOK_DATABASE_URL", f"sqlite+aiosqlite:///{folder}/t.db")
    for words in (["serve", "--port", "0"], ["reindex"]):
        ended = run(*words)
        assert (ended.code, ended.out) == (3, "")
        assert name.partition("__")[0] in ended.err
        assert value not in ended.err or name.endswith("PROFILE")
        assert not folder.exists()


# --- rebuilding -----------------------------------------------------------------------------------


def test_rebuilding_beside_a_service_is_refused(
    run: Run, filled: dict[str, str], tmp_path: Path
) -> None:
    """`refold --all` empties what a service publishes from, so it waits until none runs."""
    assert run("refold", "--all").code == 0
    service = ServiceLock(tmp_path / "t.db")
    service.take()
    try:
        refused = run("refold", "--all")
        assert (refused.code, len(refused.err.splitlines())) == (3, 1)
        assert "another process already serves" in refused.err
        assert len(run("orders", "list", "--format", "json").document) == 2
        assert run("refold").code == 0
    finally:
        service.release()
    assert run("refold", "--all", "--jobs", "2").code == 0


@pytest.mark.parametrize("lost", ["DELETE FROM order_due", "UPDATE order_due SET due_at = NULL",
                                  "UPDATE order_due SET due_at = 1 << 60"])  # fmt: skip
def test_rebuilding_sets_the_marks(
    run: Run,
    filled: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lost: str,
) -> None:
    """Whatever became of the due marks, or of the policy, each stands at its next decision."""
    # Half a day after the order was placed its deadline must be to come.
    monkeypatch.setenv("TALLYHOOK_PAYMENT_WINDOW_S", "86000")
    monkeypatch.setenv("TALLYHOOK_GRACE_S", "80000")
    assert run("refold", "--all").code == 0
    with closing(sqlite3.connect(tmp_path / "t.db")) as database:
        database.execute(lost)
        database.commit()
        assert run("refold", "--all").code == 0
        marks = database.execute("SELECT order_key, due_at FROM order_due").fetchall()
        needed = database.execute("SELECT order_key, next_decision_at FROM ledgers").fetchall()
    assert sorted(marks) == sorted(needed)
    assert len(marks) == 2


# --- formats --------------------------------------------------------------------------------------

DOCUMENTS = {
    "an order": (["orders", "show", "ORD-1"], "order"),
    "a delivery": (["deliveries", "show", "stored"], "delivery"),
    "a token": (["tokens", "add", "--scope", "read", "books"], "token"),
    "a check": (["db", "check"], "problems"),
    "a proof": (["prove", "--all", "--shuffles", "2"], "counter_examples"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_formats_of_one_document(run: Run, filled: dict[str, str], name: str) -> None:
    """Check that json is one document over lines, jsonl the same on one, and that csv is refused:
    it is no list."""
    words, key = DOCUMENTS[name]
    words = [filled["paid"] if word == "stored" else word for word in words]
    assert run("refold").code == 0
    assert run("tokens", "list", "--format", "json").document == []
    refused = run(*words, "--format", "csv")
    assert (refused.code, refused.out) == (2, "")
    assert "'csv' is not one of 'table', 'json', 'jsonl'" in refused.err
    tokens = run("tokens", "list", "--format", "json").document
    assert tokens == [], "a refused command has done nothing"
    whole = run(*words, "--format", "json")
    assert (whole.code, whole.err) == (0, "")
    assert len(whole.out.splitlines()) > 1
    assert key in whole.document
    if name == "a token":
        words = [*words[:-1], "other"]
    line = run(*words, "--format", "jsonl")
    assert (line.code, line.err) == (0, "")
    assert len(line.out.splitlines()) == 1
    assert set(json.loads(line.out)) == set(whole.document)
    assert SECRET not in whole.out + line.out
