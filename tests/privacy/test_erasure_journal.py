"""The journal of erasures as a file: who may use it, what a crash leaves, what tampering shows."""

import multiprocessing
from pathlib import Path

import pytest

from app.core.errors import ConfigurationError, UnreachableError
from app.privacy.erasure_journal import (
    MAX_IDS,
    MAX_LINE_BYTES,
    ErasureJournal,
    journal_lines,
    key_path_of,
    make_journal,
    read_journal,
    read_key,
    set_aside,
    write_again,
)
from reconcile.instants import TICK
from tests.reconcile.build import T

PHONE = "254711223344"


@pytest.fixture
def journal(tmp_path: Path) -> ErasureJournal:
    """Make a journal with three erasures."""
    made = make_journal(tmp_path / "t.erasures", at=T)
    for number in range(3):
        made.append({"deliveries": [f"dlv_{number}"]}, at=T + number * TICK)
    return made


def lines(journal: ErasureJournal) -> list[bytes]:
    """List the lines of the file."""
    return journal.path.read_bytes().splitlines(keepends=True)


def read(journal: ErasureJournal) -> ErasureJournal:
    """Read the journal as another process does."""
    found = read_journal(journal.path)
    assert found is not None
    return found


def test_a_journal_is_made_once_and_for_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "new" / "t.erasures"
    made = make_journal(path, at=T)
    again = make_journal(path, at=T + TICK)
    assert (again.name, list(again.erased)) == (made.name, [])
    for each in (path, key_path_of(path)):
        assert each.stat().st_mode & 0o777 == 0o600
    assert read_key(path) is not None
    assert "JournalKey()" in repr(made.key)


def test_a_journal_of_an_earlier_release_is_read_and_continued(tmp_path: Path) -> None:
    """Key, digests, checks and lines keep their form for ever."""
    path = tmp_path / "t.erasures"
    for each, content in ((key_path_of(path), f"{bytes(range(32)).hex()}\r\n"), (path, EARLIER)):
        each.write_bytes(content.encode())
        each.chmod(0o600)
    found = make_journal(path, at=T)
    assert found.key.digest("orders", "ORD-1") == "062de1c507ffe5da58a8d69e07fe068e"
    assert [line[:5] for line in found.lines] == [
        (0, T, "journal", "begun", ("n",)),
        (1, T, "deliveries", "asked", ("a", "b")),
    ]
    assert (found.name, found.torn) == ("3e92ad601aaa375f6beee48854436e47", False)
    assert [each.number for each in found.erased] == [1]
    found.append({"orders": ["c"]}, at=T + TICK)
    assert path.read_text() == EARLIER + LATER
    assert [each.text for each in read(found).lines] == (EARLIER + LATER).splitlines()
    for more in ("0\n", "\n0", "\r\n0"):
        key_path_of(path).write_bytes(f"{bytes(range(32)).hex()}{more}".encode())
        with pytest.raises(ConfigurationError, match="not 64 hex digits"):
            read_journal(path)


EARLIER = """\
0 2026-11-20T10:00:00Z journal begun n 3e92ad601aaa375f6beee48854436e47
1 2026-11-20T10:00:00Z deliveries asked a,b eb7a8c61bc2e6f00882f1dc7955810d1
"""
LATER = "2 2026-11-20T10:00:00.000001Z orders asked c 6794e6089d2d8cc54dbfefe1adb72977\n"


def test_a_line_has_as_many_characters_of_ids_as_fit(journal: ErasureJournal) -> None:
    """Each id counts with the comma behind it."""
    full, over = [[*["x" * 39] * 97, "x" * last] for last in (19, 20)]
    new = journal.append({"wholes": [*full, *full, *over]}, at=T)
    assert [len(line.ids) for line in new] == [98, 98, 97, 1]
    assert [line.number for line in new] == [4, 5, 6, 7]
    assert read(journal).lines == journal.lines
    assert journal.name == read(journal).name == journal.lines[0].check


def test_a_journal_that_was_replaced_meanwhile_is_not_written(journal: ErasureJournal) -> None:
    """By an older copy, which lacks a line that was read before."""
    before = journal.path.read_bytes()
    journal.append({"wholes": ["dlv_1"]}, at=T)
    journal.path.write_bytes(before)
    with pytest.raises(ConfigurationError, match="was replaced in the meantime; erase again"):
        journal.append({"wholes": ["dlv_2"]}, at=T)
    assert journal.path.read_bytes() == before


def test_a_key_is_never_made_for_a_journal_that_is_there(journal: ErasureJournal) -> None:
    key_path_of(journal.path).unlink()
    for use in (read_journal, lambda path: make_journal(path, at=T)):
        with pytest.raises(ConfigurationError, match="is missing; put its copy back"):
            use(journal.path)
    assert not key_path_of(journal.path).exists()


def test_lines_are_bounded_however_much_is_erased(journal: ErasureJournal) -> None:
    """Of 50,000 deliveries, each line has as many as one transaction empties."""
    ids = [f"dlv_{number:030x}" for number in range(50_000)]
    cuts = [f"{number:032x}/10-20-30/40-50-60//" for number in range(1_000)]
    before = len(journal.path.read_bytes())
    new = journal.append({"deliveries": ids, "bank_lines": cuts}, at=T)
    assert [each for line in new for each in line.ids] == ids + cuts
    assert max(len(line.ids) for line in new) == MAX_IDS
    held = journal.path.read_bytes()
    assert max(map(len, held.splitlines(keepends=True))) <= MAX_LINE_BYTES
    assert len(held) - before < 42 * len(ids) + 60 * len(cuts)
    assert read(journal).lines == journal.lines


def test_a_digest_says_what_kind_of_row_it_stands_for(journal: ErasureJournal) -> None:
    digests = {journal.key.digest(kind, PHONE) for kind in ("orders", "book_lines", "recipients")}
    assert len(digests) == 3
    journal.append({"orders": [journal.key.digest("orders", PHONE)]}, at=T)
    assert PHONE.encode() not in journal.path.read_bytes()


@pytest.mark.parametrize("left", [1, 40, 80, -1, MAX_LINE_BYTES])
def test_a_last_line_that_was_cut_short_is_passed_over(journal: ErasureJournal, left: int) -> None:
    """However much of it came to the disk; the next line takes its place."""
    *whole, last = lines(journal)
    journal.path.write_bytes(b"".join([*whole, last[:left] if left < 99 else b"x" * left]))
    found = read(journal)
    assert (len(found.erased), found.torn) == (2, True)
    found.append({"deliveries": ["dlv_9"]}, at=T)
    assert (len(read(journal).erased), read(journal).torn) == (3, False)
    assert lines(journal)[:-1] == whole


def test_a_last_line_of_which_the_disk_has_only_the_end_is_passed_over(
    journal: ErasureJournal,
) -> None:
    """Blocks that were never written read as zeros."""
    *whole, last = lines(journal)
    journal.path.write_bytes(b"".join([*whole, bytes(50) + last[50:]]))
    assert (len(read(journal).erased), read(journal).torn) == (2, True)


def _edited(edit: str, held: list[bytes]) -> list[bytes]:
    changed = {
        "changed": [*held[:2], held[2].replace(b" asked ", b" taken "), held[3]],
        "changed at the end": [*held[:3], held[3].replace(b" asked ", b" taken ")],
        "left out": [held[0], *held[2:]],
        "put in": [*held[:2], held[1], *held[2:]],
        "in another order": [held[0], held[2], held[1], held[3]],
        "cut short in the middle": [held[0], held[1][:50] + b"\n", *held[2:]],
        "too long": [*held, b"x" * (MAX_LINE_BYTES + 1)],
        "without its first line": held[1:],
        "its first line cut short": [held[0][:50]],
        "empty": [],
    }
    return changed[edit]


@pytest.mark.parametrize(
    "edit",
    ["changed", "changed at the end", "left out", "put in", "in another order",
     "cut short in the middle", "too long", "without its first line",
     "its first line cut short", "empty"],
)  # fmt: skip
def test_a_journal_that_was_tampered_with_is_refused(journal: ErasureJournal, edit: str) -> None:
    """Whole lines that do not fit are no crash's work."""
    journal.path.write_bytes(b"".join(_edited(edit, lines(journal))))
    with pytest.raises(ConfigurationError, match="TALLYHOOK_ERASURE_JOURNAL: "):
        read_journal(journal.path)
    before = journal.path.read_bytes()
    with pytest.raises(ConfigurationError):
        journal.append({"deliveries": ["dlv_9"]}, at=T)
    assert journal.path.read_bytes() == before


def test_lines_of_two_histories_do_not_fit_together(journal: ErasureJournal) -> None:
    """Of a copy that went on by itself: each line is of the right number and the right key."""
    before = journal.path.read_bytes()
    journal.append({"deliveries": ["dlv_1"], "wholes": ["dlv_2"]}, at=T)
    first = lines(journal)
    journal.path.write_bytes(before)
    read(journal).append({"deliveries": ["dlv_3"], "wholes": ["dlv_2"]}, at=T)
    journal.path.write_bytes(b"".join([*first[:-1], lines(journal)[-1]]))
    with pytest.raises(ConfigurationError, match="line 6 of the journal"):
        read_journal(journal.path)


def test_a_number_that_is_left_out_is_noticed(journal: ErasureJournal) -> None:
    """Whoever has the key could write such a line."""
    last = journal.lines[-1]
    after = journal.key.line(last.check, number=5, at=T, kind="wholes", rule="asked", ids=["a"])
    texts = [line.text for line in (*journal.lines, after)]
    with pytest.raises(ConfigurationError, match="line 5 of the journal"):
        journal_lines(texts, journal.key)
    journal.path.write_text("".join(f"{each}\n" for each in texts))
    with pytest.raises(ConfigurationError, match="line 5 of the journal"):
        read_journal(journal.path)


def test_another_key_reads_nothing(journal: ErasureJournal, tmp_path: Path) -> None:
    other = make_journal(tmp_path / "other", at=T)
    texts = [line.text for line in journal.lines]
    assert journal_lines(texts, journal.key) == journal.lines
    with pytest.raises(ConfigurationError, match="written with another key"):
        journal_lines(texts, other.key)
    key_path_of(other.path).replace(key_path_of(journal.path))
    with pytest.raises(ConfigurationError, match="written with another key"):
        read_journal(journal.path)


@pytest.mark.parametrize("key", [True, False])
def test_what_everyone_may_use_is_refused(journal: ErasureJournal, key: bool) -> None:
    path = key_path_of(journal.path) if key else journal.path
    path.chmod(0o644)
    with pytest.raises(ConfigurationError, match="any user can access"):
        read_journal(journal.path)
    path.chmod(0o640)
    assert len(read(journal).erased) == 3


def _append(path: Path, number: int) -> None:
    found = read_journal(path)
    assert found is not None
    for each in range(20):
        found.append({"wholes": [f"{number}-{each}"], "orders": [f"{number}-{each}"]}, at=T)


def test_several_processes_write_one_journal(journal: ErasureJournal) -> None:
    """Each after the other; nobody's lines are lost or torn apart."""
    fork = multiprocessing.get_context("spawn")
    writers = [fork.Process(target=_append, args=(journal.path, n)) for n in range(3)]
    for each in writers:
        each.start()
    for each in writers:
        each.join(60)
        assert each.exitcode == 0
    found = read(journal)
    assert len(found.erased) == 3 + 3 * 20 * 2
    kinds = [line.kind for line in found.erased[3:]]
    assert kinds == ["wholes", "orders"] * 60


def test_a_journal_is_written_again_from_its_lines(journal: ErasureJournal) -> None:
    aside = set_aside(journal.path, at=T)
    assert aside == journal.path.with_name(f"t.erasures.aside-{T}")
    assert set_aside(journal.path, at=T) is None
    write_again(journal.path, journal.lines)
    assert journal.path.read_bytes() == aside.read_bytes()
    with pytest.raises(FileExistsError):
        write_again(journal.path, journal.lines)


def test_where_it_cannot_be_written_is_said(tmp_path: Path, journal: ErasureJournal) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UnreachableError, match="let this user write there"):
        make_journal(tmp_path / "file" / "t.erasures", at=T)
    journal.path.unlink()
    with pytest.raises(UnreachableError, match="nothing was erased"):
        journal.append({"deliveries": ["dlv_9"]}, at=T)
    key_path_of(journal.path).write_text("no key")
    with pytest.raises(ConfigurationError, match="not 64 hex digits"):
        read_journal(journal.path)
