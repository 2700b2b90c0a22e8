"""Contract of every database for order books and statements: what was known when."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app.access.operator_store import audit_entries
from app.access.operators import Proven, Role, register_operator
from app.access.proposal import Proposal
from app.access.proposals import Proposals
from app.core.errors import NotFoundError, UsageError
from app.core.masking import written_pattern
from app.database.engine import Connection
from app.finance import bank_store, import_store, line_version_store, write_import
from app.finance.bank_store import bank_lines, payouts, rewrite_bank_texts, withdrawals
from app.finance.book_line_store import (
    LineKey,
    book_lines_of,
    book_rows,
    empty_lines,
    lines_with,
    old_lines,
    outside_orders,
)
from app.finance.break_acts import finished_runs
from app.finance.changed_rows import changed_by, changed_document
from app.finance.import_store import (
    Import,
    ImportKind,
    ImportTask,
    NamedMapping,
    begin_import,
    go_on,
    import_of_file,
    import_tasks,
    imports,
    named_mappings,
    replace_import_tasks,
    save_mapping,
    under_way,
)
from app.finance.imports import (
    Imported,
    ImportRequest,
    import_bank,
    import_book,
    import_statement,
    past_imports,
)
from app.finance.line_version_store import write_lines
from app.finance.match_rules import save_rules
from app.finance.read_lines import book_page, statement_page
from app.finance.statement_store import statement_lines_of, statement_rows, wallet_rows
from app.finance.trail import find_money, trail_document
from app.finance.withdraw_import import ACTIONS, Withdrawn, withdraw_import, withdrawal_kind
from app.privacy.erase_texts import bank_lines_with, without
from app.receiving.inbox import Inbox
from reconcile.instants import EARLIEST, LATEST, TICK, Instant
from reconcile.matching.books import Methods
from reconcile.matching.rows import subject_of
from tests.database.builders import arrival, context, fetch, keep, rows, said
from tests.reconcile.build import seconds
from tests.searching import every

BOOK = "reference,amount,currency,status,phone,group\n"
BANK = "booked_at,amount,currency,entry_reference,text,account\n"
STATEMENT = "payment_reference,order_reference,gross,fee,currency,payout,type\n"


async def book(
    inbox: Inbox, folder: Path, *lines: str, at: int = 0, by: str | None = None
) -> Imported:
    """Import an order book of these lines, `at` seconds after T."""
    path = folder / "book.csv"
    path.write_text(BOOK + "".join(f"{line}\n" for line in lines))
    return await import_book(context(inbox, at=at), ImportRequest(path=path, by=by))


async def statement(inbox: Inbox, folder: Path, *lines: str, at: int = 0) -> Imported:
    """Import a statement of the source `shop`."""
    path = folder / "statement.csv"
    path.write_text(STATEMENT + "".join(f"{line}\n" for line in lines))
    return await import_statement(context(inbox, at=at), ImportRequest(path=path), source="shop")


async def bank(inbox: Inbox, folder: Path, *lines: str, at: int = 0) -> Imported:
    """Import a bank's file."""
    path = folder / "bank.csv"
    path.write_text(BANK + "".join(f"{line},main\n" for line in lines))
    return await import_bank(context(inbox, at=at), ImportRequest(path=path))


def counts(done: Imported) -> tuple[int, int, int]:
    """Return the number of new, changed and unchanged lines."""
    assert not done.problems
    return done.new, done.changed, done.unchanged


async def streamed(inbox: Inbox, stream: Any, *, at: int | None = None, **within: Any) -> list[Any]:
    """Return all rows of a stream as known `at` seconds after T; None: ever."""
    as_of = LATEST if at is None else seconds(at)
    async with inbox.database.reading() as connection:
        return [row async for part in stream(connection, as_of=as_of, **within) for row in part]


def column(found: Sequence[Sequence[Any]], place: int) -> list[Any]:
    return [row[place] for row in found]


def kes(amount: str) -> dict[str, str]:
    return {"amount": amount, "currency": "KES"}


async def erased_texts(
    connection: Connection, written: list[re.Pattern[str]]
) -> list[tuple[bank_store.BankKey, bank_store.BankTexts]]:
    """Return the texts of banks' lines without numbers, as an erasure writes them."""
    found = await bank_lines_with(connection, written)
    return [(each.key, without(each.texts, each.which)) for each in found]


class ImportContract:
    """Imports and their lines. A subclass gives `url`."""

    @pytest.mark.alike
    async def test_a_book_is_read_in_key_order(self, inbox: Inbox, tmp_path: Path) -> None:
        """Ranges of keys together are the whole."""
        lines = ["b 1,1.00,KES,,,", "A-2,2.00,KES,paid,,G", "a_10,3.00,KES,,,", "Ö,4.00,KES,,,g"]
        assert counts(await book(inbox, tmp_path, *lines)) == (4, 0, 0)
        found = await streamed(inbox, book_rows)
        assert column(found, 0) == ["a10", "a2", "b1", "ö"]
        assert found[1][2:11] == ("A-2", "order", 200, "KES", None, "paid", "G", None, None)
        first = await streamed(inbox, book_rows, beyond="a2")
        rest = await streamed(inbox, book_rows, first="a2")
        assert (len(first), first + rest) == (1, found)

    @pytest.mark.alike
    async def test_the_same_book_again_changes_nothing_and_a_changed_row_is_a_new_version(
        self, inbox: Inbox, tmp_path: Path
    ) -> None:
        """The old version is what was known before. Versions share the id before the dot."""
        lines = [f"R{n},{n}.00,KES,unpaid,,G" for n in range(1, 9)]
        assert counts(await book(inbox, tmp_path, *lines, at=1)) == (8, 0, 0)
        assert counts(await book(inbox, tmp_path, *reversed(lines), at=2)) == (0, 0, 8)
        changed = ["r-3,3.00,KES,unpaid,,G", "R4,4.00,KES,paid,,G", "R9,9.00,KES,,,"]
        assert counts(await book(inbox, tmp_path, *changed, at=3)) == (1, 2, 0)
        before, now = [await streamed(inbox, book_rows, at=at) for at in (2, 3)]
        assert (len(before), len(now)) == (8, 9)
        assert column(before, 7) == ["unpaid"] * 8
        assert column(now, 7) == ["unpaid"] * 3 + ["paid"] + ["unpaid"] * 4 + [None]
        assert [now[2][2], now[3][1].split(".")] == ["r-3", [before[3][1].split(".")[0], "3"]]
        assert await streamed(inbox, book_rows, at=0) == []
        async with inbox.database.reading() as connection:
            found = await book_lines_of(connection, ["r3", "g"], as_of=seconds(2))
            assert [line.reference for _, line in found] == [f"R{n}" for n in range(1, 9)]

    @pytest.mark.alike
    async def test_the_changed_rows_of_an_import_are_kept_with_both_versions(
        self, inbox: Inbox, tmp_path: Path
    ) -> None:
        """Each import says the same later as when it was written, also when changed again."""
        first, second = "pay_1,A-1,{},1.00,KES,po_1,payment", "pay_2,A-2,5.00,0,KES,po_1,payment"
        imported = []
        for gross in ("10.00", "11.00", "12.00"):
            imported.append(await statement(inbox, tmp_path, first.format(gross), second))
        imported.append(await bank(inbox, tmp_path, "2026-11-02,5.00,KES,E-1,first"))
        imported.append(await bank(inbox, tmp_path, "2026-11-02,5.00,KES,E-1,second"))
        imported.append(await book(inbox, tmp_path, "A-1,10.00,KES,unpaid,,"))
        imported.append(await book(inbox, tmp_path, "A-1,10.00,KES,paid,,"))
        said = []
        for done in imported:
            now = context(inbox, at=9)
            (found,) = [
                each
                for each in await past_imports(now, kind=done.kind, limit=9)
                if each.number == done.number
            ]
            later = [each async for some in changed_by(now, found) for each in some]
            documents = [changed_document(done.kind, each) for each in later]
            assert documents == done.changed_documents()
            said += [
                (each["name"], one["column"], one["before"], one["after"])
                for each in documents
                for one in each["columns"]
                if one["column"] != "net"
            ]
        assert said == [
            ("pay_1", "gross", kes("10.00"), kes("11.00")),
            ("pay_1", "gross", kes("11.00"), kes("12.00")),
            ("E-1", "text", "first", "second"),
            ("A-1", "status", "unpaid", "paid"),
        ]

    async def test_money_is_found_by_its_words_and_followed(
        self, inbox: Inbox, tmp_path: Path
    ) -> None:
        await statement(inbox, tmp_path, "p-1,ORD-1,5.00,0,KES,PO-1000,payment")
        await bank(inbox, tmp_path, "2026-11-20,5.00,KES,1,PO-1000 Payer 100% Ltd")
        at = context(inbox, at=9)
        found = {words: await find_money(at, words) for words in ("PO-1000", "100% LTD", "0_ Ltd")}
        assert [len(each.rows) for each in found.values()] == [2, 1, 0]
        names = [found[words].rows[0]["name"] for words in ("PO-1000", "100% LTD")]
        for name in ("ORD-1", "PO-1000", *names):
            trail = await trail_document(at, name)
            assert trail["orders"] == ["ORD-1"]
            assert [len(trail[kind]) for kind in ("statement", "payouts", "bank")] == [1, 1, 1]

    @pytest.mark.alike
    async def test_bank_texts_are_searched_back_in_stretches_to_the_first_line(
        self, inbox: Inbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """After so many stretches a search says how far it came, and goes on from there."""
        days = [f"2026-11-{day:02},5.00,KES,{day},Payer {day % 4}" for day in range(1, 11)]
        await bank(inbox, tmp_path, *days)
        monkeypatch.setattr(bank_store, "STRETCH", 2)
        at, found = context(inbox, at=9), list[list[str]]()
        for stretches in (9, 2):
            monkeypatch.setattr(bank_store, "STRETCHES", stretches)
            before: Instant | None = None
            while True:
                some = await find_money(at, "payer 1", before=before)
                found.append([each["booked_at"][8:10] for each in some.rows])
                before = some.before
                if before is None:
                    break
        assert found == [["09", "05", "01"], ["09"], ["05"], ["01"]]

    async def test_orders_that_a_bank_line_may_pay_are_found_by_method_or_name(
        self, inbox: Inbox, tmp_path: Path
    ) -> None:
        path = tmp_path / "methods.csv"
        lines = ["A,1.00,KES,Bank Transfer", "B,1.00,KES,stripe", "C,1.00,KES,", "D,2.00,KES,cod"]
        path.write_text("\n".join(["reference,amount,currency,method", *lines, ""]))
        await import_book(context(inbox), ImportRequest(path=path))
        (named,) = [row[1] for row in await streamed(inbox, book_rows) if row[2] == "C"]
        path.write_text("reference,amount,currency,method\nD,2.00,KES,stripe\n")
        await import_book(context(inbox), ImportRequest(path=path))
        async with inbox.database.reading() as connection:
            found = await outside_orders(
                connection, methods=Methods(), named=[subject_of(named)], as_of=LATEST
            )
        assert sorted([(each.reference, each.method) for each in found]) == [
            ("A", "Bank Transfer"),
            ("C", None),
        ]

    async def test_a_file_is_known_by_its_digest_until_it_is_taken_back(
        self, inbox: Inbox, tmp_path: Path
    ) -> None:
        """By the newest import of its kind; mappings and tasks are kept as they were last said."""
        now = context(inbox, at=9)
        done = await book(inbox, tmp_path, "A-1,10.00,KES,unpaid,,")
        again = await book(inbox, tmp_path, "A-1,10.00,KES,unpaid,,")

        async def known(kind: ImportKind) -> int | None:
            async with now.database.reading() as connection:
                return await import_of_file(connection, kind=kind, sha256=done.sha256)

        assert (await known("book"), await known("bank")) == (again.number, None)
        assert again.number is not None
        await withdraw_import(now, again.number, kind="book", by=None, reason="wrong")
        assert await known("book") == done.number
        tasks = [
            ImportTask(folder=folder, file="a.csv", problem="not clear", since=seconds(1))
            for folder in ("", "shop")
        ]
        async with now.database.writing() as connection:
            for kept in (tasks, tasks[1:]):
                await replace_import_tasks(connection, kept)
                assert await import_tasks(connection) == kept
            for toml in ("", 'kind = "book"\n'):
                saved = NamedMapping(name="a", kind="book", toml=toml, who="Ann", at=seconds(1))
                await save_mapping(connection, saved)
                assert await named_mappings(connection) == [saved]

    @pytest.mark.alike
    async def test_a_reference_may_be_of_several_kinds(self, inbox: Inbox, tmp_path: Path) -> None:
        path = tmp_path / "kinds.csv"
        path.write_text("reference,kind,amount,currency\nR,order,1.00,KES\nR,invoice,2.00,KES\n")
        for expected in ((2, 0, 0), (0, 0, 2)):
            assert counts(await import_book(context(inbox), ImportRequest(path=path))) == expected
        assert column(await streamed(inbox, book_rows), 3) == ["invoice", "order"]

    async def test_an_unpublished_import_is_invisible_and_undone_by_the_next(
        self, inbox: Inbox, tmp_path: Path, monkeypatch: Any
    ) -> None:
        monkeypatch.setattr(write_import, "SILENT_S", 0.01)
        await book(inbox, tmp_path, "A,1.00,KES,,,", "B,1.00,KES,,,")
        known = await streamed(inbox, book_rows)
        killed = Import(kind="book", file="k", sha256="0", who="x", started_at=seconds(5))
        row = ("a", "order", "A", 999, "KES", *(None,) * 8)
        async with inbox.database.writing() as connection:
            begun, another = await begin_import(connection, killed)
            assert (begun.number, another) == (2, False)
            await write_lines(connection, [row, ("c", *row[1:])], kind="book", number=begun.number)
            assert await go_on(connection, begun, written=2)
        assert await streamed(inbox, book_rows) == known
        assert len(await rows(inbox, "SELECT 1 FROM book_lines")) == 4
        assert counts(await book(inbox, tmp_path, "A,1.00,KES,,,", "D,1.00,KES,,,", at=9)) == (
            1,
            0,
            1,
        )
        assert column(await streamed(inbox, book_rows), 0) == ["a", "b", "d"]
        async with inbox.database.writing() as connection:
            assert await under_way(connection) is None
            assert not await go_on(connection, begun, written=3)
            assert (await write_lines(connection, [row], kind="book", number=None)).changed == 1

    @pytest.mark.alike
    async def test_undoing_an_import_walks_through_all_lines_in_parts(
        self, inbox: Inbox, tmp_path: Path, monkeypatch: Any
    ) -> None:
        monkeypatch.setattr("app.finance.line_version_store.UNDOING", 3)
        monkeypatch.setattr(write_import, "SILENT_S", 0.01)
        await statement(inbox, tmp_path, *(f"p{n},,1.00,,KES,,refund" for n in range(10)))
        known = await rows(inbox, "SELECT * FROM statement_lines ORDER BY subject")
        async with inbox.database.writing() as connection:
            killed = Import(
                kind="statement", file="k", sha256="0", who="x", started_at=EARLIEST + TICK
            )
            begun, _ = await begin_import(connection, killed)
            await connection.exec_driver_sql(
                f"UPDATE statement_lines SET until={begun.number} WHERE subject > 'p:p3'"
            )
        await book(inbox, tmp_path, "A,1.00,KES,,,")
        assert await rows(inbox, "SELECT * FROM statement_lines ORDER BY subject") == known

    @pytest.mark.alike
    async def test_two_equal_refunds_are_two_lines_and_the_same_file_again_none(
        self, inbox: Inbox, tmp_path: Path
    ) -> None:
        """A third in another payout is a third line. A payment's amount may be corrected."""
        lines = ["p1,O-1,100.00,3.00,KES,po_1,payment", *["p1,O-1,20.00,,KES,po_1,refund"] * 2]
        assert counts(await statement(inbox, tmp_path, *lines, at=1)) == (3, 0, 0)
        assert counts(await statement(inbox, tmp_path, *lines, at=2)) == (0, 0, 3)
        more = ["p1,O-1,20.00,,KES,po_2,refund", "p1,O-1,110.00,3.00,KES,po_1,payment"]
        assert counts(await statement(inbox, tmp_path, *more, at=3)) == (1, 1, 0)
        before, now = [await streamed(inbox, statement_rows, at=at) for at in (2, 3)]
        assert sorted(column(before, 6)) == [-2000, -2000, 10000]
        assert sorted(column(now, 6)) == [-2000, -2000, -2000, 11000]
        assert len({row[1].split(".")[0] for row in now}) == 4
        assert {row[1].split(".")[0] for row in before} < {row[1].split(".")[0] for row in now}

    @pytest.mark.alike
    async def test_what_changed_a_wallet_is_read_in_its_order_and_a_payout_is_its_withdrawals(
        self, inbox: Inbox, tmp_path: Path
    ) -> None:
        """One receipt may stand in two wallets."""
        path = tmp_path / "wallets.csv"
        path.write_text(
            "payment_reference,gross,fee,currency,settled_at,type,wallet,balance,payout,movement,"
            "method,card_country\n"
            "p1,100.00,3.00,KES,2026-01-03,payment,Utility,97.00,po_1,,card,DE\n"
            "t1,-90.00,,KES,2026-01-04,transfer,Utility,7.00,,,,\n"
            "t1,90.00,,KES,2026-01-04,transfer,Working,90.00,,,,\n"
            "w1,-60.00,,KES,2026-01-05,withdrawal,Working,30.00,po_1,,,\n"
            "w2,60.00,,KES,2026-01-06,withdrawal,Working,90.00,po_1,,,\n"
            "w3,-50.00,1.00,KES,2026-01-07,withdrawal,Working,39.00,,,,\n"
            "p1,-5.00,,KES,2026-01-08,refund,Utility,2.00,,re_1,,\n"
        )
        for new in (7, 0):
            done = await import_statement(context(inbox), ImportRequest(path=path), source="shop")
            assert counts(done) == (new, 0, 7 - new)
        found = await streamed(inbox, wallet_rows)
        assert [(row[1], row[5], row[7], row[8]) for row in found] == [
            ("Utility", "payment", 9_700, 9_700),
            ("Utility", "transfer", -9_000, 700),
            ("Utility", "refund", -500, 200),
            ("Working", "transfer", 9_000, 9_000),
            ("Working", "withdrawal", -6_000, 3_000),
            ("Working", "withdrawal_failed", 6_000, 9_000),
            ("Working", "withdrawal", -5_100, 3_900),
        ]
        paid = await fetch(inbox, payouts, as_of=LATEST)
        assert sorted((each.reference, each.minor, each.sent, each.withdrawn) for each in paid) == [
            ("po_1", 0, 6_000, True),
            ("w3", 5_000, 5_000, True),
        ]
        assert (await fetch(inbox, withdrawals, as_of=LATEST)).keys() == {
            ("shop", "po_1", "KES"),
            ("shop", "w3", "KES"),
        }
        lines = await fetch(inbox, statement_lines_of, [], payments=["p1"], as_of=LATEST)
        assert {(each.kind, each.refund, each.details) for each in lines} == {
            ("payment", None, '{"card_country":"DE","method":"card"}'),
            ("refund", "re_1", None),
        }

    @pytest.mark.alike
    async def test_fees_of_one_payout_in_two_files_are_two_unless_they_are_equal(
        self, inbox: Inbox, tmp_path: Path
    ) -> None:
        """A fee's money is its net: its gross is 0."""
        first, second = "p1,O-1,-5.00,,KES,po_1,fee", "p1,O-1,-3.00,,KES,po_1,fee"
        assert counts(await statement(inbox, tmp_path, first, at=1)) == (1, 0, 0)
        assert counts(await statement(inbox, tmp_path, second, at=2)) == (1, 0, 0)
        assert counts(await statement(inbox, tmp_path, second, first, at=3)) == (0, 0, 2)
        assert sorted(column(await streamed(inbox, statement_rows), 8)) == [-500, -300]
        renamed = first.replace("O-1", "O-2")
        assert counts(await statement(inbox, tmp_path, renamed, at=4)) == (0, 1, 0)

    @pytest.mark.alike
    async def test_a_line_that_names_only_a_payment_has_the_key_of_its_order(
        self, inbox: Inbox, tmp_path: Path
    ) -> None:
        """As soon as events of its source say which."""
        lines = ["p2,,5.00,,KES,,", "p1,ORD 7,5.00,,KES,,", "p3,,5.00,,KES,,", ",ORD-3,5.00,,KES,,"]
        await statement(inbox, tmp_path, *lines, at=1)
        await keep(inbox, arrival(said("e1", "succeeded", order="ORD-5", payment="p2"), at=5))
        other = said("e2", "succeeded", order="ORD-6", payment="p3", source="other")
        await keep(inbox, arrival(other, at=6))
        early, late = [await streamed(inbox, statement_rows, at=at) for at in (4, 6)]
        nobody, named = ("", "p3", None), [("ord3", None, "ORD-3"), ("ord7", "p1", "ORD 7")]
        assert sorted(row[:1] + row[2:4] for row in early[:2]) == [("", "p2", None), nobody]
        assert [row[:1] + row[2:4] for row in early[2:]] == named
        assert [row[:1] + row[2:4] for row in late] == [
            nobody, named[0], ("ord5", "p2", None), named[1],
        ]  # fmt: skip
        cut = await streamed(inbox, statement_rows, at=6, first="ord4", beyond="ord6")
        assert column(cut, 0) == ["ord5"]
        found = await fetch(inbox, statement_lines_of, ["ord3"], payments=["p2"], as_of=LATEST)
        assert {(line.order, line.payment) for line in found} == {("ORD-3", None), (None, "p2")}

    @pytest.mark.alike
    async def test_a_bank_line_is_known_by_its_contents(self, inbox: Inbox, tmp_path: Path) -> None:
        """Equal lines are counted; another text is a new version."""
        lines = [
            "2026-01-05,5.00,KES,,COINS",
            "2026-01-05,5.00,KES,,COINS",
            "2026-01-06,7,KES,B1,x",
        ]
        assert counts(await bank(inbox, tmp_path, *lines, at=1)) == (3, 0, 0)
        more = ["2026-01-06,7,KES,B1,y", *lines[:2], "2026-01-05,5.00,KES,,COINS"]
        assert counts(await bank(inbox, tmp_path, *more, at=2)) == (1, 1, 2)
        before, now = [await streamed(inbox, bank_lines, at=at) for at in (1, 2)]
        assert sorted(column(before, 7)) == ["COINS", "COINS", "x"]
        assert sorted(column(now, 7)) == ["COINS", "COINS", "COINS", "y"]

    @pytest.mark.alike
    async def test_one_of_equal_bookings_that_is_left_is_not_counted_again(
        self, inbox: Inbox, tmp_path: Path
    ) -> None:
        """Whichever of them was taken back; a second one counts."""
        coins = "2026-01-05,5.00,KES,,COINS"
        assert counts(await bank(inbox, tmp_path, coins, at=1)) == (1, 0, 0)
        assert counts(await bank(inbox, tmp_path, coins, coins, at=2)) == (1, 0, 1)
        await withdraw_import(context(inbox, at=9), 1, kind="bank", by=None, reason="wrong")
        assert counts(await bank(inbox, tmp_path, coins, at=10)) == (0, 0, 1)
        assert counts(await bank(inbox, tmp_path, coins, coins, at=11)) == (1, 0, 1)
        assert len(await streamed(inbox, bank_lines)) == 2

    @pytest.mark.alike
    async def test_a_number_that_was_erased_from_a_banks_text_does_not_come_back(
        self, inbox: Inbox, tmp_path: Path
    ) -> None:
        """The rest of the text stays, and so does a longer number that contains it."""
        lines = [
            "2026-01-05,5.00,KES,,PO-1 of +254 711 223344",
            "2026-01-06,7,KES,,PO-2547112233449",
        ]
        await bank(inbox, tmp_path, *lines, at=1)
        written = [written_pattern("254711223344")]
        async with inbox.database.writing() as connection:
            await rewrite_bank_texts(connection, await erased_texts(connection, written))
        assert counts(await bank(inbox, tmp_path, *lines, at=2)) == (0, 0, 2)
        found = await rows(inbox, "SELECT told FROM bank_lines ORDER BY minor")
        assert found == [("•",), ("PO-2547112233449",)]

    @pytest.mark.alike
    async def test_a_payout_is_the_sum_of_its_lines(self, inbox: Inbox, tmp_path: Path) -> None:
        """By source and currency. A refund is negative, whatever its sign in the file, and so is a
        fee."""
        await statement(
            inbox, tmp_path, "p1,,100.00,3.00,KES,po_1,payment", "p2,,20.00,,KES,po_1,refund",
            ",,-5.00,,KES,po_1,fee", "p3,,9.00,,USD,po_1,payment", "p4,,1.00,,KES,,payment", at=1,
        )  # fmt: skip
        found = await fetch(inbox, payouts, as_of=LATEST)
        stated = {
            (each.source, each.reference, each.currency, each.minor, each.lines) for each in found
        }
        assert stated == {("shop", "po_1", "KES", 7_200, 3), ("shop", "po_1", "USD", 900, 1)}
        assert await fetch(inbox, payouts, as_of=EARLIEST) == []

    @pytest.mark.alike
    async def test_an_erased_phone_does_not_come_back(self, inbox: Inbox, tmp_path: Path) -> None:
        line = "A,1.00,KES,unpaid,254700000001,"
        await book(inbox, tmp_path, line)
        async with inbox.database.writing() as connection:
            await empty_lines(connection, await lines_with(connection, phones=["254700000001"]))
        assert counts(await book(inbox, tmp_path, line)) == (0, 0, 1)
        assert counts(await book(inbox, tmp_path, line.replace("unpaid", "paid"))) == (0, 1, 0)
        assert await rows(inbox, "SELECT DISTINCT phone FROM book_lines") == [("",)]

    @pytest.mark.alike
    async def test_what_is_taken_back_and_imported_again_brings_no_erased_phone_back(
        self, inbox: Inbox, tmp_path: Path
    ) -> None:
        phone = "254700000001"
        line = f"A,1.00,KES,unpaid,{phone},"
        entries = (f"2026-01-05,7.00,KES,,M {phone}", f"2026-01-05,8.00,KES,+{phone},x")
        await book(inbox, tmp_path, line, at=1)
        await bank(inbox, tmp_path, *entries, at=2)
        async with inbox.database.writing() as connection:
            await empty_lines(connection, await lines_with(connection, phones=[phone]))
            found = await erased_texts(connection, [written_pattern(phone)])
            assert len(found) == 2
            await rewrite_bank_texts(connection, found)
        kinds: tuple[ImportKind, ...] = ("book", "bank")
        for number, kind in enumerate(kinds, 1):
            now = context(inbox, at=9 + number)
            await withdraw_import(now, number, kind=kind, by=None, reason="once more")
        assert counts(await book(inbox, tmp_path, line, at=20)) == (1, 0, 0)
        assert counts(await bank(inbox, tmp_path, *entries, at=21)) == (2, 0, 0)
        assert await rows(inbox, "SELECT DISTINCT phone FROM book_lines") == [("",)]
        shown = await rows(
            inbox, "SELECT DISTINCT minor, entry, told FROM bank_lines ORDER BY minor"
        )
        assert [tuple(row) for row in shown] == [(700, "", "•"), (800, "•", "•")]
        assert await self._standing(inbox, "book", at=99) == "A=1"

    async def test_sums_beyond_64_bits_are_added_up(self, inbox: Inbox, tmp_path: Path) -> None:
        """Of payouts and of withdrawals, for which two people must approve."""
        most = "92233720368547758.07"
        lines = [f"{name},,{most},0,KES,po_1,payment" for name in ("p1", "p2", "p3")]
        await statement(inbox, tmp_path, *lines, at=1)
        at = context(inbox, at=9)
        await register_operator(at, name="ann", role="admin", by="ann")
        await save_rules(at, '[accept_alone_max]\nKES = "10.00"\n', by="ann")
        (found,) = await fetch(inbox, payouts, as_of=LATEST)
        assert found.minor == 3 * (2**63 - 1)
        made = await withdraw_import(at, 1, kind="statement", by=Proven("ann"), reason="not ours")
        assert isinstance(made, Proposal)
        assert "more than KES 92,233,720,368,547,758.07." in made.sentence

    async def test_lines_and_imports_come_page_by_page(self, inbox: Inbox, tmp_path: Path) -> None:
        """Each once, whatever the size of a page, also lines that name no order."""
        await book(inbox, tmp_path, *(f"B-{n},1.00,KES,paid,," for n in range(5)), at=1)
        nameless = [f"p{n},,1.00,0,KES,po,payment" for n in range(5)]
        await statement(inbox, tmp_path, *nameless, "q,B-2,1.00,0,KES,po,payment", at=2)
        at = context(inbox, at=9)
        for page, count in ((book_page, 5), (statement_page, 6)):
            whole = await page(at, reference=None, as_of=None, limit=9)
            assert (len(whole.lines), whole.following) == (count, None)
            for size in (1, 2, count - 1, count):
                lines: list[Any] = []
                after: str | None = ""
                while after is not None:
                    some = await page(at, reference=None, as_of=None, after=after, limit=size)
                    assert len(some.lines) <= size
                    lines, after = [*lines, *some.lines], some.following
                assert lines == whole.lines
            beyond = await page(at, reference=None, as_of=None, after="z z", limit=9)
            assert beyond.lines == []
        kinds: tuple[ImportKind, ...] = ("book", "statement")
        for kind in kinds:
            (only,) = await past_imports(at, kind=kind, limit=9)
            assert only.document()["number"] == only.number
            assert await past_imports(at, kind=kind, limit=9, before=only.number) == []
        assert await finished_runs(at, limit=9, before=5) == []

    async def test_old_phones_are_listed_once_each(self, inbox: Inbox, tmp_path: Path) -> None:
        for line in ("A,1.00,KES,unpaid,254700000001,", "A,2.00,KES,unpaid,254700000001,"):
            await book(inbox, tmp_path, line, at=7)
        await book(inbox, tmp_path, "B,1.00,KES,,254700000002,", at=7)
        found, after = list[LineKey](), None
        async with inbox.database.reading() as connection:
            while page := await old_lines(connection, before=seconds(9), after=after, limit=1):
                found += page
                after = page[-1]
        assert found == [("a", "order", 1), ("a", "order", 2), ("b", "order", 3)]

    @pytest.mark.alike
    async def test_imports_are_listed_newest_first_each_after_the_one_before(
        self, inbox: Inbox, tmp_path: Path
    ) -> None:
        """Even where the clock stands still."""
        for line in ("A,1.00,KES,,,", "A,2.00,KES,,,"):
            await book(inbox, tmp_path, line, at=7)
        found = await fetch(inbox, imports, kind="book", limit=9)
        assert [(each.number, each.published_at, each.changed) for each in found] == [
            (2, seconds(7) + 1, 1), (1, seconds(7), 0),
        ]  # fmt: skip
        assert column(await streamed(inbox, book_rows, at=7), 4) == [100]

    # --- taken back ------------------------------------------------------------------------------

    @pytest.mark.alike
    @pytest.mark.parametrize(
        ("files", "withdrawn", "left", "restored"),
        [
            # what each import says of A and B, which are taken back, what then stands, and of how
            # many lines the last withdrawal states again what was said before
            (["A=1 B=2"], [1], "", 0),
            (["A=1 B=2", "A=5"], [2], "A=1 B=2", 1),
            (["A=1 B=2", "A=5"], [1], "A=5", 0),
            (["A=1", "A=2", "A=3"], [3], "A=2", 1),
            (["A=1", "A=2", "A=3"], [2], "A=3", 0),
            (["A=1", "A=2", "A=3"], [2, 3], "A=1", 1),
            (["A=1", "A=2", "A=3"], [3, 2], "A=1", 1),
            (["A=1", "A=2", "A=3"], [3, 1], "A=2", 0),
            (["A=1", "A=2", "A=3"], [1, 2, 3], "", 0),
            (["A=1 B=2 C=3", "A=5 C=6 D=7"], [2], "A=1 B=2 C=3", 2),
            (["A=1 B=2 C=3", "A=5 C=6 D=7"], [1], "A=5 C=6 D=7", 0),
        ][:: every(3)],
    )
    @pytest.mark.parametrize("kind", ["book", "statement", "bank"])
    async def test_an_import_that_is_taken_back_was_never_there(
        self,
        inbox: Inbox,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        kind: ImportKind,
        files: list[str],
        withdrawn: list[int],
        left: str,
        restored: int,
    ) -> None:
        """As of an earlier instant every line is what it was."""
        monkeypatch.setattr(line_version_store, "LOOKING", 1)
        for place, said_then in enumerate(files, 1):
            pairs = [pair.split("=") for pair in said_then.split()]
            if kind == "book":
                lines = [f"{name},{minor}.00,KES,paid,," for name, minor in pairs]
                await book(inbox, tmp_path, *lines, at=place)
            elif kind == "bank":
                # What is stated of an entry may change, its amount makes it another one.
                lines = [f"2026-01-05,7.00,KES,{name},{name}={minor}" for name, minor in pairs]
                await bank(inbox, tmp_path, *lines, at=place)
            else:
                lines = [f"{name},,{minor}.00,0,KES,," for name, minor in pairs]
                await statement(inbox, tmp_path, *lines, at=place)
        known = await self._standing(inbox, kind, at=10)
        last = 0
        for place, number in enumerate(withdrawn, 1):
            now = context(inbox, at=10 + place)
            done = await withdraw_import(now, number, kind=kind, by=None, reason="another shop's")
            assert isinstance(done, Withdrawn)
            assert done.withdrawn.number == number
            last = done.restored
        assert await self._standing(inbox, kind, at=99) == left
        assert last == restored
        assert await self._standing(inbox, kind, at=10) == known
        again = await self._standing(inbox, kind, at=10 + len(withdrawn))
        assert again == left
        entries = await fetch(inbox, audit_entries, limit=99)
        found = [each for each in entries if each.action == ACTIONS[kind]]
        assert {each.subject for each in found} == {f"import {number}" for number in withdrawn}
        assert {each.reason for each in found} == {"another shop's"}

    async def _standing(self, inbox: Inbox, kind: ImportKind, *, at: int) -> str:
        if kind == "bank":
            return " ".join(sorted(column(await streamed(inbox, bank_lines, at=at), 7)))
        read, minor, name = (book_rows, 4, 2) if kind == "book" else (statement_rows, 6, 2)
        found = await streamed(inbox, read, at=at)
        return " ".join(sorted(f"{row[name]}={row[minor] // 100}" for row in found))

    @pytest.mark.alike
    async def test_a_withdrawal_is_refused_where_there_is_nothing_to_take_back(
        self, inbox: Inbox, tmp_path: Path
    ) -> None:
        """A withdrawn file can be imported again."""
        await book(inbox, tmp_path, "A,1.00,KES,paid,,", at=1)
        await book(inbox, tmp_path, "A,1.00,KES,paid,,", "B,1.00,KES,paid,,", at=2)
        now = context(inbox, at=9)
        done = await withdraw_import(now, 1, kind="book", by=None, reason="wrong file")
        assert isinstance(done, Withdrawn)
        assert (done.lines, done.unchanged) == (1, (2,))
        for number, kind, reason, said_so in (
            (1, "book", "why", "withdrawn already"),
            (3, "book", "why", "is the withdrawal of import 1"),
            (7, "book", "why", "there is no import 7"),
            (2, "statement", "why", "there is no import 2"),
            (2, "book", " ", "give a reason"),
        ):
            with pytest.raises((UsageError, NotFoundError), match=said_so):
                await withdraw_import(now, number, kind=kind, by=None, reason=reason)  # type: ignore[arg-type]
        assert await self._standing(inbox, "book", at=99) == "B=1"
        await book(inbox, tmp_path, "A,1.00,KES,paid,,", at=100)
        assert await self._standing(inbox, "book", at=199) == "A=1 B=1"

    @pytest.mark.alike
    async def test_no_import_begins_while_one_is_taken_back(
        self, inbox: Inbox, tmp_path: Path, monkeypatch: Any
    ) -> None:
        await book(inbox, tmp_path, "A,1.00,KES,paid,,")
        calls: list[str] = []
        for name in ("importing_alone", "under_way"):
            real = getattr(import_store, name)

            async def noted(connection: Any, *, name: str = name, real: Any = real) -> Any:
                calls.append(name)
                return await real(connection)

            monkeypatch.setattr(import_store, name, noted)
        await withdraw_import(context(inbox), 1, kind="book", by=None, reason="not ours")
        looked, begun = ["importing_alone", "under_way"], ["importing_alone"]
        assert calls == [*looked, *begun]

    async def test_the_withdrawal_of_fees_states_their_money(
        self, inbox: Inbox, tmp_path: Path
    ) -> None:
        fee = "p1,,-11.00,,KES,,fee"
        await statement(inbox, tmp_path, fee, at=1)
        await statement(inbox, tmp_path, fee, at=2)
        at = context(inbox, at=9)
        await register_operator(at, name="ann", role="admin", by="ann")
        await register_operator(at, name="bob", role="finance", by="ann")
        await save_rules(at, '[accept_alone_max]\nKES = "10.00"\n', by="ann")
        made = await withdraw_import(at, 1, kind="statement", by=Proven("bob"), reason="not ours")
        assert isinstance(made, Proposal)
        assert "1 line, KES 11.00. Later imports (2) skipped unchanged rows" in made.sentence
        proposals = Proposals(at, (withdrawal_kind(at),))
        await proposals.approve(made.id, by=Proven("ann"), reason="I looked")
        (entry,) = await fetch(inbox, audit_entries, limit=9, action="statement_withdrawn")
        assert entry.facts["later_imports"] == "2"

    @pytest.mark.alike
    async def test_a_large_withdrawal_needs_two_persons(self, inbox: Inbox, tmp_path: Path) -> None:
        """A file in between ends the proposal."""
        at = context(inbox, at=9)
        people: tuple[tuple[str, Role], ...] = (("ann", "admin"), ("bob", "finance"))
        for name, role in people:
            await register_operator(at, name=name, role=role, by="ann")
        await save_rules(at, '[accept_alone_max]\nKES = "10.00"\n', by="ann")
        await book(inbox, tmp_path, "A,4.00,KES,paid,,", "B,6.00,KES,paid,,", at=10, by="bob")
        await book(inbox, tmp_path, "C,11.00,KES,paid,,", at=11, by="bob")
        small = await withdraw_import(at, 1, kind="book", by="bob", reason="not ours")
        assert isinstance(small, Withdrawn)
        with pytest.raises(UsageError, match="a second operator must approve it"):
            await withdraw_import(at, 2, kind="book", by="bob", reason="not ours")
        proposals = Proposals(at, (withdrawal_kind(at),))
        made = await withdraw_import(at, 2, kind="book", by=Proven("bob"), reason="not ours")
        assert isinstance(made, Proposal)
        assert made.sentence == (
            "Withdraw import 2 of book lines (book.csv): 1 line, KES 11.00. This needs two "
            "people: for the sum of all its lines, KES 11.00 is more than the KES 10.00 that one "
            "person may accept."
        )
        with pytest.raises(UsageError, match="let a second operator decide"):
            await proposals.approve(made.id, by=Proven("bob"), reason="x")
        assert await self._standing(inbox, "book", at=99) == "C=11"
        await book(inbox, tmp_path, "C,12.00,KES,paid,,", at=12, by="bob")
        with pytest.raises(UsageError, match="has changed since"):
            await proposals.approve(made.id, by=Proven("ann"), reason="x")
        await proposals.reject(made.id, by=Proven("ann"), reason="it changed")
        again = await withdraw_import(at, 4, kind="book", by=Proven("bob"), reason="not ours")
        assert isinstance(again, Proposal)
        await proposals.approve(again.id, by=Proven("ann"), reason="I looked")
        assert await self._standing(inbox, "book", at=99) == "C=11"
        entries = await fetch(inbox, audit_entries, limit=99, action="records_withdrawn")
        assert [(each.who, each.facts.get("second")) for each in entries] == [
            ("bob", None),
            ("bob", "ann"),
        ]
