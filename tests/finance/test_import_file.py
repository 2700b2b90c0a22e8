"""Importing: all of a file or nothing, the good rows where that is said, and a trail of it."""

from __future__ import annotations

import csv
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.access.operator_store import audit_entries
from app.access.operators import register_operator
from app.context.context import AppContext
from app.core.clock import SetClock
from app.core.errors import NotFoundError, StoreUnavailable, UsageError
from app.database.engine import Connection
from app.database.tables import metadata
from app.finance import import_digest_store, import_store, imports
from app.finance.files.tables import BATCH
from app.finance.import_store import Import, begin_import, go_on
from app.finance.imports import (
    BOOK,
    Imported,
    ImportRequest,
    import_book,
    import_statement,
    past_imports,
)
from app.finance.read_lines import list_book, list_statement
from reconcile.instants import EARLIEST, TICK, format_instant, format_known, parse_instant
from tests.contexts import with_settings
from tests.database.builders import context as context_of
from tests.database.builders import opened, rows
from tests.reconcile.build import seconds

HEADING = "reference,amount,currency,status\n"
GOOD = "A,1.00,KES,paid\nB,2.00,KES,paid\n"
BAD = "C,x,KES,paid\nD,4.00,KES,\n"


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[AppContext]:
    async with opened(f"sqlite+aiosqlite:///{tmp_path}/t.db") as inbox:
        yield context_of(inbox, at=60)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder" / "book.csv"


@pytest.mark.parametrize("kind", import_store.KINDS)
def test_a_version_is_written_with_every_column_but_its_end(kind: import_store.ImportKind) -> None:
    written = {*import_store.KEYS[kind], "since", "line", *import_store.CONTENT[kind]}
    assert written == set(metadata.tables[import_store.TABLES[kind]].columns.keys()) - {"until"}


def put(path: Path, content: str) -> None:
    path.write_text(content)


async def references(context: AppContext) -> list[str]:
    found = await list_book(replace_clock(context), reference=None, as_of=None, limit=99_999)
    return [line.reference for line in found]


def replace_clock(context: AppContext) -> AppContext:
    """The same context, a minute later."""
    return replace(context, clock=SetClock(seconds(120)))


def problems_of(done: Imported) -> list[tuple[int, str | None]]:
    return [(problem.row, problem.column) for problem in done.problems]


async def test_one_bad_row_keeps_all_others_out(context: AppContext, path: Path) -> None:
    put(path, HEADING + GOOD + BAD)
    done = await import_book(context, ImportRequest(path=path))
    assert (done.read, done.rejected, done.number, problems_of(done)) == (
        4,
        1,
        None,
        [(4, "amount")],
    )
    assert (await references(context), await rows(context, "SELECT * FROM imports")) == (
        [],
        [],
    )
    assert [each.name for each in path.parent.iterdir()] == ["book.csv"]


async def test_the_good_rows_are_taken_where_that_is_said_and_the_others_set_aside(
    context: AppContext, path: Path
) -> None:
    put(path, HEADING + GOOD + BAD)
    done = await import_book(context, ImportRequest(path=path, accept_good=True))
    assert (done.new, done.rejected, done.rejects) == (3, 1, "book.rejects.csv")
    assert await references(context) == ["A", "B", "D"]
    rejects = path.with_name("book.rejects.csv")
    rejects.write_text(rejects.read_text().replace(",x,", ",3.00,"))
    again = await import_book(context, ImportRequest(path=rejects))
    assert (again.new, await references(context)) == (1, ["A", "B", "C", "D"])


@pytest.mark.parametrize(
    ("delimiter", "encoding"),
    [(",", "utf-8"), (";", "cp1252"), (";", "utf-8-sig"), ("\t", "utf-8")],
)
async def test_rejects_are_imported_with_the_mapping_of_their_export(
    context: AppContext, path: Path, delimiter: str, encoding: str
) -> None:
    """It says how the export was written; the file of rejects is written as it is, and a
    spreadsheet saves it in its own way."""
    mapping = path.with_name("m.toml")
    mapping.write_text(
        'delimiter = ";"\nencoding = "cp1252"\ndecimal = ","\nheading_row = 2\n'
        '[columns]\nreference = "Straße"\namount = "Betrag"\ncurrency = "Währung"\n'
    )
    with path.open("w", encoding="cp1252") as file:
        file.write("Mai\nStraße;Betrag;Währung\nä1;1,00;EUR\nä2;x;EUR\n")
    done = await import_book(context, ImportRequest(path=path, mapping=mapping, accept_good=True))
    assert (done.new, done.rejected) == (1, 1)
    rejects = path.with_name("book.rejects.csv")
    with rejects.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.reader(file))
    with rejects.open("w", encoding=encoding, newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows(
            [cell.replace("x", "2,00") for cell in row[:3]] + row[3:] for row in rows
        )
    again = await import_book(context, ImportRequest(path=rejects, mapping=mapping))
    assert (again.new, again.problems) == (1, [])
    assert await references(context) == ["ä1", "ä2"]


async def test_rejects_that_would_replace_a_file_are_refused_before_anything_is_read(
    context: AppContext, path: Path
) -> None:
    put(path, HEADING + GOOD + BAD)
    path.with_name("mine.csv").write_text("mine")
    request = ImportRequest(path=path, accept_good=True, rejects=path.with_name("mine.csv"))
    with pytest.raises(UsageError, match="already"):
        await import_book(context, request)
    with pytest.raises(UsageError, match="say both"):
        await import_book(context, ImportRequest(path=path, rejects=path.with_name("other.csv")))
    assert await references(context) == []


async def test_a_file_that_breaks_off_is_not_taken_in_part(context: AppContext, path: Path) -> None:
    """Not even where good rows would be: nobody knows what followed."""
    put(path, HEADING + GOOD + '"C,1.00,KES,paid\n')
    done = await import_book(context, ImportRequest(path=path, accept_good=True))
    assert (done.refused, done.number, problems_of(done)) == (True, None, [(4, None)])
    assert await references(context) == []


async def test_a_file_that_breaks_off_late_says_what_was_not_clear_until_then(
    context: AppContext, path: Path
) -> None:
    put(path, HEADING + "A,x,KES,paid\n" * BATCH + '"E,1.00,KES,paid\n')
    done = await import_book(context, ImportRequest(path=path, accept_good=True))
    assert (done.refused, done.number) == (True, None)
    assert (done.read, done.rejected, done.found) == (BATCH, BATCH, BATCH + 1)


async def test_equal_references_are_a_problem_of_each_row_and_none_is_taken(
    context: AppContext, path: Path
) -> None:
    put(path, HEADING + "a-1,1.00,KES,\nB,1.00,KES,\nA 1,2.00,KES,\nA1,1.00,KES,\n")
    done = await import_book(context, ImportRequest(path=path, accept_good=True))
    assert [(each.row, each.column, each.sentence[:5]) for each in done.problems] == [
        (2, "reference", "row 4"), (4, "reference", "row 2"), (5, "reference", "row 2"),
    ]  # fmt: skip
    assert (done.read, done.new, done.rejected) == (4, 1, 3)
    assert await references(context) == ["B"]
    assert path.with_name("book.rejects.csv").read_text().count("\n") == 4


async def test_a_good_row_is_not_taken_beside_one_of_the_same_reference_that_is_not_clear(
    context: AppContext, path: Path
) -> None:
    """The other may be the true one: both go to the rejects, and the one that is put right there,
    and left there alone, is taken. Another kind is another line; so is an order without equals."""
    file = "reference,amount,currency,kind\n"
    bad = ["a-1,2.0x,KES,", "B,1.00", "c,-1.00,KES,"]
    good = ["A1,1.00,KES,", "b,1.00,KES,", "C,1.00,KES,", "A1,1.00,KES,invoice", "D,1.00,KES,"]
    put(path, file + "\n".join([*good, *bad]))
    done = await import_book(context, ImportRequest(path=path, accept_good=True))
    assert (done.read, done.new, done.rejected) == (8, 2, 6)
    assert await references(context) == ["A1", "D"]
    rejects = path.with_name("book.rejects.csv")
    head, *rows_left = rejects.read_text().splitlines()
    assert [each.split(",")[0] for each in rows_left] == ["A1", "b", "C", "a-1", "B", "c"]
    assert "row 7 has the same one" in rows_left[0]
    assert "row 2 has the same one" in rows_left[3]
    put(rejects, "\n".join([head, *rows_left[3:4]]).replace("2.0x", "2.00"))
    assert (await import_book(context, ImportRequest(path=rejects))).new == 1
    assert await references(context) == ["A1", "a-1", "D"]


async def test_lines_of_json_that_are_none_are_rows_like_any_other(
    context: AppContext, path: Path
) -> None:
    """They are counted, reported, and set aside; a line of which one value is unfit still names its
    order, and of one that cannot be read the order is unknown."""
    line = '{{"reference": "{}", "amount": {}, "currency": "KES"}}\n'
    bad = 'A\n=1\n{"reference": "B",\n' + line.format("C", "true")
    put(path, line.format("A", 1) + bad + line.format("C", 3) + line.format("D", 4))
    done = await import_book(context, ImportRequest(path=path))
    assert (done.read, done.rejected, done.number) == (7, 5, None)
    assert problems_of(done) == [(2, None), (3, None), (4, None), (5, "amount"), (5, "reference"),
                          (6, "reference")]  # fmt: skip
    taken = await import_book(context, ImportRequest(path=path, accept_good=True))
    assert (taken.new, taken.rejected, await references(context)) == (2, 5, ["A", "D"])
    with path.with_name("book.rejects.csv").open(newline="") as file:
        _, *left = csv.reader(file)
    assert [(each[0], each[3]) for each in left] == [
        ("A", "2"), ("'=1", "3"), ('{"reference": "B",', "4"), ("C", "5"), ("C", "6"),
    ]  # fmt: skip


async def test_too_many_rows_of_one_payment_are_a_problem(
    context: AppContext, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = replace(imports.STATEMENT, at_most=2)
    monkeypatch.setattr(imports, "STATEMENT", few)
    lines = ["p1,1.00,KES", *["p2,1.00,KES"] * 3]
    put(path, "payment_reference,gross,currency\n" + "\n".join(lines))
    done = await import_statement(context, ImportRequest(path=path), source="")
    assert problems_of(done) == [
        (3, "payment_reference"),
        *[(n, "payment_reference") for n in (4, 5)],
    ]
    put(path, "payment_reference,gross,currency\n" + "\n".join(lines[:3]))
    assert (await import_statement(context, ImportRequest(path=path), source="")).new == 3
    found = await list_statement(replace_clock(context), reference="p2", as_of=None, limit=9)
    assert len(found) == 2


async def test_rows_of_one_payment_are_written_together(
    context: AppContext, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the later ones of several equal refunds would be taken for the earlier ones."""
    monkeypatch.setattr("app.finance.staged_rows.AT_ONCE", 3)
    monkeypatch.setattr(imports, "MOST_ROWS", 3)
    lines = [f"p{n},-1.00,KES,refund" for n in range(3) for _ in range(4)]
    put(path, "payment_reference,gross,currency,type\n" + "\n".join(lines))
    for new, unchanged in ((12, 0), (0, 12)):
        done = await import_statement(context, ImportRequest(path=path), source="")
        assert (done.new, done.changed, done.unchanged) == (new, 0, unchanged)


async def test_problems_are_reported_up_to_a_number_and_the_rest_is_counted(
    context: AppContext, path: Path
) -> None:
    put(path, HEADING + "".join(f"A{n},x,KES,?\n" for n in range(300)))
    done = await import_book(context, ImportRequest(path=path))
    assert (len(done.problems), done.found, done.left_out) == (100, 600, 500)


async def test_a_dry_run_shows_rows_and_counts_and_imports_nothing(
    context: AppContext, path: Path
) -> None:
    put(path, HEADING + GOOD)
    await import_book(context, ImportRequest(path=path))
    put(path, HEADING + GOOD.replace("2.00", "3.00") + BAD)
    done = await import_book(context, ImportRequest(path=path, dry_run=True, accept_good=True))
    assert (done.new, done.changed, done.unchanged, done.rejected) == (1, 1, 1, 1)
    assert [row["reference"] for row in done.rows] == ["A", "B", "D"]
    assert done.number is None
    assert await references(context) == ["A", "B"]
    assert [each.name for each in path.parent.iterdir()] == ["book.csv"]


@pytest.mark.parametrize("content", [HEADING, "", "\n\n"])
async def test_a_file_without_rows_is_refused(
    context: AppContext, path: Path, content: str
) -> None:
    put(path, content)
    done = await import_book(context, ImportRequest(path=path, accept_good=True))
    assert (done.refused, done.number) == (True, None)


async def test_what_is_no_file_is_not_found_or_refused(context: AppContext, path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no file book\.csv"):
        await import_book(context, ImportRequest(path=path))
    with pytest.raises(UsageError, match="is a folder: name a file in it"):
        await import_book(context, ImportRequest(path=path.parent))
    with pytest.raises(NotFoundError, match="no mapping"):
        await import_book(context, ImportRequest(path=path, mapping=path))


async def test_a_file_that_changes_while_it_is_read_is_refused(
    context: AppContext, path: Path
) -> None:
    put(path, HEADING + GOOD)
    done = await import_book(
        context, ImportRequest(path=path), progress=lambda *_: put(path, HEADING)
    )
    assert done.problems[0].sentence.startswith("the file changed")
    assert await references(context) == []


async def test_an_import_is_not_taken_for_killed_while_its_digest_is_made(
    context: AppContext, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a million lines that takes longer than another import waits for a sign of life."""
    signs = list[int]()

    async def seen(connection: Connection, of: Import, *, written: int) -> bool:
        signs.append(written)
        return await go_on(connection, of, written=written)

    monkeypatch.setattr(import_store, "go_on", seen)
    monkeypatch.setattr(import_digest_store, "LOOKING", 1)
    put(path, HEADING + GOOD)
    await import_book(context, ImportRequest(path=path))
    assert signs == [2, -1, -2, 2]


async def test_only_who_may_imports_and_the_trail_has_it(context: AppContext, path: Path) -> None:
    put(path, HEADING + GOOD)
    for name, role in (("Ann", "admin"), ("Fin", "finance"), ("Sue", "support")):
        await register_operator(context, name=name, role=role, by="Ann")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="role support"):
        await import_book(context, ImportRequest(path=path, by="Sue"))
    done = await import_book(context, ImportRequest(path=path, by="Fin"))
    async with context.database.reading() as connection:
        entry = (await audit_entries(connection, limit=9))[-1]
    assert (entry.who, entry.action, entry.subject) == ("Fin", "records_imported", "book.csv")
    assert "account" in entry.facts  # whoever holds the machine can write any name
    apart = ("account", "lines_sha256")
    assert {name: fact for name, fact in entry.facts.items() if name not in apart} == {
        "import": 1, "sha256": done.sha256, "read": 2, "new": 2, "changed": 0, "rejected": 0,
    }  # fmt: skip
    (import_,) = await past_imports(context, kind="book", limit=9)
    assert (import_.who, import_.file, import_.sha256) == ("Fin", "book.csv", done.sha256)


# --- imports that meet, and imports that end ------------------------------------------------------


def failing(after: int) -> Any:
    """The store's writing that fails at a later part."""
    parts = 0

    async def write(*given: Any, **named: Any) -> Any:
        nonlocal parts
        parts += 1
        if parts > after:
            raise StoreUnavailable("the disk is full")
        return await BOOK.write(*given, **named)

    return write


@pytest.mark.parametrize("after", [0, 1, 2])
async def test_an_import_that_ends_half_way_has_imported_nothing_and_the_next_one_works(
    context: AppContext, path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Wherever it ends: between parts, and what it superseded is in force again."""
    monkeypatch.setattr("app.finance.staged_rows.AT_ONCE", 3)
    monkeypatch.setattr(imports, "MOST_ROWS", 3)
    monkeypatch.setattr(imports, "SILENT_S", 0.01)
    before = "".join(f"R{n},1.00,KES,paid\n" for n in range(6))
    put(path, HEADING + before)
    await import_book(context, ImportRequest(path=path))
    put(path, HEADING + before.replace("1.00", "2.00") + "S,1.00,KES,\n")
    monkeypatch.setattr(imports, "BOOK", replace(BOOK, write=failing(after)))
    with pytest.raises(StoreUnavailable, match="disk is full"):
        await import_book(context, ImportRequest(path=path))
    assert len(await references(context)) == 6
    monkeypatch.setattr(imports, "BOOK", BOOK)
    done = await import_book(context, ImportRequest(path=path))
    assert (done.new, done.changed, done.unchanged) == (1, 6, 0)
    assert len(await references(context)) == 7
    assert len(await rows(context, "SELECT 1 FROM book_lines")) == 13


async def test_an_import_waits_for_one_that_is_alive(
    context: AppContext, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is alive as long as it writes something."""
    alive = Import(kind="book", file="other.csv", sha256="", who="x", started_at=EARLIEST + TICK)
    async with context.database.writing() as connection:
        begun, _ = await begin_import(connection, alive)
    waited = 0

    async def sleep(seconds: float) -> None:
        nonlocal waited
        if seconds != imports.SILENT_S:
            return
        waited += 1
        if waited <= 3:
            async with context.database.writing() as connection:
                await go_on(connection, begun, written=waited)

    monkeypatch.setattr("app.finance.imports.anyio.sleep", sleep)
    put(path, HEADING + GOOD)
    assert (await import_book(context, ImportRequest(path=path))).new == 2
    assert waited == 4


async def test_an_import_that_was_taken_for_killed_ends_with_a_sentence(
    context: AppContext, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def write(connection: Any, *given: Any, **named: Any) -> Any:
        found = await BOOK.write(connection, *given, **named)
        other = Import(
            kind="book", file="other.csv", sha256="", who="x", started_at=EARLIEST + TICK
        )
        await begin_import(connection, other)
        return found

    monkeypatch.setattr(imports, "BOOK", replace(BOOK, write=write))
    put(path, HEADING + GOOD)
    with pytest.raises(StoreUnavailable, match="another import began"):
        await import_book(context, ImportRequest(path=path))
    assert await references(context) == []


TOTALS = {
    "the last row": "Total,3.00,KES,\n",
    "in capitals, with a sign": "GRAND TOTAL:,3.00,KES,paid\n",
    "without a currency": "Sum,3.00,,\n",
    "with fewer cells": "Totals,3.00\n",
    "without a sum": "Total,,,\n",
    "with its currency": "Total (KES),3.00,,\n",
}


@pytest.mark.parametrize("row", TOTALS)
async def test_a_totals_row_is_left_out_and_reported(
    context: AppContext, path: Path, row: str
) -> None:
    """It is no order, whatever else stands in it, and the other rows are taken."""
    put(path, "reference,amount,currency,status\nA,1.00,KES,paid\nB,2.00,KES,paid\n" + TOTALS[row])
    done = await import_book(context, ImportRequest(path=path))
    assert (done.read, done.new, done.totals, problems_of(done)) == (2, 2, [4], [])
    assert await references(context) == ["A", "B"]


async def test_a_total_may_stand_in_the_first_cell_that_says_anything(
    context: AppContext, path: Path
) -> None:
    """As spreadsheets have it, below the dates."""
    put(path, "placed_at,reference,amount,currency\n2026-10-01,A,1.00,KES\nTotal,,1.00,KES\n")
    done = await import_book(context, ImportRequest(path=path))
    assert (done.new, done.totals, done.found) == (1, [3], 0)


async def test_subtotals_and_their_total_are_left_out(context: AppContext, path: Path) -> None:
    """Each adds up the rows since the one before, the last one all of them."""
    rows = "A,1.00,KES\nSubtotal,1.00,KES\nB,2.00,KES\nC,4.00,KES\nSubtotal,6.00,KES\n"
    put(path, "reference,amount,currency\n" + rows + "Total,7.00,KES\n")
    done = await import_book(context, ImportRequest(path=path))
    assert (done.new, done.totals, done.found) == (3, [3, 6, 7], 0)


async def test_what_is_called_a_total_and_is_another_sum_is_refused(
    context: AppContext, path: Path
) -> None:
    """It may be an order of that name, or rows may be missing: nobody knows."""
    put(path, "reference,amount,currency\nA,1.00,KES\nTotal,9.00,KES\nTotally,3.00,KES\n")
    done = await import_book(context, ImportRequest(path=path))
    assert (done.number, done.totals, problems_of(done)) == (None, [], [(3, "reference")])
    assert "which is KES 1.00" in done.problems[0].sentence


async def test_a_statement_s_total_is_no_payment(context: AppContext, path: Path) -> None:
    """Its refunds are negative, however the file writes them; so may its total be."""
    heading = "payment_reference,type,gross,fee,currency\n"
    rows = "p1,payment,5.00,0.10,KES\np2,refund,2.00,0.00,KES\n"
    for total in ("3.00", "7.00"):
        put(path, heading + rows + f"Total,,{total},0.10,KES\n")
        done = await import_statement(context, ImportRequest(path=path, dry_run=True), source="")
        assert (done.read, done.totals, done.found) == (2, [4], 0)


REFUNDS = "reference,amount,currency,placed_at,status,refunded_amount,refunded_at\n"

Story = tuple[int, str | None, int | None, str | None]
"""Minor units, status, minor units refunded, the day on which they were."""


@pytest.mark.parametrize(
    ("lines", "story"),
    [
        (["A,10,KES,2026-10-01,paid,3,2026-10-05"], (1000, "paid", 300, "05")),
        (["A,10,KES,2026-10-01,paid,-3,2026-10-05"], (1000, "paid", 300, "05")),
        (["A,10,KES,2026-10-01,partially_refunded,3,"], (1000, "paid", 300, None)),
        (["A,10,KES,2026-10-01,paid,,"], (1000, "paid", None, None)),
        (
            ["A,10,KES,2026-10-01,paid,,", "A,3,KES,2026-10-05,refunded,,"],
            (1000, "paid", 300, "05"),
        ),
        (
            ["A,-3,KES,2026-10-05,refunded,,", "A,10,KES,2026-10-01,paid,,"],
            (1000, "paid", 300, "05"),
        ),
        (
            [
                "A,10,KES,2026-10-01,paid,,",
                "A,3,KES,2026-10-05,refunded,,",
                "A,7,KES,2026-10-06,refunded,,",
            ],
            (1000, "refunded", 1000, "06"),
        ),
        (
            ["A,10,KES,2026-10-01,paid,,", "A,10,KES,2026-10-05,refunded,4,"],
            (1000, "paid", 400, "05"),
        ),
    ],
)
async def test_rows_of_one_order_that_add_up_are_one_line(
    context: AppContext, path: Path, lines: list[str], story: Story
) -> None:
    """What came and what of it went back, in one row or in several, and the same again changes
    nothing."""
    put(path, REFUNDS + "\n".join(lines))
    done = await import_book(context, ImportRequest(path=path))
    assert (done.read, done.new, done.rejected) == (len(lines), 1, 0)
    assert done.joined == len(lines) - 1
    (line,) = await list_book(replace_clock(context), reference=None, as_of=None, limit=9)
    day = None if line.refunded_at is None else format_instant(line.refunded_at)[8:10]
    assert (line.money.minor, line.status, line.refunded, day) == story
    assert line.placed_at == parse_instant("2026-10-01T00:00:00Z")
    again = await import_book(replace_clock(context), ImportRequest(path=path))
    assert (again.new, again.changed, again.unchanged) == (0, 0, 1)


@pytest.mark.parametrize(
    ("lines", "rejected"),
    [
        (["A,10,KES,,paid,,", "A,11,KES,,refunded,,"], [2, 3]),  # more went back than came
        (["A,10,KES,,paid,,", "A,3,USD,,refunded,,"], [2, 3]),
        (["A,10,KES,,paid,,", "A,10,KES,,paid,,", "A,3,KES,,refunded,,"], [2, 3, 4]),
        (["A,10,KES,,unpaid,,", "A,3,KES,,refunded,,"], [2, 3]),
        (["A,-3,KES,,refunded,,"], [2]),
        (["A,-3,KES,,paid,,"], [2]),
        (["A,10,KES,,paid,x,"], [2]),
    ],
)
async def test_rows_of_one_order_that_do_not_add_up_are_reported(
    context: AppContext, path: Path, lines: list[str], rejected: list[int]
) -> None:
    """None of them is taken: nobody knows which is true."""
    put(path, REFUNDS + "\n".join([*lines, "B,1,KES,,paid,,"]))
    done = await import_book(context, ImportRequest(path=path))
    assert sorted({problem.row for problem in done.problems}) == rejected
    assert (done.number, done.rejected) == (None, len(lines))


@pytest.mark.parametrize(
    ("setting", "mapping", "placed_at"),
    [
        (None, None, None),
        ("Africa/Nairobi", None, "2026-10-31T21:30:00Z"),
        ("Africa/Nairobi", "UTC", "2026-11-01T00:30:00Z"),
        (None, "America/New_York", "2026-11-01T04:30:00Z"),
        ("UTC", None, "2026-11-01T00:30:00Z"),
    ],
)
async def test_local_times_are_those_of_the_mapping_else_of_the_setting(
    context: AppContext, path: Path, setting: str | None, mapping: str | None, placed_at: str | None
) -> None:
    """Where neither says, the row is a problem that says what to do."""
    put(path, "reference,amount,currency,placed_at\nA,1,KES,2026-11-01 00:30\n")
    said = path.with_suffix(".toml")
    said.write_text("" if mapping is None else f'zone = "{mapping}"\n')
    zoned = with_settings(context, timezone=setting or "")
    done = await import_book(zoned, ImportRequest(path=path, mapping=said))
    lines = await list_book(replace_clock(context), reference=None, as_of=None, limit=9)
    assert [format_known(line.placed_at) for line in lines] == ([placed_at] if placed_at else [])
    assert problems_of(done) == ([] if placed_at else [(2, "placed_at")])


@pytest.mark.parametrize(
    ("zone", "first", "later", "lines"),
    [
        ("UTC", "2026-10-05", "2026-10-05 10:00", 1),
        ("Africa/Nairobi", "2026-10-05", "2026-10-05 10:00", 1),
        ("Africa/Nairobi", "2026-10-05 02:00", "2026-10-05 23:59", 1),
        ("Africa/Nairobi", "2026-10-05 23:59", "2026-10-06 00:00", 2),
        ("America/New_York", "2026-10-05", "2026-10-05 21:00", 1),
        ("America/New_York", "2026-11-01", "2026-11-01 23:59", 1),  # a day of 25 hours
        ("America/New_York", "2026-10-05 21:00", "2026-10-06 10:00", 2),
        (None, "2026-10-05T23:00:00+00:00", "2026-10-06T01:00:00+00:00", 2),
    ],
)
async def test_a_day_of_settlement_is_one_of_the_zone(
    context: AppContext, path: Path, zone: str | None, first: str, later: str, lines: int
) -> None:
    """A payment that a later file states again, with the time of that day, is the same: its money
    is not counted twice. On another day it is another."""
    zoned = with_settings(context, timezone=zone or "")
    for at in (first, later):
        put(path, f"payment_reference,gross,fee,currency,settled_at\np1,1000.00,10,KES,{at}\n")
        shown = await import_statement(zoned, ImportRequest(path=path, dry_run=True), source="")
        done = await import_statement(zoned, ImportRequest(path=path), source="")
        assert (done.new, done.changed) == (shown.new, shown.changed)
    later_on = replace_clock(context)
    found = await list_statement(later_on, reference=None, as_of=None, limit=9)
    assert len(found) == lines


@pytest.mark.parametrize("zone", ["Africa/Nairobi", "Europe/Berlin", "America/New_York"])
async def test_a_statement_of_days_read_again_in_a_zone_states_the_same_money(
    context: AppContext, path: Path, zone: str
) -> None:
    """Two equal refunds on days that follow each other among it."""
    put(
        path,
        "payment_reference,gross,currency,settled_at,type\np1,5.00,KES,2026-10-31,payment\n"
        "p1,-2.00,KES,2026-10-31,refund\np1,-2.00,KES,2026-11-01,refund\n",
    )
    for said, counts in ((None, (3, 0)), (zone, (0, 3)), (zone, (0, 0)), ("UTC", (0, 3))):
        done = await import_statement(context, ImportRequest(path=path, zone=said), source="s")
        assert (done.new, done.changed) == counts
    lines = await list_statement(replace_clock(context), reference=None, as_of=None, limit=9)
    assert sum(each.gross for each in lines) == 100


@pytest.mark.parametrize(
    ("setting", "mapping", "phone"),
    [
        ("", None, None),
        ("254", None, "254700000001"),
        ("254", "255", "255700000001"),
        ("", "256", "256700000001"),
    ],
)
async def test_national_numbers_are_of_the_mappings_country_else_of_the_setting(
    context: AppContext, path: Path, setting: str, mapping: str | None, phone: str | None
) -> None:
    """Where neither says, the row is a problem that says what to do."""
    put(path, "reference,amount,currency,phone\nA,1,KES,0700 000 001\n")
    said = path.with_suffix(".toml")
    said.write_text("" if mapping is None else f'phone_country = "{mapping}"\n')
    there = with_settings(context, phone_country=setting)
    done = await import_book(there, ImportRequest(path=path, mapping=said))
    kept = await rows(context, "SELECT phone FROM book_lines")
    assert kept == ([(phone,)] if phone else [])
    assert problems_of(done) == ([] if phone else [(2, "phone")])
    assert all("TALLYHOOK_PHONE_COUNTRY" in each.sentence for each in done.problems)
