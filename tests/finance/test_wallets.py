"""A till's month: what it takes, what it moves between its balances, and what reaches the bank."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.context.context import AppContext
from app.core.clock import SetClock
from app.finance.break_acts import breaks_of_run
from app.finance.imports import ImportRequest, import_bank, import_statement
from app.finance.reconcile_period import Ran, RunRequest, reconcile_period
from app.finance.report_period import report_journal, report_period
from app.finance.reports.accounts import Accounts
from reconcile.instants import parse_instant
from reconcile.reporting.journal import Transaction
from reconcile.reporting.report import Scope
from tests.database.builders import context as context_of
from tests.database.builders import opened

TILL = """Organization Name:,KIKAPU LTD
Short Code:,600111
Account:,{account} Account
Receipt No.,Completion Time,Initiation Time,Details,Transaction Status,Paid In,Withdrawn,Balance,\
Balance Confirmed,Reason Type,Other Party Info,Linked Transaction ID,A/C No.
"""

SWEEP = "Utility Account to Organization Settlement Account"
UTILITY = [
    "UJ1,05-10-2026 09:00:00,,C,Completed,1500.00,,1600.00,true,Pay Bill Online,,,ORD-1",
    "UJ1,05-10-2026 09:00:00,,C,Completed,,-15.00,1585.00,true,Pay Bill Charge,,,ORD-1",
    f"UJ2,06-10-2026 18:00:00,,M,Completed,,-1500.00,85.00,true,{SWEEP},,,",
    "UJ3,06-10-2026 19:00:00,,B,Completed,,-50.00,35.00,true,Business Payment to Customer,,,",
]
WORKING = [
    f"UJ2,06-10-2026 18:00:00,,M,Completed,1500.00,,1500.00,true,{SWEEP},,,",
    "UJ4,06-10-2026 18:30:00,,B,Completed,,-1000.00,500.00,true,Withdraw Funds to Bank,,,",
    "UJ5,06-10-2026 18:31:00,,B,Completed,,-300.00,200.00,true,Withdraw Funds to Bank,,,",
    "UJ6,07-10-2026 08:00:00,,B,Completed,300.00,,500.00,true,Withdraw Funds to Bank,,UJ5,",
    "UJ7,07-10-2026 09:00:00,,B,Completed,,-300.00,200.00,true,Withdraw Funds to Bank,,,",
]
BANK = """account,booked_at,amount,currency,entry_reference,reference,counterparty,text
kcb,2026-10-01,1.00,KES,B0,,,OPENING
kcb,2026-10-07,1000.00,KES,B1,,SAFARICOM PLC,MPESA UJ4
kcb,2026-10-08,300.00,KES,B2,,SAFARICOM PLC,MPESA
kcb,2026-10-30,-25.00,KES,B3,,LANDLORD,RENT
"""
DAYS = ("2026-10-01", "2026-10-31")


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[AppContext]:
    async with opened(f"sqlite+aiosqlite:///{tmp_path}/t.db") as inbox:
        made = context_of(inbox, at=60)
        yield replace(made, clock=SetClock(parse_instant("2026-11-02T00:00:00Z")))


async def imported(context: AppContext, folder: Path, **accounts: list[str]) -> None:
    for account, rows in accounts.items():
        path = folder / f"{account}.csv"
        path.write_text(TILL.format(account=account) + "\n".join(rows[::-1]) + "\n")
        request = ImportRequest(path=path, days=DAYS)
        done = await import_statement(context, request, source="till")
        assert [each.sentence for each in done.problems] == []
        assert (done.preset, done.new) == ("mpesa_portal", len(rows))
    path = folder / "bank.csv"
    path.write_text(BANK)
    assert not (await import_bank(context, ImportRequest(path=path, days=DAYS))).problems


async def causes_of(context: AppContext, ran: Ran) -> list[str]:
    """Return the causes of a run's breaks, but for the payment that no webhook stated."""
    found = [e.seen.cause async for part in breaks_of_run(context, ran.number) for e in part]
    return [cause for cause in found if cause != "settled_never_notified"]


def october(context: AppContext) -> Scope:
    return Scope(
        start=parse_instant("2026-10-01T00:00:00Z"),
        end=parse_instant("2026-11-01T00:00:00Z"),
        as_of=context.clock.now(),
        basis="settled",
        environment="sandbox",
    )


def later(context: AppContext) -> AppContext:
    return replace(context, clock=SetClock(parse_instant("2026-11-03T00:00:00Z")))


async def test_the_balances_of_a_till_lead_from_its_payments_to_the_bank(
    context: AppContext, tmp_path: Path
) -> None:
    await imported(context, tmp_path, Utility=UTILITY, Working=WORKING)
    context = later(context)
    ran = await reconcile_period(context, RunRequest(), progress=lambda count: None)
    assert await causes_of(context, ran) == []
    assert ran.ties
    report = await report_period(context, october(context))
    assert report.ties_hold
    assert [
        (each.wallet, each.opening, each.settled, each.withdrawn, each.transferred, each.stated)
        for each in report.wallets
    ] == [
        ("Utility Account", 10_000, 148_500, 0, -150_000, 3_500),
        ("Working Account", 0, 0, -130_000, 150_000, 20_000),
    ]
    sums = Counter[str]()

    def add(transaction: Transaction) -> None:
        for posting in transaction.postings:
            sums[Accounts().name_of(posting, transaction)] += posting.minor

    await report_journal(context, october(context), write=add)
    assert {account: minor for account, minor in sums.items() if minor} == {
        "Assets:Wallets:Till:Utility-Account": 3_500,
        "Equity:OpeningBalances": -10_000,
        "Assets:Wallets:Till:Working-Account": 20_000,
        "Assets:Clearing:Provider": -150_000,
        "Assets:Bank": 130_000,
        "Expenses:Fees:Payments": 1_500,
        "Income:OtherBusiness": 5_000,
    }


async def test_what_a_till_s_statements_lack_is_a_break_and_a_tie_that_fails(
    context: AppContext, tmp_path: Path
) -> None:
    late = "UJ9,20-10-2026 09:00:00,,C,Completed,1.00,,201.00,true,Pay Bill Online,,,ORD-9"
    await imported(context, tmp_path, Utility=UTILITY, Working=[*WORKING[1:3], *WORKING[4:], late])
    context = later(context)
    ran = await reconcile_period(context, RunRequest(), progress=lambda count: None)
    assert sorted(await causes_of(context, ran)) == [
        "payout_not_in_bank",
        "transfer_one_sided",
        "wallet_balance_differs",
    ]
    assert not ran.ties
    assert not (await report_period(context, october(context))).ties_hold
