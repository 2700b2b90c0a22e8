"""Texts of others command no terminal, and a word that is no UTF-8 is refused in a sentence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.cli.output import Format, emit, note, say
from app.cli.streams import print_items
from tests.app.cli.test_commands import Run
from tests.app.cli.test_commands import run as run

HOSTILE = "A\x1b[2J\r\x07\x9b31m\u202e\udcff[b]"
SHOWN = r"A\x1b[2J\r\x07\x9b31m\u202e\udcff[b]"


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    """Both streams, each sign of which is printable but the ends of lines."""
    text = "".join(capsys.readouterr())
    assert not [sign for sign in text if not sign.isprintable() and sign != "\n"]
    return text


async def test_every_way_to_print_for_people_shows_signs_instead_of_obeying_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A reference, a sentence or a name, in whichever table or line."""

    async def items():  # type: ignore[no-untyped-def]
        yield [{"order": HOSTILE}]

    emit([{"order": HOSTILE}], columns=("order",), form=Format.table)
    assert SHOWN in printed(capsys)
    await print_items(items(), columns=("order",), form=Format.table)
    assert SHOWN in printed(capsys)
    say(HOSTILE)
    note(HOSTILE)
    assert printed(capsys).count(SHOWN) == 2


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


@pytest.mark.parametrize(
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
    assert (ended.code, "not UTF-8 text" in ended.err) == (2, True)
