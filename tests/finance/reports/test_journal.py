"""The journal: balanced, accepted by the real bean-check, and unbreakable by any text."""

import csv
import io
import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from app.core.cells import cell_text
from app.core.errors import ConfigurationError
from app.finance.report_period import JournalTotals
from app.finance.reports.journal import DEFAULTS, JournalFormat, accounts_of, foot, head, writer
from reconcile.instants import DAY, TICK, Instant, format_instant
from reconcile.matching.breaks import Break, Step, life
from reconcile.matching.settling import never_notified
from reconcile.money import Money, from_major
from reconcile.reporting.input import OrderSeen
from reconcile.reporting.journal import Posting, Transaction, transactions, written_off
from reconcile.reporting.tally import PeriodTally
from tests.finance.reports.payloads import PAYLOADS, is_formula
from tests.finance.reports.samples import END, START, breaks, line, orders, scope, taken, taking
from tests.reconcile.books_truth import statement_row
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


def written(some: list[Transaction], form: JournalFormat = "beancount") -> str:
    lines, totals = writer(form, accounts=DEFAULTS), JournalTotals()
    for each in some:
        totals.add(each)
    first = head(form, accounts=DEFAULTS, scope=scope(merchant='a "title" \\'))
    return first + "".join(map(lines, some)) + foot(form, accounts=DEFAULTS, totals=totals)


def checked(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = folder / "journal.beancount"
    path.write_text(text, encoding="utf-8")
    return subprocess.run([BEAN_CHECK, path], capture_output=True, text=True, timeout=PATIENCE_S)


def sums(some: list[Transaction]) -> Counter[tuple[str, str]]:
    """Debit less credit by role and currency."""
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
        assert -found["sales", currency] == money["captured", "captured", currency] > 0
        assert found["refunds", currency] == money["captured", "refunded", currency] > 0
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


@pytest.mark.parametrize(
    ("kind", "minor"), [("payment", 500), ("refund", -500), ("dispute", -500), ("dispute", 500)]
)
def test_a_written_off_line_that_no_webhook_stated_leaves_nothing_in_clearing(
    kind: Any, minor: int
) -> None:
    missed = replace(
        line(taken(500, START), START + TICK), kind=kind, gross=minor, fee=0, net=minor
    )
    seen = OrderSeen(taking=None, lines=(missed,))
    found = never_notified(statement_row(missed), as_of=LATER)
    some = [*transactions(seen, start=START, end=LATER), *booked(found)]
    assert len(some) == 2
    assert sums(some)["clearing", found.money.currency] == 0


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


def test_a_mapping_names_the_merchants_own_accounts() -> None:
    named = accounts_of('[accounts]\nbank = "Assets:KCB:Till-7"\n')
    assert named == {**DEFAULTS, "bank": "Assets:KCB:Till-7"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[accounts", "not TOML"),
        ("accounts = 3", "accounts: must be a section"),
        ('[accounts]\nbanc = "Assets:Bank"', "banc: there is no such key"),
        ('[accounts]\nbank = "assets"', "bank: an account is written like Assets:Bank"),
        ('[accounts]\nbank = "Assets:Bank\\n2026-01-01 open Assets:Evil"', "bank: an account"),
        ("[accounts]\nfees = 3", "fees: an account"),
        ("[acounts]\n", "acounts: there is no such section; there are accounts"),
    ],
)
def test_a_wrong_mapping_is_refused_with_every_mistake(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        accounts_of(text)
    assert said in str(refused.value)
