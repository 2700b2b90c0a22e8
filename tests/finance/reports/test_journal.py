"""The journal: balanced, accepted by the real bean-check, and unbreakable by any text."""

import csv
import io
import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from app.core.cells import cell_text
from app.core.errors import ConfigurationError, UsageError
from app.finance.reports.accounts import DEFAULTS, FILE, Accounts, accounts_of
from app.finance.reports.journal import USUAL, JournalText
from app.finance.reports.journal_forms import (
    JOURNAL_FORMATS,
    JOURNAL_FORMS,
    JournalForm,
    JournalFormat,
)
from reconcile.instants import DAY, TICK, Instant, format_instant
from reconcile.matching.breaks import Break, Step, life
from reconcile.matching.rules import Coverage, MatchRules, Terms
from reconcile.matching.settling import never_notified
from reconcile.money import Money, from_major, major_text
from reconcile.reporting.inputs import OrderSeen
from reconcile.reporting.journal import (
    Adjusts,
    Posting,
    Revenue,
    Transaction,
    transactions,
    written_off,
)
from reconcile.reporting.own_currency import Rates
from reconcile.reporting.tally import PeriodTally
from tests.finance.reports.payloads import PAYLOADS, is_formula
from tests.finance.reports.samples import END, START, breaks, line, orders, scope, taken, taking
from tests.reconcile.books_truth import statement_row
from tests.rows import for_each
from tests.searching import every
from tests.waiting import PATIENCE_S

BEAN_CHECK = Path(sys.executable).with_name("bean-check")
LATER = END + 30 * DAY


def month(count: int = 60, *, start: Instant = START, end: Instant = LATER) -> list[Transaction]:
    """Return the transactions of a generated month and its settlement, and what was written off."""
    found = [each for seen in orders(count) for each in transactions(seen, start=start, end=end)]
    return found + [each for seen in breaks(40) for each in booked(seen.found)]


def did(kind: Any, minor: int, *, at: Instant = START, cites: tuple[str, ...] = ()) -> Step:
    """One step of the life of a break that leaves all of its money."""
    money = Money(minor=minor, currency="KES")
    return Step(at=at, kind=kind, money=money, by="ann", cites=cites, left=(money,))


def booked(
    found: Break, *steps: Step, start: Instant = START, end: Instant = LATER
) -> list[Transaction]:
    """Return what an acceptance leaves in the journal; without steps, at the break's money."""
    given = steps or tuple(
        Step(at=START, kind=kind, money=found.money, by="ann", left=found.left)
        for kind in ("opened", "accepted")
    )
    return list(written_off(found, given, start=start, end=end))


def written(
    some: list[Transaction], form: JournalFormat = "beancount", accounts: Accounts = USUAL
) -> str:
    journal = JournalText(form, accounts=accounts, scope=scope(merchant='a "title" \\'))
    return journal.head() + "".join(map(journal.transaction, some)) + journal.foot()


def checked(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = folder / "journal.beancount"
    path.write_text(text, encoding="utf-8")
    return subprocess.run([BEAN_CHECK, path], capture_output=True, text=True, timeout=PATIENCE_S)


def sums(some: list[Transaction]) -> Counter[tuple[str, str]]:
    """Return debit less credit by role and currency."""
    found: Counter[tuple[str, str]] = Counter()
    for each in some:
        for posting in each.postings:
            found[posting.role, each.currency] += posting.minor
    return found


def test_bean_check_accepts_the_journal_of_a_month(tmp_path: Path) -> None:
    some = month()
    assert {each.what for each in some} > {"captured", "refunded", "settled payment"}
    done = checked(written(some), tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_bean_check_refuses_a_planted_imbalance(tmp_path: Path) -> None:
    some = month()
    first, *rest = some[0].postings
    some[0] = replace(some[0], postings=(Posting(role=first.role, minor=first.minor + 1), *rest))
    done = checked(written(some), tmp_path)
    assert done.returncode == 1
    assert "does not balance" in done.stdout + done.stderr


def test_every_transaction_adds_up_to_nothing() -> None:
    assert all(sum(posting.minor for posting in each.postings) == 0 for each in month(300))


def test_its_totals_are_those_of_the_report() -> None:
    """Captures and refunds by their own dates; bank and fees by the statement's."""
    found = sums([each for seen in orders(90) for each in transactions(seen, start=START, end=END)])
    money: dict[tuple[str, str, str], int] = {}
    for basis in ("captured", "settled"):
        tally = PeriodTally(scope(basis))
        for seen in orders(90):
            tally.order(seen)
        money |= {(basis, row.flow, row.currency): row.sum for row in tally.report().money}
    for currency in ("KES", "JPY", "KWD"):
        captured, refunded = (
            money["captured", flow, currency] for flow in ("captured", "refunded")
        )
        assert captured > refunded > 0
        assert -found["receivable", currency] == captured - refunded
        assert found["bank", currency] == money["settled", "settled", currency] > 0
        assert found["fees", currency] == money["settled", "fees", currency] > 0


def test_the_balance_of_clearing_is_what_is_not_settled() -> None:
    paid, other = taken(10_000, START), taken(7_000, START, order="B")
    missed = line(taken(500, START, order="C"), START + TICK, fee=20)
    some = [
        OrderSeen(taking=taking("A", START, paid), lines=(line(paid, START + TICK, fee=300),)),
        OrderSeen(taking=taking("B", START, other)),
        OrderSeen(taking=None, lines=(missed,)),
    ]
    found = sums([each for seen in some for each in transactions(seen, start=START, end=END)])
    assert found["clearing", "KES"] == 7_000 - 500
    assert found["bank", "KES"] == 9_700 + 480


def test_each_transaction_names_order_payment_and_what_it_rests_on() -> None:
    found = month(10)[1]
    assert found.what == "settled payment"
    assert (found.order, found.payment) == ("ORD-00000", "pay_ORD-00000")
    assert found.cites == ("stm_pay_ORD-00000_1000", "evt_ORD-00000_captured_1000")


def test_exactly_what_a_break_leaves_in_clearing_is_written_off() -> None:
    found = next(each.found for each in breaks(3))
    left = (Money(minor=-70, currency="JPY"), Money(minor=300, currency="KES"))
    steps = [
        Step(at=START, kind=kind, money=found.money, by="ann", left=left)
        for kind in ("opened", "accepted")
    ]
    assert sums(booked(found, *steps)) == {
        ("clearing", "JPY"): 70,
        ("write_offs", "JPY"): -70,
        ("clearing", "KES"): -300,
        ("write_offs", "KES"): 300,
    }
    assert booked(found, *(replace(step, left=()) for step in steps)) == []


def test_an_acceptance_ends_when_the_break_leaves_another_sum() -> None:
    """Though its own money is the same: 50 too much, and then 50 too little."""
    found = next(each.found for each in breaks(20) if each.found.cause == "amount_differs")
    more, less = (Money(minor=minor, currency="KES") for minor in (50, -50))
    steps = (
        replace(did("opened", 50), left=(more,)),
        did("accepted", 50, at=START + TICK),
        replace(did("changed", 50, at=START + 2 * TICK), left=(less,)),
    )
    posted = [each.postings[0].minor for each in booked(found, *steps)]
    assert posted == [-50, 50]
    assert life(steps).state == "open"


def test_a_write_off_is_taken_back_when_its_money_changed_or_evidence_came() -> None:
    """Each in the period in which it was known, at the money of then: the journals of all periods
    add up to what is written off in the end, and none of them is ever another."""
    found = next(each.found for each in breaks(20) if each.found.cause == "not_settled")
    steps = (
        did("opened", 100),
        did("accepted", 100, at=START + TICK),
        did("accepted", 100, at=START + 2 * TICK),
        did("changed", 120, at=START + 11 * TICK),
        did("accepted", 120, at=START + 12 * TICK),
        did("closed", 120, at=START + 21 * TICK, cites=("stm_1.2",)),
    )
    transactions = [
        [(each.what, each.postings[0].minor, each.at - START) for each in
         booked(found, *steps, start=start, end=start + 10 * TICK)]
        for start in (START + later * TICK for later in (0, 10, 20, 30))
    ]  # fmt: skip
    back = "write-off taken back: not_settled"
    assert transactions == [
        [("written off: not_settled", -100, 1)],
        [(back, 100, 11), ("written off: not_settled", -120, 12)],
        [(back, 120, 21)],
        [],
    ]
    assert booked(found, *steps)[-1].cites == (found.identity, "stm_1.2")
    assert sum(posting.minor for each in booked(found, *steps) for posting in each.postings) == 0


@for_each(
    ("kind", "minor"), [("payment", 500), ("refund", -500), ("dispute", -500), ("dispute", 500)]
)
def test_a_written_off_line_that_no_webhook_stated_leaves_nothing_in_clearing(
    kind: Any, minor: int
) -> None:
    missed = replace(
        line(taken(500, START), START + TICK), kind=kind, gross=minor, fee=0, net=minor
    )
    seen = OrderSeen(taking=None, lines=(missed,))
    found = never_notified(
        statement_row(missed), Terms(rules=MatchRules(), as_of=LATER, coverage=Coverage())
    )
    some = [*transactions(seen, start=START, end=LATER), *booked(found)]
    assert len(some) == 2
    assert sums(some)["clearing", found.money.currency] == 0


def test_an_adjusting_entry_names_its_closed_month_and_its_dates_in_each_form(
    tmp_path: Path,
) -> None:
    from beancount import loader

    first = month(1)[0]
    adjusts = Adjusts(period="2026-09", original_date="2026-09-30", tax_date="2026-09-29")
    some = [replace(first, adjusts=adjusts)]
    text = written(some)
    assert checked(text, tmp_path).returncode == 0
    entries, _, _ = loader.load_file(str(tmp_path / "journal.beancount"))
    (entry,) = [each for each in entries if type(each).__name__ == "Transaction"]
    stated = {
        "original_date": "2026-09-30",
        "tax_date": "2026-09-29",
        "closed_period": "2026-09",
    }
    assert {name: entry.meta[name] for name in stated} == stated
    rows = list(
        csv.DictReader(io.StringIO(written(some, "csv").removeprefix("\ufeff"), newline=""))
    )
    (document,) = json.loads(written(some, "json"))["transactions"]
    for each in (*rows, document):
        assert {name: each[name] for name in stated} == stated
    assert all(
        not each["tax_date"] for each in json.loads(written([first], "json"))["transactions"]
    )


HOSTILE = (
    *PAYLOADS,
    '"',
    "\\",
    '\\"',
    'x"\n2026-01-01 open Assets:Evil',
    "a\nb",
    "\x00\x1f\x7f",
    "\ud800",
    "; comment",
    "{{",
    "#tag ^link",
    "💶 ₹",
)


def test_no_text_breaks_the_syntax_and_each_stands_in_its_transaction(tmp_path: Path) -> None:
    from beancount import loader

    first = month(1)[0]
    some = [replace(first, order=text, payment=text, cites=(text,)) for text in HOSTILE]
    text = written(some)
    assert checked(text, tmp_path).returncode == 0
    entries, errors, _ = loader.load_file(str(tmp_path / "journal.beancount"))
    assert not errors
    found = [entry for entry in entries if type(entry).__name__ == "Transaction"]
    by_line = sorted(found, key=lambda entry: entry.meta["lineno"])
    assert [_named(entry) for entry in by_line] == [_shown(each) for each in HOSTILE]


def _named(entry: Any) -> tuple[str, str, str]:
    return entry.narration, entry.meta["payment"], entry.meta["cites"]


def _shown(text: str) -> tuple[str, str, str]:
    """Control signs, and signs that have no UTF-8, by their numbers."""
    whole = text.encode("utf-8", "backslashreplace").decode()
    shown = "".join(f"\\x{ord(c):02x}" if ord(c) < 32 or ord(c) == 127 else c for c in whole)
    return shown, shown, shown


def test_the_csv_journal_balances_and_has_no_formula() -> None:
    first = month(1)[0]
    some = [*month(), *(replace(first, order=text, cites=(text,)) for text in PAYLOADS)]
    text = written(some, "csv").removeprefix("\ufeff")
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    left: Counter[str] = Counter()
    for row in rows:
        left[row["transaction"]] += Decimal(row["amount"])  # type: ignore[assignment]
        assert not any(is_formula(row[name]) for name in ("order", "cites", "account"))
    assert len(left) == len(some)
    assert set(left.values()) == {Decimal(0)}
    assert [cell_text(row["order"]) for row in rows[-2 * len(PAYLOADS) :: 2]] == list(PAYLOADS)


@for_each("form", [name for name, kind in JOURNAL_FORMS.items() if kind.columns])
def test_no_form_with_columns_has_a_formula(form: JournalFormat) -> None:
    """Neither from an order nor from the merchant's own codes."""
    first = month(1)[0]
    for text in (before + each for before in ("", "x;") for each in PAYLOADS[:: every(3)]):
        accounts = Accounts(codes=dict.fromkeys(DEFAULTS.values(), text), no_tax=text)
        some = [replace(first, order=text, payment=text, cites=(text,))]
        found = written(some, form, accounts).removeprefix("\ufeff")
        for row in csv.reader(io.StringIO(found, newline=""), strict=True):
            for cell in row:
                assert re.fullmatch(r"-[0-9.]+", cell) or not is_formula(cell), (text, cell)


def test_the_json_journal_is_that_of_the_csv_in_one_document() -> None:
    first = month(1)[0]
    some = [*month(), *(replace(first, order=text, cites=(text,)) for text in HOSTILE)]
    document = json.loads(written(some, "json").encode("utf-8", "backslashreplace"))
    rows = list(
        csv.DictReader(io.StringIO(written(some, "csv").removeprefix("\ufeff"), newline=""))
    )
    names = ("transaction", "date", "what", "account", "amount", "currency")
    assert [
        {
            **{name: str(each[name]) for name in ("transaction", "date", "what")},
            **{"account": part["account"], **part["money"]},
        }
        for each in document["transactions"]
        for part in each["postings"]
    ] == [{name: row[name] for name in names} for row in rows]
    assert [(each["order"], each["cites"]) for each in document["transactions"]] == [
        (each.order, list(each.cites)) for each in some
    ]
    assert document["count"] == len(some)
    posted = {
        (each["role"], each["money"]["currency"]): each["minor"] for each in document["totals"]
    }
    assert posted == sums(some)
    assert all(each["account"] == DEFAULTS[each["role"]] for each in document["totals"])
    for each in (
        *document["totals"],
        *(part for one in document["transactions"] for part in one["postings"]),
    ):
        assert from_major(each["money"]["amount"], each["money"]["currency"]).minor == each["minor"]
    assert (document["from"], document["merchant"]) == (format_instant(START), 'a "title" \\')


def test_a_json_journal_of_nothing_is_a_document() -> None:
    document = json.loads(written([], "json"))
    assert (document["transactions"], document["count"], document["totals"]) == ([], 0, [])


def test_a_file_names_the_merchants_own_accounts() -> None:
    named = accounts_of('[accounts]\nbank = "Assets:KCB:Till-7"\n')
    assert named == Accounts(names={**DEFAULTS, "bank": "Assets:KCB:Till-7"})


def test_the_file_to_edit_is_right_as_it_is_and_with_its_examples() -> None:
    assert accounts_of(FILE) == Accounts()
    examples = re.sub(r"^#(?! )", "", FILE, flags=re.MULTILINE)
    found = accounts_of(examples)
    assert found.revenue == Revenue(taxes={"sales": 160_000})
    assert (found.codes, found.no_tax) == ({"Assets:Bank": "090"}, "No VAT")
    assert found.overrides[0].names == {"clearing": "Assets:Clearing:Mpesa"}


MERCHANT = """
revenue_at = "fulfilment"
[[override]]
source = "shop"
currency = "JPY"
clearing = "Assets:Tokyo"
[[override]]
method = "card"
fees = "Expenses:Fees:Cards"
[codes]
"Assets:Tokyo" = "090"
[tax_codes]
default = "No VAT"
sales = "20% VAT"
[tax_percent]
"20% VAT" = "20"
"""


@for_each(
    ("transaction", "posting", "name"),
    [
        ({}, {"role": "clearing"}, "Assets:Clearing:Provider"),
        ({"currency": "JPY"}, {"role": "clearing"}, "Assets:Tokyo"),
        ({"currency": "JPY", "source": "other"}, {"role": "clearing"}, "Assets:Clearing:Provider"),
        ({"method": "card"}, {"role": "fees"}, "Expenses:Fees:Cards"),
        ({"method": "wallet"}, {"role": "fees"}, "Expenses:Fees:Payments"),
        ({}, {"role": "other_business", "account": "Income:Rent"}, "Income:Rent"),
        (
            {"source": "m-pesa 2"},
            {"role": "bank", "sub_account": "charges paid"},
            "Assets:Bank:M-pesa-2:Charges-paid",
        ),
    ],
)
def test_an_account_is_that_of_its_source_currency_and_method(
    transaction: dict[str, Any], posting: dict[str, Any], name: str
) -> None:
    given = replace(month(1)[0], **{"source": "shop", "currency": "KES", **transaction})
    assert accounts_of(MERCHANT).name_of(Posting(minor=1, **posting), given) == name


def re_added(text: str, form: JournalFormat) -> Counter[tuple[str, str, str]]:
    """Add up a journal by account, currency and transaction or, where days are added up, by day."""
    sums: Counter[tuple[str, str, str]] = Counter()
    if form == "json":
        for each in json.loads(text)["transactions"]:
            for part in each["postings"]:
                key = (part["account"], part["money"]["currency"], str(each["transaction"]))
                sums[key] += Decimal(part["money"]["amount"])  # type: ignore[assignment]
        return sums
    if form == "beancount":
        number = 0
        for row in text.splitlines():
            parts = row.split()
            number += " * " in row
            if len(parts) == 3 and row.startswith("  ") and not parts[0].endswith(":"):
                sums[parts[0], parts[2], str(number)] += Decimal(parts[1])  # type: ignore[assignment]
        return sums
    for cells in csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline="")):
        if form == "csv":
            key, amount = (
                (cells["account"], cells["currency"], cells["transaction"]),
                cells["amount"],
            )
        elif form == "xero":
            currency = cells["*Narration"].rpartition(" ")[2]
            key, amount = (cells["*AccountCode"], currency, cells["*Narration"]), cells["*Amount"]
        else:
            key = (cells["Account Name"], cells["Currency"], cells["Journal No."])
            amount = cells["Debits"] or f"-{cells['Credits']}"
        sums[key] += Decimal(amount)  # type: ignore[assignment]
    return sums


@for_each("form", JOURNAL_FORMATS)
def test_each_form_adds_up_to_nothing_and_has_the_same_balances(form: JournalFormat) -> None:
    some = month(90)
    found = re_added(written(some, form), form)
    left: Counter[tuple[str, str]] = Counter()
    balances: Counter[tuple[str, str]] = Counter()
    for (account, currency, entry), amount in found.items():
        left[entry, currency] += amount
        balances[account, currency] += amount
    assert len({currency for _, currency in left}) == 3
    assert set(left.values()) == {Decimal(0)}
    assert {key: amount for key, amount in balances.items() if amount} == {
        (DEFAULTS[role], currency): Decimal(major_text(Money(minor=minor, currency=currency)))  # type: ignore[index]
        for (role, currency), minor in sums(some).items()
        if minor
    }


def test_xero_and_quickbooks_get_one_journal_a_day_with_the_merchants_codes() -> None:
    some = [replace(each, currency="JPY") for each in month(1, end=END)][:1]
    accounts = accounts_of(MERCHANT)
    day = format_instant(some[0].at)[:10]
    year, month_, date = day.split("-")
    xero = written(some, "xero", accounts).removeprefix("\ufeff").splitlines()
    assert xero[0] == (
        "*Narration,*Date,Description,*AccountCode,*TaxRate,*Amount,"
        "TrackingName1,TrackingOption1,TrackingName2,TrackingOption2"
    )
    assert xero[1] == (
        f"Payments of {day} in JPY,{date}/{month_}/{year},clearing,090,No VAT,1000,,,,"
    )
    quickbooks = written(some, "quickbooks", accounts).removeprefix("\ufeff").splitlines()
    assert quickbooks[0] == (
        "Journal No.,Journal Date,Account Name,Description,Debits,Credits,Name,Currency"
    )
    assert quickbooks[1] == (
        f"TH-{year}{month_}{date}-JPY,{month_}/{date}/{year},090,Payments of {day}: clearing,"
        "1000,,,JPY"
    )


@for_each("form", JOURNAL_FORMATS)
def test_a_form_adds_up_by_day_or_writes_each_transaction(form: JournalFormat) -> None:
    kind = JOURNAL_FORMS[form]
    assert (kind.by_day is None) is not (kind.each is None)
    assert (kind.head is None) is not (kind.columns == ())


def test_one_record_is_a_form(monkeypatch: pytest.MonkeyPatch) -> None:
    sage = JournalForm(
        title="Sage",
        ending="sage.csv",
        purpose="journals to import in Sage",
        columns=("Day", "Account", "Amount"),
        by_day=lambda each: (each.day, each.account, major_text(each.money)),
    )
    monkeypatch.setattr("app.finance.reports.journal_forms.JOURNAL_FORMS", {"sage": sage})
    some = [replace(each, currency="JPY") for each in month(1, end=END)][:1]
    lines = written(some, "sage", accounts_of(MERCHANT)).removeprefix("\ufeff").splitlines()
    assert lines[:2] == ["Day,Account,Amount", f"{format_instant(some[0].at)[:10]},090,1000"]


THIRDS = Rates(
    own="USD",
    by_day={
        code: tuple((f"2026-10-{n:02}", Fraction(1, 100 + n)) for n in range(1, 16))
        for code in ("KES", "JPY", "KWD")
    },
    statements={"KES": Fraction(1, 90), "JPY": Fraction(1, 91), "KWD": Fraction(3)},
)


@for_each("form", ["xero", "quickbooks"])
def test_the_own_currency_adds_up_to_nothing_with_a_line_of_its_own(form: JournalFormat) -> None:
    journal = JournalText(form, scope=scope(), rates=THIRDS)
    for each in month(90):
        journal.transaction(each)
    found = re_added(journal.head() + journal.foot(), form)
    left: Counter[str] = Counter()
    for (_, _, entry), amount in found.items():
        left[entry] += amount
    assert {currency for _, currency, _ in found} == {"USD"}
    assert set(left.values()) == {Decimal(0)}
    rounding = [amount for (account, _, _), amount in found.items() if account.endswith("Rounding")]
    assert 0 < len(rounding) <= len(left)
    assert max(map(abs, rounding)) < Decimal("0.10")
    balances, converter = journal.own_balances() or ({}, None)
    assert converter is not None
    assert abs(sum(balances.values())) == abs(sum(rounding) * 100)
    assert {each.origin for each in converter.used()} == {"file", "statement"}


def test_json_and_beancount_have_the_rates_of_the_own_currency(tmp_path: Path) -> None:
    texts = {}
    for form in ("json", "beancount"):
        journal = JournalText(form, scope=scope(), rates=THIRDS)
        some = "".join(map(journal.transaction, month(90)))
        texts[form] = journal.head() + some + journal.foot()
    own = json.loads(texts["json"])["own"]
    assert own["currency"] == "USD"
    left = sum(Decimal(each["money"]["amount"]) for each in own["totals"])
    assert left == Decimal(own["residual"]["amount"])
    assert own["missing"] == []
    of_file = [each for each in own["rates"] if each["origin"] == "file"]
    assert [
        tuple(text.split()) for text in texts["beancount"].splitlines() if " price " in text
    ] == [(each["day"], "price", each["currency"], each["rate"], "USD") for each in of_file]
    assert checked(texts["beancount"], tmp_path).returncode == 0


def test_without_a_rate_nothing_is_written_for_import_in_the_own_currency() -> None:
    journal = JournalText("xero", scope=scope(), rates=replace(THIRDS, by_day={}, statements={}))
    journal.transaction(month(1)[0])
    with pytest.raises(UsageError, match="there is no exchange rate of KES for 2026-10-01: add it"):
        journal.foot()


def test_the_rate_of_a_statement_is_that_of_its_exchanges() -> None:
    """Both legs of an exchange follow each other, of a capture and of a refund."""
    paid, back = taken(150_000, START), taken(-15_000, START + TICK)
    lines = [
        replace(line(each, START + DAY, gross=each.minor // 120), currency="USD")
        for each in (paid, back)
    ]
    seen = OrderSeen(taking=taking("ORD-1", START, paid, back), lines=tuple(lines))
    journal = JournalText("csv", scope=scope(), rates=Rates(own="USD", by_day={}, statements={}))
    for each in transactions(seen, start=START, end=LATER):
        journal.transaction(each)
    balances, converter = journal.own_balances() or ({}, None)
    assert converter is not None
    assert [(each.text, each.origin) for each in converter.used()] == [
        ("0.0083333333", "statement")
    ]
    assert balances[DEFAULTS["receivable"], "KES"] == -1_250 + 125


def test_the_journal_says_that_it_has_payments_and_not_sales() -> None:
    assert "; This journal has payments, but no sales" in written([])
    assert json.loads(written([], "json"))["kind"] == "payments journal"
    assert "but no sales" not in written([], accounts=accounts_of('revenue_at = "fulfilment"'))


@for_each(
    ("text", "said"),
    [
        ("[accounts", "not TOML"),
        ("accounts = 3", "accounts: must be a section"),
        ('[accounts]\nbanc = "Assets:Bank"', "banc: there is no such key"),
        ('[accounts]\nbank = "assets"', "bank: write an account like Assets:Bank"),
        ('[accounts]\nbank = "Assets:Bank\\n2026-01-01 open Assets:Evil"', "bank: write an"),
        ("[accounts]\nfees = 3", "fees: write an account"),
        ("[acounts]\n", "acounts: there is no such section; there are revenue_at, accounts"),
        ('revenue_at = "capture"', "revenue_at: must be one of fulfilment"),
        ('[[override]]\nclearing = "Assets:Mpesa"', "must name the source, currency or method"),
        ('[[override]]\nsource = "mpesa"', "override.1: must name an account"),
        ('[[override]]\ncurrency = "XYZ"\nbank = "Assets:X"', "override.1.currency: "),
        ('[codes]\n"Assets:Bank" = 90', "write 1 to 200 characters"),
        ('[tax_codes]\nsale = "20%"', "tax_codes.sale: there is no such key"),
        ('[tax_percent]\n"VAT" = "101"', "write a number from 0 to 99.9999"),
        ('[tax_percent]\n"VAT" = "20"', "'VAT' is not a tax code in [tax_codes]"),
        (
            '[tax_codes]\nsales = "VAT"\n[tax_percent]\n"VAT" = "20"',
            'also write revenue_at = "fulfilment"',
        ),
    ],
)
def test_a_wrong_mapping_is_refused_with_every_mistake(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        accounts_of(text)
    assert said in str(refused.value)
