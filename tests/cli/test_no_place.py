"""Output that cannot be written: the command ends quietly or with a sentence, never a traceback."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from app.cli import connect, main
from app.config.load import load_settings
from app.golive.examine import EVIDENCE, secret_files
from tests.api.driving import environ
from tests.rows import for_each
from tests.searching import every
from tests.waiting import PATIENCE_S

SHOW = ("-m", "app", "profiles", "show", "stripe")


@pytest.mark.parametrize(
    ("where", "code", "said"),
    [
        ("> /dev/full", 1, "tallyhook: reading or writing failed: No space left on device\n"),
        pytest.param(">&-", 0, "", marks=pytest.mark.costly),
        pytest.param("2>&-", 0, "", marks=pytest.mark.costly),
    ],
    ids=["full", "no output", "no errors"],
)
def test_a_result_that_finds_no_place(where: str, code: int, said: str) -> None:
    """A full disk is reported; who closed a stream wants nothing in it."""
    command = ["bash", "-c", f'exec "$0" "$@" {where}', sys.executable, *SHOW]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (code, said)


@pytest.mark.parametrize("words", [("orders", "list"), ("signature", "check")][:: every(2)])
def test_standard_input_that_is_closed_is_an_empty_one(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file that is opened later takes its place: the event loop would end the process."""
    for name, value in environ(tmp_path).items():
        monkeypatch.setenv(name, value)
    assert main.run(("db", "create")) == 0
    command = ["bash", "-c", 'exec "$0" "$@" <&-', sys.executable, "-m", "app", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_has_read_enough() -> None:
    """Nobody reads the pipe any more: that is the reader's word, and no mistake."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, *SHOW, "--format", "json"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=PATIENCE_S)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_command_that_makes_a_database_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In another folder than the service's, a token is made that the service refuses."""
    for name, value in environ(tmp_path).items():
        monkeypatch.setenv(name, value)
    for made in (True, False):
        assert main.run(("tokens", "add", f"shop{made}")) == 0
        output = capfd.readouterr().err
        assert ("a new one is created" in output and f"{tmp_path}/t.db" in output) is made


@pytest.mark.parametrize(
    "words", [("console", "--port", "0"), ("refold",), ("log", "key")], ids=" ".join
)
def test_no_empty_database_is_left_where_the_environment_is_not_said(
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The next command would find a database of which nothing is true but its name."""
    for name, value in environ(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TALLYHOOK_ENVIRONMENT")
    assert main.run(words) == 3
    assert "TALLYHOOK_ENVIRONMENT: write sandbox or live" in capfd.readouterr().err
    assert not list(tmp_path.glob("t.db*"))


@pytest.mark.parametrize("words", [("orders", "list"), ("tokens", "add", "shop")], ids=" ".join)
def test_a_folder_in_the_databases_place_is_no_failing_disk(
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """It is reported by its setting, as by `serve`, and not as an error of the disk."""
    for name, value in environ(tmp_path).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "t.db").mkdir()
    assert main.run(words) == 3
    assert "TALLYHOOK_DATABASE_URL: names a folder or a device" in capfd.readouterr().err


@for_each(
    "words",
    [
        ("golive", "-o", "nowhere/list.html"),
        ("report", "period", "--from", "2026-10-01", "--to", "2026-10-31", "-o", "nowhere/r.csv"),
    ],
)
def test_a_folder_that_is_not_there_is_reported_before_the_work(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is opened, asked or written for a result that could not be kept."""
    assert main.run(words) == 2
    written = capsys.readouterr()
    assert written.out == ""
    assert (
        written.err == "tallyhook: there is no folder nowhere: create it first, or choose another\n"
    )


@pytest.mark.parametrize(("answer", "code"), [(KeyboardInterrupt, 130), (EOFError, 1)])
def test_a_question_that_is_interrupted(
    monkeypatch: pytest.MonkeyPatch, answer: type[BaseException], code: int
) -> None:
    """Ctrl-C ends with the same code there as anywhere else; Ctrl-D says that there is none."""

    def asked(question: str) -> str:
        raise answer

    monkeypatch.setattr(connect, "sits_at_a_terminal", lambda: True)
    monkeypatch.setattr(sys.modules[typer.prompt.__module__], "hidden_prompt_func", asked)
    assert main.run(("connect", "stripe", "--no-shared")) == code


def test_a_key_that_cannot_be_looked_at_ends_no_preflight_check(tmp_path: Path) -> None:
    """As in a folder of another user: it is reported, and the others are looked at all the same."""
    key = {"EVIDENCE__KEY_FILE": f"/{'x' * 300}"}
    settings = load_settings(environ(tmp_path, **key))
    assert [name for name, _ in secret_files(settings)] == [EVIDENCE]


def test_the_doctor_tells_of_a_key_that_it_cannot_look_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Beside a database, too: not that it is gone, and nothing ends the check."""
    given = environ(tmp_path)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert main.run(("db", "create")) == 0
    monkeypatch.setenv(EVIDENCE, f"/{'x' * 300}")
    assert main.run(("doctor", "--format", "jsonl")) == 1
    output = capfd.readouterr()
    assert "reading or writing failed" not in output.err
    said = [row for row in map(json.loads, output.out.splitlines()) if row["what"] == EVIDENCE]
    assert "The file's permissions cannot be read." in [row["sentence"] for row in said]
    assert not [row for row in said if "is not there" in row["sentence"]]
