"""The bank's side from the first file to the journal: imported, matched, reported, posted."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from app.access.operator_store import audit_entries
from app.access.operators import register_operator
from app.context.context import AppContext
from app.core.clock import SetClock
from app.core.errors import NotFoundError, UsageError
from app.finance import bank_match
from app.finance.bank_match import KeptMatch, booked_line, booked_lines, booked_page, check_bucket
from app.finance.break_acts import (
    SeenBreak,
    breaks_of_run,
    match_lines,
    one_break,
)
from app.finance.imports import (
    Imported,
    ImportRequest,
    import_bank,
    import_book,
    import_statement,
    past_imports,
)
from app.finance.match_rules import preview_rules
from app.finance.reconcile_period import Ran, RunRequest, reconcile_period
from app.finance.reconcile_rows import leg_of
from app.finance.report_period import report_journal, report_period
from app.finance.reports.journal import JournalText
from app.finance.rule_file import read_rules
from reconcile.instants import DAY, Instant, format_instant, parse_instant
from reconcile.money import Money
from reconcile.reporting.journal import Transaction
from reconcile.reporting.report import PeriodReport, Scope
from tests.api.driving import driving, event
from tests.contexts import with_settings
from tests.database.builders import context as context_of
from tests.database.builders import opened, quiet, rows
from tests.finance.deciding import decide
from tests.reconcile.build import BANK_CAUSES, T, seconds
from tests.waiting import PATIENCE_S

BEAN_CHECK = Path(sys.executable).with_name("bean-check")

STATEMENT = """payment_reference,gross,fee,currency,settled_at,payout,type
pay_1,1000.00,30.00,KES,2026-01-05,PO-100200,payment
pay_2,500.00,15.00,KES,2026-01-05,PO-100200,payment
pay_3,200.00,6.00,KES,2026-01-06,PO-100201,payment
pay_4,300.00,9.00,KES,2026-01-07,PO-100202,payment
pay_5,100.00,3.00,USD,2026-01-07,PO-100203,payment
pay_6,70.00,1.00,KES,2026-01-08,,payment
pay_7,40.00,1.00,KES,2026-01-30,PO-100205,payment
"""

BANK = """account,booked_at,amount,currency,entry_reference,reference,counterparty,text
main,2026-01-04,1.00,KES,B0,,,OPENING
main,2026-01-06,1455.00,KES,B1,,PROVIDER LTD,PAYOUT PO-100200
main,2026-01-07,190.00,KES,B2,PO-100201,PROVIDER LTD,
main,2026-01-08,12610.00,KES,B3,,PROVIDER LTD,PO-100203 AT 130.00
main,2026-01-09,88.00,KES,B4,,Jane Doe,GIFT
main,2026-01-20,-25.00,KES,B5,,LANDLORD,RENT
"""
"""PO-100200 is there, PO-100201 lacks 4.00, PO-100202 is missing, PO-100203 was exchanged; B4 is
nobody's; PO-100205 may still come."""


@dataclass
class Shop:
    """A shop's database, and the folder of its files."""

    context: AppContext
    folder: Path

    def at(self, later_s: int) -> Shop:
        """Return the same shop at so many seconds."""
        return replace(self, context=replace(self.context, clock=SetClock(seconds(later_s))))

    async def bank(self, content: str = BANK, **said: object) -> Imported:
        path = self.folder / "bank.csv"
        path.write_text(content)
        said = {"days": ("2026-01-01", "2026-01-20"), **said}
        request = ImportRequest(path=path, **said)  # type: ignore[arg-type]
        return await import_bank(self.context, request)

    async def statement(self, content: str = STATEMENT) -> Imported:
        path = self.folder / "statement.csv"
        path.write_text(content)
        request = ImportRequest(path=path, days=("2026-01-01", "2026-01-30"))
        done = await import_statement(self.context, request, source="shop")
        assert not done.problems
        return done

    async def ran(self) -> Ran:
        return await reconcile_period(self.context, RunRequest(), progress=quiet)

    async def breaks_of_bank(self, ran: Ran) -> list[SeenBreak]:
        """Return a run's breaks of the bank's side; no webhook stated these payments."""
        return [
            each
            async for part in breaks_of_run(self.context, ran.number)
            for each in part
            if each.seen.cause in BANK_CAUSES
        ]

    def scope(self, first: str, last: str, basis: str = "settled") -> Scope:
        """Return a period that ends with a day."""
        return Scope(
            start=parse_instant(f"{first}T00:00:00Z"),
            end=parse_instant(f"{last}T00:00:00Z") + DAY,
            as_of=self.context.clock.now(),
            basis=basis,  # type: ignore[arg-type]
            environment="sandbox",
        )

    async def report(self, scope: Scope) -> PeriodReport:
        report = await report_period(self.context, scope, progress=quiet)
        assert report.ties_hold
        return report


@pytest.fixture
async def empty(tmp_path: Path) -> AsyncIterator[Shop]:
    async with opened(f"sqlite+aiosqlite:///{tmp_path}/t.db") as inbox:
        yield Shop(context_of(inbox, at=60), tmp_path)


@pytest.fixture
async def shop(empty: Shop) -> Shop:
    """Build a shop with the statement and the bank's file, some minutes later."""
    await empty.statement()
    assert not (await empty.bank()).problems
    return empty.at(600)


BALANCE = """<Bal><Tp><CdOrPrtry><Cd>{code}</Cd></CdOrPrtry></Tp><Amt Ccy="KES">5.00</Amt>
<CdtDbtInd>CRDT</CdtDbtInd><Dt><Dt>2026-01-{day}</Dt></Dt></Bal>"""
OPENING, BEFORE, CLOSING = (
    BALANCE.format(code=code, day=day)
    for code, day in (("OPBD", "07"), ("PRCD", "06"), ("CLBD", "07"))
)
CAMT = (
    "<Document><BkToCstmrStmt><Stmt><Acct><Id><IBAN>main</IBAN></Id></Acct>{balances}</Stmt>"
    "</BkToCstmrStmt></Document>"
)
OFX = (
    "<OFX><BANKMSGSRSV1><STMTTRNRS><STMTRS><CURDEF>KES<BANKACCTFROM><ACCTID>main</BANKACCTFROM>"
    "<BANKTRANLIST>{days}</BANKTRANLIST></STMTRS></STMTTRNRS></BANKMSGSRSV1></OFX>"
)
AGREES = "0 entries, the balance agrees."


@pytest.mark.parametrize(
    ("content", "covered", "note"),
    [
        (":20:S\n:25:main\n:60F:C260107KES5,\n:62F:C260107KES5,\n-\n", True, AGREES),
        (CAMT.format(balances=BEFORE + CLOSING), True, AGREES),
        (CAMT.format(balances=OPENING + CLOSING), True, AGREES),
        (CAMT.format(balances=""), False, "0 entries."),
        (OFX.format(days="<DTSTART>20260107<DTEND>20260107"), True, "0 entries."),
        (OFX.format(days=""), False, "0 entries."),
    ],
)
async def test_a_day_without_bookings_is_imported_and_counts_as_covered(
    empty: Shop, content: str, covered: bool, note: str
) -> None:
    """A file that states no day is no error either, and covers none."""
    done = await empty.bank(content, days=None)
    assert (done.problems, done.read, note in done.notes) == ([], 0, True)
    assert done.number is not None
    day = parse_instant("2026-01-07T00:00:00Z")
    found = [(line.name, line.since, line.until) for line in done.covers if line.since is not None]
    assert found == [("main", day, day + DAY)] * covered
    assert {line.name for line in done.covers} == {"main"}


def counts(done: Imported) -> tuple[int, int, int]:
    """Return the numbers of new, changed and unchanged lines."""
    assert not done.problems
    return done.new, done.changed, done.unchanged


async def test_the_same_lines_again_change_nothing(empty: Shop) -> None:
    assert (await empty.bank(dry_run=True)).number is None
    assert await rows(empty.context, "SELECT * FROM bank_lines") == []
    assert counts(await empty.bank()) == (6, 0, 0)
    heading, *lines = BANK.splitlines(keepends=True)
    assert counts(await empty.bank(heading + "".join(lines[::-1]))) == (0, 0, 6)
    more = "main,2026-01-21,5.00,KES,B6,,,\n"
    assert counts(await empty.bank(heading + lines[3] + more)) == (1, 0, 1)
    other = lines[1].replace("PAYOUT", "TRANSFER")
    assert counts(await empty.bank(heading + other)) == (0, 1, 0)
    assert [each.read for each in await past_imports(empty.context, kind="bank", limit=9)] == [
        1,
        2,
        6,
        6,
    ]
    async with empty.context.database.reading() as connection:
        trail = await audit_entries(connection, limit=9)
    assert {each.action for each in trail} == {"bank_imported"}


async def test_another_zone_makes_no_other_lines(empty: Shop) -> None:
    assert counts(await empty.bank()) == (6, 0, 0)
    empty.context = with_settings(empty.context, timezone="Africa/Nairobi")
    assert counts(await empty.bank()) == (0, 6, 0)
    assert counts(await empty.bank()) == (0, 0, 6)


async def test_bookings_that_look_alike_are_as_many_as_the_file_has(empty: Shop) -> None:
    heading = BANK.splitlines(keepends=True)[0]
    alike = "main,2026-01-09,5.00,KES,,,TILL,COINS\n"
    assert counts(await empty.bank(heading + alike * 3)) == (3, 0, 0)
    assert counts(await empty.bank(heading + alike * 4)) == (1, 0, 3)
    assert len(await rows(empty.context, "SELECT DISTINCT line FROM bank_lines")) == 4


async def test_bookings_without_a_reference_of_the_bank_in_two_files_are_two(empty: Shop) -> None:
    heading = BANK.splitlines(keepends=True)[0]
    for payout in ("PO-100200", "PO-100201"):
        line = f"main,2026-01-06,50.00,KES,NONREF,NOTPROVIDED,,{payout}\n"
        assert counts(await empty.bank(heading + line)) == (1, 0, 0)
        assert counts(await empty.bank(heading + line)) == (0, 0, 1)


async def test_one_row_that_is_not_clear_keeps_all_others_out(empty: Shop) -> None:
    done = await empty.bank(BANK + "main,2026-01-22,x,KES,B9,,,\n")
    assert [(each.row, each.column) for each in done.problems] == [(8, "amount")]
    assert await rows(empty.context, "SELECT * FROM bank_lines") == []
    good = await empty.bank(BANK + "main,2026-01-22,x,KES,B9,,,\n", accept_good=True)
    assert (good.new, good.rejected) == (6, 1)


async def test_who_only_looks_may_not_import(empty: Shop) -> None:
    await register_operator(empty.context, name="Ann", role="admin", by=None)
    await register_operator(empty.context, name="Vic", role="viewer", by="Ann")
    with pytest.raises(UsageError, match="Vic"):
        await empty.bank(by="Vic")


async def test_a_run_finds_every_difference_and_ties(shop: Shop) -> None:
    ran = await shop.ran()
    assert ran.control.holds
    assert {each.seen.cause: str(each.seen.money) for each in await shop.breaks_of_bank(ran)} == {
        "payout_not_in_bank": "KES 291.00",
        "payout_amount_differs": "KES 4.00",
        "bank_line_unknown": "KES 88.00",
    }
    lines = await booked_lines(shop.context, limit=9)
    assert {(each.line.text or each.line.reference, each.bucket) for each in lines} == {
        ("OPENING", "not_covered"),
        ("PAYOUT PO-100200", "by_reference"),
        ("PO-100201", "payout_amount_differs"),
        ("PO-100203 AT 130.00", "by_exchange"),
        ("GIFT", "bank_line_unknown"),
        ("RENT", "other_business"),
    }
    (exchanged,) = [each for each in lines if each.bucket == "by_exchange"]
    assert exchanged.document()["rate"] == "130.000000"


CARRIED = """payment_reference,gross,fee,net,currency,settled_at,payout,type
pay_1,100.00,3.00,97.00,EUR,2026-01-27,BATCH-133,payment
,-97.00,,-97.00,EUR,2026-01-27,BATCH-133,carried
,,,97.00,EUR,2026-02-03,BATCH-134,carried
pay_2,50.00,2.00,48.00,EUR,2026-02-03,BATCH-134,payment
,-5.00,,,EUR,2026-02-03,BATCH-134,carried
"""
"""A batch that was too small to be paid out, and the next one, of which 5.00 are kept back."""


@pytest.mark.parametrize("basis", ["settled", "captured"])
async def test_what_is_carried_from_one_payout_to_the_next_is_a_part_of_both(
    empty: Shop, basis: str
) -> None:
    assert counts(await empty.statement(CARRIED)) == (5, 0, 0)
    assert counts(await empty.statement(CARRIED)) == (0, 0, 5)
    booked = "account,booked_at,amount,currency,text\n"
    booked += "main,2026-01-20,-1.00,EUR,FEE\nmain,2026-02-04,140.00,EUR,BATCH-134\n"
    assert counts(await empty.bank(booked)) == (2, 0, 0)
    later = empty.at(600)
    ran = await later.ran()
    assert ran.control.holds
    assert await later.breaks_of_bank(ran) == []
    for first, last, fee, settled in (
        ("2026-01-01", "2026-01-31", 300, 0),
        ("2026-02-01", "2026-02-28", 200, 140_00),
    ):
        report = await later.report(later.scope(first, last, basis))
        sums = {row.flow: row.sum for row in report.money}
        assert (sums["fees"], sums["settled"]) == (fee, settled)
    scope = later.scope("2026-01-01", "2026-02-28")
    totals = await report_journal(later.context, scope, write=lambda _: None, progress=quiet)
    assert {role: minor for (role, _), minor in totals.sums.items() if minor} == {
        "clearing": -145_00, "fees": 5_00, "bank": 140_00,
    }  # fmt: skip


async def test_without_a_file_of_the_bank_there_is_no_such_side(empty: Shop) -> None:
    await empty.statement()
    later = empty.at(600)
    assert {line.side for line in (await later.ran()).control.lines} == {"statement"}
    assert await booked_lines(later.context, limit=9) == []


async def test_a_match_by_hand_closes_both_and_an_acceptance_holds(shop: Shop) -> None:
    ran = await shop.ran()
    found = {each.seen.cause: each for each in await shop.breaks_of_bank(ran)}
    missing, unknown = found["payout_not_in_bank"], found["bank_line_unknown"]
    line = unknown.seen.cites[0]
    then = shop.at(900).context
    await match_lines(then, missing.identity, lines=[line], reason="the bank says so", by=None)
    accepting = found["payout_amount_differs"].identity
    await decide(then, accepting, "accepted", reason="the bank's charge", by=None)
    after = shop.at(1_200)
    seen = await after.breaks_of_bank(await after.ran())
    states = [(each.life.state, str(each.seen.money)) for each in seen]
    # The two that belong together differ by 203.00, and nothing else is reported of them.
    assert sorted(states) == [("accepted", "KES 4.00"), ("open", "KES 203.00")]
    closed = await one_break(after.context, missing.identity)
    assert closed.life.state == "closed"
    assert "match by" in closed.life.because


def flows(report: PeriodReport) -> dict[str, str]:
    """Return the nonzero sums from settled to the bank, in shillings and dollars."""
    return {
        f"{row.flow} {row.currency}": str(Money(minor=row.sum, currency=row.currency))
        for row in report.money
        if row.sum and row.flow not in ("captured", "fees", "net")
    }


async def test_the_report_goes_on_to_money_in_the_bank_and_ties(shop: Shop) -> None:
    report = await shop.report(shop.scope("2026-01-01", "2026-01-31"))
    assert any(tie.name == "settled and the bank" for tie in report.ties)
    assert flows(report) == {
        "settled KES": "KES 2,048.00",
        "in_bank KES": "KES 1,645.00",
        "bank_differs KES": "KES 4.00",
        "not_in_bank KES": "KES 330.00",
        "no_payout KES": "KES 69.00",
        "settled USD": "USD 97.00",
        "exchanged USD": "USD 97.00",
    }
    assert {row.side for row in report.matching} >= {"payouts", "bank"}
    assert {each.cause for each in report.break_lines} >= {"payout_not_in_bank"}


async def test_two_periods_that_meet_have_together_the_sums_of_the_whole(shop: Shop) -> None:
    sums: Counter[tuple[str, str]] = Counter()
    for first, last in (("2026-01-01", "2026-01-06"), ("2026-01-07", "2026-01-31")):
        report = await shop.report(shop.scope(first, last))
        for row in report.money:
            sums[row.flow, row.currency] += row.sum
    whole = await shop.report(shop.scope("2026-01-01", "2026-01-31"))
    assert {key: minor for key, minor in sums.items() if minor} == {
        (row.flow, row.currency): row.sum for row in whole.money if row.sum
    }


async def test_a_line_without_a_date_counts_where_it_was_imported(empty: Shop) -> None:
    heading = "payment_reference,gross,net,currency,type\n"
    for later_s, net in ((60, "9.00"), (5 * 86_400, "8.00")):
        then = empty.at(later_s)
        await then.statement(f"{heading}pay_8,10.00,{net},KES,payment\n")
    day = T - T % DAY
    counted = []
    for start in (day - DAY, day, day + DAY, day + 5 * DAY):
        scope = Scope(
            start=start,
            end=start + DAY,
            as_of=then.context.clock.now(),
            basis="captured",
            environment="sandbox",
        )
        counted.append([(row.count, row.net) for row in (await then.report(scope)).fees])
    assert counted == [[], [(1, 800)], [], []]


async def test_the_journal_posts_what_the_bank_confirms(shop: Shop) -> None:
    some: list[Transaction] = []
    scope = shop.scope("2026-01-01", "2026-01-31", "captured")
    await report_journal(shop.context, scope, write=some.append, progress=quiet)
    sums: Counter[tuple[str, str]] = Counter()
    for each in some:
        for posting in each.postings:
            sums[posting.role, each.currency] += posting.minor
    # B1, B2, B3 and B4, and the line that names no payout, of which no bank can speak.
    assert sums["bank", "KES"] == 145_500 + 19_000 + 1_261_000 + 8_800 + 6_900
    # PO-100202, PO-100205 and what PO-100201 lacks, less what is nobody's.
    assert sums["in_transit", "KES"] == 29_100 + 3_900 + 400 - 8_800
    assert sums["in_transit", "USD"] == 0
    assert (sums["exchange", "USD"], sums["exchange", "KES"]) == (9_700, -1_261_000)
    journal = JournalText("beancount", scope=scope)
    path = shop.folder / "j.beancount"
    path.write_text(journal.head() + "".join(map(journal.transaction, some)))
    assert bean_checked(path) == (0, "", "")
    assert "confirmed by bank statement" in path.read_text()


def bean_checked(path: Path) -> tuple[int, str, str]:
    done = subprocess.run([BEAN_CHECK, path], capture_output=True, text=True, timeout=PATIENCE_S)
    return done.returncode, done.stdout, done.stderr


RULES = """
bank_margin = "3 days"
bank_payers = ["PROVIDER"]
[[exchange]]
currency = "USD"
into = "KES"
rate = "131.5"
tolerance_percent = "0.5"
"""


def test_rules_of_the_bank_are_read_with_every_mistake() -> None:
    rules = read_rules(RULES).match
    assert (rules.bank_margin, rules.bank_payers) == (3 * DAY, ("PROVIDER",))
    (rate,) = rules.rates
    assert (rate.micros, rate.tolerance_per_million) == (131_500_000, 5_000)
    wrong = RULES.replace('"PROVIDER"', '"x"').replace('"131.5"', '"0"').replace("KES", "USD")
    with pytest.raises(Exception, match="bank_payers") as raised:
        read_rules(wrong)
    assert "write a rate above 0" in str(raised.value)
    with pytest.raises(Exception, match="currency and into are the same"):
        read_rules(RULES.replace("KES", "USD"))


async def test_a_preview_of_rules_shows_what_they_change_at_the_bank(shop: Shop) -> None:
    found = await preview_rules(shop.context, RULES, progress=quiet)
    counts = {(row["effect"], row["kind"]): row["count"] for row in found.totals()}
    assert counts == {
        ("gone_break", "bank_line_unknown"): 1,
        ("no_longer_matched", "by_exchange"): 1,
        ("new_break", "payout_amount_differs"): 1,
        ("changed", "payout_not_in_bank"): 1,  # it was due earlier
    }


async def test_a_look_at_the_bank_matches_beside_the_loop(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = set[int]()

    def noted(*words: object, **more: object) -> object:
        threads.add(threading.get_ident())
        return leg_of(*words, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(bank_match, "leg_of", noted)
    page = await bank_match.booked_page(shop.context, skip=1, limit=2)
    assert threads
    assert threading.get_ident() not in threads
    every = await booked_lines(shop.context, limit=9)
    assert (page.lines, page.more) == (every[1:3], True)
    assert page.counts == Counter(each.bucket for each in every)
    last = await bank_match.booked_page(shop.context, stands="bank_line_unknown", limit=1)
    assert ([each.bucket for each in last.lines], last.more) == (["bank_line_unknown"], False)
    assert last.counts == page.counts


async def test_pages_are_of_one_matching_until_somebody_does_something(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, made = KeptMatch(), list[Instant]()

    def counted(*sides: Any, **words: Any) -> Any:
        made.append(words["as_of"])
        return leg_of(*sides, **words)

    monkeypatch.setattr(bank_match, "leg_of", counted)

    async def listed(at: AppContext, as_of: Instant | None = None) -> list[str]:
        found, after = list[str](), ""
        while True:
            page = await booked_page(at, as_of=as_of, after=after, limit=2, kept=kept)
            found += [each.line.line_id for each in page.lines]
            if not page.more:
                return found
            after = found[-1]

    first = await listed(shop.context)
    assert (len(first), len(set(first)), len(made)) == (6, 6, 1)
    await shop.bank(BANK + "main,2026-01-21,5.00,KES,B6,,,\n")
    assert len(await listed(shop.context)) == 7
    assert len(made) == 2
    much_later = shop.at(700).context
    assert (len(await listed(much_later)), len(made)) == (7, 3)
    assert len(await listed(much_later, shop.context.clock.now())) == 7
    assert made[2:] == [much_later.clock.now(), shop.context.clock.now()]
    monkeypatch.setattr(bank_match, "KEPT_MOST", 6)
    assert (len(await listed(shop.context)), len(made)) == (7, 8)


async def test_a_customers_transfer_pays_its_order_of_the_book(empty: Shop) -> None:
    path = empty.folder / "book.csv"
    heading = "reference,amount,currency,status,placed_at,method\n"
    rows_of_book = (
        "#10740,50.00,KES,paid,2026-01-09,Bank Transfer\n#1,9.00,KES,paid,2026-01-09,cod\n"
    )
    path.write_text(heading + rows_of_book)
    assert not (await import_book(empty.context, ImportRequest(path=path))).problems
    await empty.statement()
    await empty.bank(BANK + "main,2026-01-12,50.00,KES,B6,,Jane Doe,Bestellung #10740\n")
    shop = empty.at(600)
    ran = await shop.ran()
    stood = {
        (e.side, e.bucket, e.sum) for e in ran.control.lines if e.bucket == "outside_providers"
    }
    assert stood == {("book", "outside_providers", 5_900), ("bank", "outside_providers", 5_000)}
    (line,) = await booked_lines(shop.context, stands="outside_providers", limit=9)
    assert [each["order"] for each in line.document()["orders"]] == ["#10740"]
    for basis in ("settled", "captured"):
        await shop.report(shop.scope("2026-01-01", "2026-01-31", basis))


async def test_a_transfer_for_an_order_that_a_provider_was_paid_for_is_a_second_payment(
    tmp_path: Path,
) -> None:
    """It pays no order without a person's word, and its break suggests the order."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        await driver.send(event("e1"))
        first, sent, last = (format_instant(Instant(T + n * DAY)) for n in (-9, 1, 30))
        shop = Shop(replace(driver.service.context, clock=driver.clock), tmp_path)
        driver.clock.put(Instant(T + 40 * DAY))
        for name, rows_of_file, imports in (
            ("book", f"reference,amount,currency,status,placed_at,method\n"
             f"ORD-1,1500.00,KES,paid,{sent},Bank Transfer\n", import_book),
            ("bank", "account,booked_at,amount,currency,text\n"
             f"main,{sent[:10]},1500.00,KES,ORD-1\n", import_bank),
        ):  # fmt: skip
            (tmp_path / f"{name}.csv").write_text(rows_of_file)
            days = (first[:10], last[:10])
            await imports(shop.context, ImportRequest(path=tmp_path / f"{name}.csv", days=days))
        path = tmp_path / "s.csv"
        path.write_text(
            "payment_reference,order_reference,gross,fee,currency,settled_at,payout\n"
            f"pay_1,ORD-1,1500.00,30.00,KES,{sent},PO-1\n"
        )
        paid = ImportRequest(path=path, days=days)
        await import_statement(shop.context, paid, source="shop")
        driver.clock.put(Instant(T + 41 * DAY))
        seen = await shop.breaks_of_bank(await shop.ran())
        (line,) = await booked_lines(shop.context, limit=9)
    unknown = [each.seen for each in seen if each.seen.cause == "bank_line_unknown"]
    assert line.bucket == "bank_line_unknown"
    assert unknown[0].candidates[0].reference == "ORD-1"


async def test_bank_lines_are_listed_page_by_page_and_shown_one_by_one(shop: Shop) -> None:
    every = await booked_lines(shop.context, limit=9)
    first = await booked_lines(shop.context, limit=2)
    rest = await booked_lines(shop.context, after=first[-1].line.line_id, limit=9)
    assert [*first, *rest] == every
    assert not any("Jane" in str(each.document()) for each in every)
    (unknown,) = await booked_lines(shop.context, stands="bank_line_unknown", limit=9)
    whole = await booked_line(shop.context, unknown.line.line_id)
    assert whole.whole_document()["counterparty"] == "Jane Doe"
    assert await booked_lines(shop.context, as_of=T, limit=9) == []
    with pytest.raises(NotFoundError):
        await booked_line(shop.context, "bnk_none")
    with pytest.raises(NotFoundError):
        await booked_lines(shop.context, after="bnk_none", limit=9)
    with pytest.raises(UsageError, match="by_exchange"):
        check_bucket("nowhere")
