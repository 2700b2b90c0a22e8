"""Texts of others command no terminal, and a word that is no UTF-8 is refused in a sentence."""

import json
import os
import sys
from collections.abc import AsyncIterator
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from app.cli.printing import Format, document, emit, note, print_document, print_items, say
from tests.cli.test_commands import Run
from tests.cli.test_commands import run as run
from tests.database.made import put_new
from tests.rows import for_each

HOSTILE = "A\x1b[2J\r\x07\x9b31m\u202e\udcff[b]"
SHOWN = r"A\x1b[2J\r\x07\x9b31m\u202e\udcff[b]"


@pytest.fixture(autouse=True)
def database(tmp_path: Path) -> None:
    """Make an empty database beforehand."""
    put_new(tmp_path / "t.db")


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    """Return both streams, and check that each character but line ends is printable."""
    text = "".join(capsys.readouterr())
    assert not [sign for sign in text if not sign.isprintable() and sign != "\n"]
    return text


async def test_every_way_to_print_for_people_shows_signs_instead_of_obeying_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A reference, a sentence or a name, in whichever table or line."""

    async def items() -> AsyncIterator[list[dict[str, Any]]]:
        yield [{"order": HOSTILE}]

    emit([{"order": HOSTILE}], columns=("order",), form=Format.table)
    assert SHOWN in printed(capsys)
    await print_items(items(), columns=("order",), form=Format.table)
    assert SHOWN in printed(capsys)
    say(HOSTILE)
    note(HOSTILE)
    assert printed(capsys).count(SHOWN) == 2


@pytest.mark.parametrize("form", [None, "table", "json", "jsonl", "csv", "csv-excel"])
def test_a_terminal_or_pipe_of_another_encoding_gets_what_it_can_take(
    form: str | None, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """People read escapes for letters that it has not; what a program reads is UTF-8."""
    name = "José 东"
    assert run("operators", "invite", name, "--role", "admin").code == 0
    written = BytesIO()
    monkeypatch.setattr("sys.stdout", TextIOWrapper(written, encoding="ascii"))
    words = ("operators", "list", *(() if form is None else ("--format", form)))
    assert main.run(words) == 0
    shown = written.getvalue()
    people = form in (None, "table")
    assert (name.encode("ascii", "backslashreplace") if people else name.encode()) in shown
    assert shown.startswith(b"\xef\xbb\xbf") is (form == "csv-excel")


@for_each("form", [Format.json, Format.jsonl])
async def test_json_says_the_same_without_signs_that_command(
    form: Format, capsys: pytest.CaptureFixture[str]
) -> None:
    """A listing, a document, and one that is printed as it comes; a flag beyond 16 bits, too."""
    row = {"order": HOSTILE + "\U000e0001 ja, für €"}

    async def items() -> AsyncIterator[list[dict[str, Any]]]:
        yield [row]

    emit([row], columns=("order",), form=form)
    document(row, form)
    await print_items(items(), columns=("order",), form=form)
    await print_document({"a": 1}, items(), name="rows", form=form)
    text = printed(capsys)
    assert text.count("für €") == text.count("\\u009b") == 4
    document(row)
    assert json.loads(printed(capsys)) == row


def test_a_table_has_its_numbers_right_and_its_money_apart(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Digits stand below digits, and thousands are apart; a column of texts stands left."""
    sums = [{"amount": "1284500.00", "currency": "KES"}, {"amount": "7.00", "currency": "KES"}]
    rows = [{"name": f"n{at}", "count": 10**at, "sum": each} for at, each in enumerate(sums)]
    emit([*rows, {"name": "none"}], columns=("name", "count", "sum"), form=Format.table)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines[2:] == [
        " n0         1   KES 1,284,500.00",
        " n1        10           KES 7.00",
        " none",
    ]


def test_where_a_table_would_break_ids_its_rows_stand_one_below_another(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal alone, and only where words would not fit; what is empty is left out."""
    row = {"id": "brk_" + "0" * 20, "order_id": "", "sentence": "It was paid more than once."}
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    for width, words in (("30", "sentence  It was paid more than once."), ("50", "It was paid")):
        monkeypatch.setenv("COLUMNS", width)
        emit([row], columns=tuple(row), form=Format.table)
        lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
        assert [line for line in lines if line.startswith(("id        brk_0", "sentence"))] == (
            [f"id        {row['id']}", words] if width == "30" else []
        )
        assert any(row["id"] in line for line in lines)


def test_a_file_is_imported_whatever_bytes_its_name_is_of(run: Run, tmp_path: Path) -> None:
    """A file system keeps names as bytes, and no rule says that they are UTF-8."""
    path = Path(os.fsdecode(bytes(tmp_path) + b"/b\xff\x1b[2J.csv"))
    path.write_text("reference,amount,currency\nA,1.00,KES\nB,?,KES\n")
    taken = run("records", "import", str(path), "--accept-good")
    assert (taken.code, taken.out.splitlines()[-1]) == (
        1,
        r"b\udcff\x1b[2J.csv: 2 rows read: 1 new, 0 changed, 0 unchanged, 1 rejected.",
    )
    assert r"b\udcff\x1b[2J.rejects.csv" in taken.err
    (known,) = run("records", "imports", "--format", "json").document
    assert known["file"] == r"b\udcff\x1b[2J.csv"


@for_each(
    "words",
    [
        ("reconcile", "show", "9" * 20),
        ("audit", "list", "--after", "9" * 20),
        ("log", "consistency", "1", "9" * 20),
        ("log", "consistency", "-1", "2"),
        ("notifications", "redeliver", "9" * 20),
        ("reconcile", "run", "--from", "0001-01-01"),
        ("reconcile", "run", "--to", "2026-W01-1"),
        ("period", "close", "9999-12"),
    ],
)
def test_a_number_or_day_beyond_all_bounds_is_refused(run: Run, words: tuple[str, ...]) -> None:
    run("tokens", "add", "shop")  # makes the database
    assert run(*words).code == 2


def test_the_last_day_of_the_calendar_is_a_day(run: Run) -> None:
    run("tokens", "add", "shop")
    ended = run("reconcile", "run", "--to", "9999-12-31", "--format", "json")
    assert (ended.code, ended.document["to"]) == (0, "9999-12-31T23:59:59.999999Z")


@pytest.mark.parametrize(
    "words",
    [("breaks", "show", "brk_\udcff"), ("records", "list", "--reference", "A\udcff")],
)
def test_a_word_that_is_not_utf_8_is_refused(run: Run, words: tuple[str, ...]) -> None:
    run("tokens", "add", "shop")  # makes the database
    ended = run(*words)
    assert (ended.code, "not valid UTF-8" in ended.err) == (2, True)
