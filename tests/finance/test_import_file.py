"""Importing: all of a file or nothing, the good rows where that is said, and a trail of it."""

import csv
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from itertools import count
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
from app.finance import import_digest_store, import_store, imports, line_version_store, write_import
from app.finance.files.tables import BATCH
from app.finance.import_store import Import, begin_import, go_on
from app.finance.imports import (
    Imported,
    ImportRequest,
    import_book,
    import_statement,
    past_imports,
)
from app.finance.line_version_store import LINES, write_lines
from app.finance.read_lines import list_book, list_statement
from app.finance.stage_file import STATEMENT
from reconcile.instants import EARLIEST, TICK, format_instant, format_known, parse_instant
from tests.contexts import with_settings
from tests.database.builders import context as context_of
from tests.database.builders import opened, rows
from tests.reconcile.build import seconds
from tests.rows import for_each

HEADING = "reference,amount,currency,status\n"
GOOD = "A,1.00,KES,paid\nB,2.00,KES,paid\n"
BAD = "C,x,KES,paid\nD,4.00,KES,\n"


@dataclass
class Shop:
    """A shop's database, a minute after its begin, and the file that it imports."""

    context: AppContext
    path: Path

    @property
    def later(self) -> AppContext:
        return replace(self.context, clock=SetClock(seconds(120)))

    @property
    def rejects(self) -> Path:
        return self.path.with_name("book.rejects.csv")

    def put(self, content: str) -> None:
        self.path.write_text(content)

    async def book(self, content: str | None = None, **said: Any) -> Imported:
        if content is not None:
            self.put(content)
        return await import_book(self.context, ImportRequest(**{"path": self.path, **said}))

    async def statement(self, content: str | None = None, **said: Any) -> Imported:
        if content is not None:
            self.put(content)
        request = ImportRequest(path=self.path, **said)
        return await import_statement(self.context, request, source="")

    async def references(self) -> list[str]:
        found = await list_book(self.later, reference=None, as_of=None, limit=99_999)
        return [line.reference for line in found]


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    (tmp_path / "folder").mkdir()
    async with opened(f"sqlite+aiosqlite:///{tmp_path}/t.db") as inbox:
        yield Shop(context_of(inbox, at=60), tmp_path / "folder" / "book.csv")


@for_each("kind", import_store.KINDS)
def test_a_version_is_written_with_every_column_but_its_end(kind: import_store.ImportKind) -> None:
    lines = LINES[kind]
    written = {*lines.keys, "since", "line", *lines.content}
    assert written == set(metadata.tables[lines.table].columns.keys()) - {"until"}


def problems_of(done: Imported) -> list[tuple[int, str | None]]:
    return [(problem.row, problem.column) for problem in done.problems]


async def test_payments_that_several_orders_of_a_statement_share_are_counted(shop: Shop) -> None:
    """Four payments are shared, by eight rows, of which the first three are named; one is not."""
    content = "order_reference,gross,currency,payment_reference\n" + "".join(
        f"O-{order},1.00,KES,P-{order % 5}\n" for order in range(9)
    )
    done = await shop.statement(content, dry_run=True)
    assert done.notes == [
        "8 rows, the first being 2, 3, 4, name a payment that a row of another order also names, "
        "but one payment pays only one order. Compare these rows with the provider's export."
    ]


async def test_one_bad_row_keeps_all_others_out(shop: Shop) -> None:
    done = await shop.book(HEADING + GOOD + BAD)
    assert (done.read, done.rejected, done.number) == (4, 1, None)
    assert problems_of(done) == [(4, "amount")]
    assert (await shop.references(), await rows(shop.context, "SELECT 1 FROM imports")) == ([], [])
    assert [each.name for each in shop.path.parent.iterdir()] == ["book.csv"]


async def test_good_rows_are_taken_on_request_and_the_others_set_aside(
    shop: Shop,
) -> None:
    done = await shop.book(HEADING + GOOD + BAD, accept_good=True)
    assert (done.new, done.rejected, done.rejects) == (3, 1, "book.rejects.csv")
    assert await shop.references() == ["A", "B", "D"]
    rejects = shop.rejects
    rejects.write_text(rejects.read_text().replace(",x,", ",3.00,"))
    again = await shop.book(path=rejects)
    assert (again.new, await shop.references()) == (1, ["A", "B", "C", "D"])


@pytest.mark.parametrize(
    ("delimiter", "encoding"),
    [(",", "utf-8"), (";", "cp1252"), (";", "utf-8-sig"), ("\t", "utf-8")],
)
async def test_rejects_are_imported_with_the_mapping_of_their_export(
    shop: Shop, delimiter: str, encoding: str
) -> None:
    """The mapping describes the export; a spreadsheet saves the rejects in its own way."""
    mapping = shop.path.with_name("m.toml")
    mapping.write_text(
        'delimiter = ";"\nencoding = "cp1252"\ndecimal = ","\nheading_row = 2\n'
        '[columns]\nreference = "Straße"\namount = "Betrag"\ncurrency = "Währung"\n'
    )
    with shop.path.open("w", encoding="cp1252") as file:
        file.write("Mai\nStraße;Betrag;Währung\nä1;1,00;EUR\nä2;x;EUR\n")
    done = await shop.book(mapping=mapping, accept_good=True)
    assert (done.new, done.rejected) == (1, 1)
    rejects = shop.rejects
    with rejects.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.reader(file))
    with rejects.open("w", encoding=encoding, newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows(
            [cell.replace("x", "2,00") for cell in row[:3]] + row[3:] for row in rows
        )
    again = await shop.book(path=rejects, mapping=mapping)
    assert (again.new, again.problems) == (1, [])
    assert await shop.references() == ["ä1", "ä2"]


async def test_rejects_never_replace_a_file(
    shop: Shop,
) -> None:
    mine = shop.path.with_name("mine.csv")
    mine.write_text("mine")
    with pytest.raises(UsageError, match="already"):
        await shop.book(HEADING + GOOD + BAD, accept_good=True, rejects=mine)
    with pytest.raises(UsageError, match="give both"):
        await shop.book(rejects=shop.path.with_name("other.csv"))
    assert await shop.references() == []


async def test_a_file_that_breaks_off_is_not_taken_in_part(shop: Shop) -> None:
    done = await shop.book(HEADING + GOOD + '"C,1.00,KES,paid\n', accept_good=True)
    assert (done.refused, done.number, problems_of(done)) == (True, None, [(4, None)])
    assert await shop.references() == []


async def test_a_file_that_breaks_off_late_says_what_was_not_clear_until_then(shop: Shop) -> None:
    done = await shop.book(
        HEADING + "A,x,KES,paid\n" * BATCH + '"E,1.00,KES,paid\n', accept_good=True
    )
    assert (done.refused, done.number) == (True, None)
    assert (done.read, done.rejected, done.found) == (BATCH, BATCH, BATCH + 1)


async def test_equal_references_are_a_problem_of_each_row_and_none_is_taken(shop: Shop) -> None:
    done = await shop.book(
        HEADING + "a-1,1.00,KES,\nB,1.00,KES,\nA 1,2.00,KES,\nA1,1.00,KES,\n", accept_good=True
    )
    assert [(each.row, each.column, each.sentence[:5]) for each in done.problems] == [
        (2, "reference", "row 4"), (4, "reference", "row 2"), (5, "reference", "row 2"),
    ]  # fmt: skip
    assert (done.read, done.new, done.rejected) == (4, 1, 3)
    assert await shop.references() == ["B"]
    assert shop.rejects.read_text().count("\n") == 4


async def test_a_good_row_is_not_taken_beside_an_unclear_one_of_its_reference(
    shop: Shop,
) -> None:
    """The other may be the true one: both go to the rejects, and a corrected one is taken."""
    file = "reference,amount,currency,kind\n"
    bad = ["a-1,2.0x,KES,", "B,1.00", "c,-1.00,KES,"]
    good = ["A1,1.00,KES,", "b,1.00,KES,", "C,1.00,KES,", "A1,1.00,KES,invoice", "D,1.00,KES,"]
    done = await shop.book(file + "\n".join([*good, *bad]), accept_good=True)
    assert (done.read, done.new, done.rejected) == (8, 2, 6)
    assert await shop.references() == ["A1", "D"]
    rejects = shop.rejects
    head, *rows_left = rejects.read_text().splitlines()
    assert [each.split(",")[0] for each in rows_left] == ["A1", "b", "C", "a-1", "B", "c"]
    assert "row 7 has the same value" in rows_left[0]
    assert "row 2 has the same value" in rows_left[3]
    rejects.write_text("\n".join([head, *rows_left[3:4]]).replace("2.0x", "2.00"))
    assert (await shop.book(path=rejects)).new == 1
    assert await shop.references() == ["A1", "a-1", "D"]


async def test_lines_of_json_that_are_none_are_rows_like_any_other(shop: Shop) -> None:
    """A line with one unfit value still names its order."""
    line = '{{"reference": "{}", "amount": {}, "currency": "KES"}}\n'
    bad = 'A\n=1\n{"reference": "B",\n' + line.format("C", "true")
    done = await shop.book(line.format("A", 1) + bad + line.format("C", 3) + line.format("D", 4))
    assert (done.read, done.rejected, done.number) == (7, 5, None)
    assert problems_of(done) == [(2, None), (3, None), (4, None), (5, "amount"), (5, "reference"),
                          (6, "reference")]  # fmt: skip
    taken = await shop.book(accept_good=True)
    assert (taken.new, taken.rejected, await shop.references()) == (2, 5, ["A", "D"])
    with shop.rejects.open(newline="") as file:
        _, *left = csv.reader(file)
    assert [(each[0], each[3]) for each in left] == [
        ("A", "2"), ("'=1", "3"), ('{"reference": "B",', "4"), ("C", "5"), ("C", "6"),
    ]  # fmt: skip


async def test_too_many_rows_of_a_payment_are_a_problem(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = replace(STATEMENT, at_most=2)
    monkeypatch.setattr(imports, "STATEMENT", few)
    lines = ["p1,1.00,KES", *["p2,1.00,KES"] * 3]
    done = await shop.statement("payment_reference,gross,currency\n" + "\n".join(lines))
    assert problems_of(done) == [(n, "payment_reference") for n in (3, 4, 5)]
    done = await shop.statement("payment_reference,gross,currency\n" + "\n".join(lines[:3]))
    assert done.new == 3
    found = await list_statement(shop.later, reference="p2", as_of=None, limit=9)
    assert len(found) == 2


async def test_rows_of_one_payment_are_written_together(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the later ones of several equal refunds would be taken for the earlier ones."""
    monkeypatch.setattr("app.finance.staged_rows.AT_ONCE", 3)
    monkeypatch.setattr(write_import, "MOST_ROWS", 3)
    lines = [f"p{n},-1.00,KES,refund" for n in range(3) for _ in range(4)]
    shop.put("payment_reference,gross,currency,type\n" + "\n".join(lines))
    for new, unchanged in ((12, 0), (0, 12)):
        done = await shop.statement()
        assert (done.new, done.changed, done.unchanged) == (new, 0, unchanged)


async def test_problems_are_reported_up_to_a_number_and_the_rest_is_counted(shop: Shop) -> None:
    done = await shop.book(HEADING + "".join(f"A{n},x,KES,?\n" for n in range(300)))
    assert (len(done.problems), done.found, done.left_out) == (100, 600, 500)


async def test_a_dry_run_shows_rows_and_counts_and_imports_nothing(shop: Shop) -> None:
    await shop.book(HEADING + GOOD)
    done = await shop.book(
        HEADING + GOOD.replace("2.00", "3.00") + BAD, dry_run=True, accept_good=True
    )
    assert (done.new, done.changed, done.unchanged, done.rejected) == (1, 1, 1, 1)
    assert [row["reference"] for row in done.rows] == ["A", "B", "D"]
    assert done.number is None
    assert await shop.references() == ["A", "B"]
    assert [each.name for each in shop.path.parent.iterdir()] == ["book.csv"]


@for_each("content", [HEADING, "", "\n\n"])
async def test_a_file_without_rows_is_refused(shop: Shop, content: str) -> None:
    done = await shop.book(content, accept_good=True)
    assert (done.refused, done.number) == (True, None)


async def test_what_is_no_file_is_not_found_or_refused(shop: Shop) -> None:
    with pytest.raises(NotFoundError, match=r"no file book\.csv"):
        await shop.book()
    with pytest.raises(UsageError, match="is a folder: name a file in it"):
        await shop.book(path=shop.path.parent)
    with pytest.raises(NotFoundError, match="no mapping"):
        await shop.book(mapping=shop.path)


async def test_a_file_that_changes_while_it_is_read_is_refused(shop: Shop) -> None:
    shop.put(HEADING + GOOD)
    done = await import_book(
        shop.context, ImportRequest(path=shop.path), progress=lambda *_: shop.put(HEADING)
    )
    assert done.problems[0].sentence.startswith("the file changed")
    assert await shop.references() == []


async def test_an_import_is_not_taken_for_killed_while_its_digest_is_made(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    signs = list[int]()

    async def seen(connection: Connection, of: Import, *, written: int) -> bool:
        signs.append(written)
        return await go_on(connection, of, written=written)

    monkeypatch.setattr(import_store, "go_on", seen)
    monkeypatch.setattr(import_digest_store, "LOOKING", 1)
    await shop.book(HEADING + GOOD)
    assert signs == [2, -1, -2, 2]


async def test_only_who_may_imports_and_the_trail_has_it(shop: Shop) -> None:
    shop.put(HEADING + GOOD)
    for name, role in (("Ann", "admin"), ("Fin", "finance"), ("Sue", "support")):
        await register_operator(shop.context, name=name, role=role, by="Ann")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="role support"):
        await shop.book(by="Sue")
    done = await shop.book(by="Fin")
    async with shop.context.database.reading() as connection:
        entry = (await audit_entries(connection, limit=9))[-1]
    assert (entry.who, entry.action, entry.subject) == ("Fin", "records_imported", "book.csv")
    assert "account" in entry.facts  # whoever holds the machine can write any name
    apart = ("account", "lines_sha256")
    assert {name: fact for name, fact in entry.facts.items() if name not in apart} == {
        "import": 1, "sha256": done.sha256, "read": 2, "new": 2, "changed": 0, "rejected": 0,
    }  # fmt: skip
    (import_,) = await past_imports(shop.context, kind="book", limit=9)
    assert (import_.who, import_.file, import_.sha256) == ("Fin", "book.csv", done.sha256)


# --- imports that meet, and imports that end ------------------------------------------------------


@pytest.mark.parametrize("after", [0, 1, 2])
async def test_an_import_that_ends_half_way_has_imported_nothing_and_the_next_one_works(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    parts = count(1)

    async def failing(*given: Any, **named: Any) -> Any:
        if next(parts) > after:
            raise StoreUnavailable("the disk is full")
        return await write_lines(*given, **named)

    monkeypatch.setattr("app.finance.staged_rows.AT_ONCE", 3)
    monkeypatch.setattr(write_import, "MOST_ROWS", 3)
    monkeypatch.setattr(write_import, "SILENT_S", 0.01)
    before = "".join(f"R{n},1.00,KES,paid\n" for n in range(6))
    await shop.book(HEADING + before)
    shop.put(HEADING + before.replace("1.00", "2.00") + "S,1.00,KES,\n")
    monkeypatch.setattr(line_version_store, "write_lines", failing)
    with pytest.raises(StoreUnavailable, match="disk is full"):
        await shop.book()
    assert len(await shop.references()) == 6
    monkeypatch.setattr(line_version_store, "write_lines", write_lines)
    done = await shop.book()
    assert (done.new, done.changed, done.unchanged) == (1, 6, 0)
    assert len(await shop.references()) == 7
    assert len(await rows(shop.context, "SELECT 1 FROM book_lines")) == 13


OTHER = Import(kind="book", file="other.csv", sha256="", who="x", started_at=EARLIEST + TICK)


async def test_an_import_waits_for_one_that_writes(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shop.context.database.writing() as connection:
        begun, _ = await begin_import(connection, OTHER)
    waited = 0

    async def sleep(seconds: float) -> None:
        nonlocal waited
        if seconds != write_import.SILENT_S:
            return
        waited += 1
        if waited <= 3:
            async with shop.context.database.writing() as connection:
                await go_on(connection, begun, written=waited)

    monkeypatch.setattr("app.finance.write_import.anyio.sleep", sleep)
    assert (await shop.book(HEADING + GOOD)).new == 2
    assert waited == 4


async def test_an_import_that_was_taken_for_killed_ends_with_a_sentence(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def write(connection: Any, *given: Any, **named: Any) -> Any:
        found = await write_lines(connection, *given, **named)
        await begin_import(connection, OTHER)
        return found

    monkeypatch.setattr(line_version_store, "write_lines", write)
    shop.put(HEADING + GOOD)
    with pytest.raises(StoreUnavailable, match="another import began"):
        await shop.book()
    assert await shop.references() == []


@pytest.mark.parametrize(
    "row",
    [
        "Total,3.00,KES,",
        "GRAND TOTAL:,3.00,KES,paid",
        "Sum,3.00,,",
        "Totals,3.00",
        "Total,,,",
        "Total (KES),3.00,,",
    ],
)
async def test_a_totals_row_is_left_out_and_reported(shop: Shop, row: str) -> None:
    done = await shop.book(f"{HEADING}{GOOD}{row}\n")
    assert (done.read, done.new, done.totals, problems_of(done)) == (2, 2, [4], [])
    assert await shop.references() == ["A", "B"]


async def test_subtotals_and_totals_below_the_dates_are_left_out(shop: Shop) -> None:
    rows = ",A,1.00,KES\n,Subtotal,1.00,KES\n,B,2.00,KES\n,C,4.00,KES\n,Subtotal,6.00,KES\n"
    done = await shop.book(f"placed_at,reference,amount,currency\n{rows}Total,,7.00,KES\n")
    assert (done.new, done.totals, done.found) == (3, [3, 6, 7], 0)


async def test_what_is_called_a_total_and_is_another_sum_is_refused(shop: Shop) -> None:
    done = await shop.book(
        "reference,amount,currency\nA,1.00,KES\nTotal,9.00,KES\nTotally,3.00,KES\n"
    )
    assert (done.number, done.totals, problems_of(done)) == (None, [], [(3, "reference")])
    assert "which is KES 1.00" in done.problems[0].sentence


async def test_a_statement_s_total_is_no_payment(shop: Shop) -> None:
    """Its refunds are negative, however the file writes them; so may its total be."""
    heading = "payment_reference,type,gross,fee,currency\n"
    rows = "p1,payment,5.00,0.10,KES\np2,refund,2.00,0.00,KES\n"
    for total in ("3.00", "7.00"):
        done = await shop.statement(heading + rows + f"Total,,{total},0.10,KES\n", dry_run=True)
        assert (done.read, done.totals, done.found) == (2, [4], 0)


REFUNDS = "reference,amount,currency,placed_at,status,refunded_amount,refunded_at\n"

Story = tuple[int, str | None, int | None, str | None]
"""Minor units, status, minor units refunded, the day on which they were."""


PAID = "A,10,KES,2026-10-01,paid,,"


@pytest.mark.parametrize(
    ("lines", "story"),
    [
        (["A,10,KES,2026-10-01,paid,3,2026-10-05"], (1000, "paid", 300, "05")),
        (["A,10,KES,2026-10-01,paid,-3,2026-10-05"], (1000, "paid", 300, "05")),
        (["A,10,KES,2026-10-01,partially_refunded,3,"], (1000, "paid", 300, None)),
        ([PAID], (1000, "paid", None, None)),
        ([PAID, "A,3,KES,2026-10-05,refunded,,"], (1000, "paid", 300, "05")),
        (["A,-3,KES,2026-10-05,refunded,,", PAID], (1000, "paid", 300, "05")),
        (
            [PAID, "A,3,KES,2026-10-05,refunded,,", "A,7,KES,2026-10-06,refunded,,"],
            (1000, "refunded", 1000, "06"),
        ),
        ([PAID, "A,10,KES,2026-10-05,refunded,4,"], (1000, "paid", 400, "05")),
    ],
)
async def test_rows_of_one_order_that_add_up_are_one_line(
    shop: Shop, lines: list[str], story: Story
) -> None:
    done = await shop.book(REFUNDS + "\n".join(lines))
    assert (done.read, done.new, done.rejected) == (len(lines), 1, 0)
    assert done.joined == len(lines) - 1
    (line,) = await list_book(shop.later, reference=None, as_of=None, limit=9)
    day = None if line.refunded_at is None else format_instant(line.refunded_at)[8:10]
    assert (line.money.minor, line.status, line.refunded, day) == story
    assert line.placed_at == parse_instant("2026-10-01T00:00:00Z")
    again = await import_book(shop.later, ImportRequest(path=shop.path))
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
    shop: Shop, lines: list[str], rejected: list[int]
) -> None:
    done = await shop.book(REFUNDS + "\n".join([*lines, "B,1,KES,,paid,,"]))
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
    shop: Shop, setting: str | None, mapping: str | None, placed_at: str | None
) -> None:
    shop.put("reference,amount,currency,placed_at\nA,1,KES,2026-11-01 00:30\n")
    said = shop.path.with_suffix(".toml")
    said.write_text("" if mapping is None else f'zone = "{mapping}"\n')
    shop.context = with_settings(shop.context, timezone=setting or "")
    done = await shop.book(mapping=said)
    lines = await list_book(shop.later, reference=None, as_of=None, limit=9)
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
    shop: Shop, zone: str | None, first: str, later: str, lines: int
) -> None:
    """Else a payment that a later file states with its time would count twice."""
    shop.context = with_settings(shop.context, timezone=zone or "")
    for at in (first, later):
        shop.put(f"payment_reference,gross,fee,currency,settled_at\np1,1000.00,10,KES,{at}\n")
        shown = await shop.statement(dry_run=True)
        done = await shop.statement()
        assert (done.new, done.changed) == (shown.new, shown.changed)
    found = await list_statement(shop.later, reference=None, as_of=None, limit=9)
    assert len(found) == lines


@pytest.mark.parametrize("zone", ["Africa/Nairobi", "Europe/Berlin", "America/New_York"])
async def test_a_statement_of_days_read_again_in_a_zone_states_the_same_money(
    shop: Shop, zone: str
) -> None:
    shop.put(
        "payment_reference,gross,currency,settled_at,type\np1,5.00,KES,2026-10-31,payment\n"
        "p1,-2.00,KES,2026-10-31,refund\np1,-2.00,KES,2026-11-01,refund\n",
    )
    for said, counts in ((None, (3, 0)), (zone, (0, 3)), (zone, (0, 0)), ("UTC", (0, 3))):
        done = await shop.statement(zone=said)
        assert (done.new, done.changed) == counts
    lines = await list_statement(shop.later, reference=None, as_of=None, limit=9)
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
    shop: Shop, setting: str, mapping: str | None, phone: str | None
) -> None:
    shop.put("reference,amount,currency,phone\nA,1,KES,0700 000 001\n")
    said = shop.path.with_suffix(".toml")
    said.write_text("" if mapping is None else f'phone_country = "{mapping}"\n')
    shop.context = with_settings(shop.context, phone_country=setting)
    done = await shop.book(mapping=said)
    kept = await rows(shop.context, "SELECT phone FROM book_lines")
    assert kept == ([(phone,)] if phone else [])
    assert problems_of(done) == ([] if phone else [(2, "phone")])
    assert all("TALLYHOOK_PHONE_COUNTRY" in each.sentence for each in done.problems)
