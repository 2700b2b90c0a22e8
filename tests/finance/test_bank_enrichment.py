"""One format makes the lines of a bank account; files of others enrich them and add nothing."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.context.context import AppContext
from app.core.errors import UsageError
from app.finance.imports import Imported, ImportRequest, import_bank
from app.finance.withdraw_import import withdraw_import
from tests.database.builders import context as context_of
from tests.database.builders import opened, rows

MT940 = (
    ":20:S\n:25:main\n:60F:C{opened}KES0,\n"
    ":61:{day}{entry}C5,NTRFNONREF//{bank}\n:62F:C{day}KES5,\n-\n"
)
MONTH = (
    ":20:S\n:25:main\n:60F:C260101KES0,\n:61:2601060106C5,NTRFNONREF//B1\n"
    ":61:2601070107C5,NTRFNONREF//B2\n:86:OWN TEXT\n:61:2601080108C7,NTRFNONREF//B3\n"
    ":61:2601080108C7,NTRFNONREF//B3\n:62F:C260131KES24,\n-\n"
)
MT942 = ":20:S\n:25:main\n:34F:KES0,\n:61:2601060106C5,NTRFNONREF//B1\n:86:IN THE DAY\n-\n"
CAMT = """<Document><{root}>
<{part}><Acct><Id><IBAN>main</IBAN></Id></Acct>{entries}</{part}></{root}>
</Document>"""
ENTRY = """<Ntry><Amt Ccy="KES">{amount}</Amt><CdtDbtInd>CRDT</CdtDbtInd><Sts>BOOK</Sts>
<BookgDt><Dt>{day}</Dt></BookgDt><AcctSvcrRef>{bank}</AcctSvcrRef><NtryDtls><TxDtls>
<Refs><EndToEndId>{own}</EndToEndId></Refs><RltdPties><Dbtr><Nm>PROVIDER</Nm></Dbtr></RltdPties>
<RmtInf><Ustrd>PO-1</Ustrd></RmtInf></TxDtls></NtryDtls></Ntry>"""
FORMS = {
    "052": ("BkToCstmrAcctRpt", "Rpt"),
    "053": ("BkToCstmrStmt", "Stmt"),
    "054": ("BkToCstmrDbtCdtNtfctn", "Ntfctn"),
}


def camt(form: str, *banks: str, day: str = "2026-01-06", amount: str = "5.00") -> str:
    """Return a file with an entry for each of the bank's references."""
    root, part = FORMS[form]
    entries = [ENTRY.format(amount=amount, day=day, bank=each, own=f"E-{each}") for each in banks]
    return CAMT.format(root=root, part=part, entries="".join(entries))


class Account:
    """An account's files, and its lines as they are known now."""

    def __init__(self, context: AppContext, folder: Path) -> None:
        self.context, self._folder = context, folder

    async def takes(self, content: str, **said: Any) -> Imported:
        path = self._folder / "bank"
        path.write_text(content)
        done = await import_bank(self.context, ImportRequest(path=path, **said))
        assert done.problems == []
        return done

    async def lines(self) -> list[tuple[Any, ...]]:
        found = await rows(
            self.context,
            "SELECT entry, reference, counterparty, told FROM bank_lines WHERE until IS NULL "
            "ORDER BY entry, ordinal",
        )
        return [tuple(each) for each in found]


@pytest.fixture
async def account(tmp_path: Path) -> AsyncIterator[Account]:
    async with opened(f"sqlite+aiosqlite:///{tmp_path}/t.db") as inbox:
        yield Account(context_of(inbox, at=400 * 86_400), tmp_path)


BARE = [("B1", "", "", ""), ("B2", "", "", "OWN TEXT"), ("B3", "", "", ""), ("B3", "", "", "")]
FULL = [("B1", "E-B1", "PROVIDER", "PO-1"), ("B2", "E-B2", "PROVIDER", "OWN TEXT"), *BARE[2:]]


@pytest.mark.parametrize("form", ["052", "053", "054"])
async def test_a_file_of_another_format_fills_what_lines_lack_and_adds_none(
    account: Account, form: str
) -> None:
    """What a line has stays; an entry of no line, or of two lines, is counted."""
    await account.takes(MONTH)
    assert await account.lines() == BARE
    done = await account.takes(camt(form, "B1", "B2", "B9"))
    assert (done.new, done.changed, done.covers) == (0, 2, [])
    assert done.notes[-1] == (
        "Lines of main come from files of another format, so no line was added; 2 lines were "
        "completed. Of 3 entries, 1 matched no line by the bank's reference."
    )
    assert await account.lines() == FULL
    twice = await account.takes(camt(form, "B1", "B1"))
    assert (twice.new, twice.changed) == (0, 0)
    with pytest.raises(UsageError, match=r"has the same bank reference as|would count twice"):
        await account.takes(camt(form, "B3", amount="7.00"))


async def test_the_file_that_made_the_lines_changes_nothing_when_it_comes_again(
    account: Account,
) -> None:
    await account.takes(MONTH)
    enriching = await account.takes(camt("054", "B1", "B2"))
    again = await account.takes(MONTH)
    assert (again.new, again.changed, await account.lines()) == (0, 0, FULL)
    assert enriching.number is not None
    await withdraw_import(
        account.context, enriching.number, kind="bank", by=None, reason="wrong file"
    )
    assert await account.lines() == BARE


async def test_lines_go_with_the_file_that_made_them_though_another_enriched_them(
    account: Account,
) -> None:
    made = await account.takes(MONTH)
    await account.takes(camt("054", "B1", "B2"))
    assert made.number is not None
    await withdraw_import(account.context, made.number, kind="bank", by=None, reason="wrong file")
    assert await account.lines() == []
    await account.takes(MONTH)
    assert await account.lines() == BARE


@pytest.mark.parametrize(("content", "format"), [(camt("052", "B1"), "CAMT.052"), (MT942, "MT942")])
async def test_a_report_within_the_day_makes_the_lines_of_an_account_without_other_files(
    account: Account, content: str, format: str
) -> None:
    """It covers no day, and the statement of the day is not mixed with it."""
    done = await account.takes(content)
    assert (done.new, [each.since for each in done.covers]) == (1, [None])
    with pytest.raises(UsageError, match=f"{format}, 2026-01-06 to 2026-01-06.*count twice"):
        await account.takes(MONTH)


async def test_a_notification_makes_no_lines(account: Account) -> None:
    with pytest.raises(UsageError, match="Import the statement of the same days first"):
        await account.takes(camt("054", "B1"))


async def test_the_format_may_change_within_a_month(account: Account) -> None:
    """An opening balance is dated on the day before, which the other format has."""
    await account.takes(camt("053", "B1"))
    daily = MT940.format(opened="260106", day="260107", entry="0107", bank="B2")
    assert (await account.takes(daily)).new == 1
    earlier = camt("053", "B0", day="2026-01-05")
    assert (await account.takes(earlier)).new == 1
    with pytest.raises(UsageError, match="count twice"):
        await account.takes(camt("053", "B2", "B8", day="2026-01-07").replace("01-07", "01-08", 1))
