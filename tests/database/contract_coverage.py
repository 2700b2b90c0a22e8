"""Contract of every database for coverage: who stated what, as known at an instant."""

from pathlib import Path
from typing import Any

import pytest

from app.access.operators import trail
from app.core.errors import NotFoundError, UsageError
from app.finance.bank_enrichment import accounts_to_enrich
from app.finance.bank_match import booked_lines
from app.finance.bank_store import standing_balances
from app.finance.coverage import (
    Declaration,
    declare_coverage,
    list_coverage,
    withdraw_coverage,
)
from app.finance.coverage_store import coverage
from app.finance.import_store import under_way
from app.finance.imports import Imported, ImportRequest, import_bank, import_book, import_statement
from app.finance.withdraw_import import withdraw_import
from app.receiving.inbox import Inbox
from reconcile.instants import DAY, SECOND, format_instant
from reconcile.matching.rules import Coverage
from tests.database.builders import context, fetch
from tests.reconcile.build import T, seconds

LATER = 60 * DAY // SECOND
"""Seconds after T at which these files are imported: their days are over."""

DAYS = ("2026-11-01", "2026-11-30")
WITHIN = ["2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z"]


async def till(inbox: Inbox, folder: Path, *, at: int = LATER, **asked: Any) -> Imported:
    path = folder / "statement.csv"
    path.write_text("payment_reference,gross,currency,settled_at\np1,5.00,KES,2026-11-20\n")
    request = ImportRequest(path=path, **asked)
    return await import_statement(context(inbox, at=at), request, source="till")


async def known(inbox: Inbox, *, at: int = LATER + 9) -> Coverage:
    return await fetch(inbox, coverage, as_of=seconds(at))


HEADING = "account,booked_at,amount,currency\n"
MT940 = ":20:S\n:25:main\n:60F:C261101KES5,\n:61:2611021102C5,NTRFNONREF\n:62F:C261130KES10,\n-\n"


async def banked(
    inbox: Inbox, folder: Path, content: str, *, name: str = "bank", **asked: Any
) -> Imported:
    path = folder / name
    path.write_text(content)
    done = await import_bank(context(inbox, at=LATER), ImportRequest(path=path, **asked))
    assert done.problems == []
    return done


def ends(found: Coverage, name: str = "till") -> list[str]:
    """Return the ends of all spans of a source's statements."""
    spans = [span for each in found.statements if each.name == name for span in each.spans]
    return [format_instant(end) for span in spans for end in (span.since, span.until)]


class CoverageContract:
    """Coverage. A subclass gives `url`."""

    @pytest.mark.alike
    async def test_days_that_nobody_states_cover_nothing_and_declared_ones_count_from_then(
        self, inbox: Inbox, tmp_path: Path
    ) -> None:
        """The dates of rows state nothing. The trail says who declared what, and why."""
        await till(inbox, tmp_path)
        assert [(each.name, each.spans) for each in (await known(inbox)).statements] == [
            ("till", ())
        ]
        at = context(inbox, at=LATER + 20)
        asked = Declaration(
            kind="statement", name="till", first=DAYS[0], last=DAYS[1], reason="I fetched it"
        )
        line = await declare_coverage(at, asked)
        found = await known(inbox, at=LATER + 20)
        assert ends(found) == WITHIN
        assert found.statements[0].declared_by == (line.who,)
        assert ends(await known(inbox, at=LATER + 19)) == []
        later = context(inbox, at=LATER + 30)
        with pytest.raises(UsageError, match="give a reason"):
            await withdraw_coverage(later, line.number, reason=" ", by=None)
        await withdraw_coverage(later, line.number, reason="it was of another till", by=None)
        assert ends(await known(inbox, at=LATER + 30)) == []
        assert ends(await known(inbox, at=LATER + 29)) == WITHIN
        with pytest.raises(NotFoundError, match="no declared coverage"):
            await withdraw_coverage(later, line.number, reason="again", by=None)
        said = await trail(later, subject="till", limit=9)
        assert [(each.action, each.reason) for each in said] == [
            ("coverage_declared", "I fetched it"),
            ("coverage_withdrawn", "it was of another till"),
        ]

    @pytest.mark.alike
    async def test_coverage_goes_with_its_import(self, inbox: Inbox, tmp_path: Path) -> None:
        done = await till(inbox, tmp_path, days=DAYS)
        assert done.number is not None
        assert ends(await known(inbox)) == WITHIN
        again = context(inbox, at=LATER + 20)
        await withdraw_import(again, done.number, kind="statement", by=None, reason="wrong file")
        assert (await known(inbox, at=LATER + 20)).statements == ()
        assert ends(await known(inbox, at=LATER + 19)) == WITHIN
        assert await list_coverage(again) == []

    @pytest.mark.alike
    async def test_days_of_a_bank_account_are_imported_in_one_format(
        self, inbox: Inbox, tmp_path: Path
    ) -> None:
        """Until its import is taken back. Days that it covers without a booking are its days, too;
        other days and other accounts are free."""
        done = await banked(inbox, tmp_path, MT940)
        assert done.number is not None
        with pytest.raises(UsageError) as refused:
            await banked(inbox, tmp_path, HEADING + "main,2026-11-20,5.00,KES\n", dry_run=True)
        said = str(refused.value)
        assert f"import {done.number} (bank, MT940, 2026-11-02 to 2026-11-30)" in said
        assert f"`tallyhook bank withdraw {done.number}`" in said
        for shared in ("main,2026-11-02", "main,2026-12-03,1.00,KES\nmain,2026-11-30"):
            with pytest.raises(UsageError) as refused:
                await banked(inbox, tmp_path, f"{HEADING}{shared},5.00,KES\n")
            assert (
                "this file is a table with account, booked_at, amount, currency, of 2026-11-"
                in str(refused.value)
            )
        for free in ("main,2026-12-01", "other,2026-11-20"):
            assert (await banked(inbox, tmp_path, f"{HEADING}{free},5.00,KES\n")).new == 1
        assert (await banked(inbox, tmp_path, MT940)).unchanged == 1
        with pytest.raises(UsageError, match="and 1 other import have some of these days"):
            await banked(inbox, tmp_path, HEADING + "main,2026-11-20,5.00,KES\n")
        for number, at in ((done.number, 20), (done.number + 3, 21)):
            late = context(inbox, at=LATER + at)
            await withdraw_import(late, number, kind="bank", by=None, reason="twice")
        again = await banked(inbox, tmp_path, f"{HEADING}main,2026-11-20,5.00,KES\n")
        assert again.number is not None

    @pytest.mark.alike
    async def test_another_format_that_was_imported_meanwhile_is_found_before_the_first_line(
        self, inbox: Inbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Both looked when neither was there. The second one leaves nothing to undo."""
        check, looks = accounts_to_enrich, list[int]()

        async def meanwhile(*given: Any, **more: Any) -> dict[str, str]:
            looks.append(1)
            if len(looks) > 1:
                return await check(*given, **more)
            await banked(inbox, tmp_path, MT940, name="first")
            return {}

        monkeypatch.setattr("app.finance.bank_enrichment.accounts_to_enrich", meanwhile)
        with pytest.raises(UsageError, match="a file in another format was imported"):
            await banked(inbox, tmp_path, HEADING + "main,2026-11-20,5.00,KES\n")
        assert await fetch(inbox, under_way) is None

    @pytest.mark.alike
    async def test_a_file_covers_no_time_after_it_was_imported(
        self, inbox: Inbox, tmp_path: Path
    ) -> None:
        """Of an export made within its period, the rest is not covered."""
        await till(inbox, tmp_path, at=0, days=DAYS)
        assert ends(await known(inbox)) == [WITHIN[0], format_instant(T)]
        asked = Declaration(kind="statement", name="till", first=DAYS[0], last=DAYS[1], reason="so")
        with pytest.raises(UsageError, match="the last day has not ended yet"):
            await declare_coverage(context(inbox, at=0), asked)

    @pytest.mark.alike
    async def test_each_account_and_book_is_covered_by_its_own_files(
        self, inbox: Inbox, tmp_path: Path
    ) -> None:
        """What a bank's file states of one account says nothing of another one in it."""
        path = tmp_path / "bank.csv"
        path.write_text(
            "account,booked_at,amount,currency\n"
            "main,2026-11-02,5.00,KES\nsavings,2026-11-02,5.00,KES\n"
        )
        at = context(inbox, at=LATER)
        await import_bank(at, ImportRequest(path=path, days=DAYS))
        path.write_text(
            ":20:X\n:25:giro\n:60F:C261101EUR1,00\n:61:261102D1,00NMSCNONREF\n:62F:C261105EUR0,\n-\n"
        )
        await import_bank(at, ImportRequest(path=path, days=DAYS))
        path.write_text("reference,amount,currency\nA,1.00,KES\n")
        await import_book(at, ImportRequest(path=path, days=DAYS, book="members"))
        await import_book(at, ImportRequest(path=path))
        found = await known(inbox)
        stated = {each.name: [format_instant(span.until) for span in each.spans]
                  for each in (*found.bank, *found.books)}  # fmt: skip
        assert stated == {
            "main": [WITHIN[1]], "savings": [WITHIN[1]], "giro": ["2026-11-06T00:00:00Z"],
            "members": [WITHIN[1]], "book": [],
        }  # fmt: skip
        by = {each.name: each.declared_by for each in found.bank}
        assert by["giro"] == ()
        assert by["main"] != ()

    @pytest.mark.alike
    async def test_what_is_declared_has_a_name_and_days(self, inbox: Inbox, tmp_path: Path) -> None:
        done = await till(inbox, tmp_path)
        assert done.covers[0].since is None
        at = context(inbox, at=LATER + 20)
        for change, error, message in (
            ({"name": "tıll"}, NotFoundError, "no file of the source"),
            ({"first": "2026-12-01"}, UsageError, "the first day comes after the last"),
            ({"last": "November"}, UsageError, "give the first and the last day"),
            ({"reason": ""}, UsageError, "give a reason"),
        ):
            given: dict[str, Any] = {
                "kind": "statement", "name": "till", "first": DAYS[0], "last": DAYS[1],
                "reason": "so", **change,
            }  # fmt: skip
            with pytest.raises(error, match=message):
                await declare_coverage(at, Declaration(**given))
        with pytest.raises(UsageError, match="--from and --to"):
            await till(inbox, tmp_path, days=("2026-11-30", "2026-11-01"))

    @pytest.mark.alike
    async def test_the_balances_of_statements_count_while_their_import_stands(
        self, inbox: Inbox, tmp_path: Path
    ) -> None:
        done = await banked(inbox, tmp_path, MT940)
        at = seconds(LATER + 9)
        (found,) = await fetch(inbox, standing_balances, as_of=at)
        assert found.stated == ("2026-11-01", "2026-11-30", 500, 1000)
        assert (found.account, found.of_import, found.difference) == ("main", done.number, 0)
        assert await fetch(inbox, standing_balances, as_of=T) == []
        assert done.number is not None
        await withdraw_import(
            context(inbox, at=LATER), done.number, kind="bank", by=None, reason="wrong file"
        )
        assert await fetch(inbox, standing_balances, as_of=at) == []

    @pytest.mark.alike
    async def test_a_file_of_another_format_enriches_lines_that_go_with_their_own_file(
        self, inbox: Inbox, tmp_path: Path
    ) -> None:
        made = await banked(inbox, tmp_path, MT940.replace("NONREF", "NONREF//B1"))
        table = (
            HEADING.replace("\n", ",entry_reference,text\n") + "main,2026-11-02,5.00,KES,B1,HI\n"
        )
        done = await banked(inbox, tmp_path, table, days=DAYS)
        assert (done.new, done.changed, done.covers) == (0, 1, [])
        at = context(inbox, at=LATER + 20)
        (line,) = await booked_lines(at, as_of=None, stands=None, limit=9)
        assert line.line.text == "HI"
        assert made.number is not None
        await withdraw_import(at, made.number, kind="bank", by=None, reason="wrong file")
        later = context(inbox, at=LATER + 21)
        assert await booked_lines(later, as_of=None, stands=None, limit=9) == []
