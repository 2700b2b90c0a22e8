"""Two months of a shop with its providers' real exports: imported, matched, booked and closed by
commands, to the cent, with no break that is not true."""

import asyncio
import json
import re
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from app.core.clock import SystemClock
from app.finance import report_period
from app.finance.reports.journal_forms import JOURNAL_FORMATS
from app.finance.reports.render import REPORT_FORMATS
from reconcile.instants import Instant
from reconcile.reporting.closing import Closing
from tests.database.builders import opened
from tests.finance.exports import SHORT_CODE
from tests.finance.shop import Ended, ran
from tests.finance.two_months import MONTHS, SECRET, TwoMonths
from tests.providers.named.builders import CERTIFICATE_URL, certificate

pytestmark = pytest.mark.slow

BEAN_CHECK = Path(sys.executable).with_name("bean-check")
LAST = {"2024-10": "2024-10-31", "2024-11": "2024-11-30"}
UNDER_WAY = ("Assets:Clearing", "Assets:Wallets", "Liabilities:Unallocated")


class Books:
    """The shop's database, and its finance person, who works by commands."""

    def __init__(self, folder: Path, *, orders: int = 120) -> None:
        self.shop, self.folder = TwoMonths(folder / "files", orders=orders), folder
        self.files = self.shop.write()
        self._url = f"sqlite+aiosqlite:///{folder}/t.db"
        for words in (
            ("operators", "add", "Root", "--role", "admin"),
            ("operators", "add", "Ann", "--role", "finance", "--by", "Root"),
            ("operators", "add", "Ben", "--role", "finance", "--by", "Root"),
            ("operators", "vouch", "Ann", "Ben", "--reason", "both founded the shop"),
        ):
            self.did(*words)
        for name in ("Ann", "Ben"):
            token = self.did("operators", "token", name, "--until", "1d", "--by", "Root").out
            (folder / name).write_bytes(token)

    def hear(self, month: str, *, now: Instant | None = None) -> None:
        """Let a month's webhooks come. `now`: after a closing, with the one that comes late."""

        async def hear() -> None:
            async with opened(self._url) as inbox:
                await self.shop.heard(inbox, month, now=now)
                if now is not None:
                    await self.shop.heard_late(inbox, now)

        asyncio.run(hear())

    def variables(self) -> dict[str, str]:
        stripe, mpesa = "TALLYHOOK_SOURCES__STRIPE__", "TALLYHOOK_SOURCES__MPESA__"
        return {
            "TALLYHOOK_ENVIRONMENT": "sandbox",
            "TALLYHOOK_DATABASE_URL": self._url,
            "TALLYHOOK_TIMEZONE": "Africa/Nairobi",
            f"{stripe}PROFILE": "stripe",
            f"{stripe}SECRETS": SECRET,
            f"{stripe}ONLY": '{"data.object.metadata.shop": ["main"]}',
            "TALLYHOOK_SOURCES__PAYPAL__PROFILE": "paypal",
            "TALLYHOOK_SOURCES__PAYPAL__KEYS": json.dumps(
                {"webhook_id": "WEBHOOK-1", CERTIFICATE_URL: certificate()}
            ),
            f"{mpesa}PROFILE": "mpesa_stk",
            f"{mpesa}ADDRESS": "kq7Zp2Xw9Lr4Tn6Vb8",
            f"{mpesa}CREDENTIALS": f'{{"consumer": "k:s", "shortcode": "{SHORT_CODE}", '
            '"timestamp": "20241120100000", "password": "cGFzcw=="}',
        }

    def ran(self, *words: str) -> Ended:
        return ran(words, self.variables())

    def did(self, *words: str) -> Ended:
        ended = self.ran(*words)
        assert ended.code == 0, (words, ended.err, ended.out[:2_000])
        return ended

    def imports(self, month: str) -> None:
        """Import a month's files, of which some do not state their days."""
        some = {name: str(self.files[name]) for name in self.files if name.startswith(month)}
        words = ("--by", "Ann", "--from", f"{month}-01", "--to", LAST[month])
        self.did("import", some.pop(f"{month}/paypal"), "--dates", "month_first", *words)
        self.did("import", *some.values(), *words)

    def breaks(self) -> Counter[tuple[str, str]]:
        """Reconcile; return the breaks as `TwoMonths.expected` names them."""
        run = self.did("reconcile", "run", "--format", "json").document
        assert run["ties"]
        return Counter((each["cause"], name_of(each)) for each in run["breaks"])

    def balances(self, month: str) -> dict[tuple[str, str], Decimal]:
        """Return what accounts of money under way hold at a month's end."""
        return under_way(self.journal(MONTHS[0], month))

    def journal(self, first: str, last: str) -> bytes:
        """Return the journal of some months, in which bean-check finds nothing wrong."""
        words = ("--from", f"{first}-01", "--to", LAST[last])
        return self.checked(self.did("report", "journal", *words).out)

    def checked(self, journal: bytes) -> bytes:
        path = self.folder / "checked.beancount"
        path.write_bytes(journal)
        done = subprocess.run([BEAN_CHECK, path], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")
        return journal

    def against(self, month: str) -> list[str]:
        """Return the lines that do not hold before a month is closed."""
        ready = self.ran(*self._as("Ann"), "period", "ready", month, "--format", "json")
        assert ready.code in {0, 1}, ready.err
        return [each["line"] for each in ready.document if not each["holds"]]

    def closes(self, month: str, **exceptions: str) -> None:
        """Let Ann propose to close a month, and Ben approve it."""
        some = [f"--except={line}={reason}" for line, reason in exceptions.items()]
        words = ("period", "close", month, "--reason", "every file is in", *some)
        told = self.did(*self._as("Ann"), *words)
        (found,) = set(re.findall(r"prp_\w+", told.err))
        self.did(*self._as("Ben"), "proposals", "approve", found, "--reason", "seen")

    def _as(self, name: str) -> tuple[str, str]:
        return "--token-file", str(self.folder / name)

    def printed(self, month: str) -> dict[str, bytes]:
        """Return everything that a closed month prints."""
        forms: list[tuple[str, tuple[str, ...]]] = [(form, ()) for form in REPORT_FORMATS]
        forms += [(form, ("--journal",)) for form in JOURNAL_FORMATS]
        return {
            " ".join((form, *more)): self.did(
                "period", "show", month, *more, "--format", form, "-o", "-"
            ).out
            for form, more in forms
        }


def sums(journal: bytes) -> Counter[tuple[str, str]]:
    """Sum up a journal by account and currency, in minor units of two places."""
    held = Counter[tuple[str, str]]()
    for line in journal.decode().splitlines():
        if line.startswith("  ") and (parts := line.split())[0][0].isupper():
            held[parts[0], parts[2]] += int(Decimal(parts[1]) * 100)
    return Counter({key: minor for key, minor in held.items() if minor})


def under_way(journal: bytes) -> dict[tuple[str, str], Decimal]:
    return {
        key: Decimal(minor) / 100
        for key, minor in sums(journal).items()
        if key[0].startswith(UNDER_WAY)
    }


def name_of(each: dict[str, Any]) -> str:
    """Return the order or payment of a break, else the payout, or the amount that the bank has."""
    if each["cause"] == "bank_line_unknown":
        return str(each["money"]["amount"])
    return str(each["order"] or each["payment"] or re.findall(r"payout (\S+)", each["sentence"])[0])


@dataclass
class Played:
    """Observations while October was closed, a webhook came late, and November was closed.

    printed  what October printed when it was closed
    fresh    the journal of both months, made from scratch after the first closing
    """

    books: Books
    against: dict[str, list[str]] = field(default_factory=dict)
    breaks: dict[str, Counter[tuple[str, str]]] = field(default_factory=dict)
    left: dict[str, dict[tuple[str, str], Decimal]] = field(default_factory=dict)
    printed: dict[str, bytes] = field(default_factory=dict)
    fresh: bytes = b""


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    return play(Books(tmp_path_factory.mktemp("months")))


def play(books: Books) -> Played:
    played = Played(books)
    for month in MONTHS:
        books.hear(month, now=None if month == MONTHS[0] else SystemClock().now())
        books.imports(month)
        played.breaks[month] = books.breaks()
        played.left[month] = books.balances(month)
        played.against[month] = books.against(month)
        if month == MONTHS[1]:
            with patch.object(report_period, "closings_at", no_closings):
                played.fresh = books.journal(*MONTHS)
        books.closes(month, **dict.fromkeys(played.against[month], "looked at, and known"))
        if month == MONTHS[0]:
            played.printed = books.printed(month)
    return played


async def no_closings(*_: Any) -> list[Closing]:
    return []


def test_the_months_are_the_same_however_often_they_are_made(tmp_path: Path) -> None:
    one, other = TwoMonths(tmp_path / "one"), TwoMonths(tmp_path / "other")
    for first, second in zip(one.write().values(), other.write().values(), strict=True):
        assert first.name == second.name
        assert first.read_bytes() == second.read_bytes()


def test_a_refund_that_fails_later_is_no_break_of_its_own_month(tmp_path: Path) -> None:
    """November's statement, which gives it back, is not imported yet."""
    october = Books(tmp_path)
    for month in MONTHS:
        october.hear(month)
    october.imports(MONTHS[0])
    assert october.shop.odd["refund failed"] not in {name for _, name in october.breaks()}


@pytest.mark.parametrize("month", MONTHS)
def test_every_break_is_true(played: Played, month: str) -> None:
    assert played.breaks[month] == played.books.shop.expected(month)


@pytest.mark.parametrize("month", MONTHS)
def test_accounts_of_money_under_way_hold_what_breaks_leave(played: Played, month: str) -> None:
    assert played.left[month] == played.books.shop.left(month)


def test_nothing_changes_what_a_closed_month_prints(played: Played) -> None:
    assert played.books.printed(MONTHS[0]) == played.printed


def test_a_payment_heard_of_after_the_closing_is_posted_in_the_next_month(played: Played) -> None:
    """On its first day, with its own day and month, as is a refund that failed since. With that,
    the closed months are the journal made from scratch."""
    shop = played.books.shop
    frozen = [played.books.printed(month)["beancount --journal"] for month in MONTHS]
    for each in frozen:
        played.books.checked(each)
    whole = Counter(sums(frozen[0]))
    whole.update(sums(frozen[1]))
    assert {key: minor for key, minor in whole.items() if minor} == sums(played.fresh)
    document = json.loads(played.books.printed(MONTHS[1])["json --journal"])
    adjusting = [each for each in document["transactions"] if each["closed_period"]]
    assert {each["order"] for each in adjusting} == {shop.odd["late"], shop.odd["refund failed"]}
    assert {(e["closed_period"], e["original_date"], e["date"]) for e in adjusting} == {
        (MONTHS[0], f"{MONTHS[0]}-30", f"{MONTHS[1]}-01")
    }


def test_a_year_is_one_journal_of_the_months_in_it(played: Played) -> None:
    books = played.books
    whole = books.checked(
        books.did("report", "journal", "--from", "2024-01-01", "--to", "2024-12-31").out
    )
    assert sums(whole) == sums(played.fresh)


@pytest.mark.soak
def test_the_same_of_1430_orders(tmp_path: Path) -> None:
    books = Books(tmp_path, orders=1_430)
    began = time.process_time()
    played = play(books)
    took = time.process_time() - began
    for month in MONTHS:
        assert played.breaks[month] == books.shop.expected(month)
        assert played.left[month] == books.shop.left(month)
    assert books.printed(MONTHS[0]) == played.printed
    test_a_year_is_one_journal_of_the_months_in_it(played)
    breaks = sum(played.breaks[MONTHS[1]].values())
    print(
        f"\n{len(books.shop.records):,} orders, {len(books.shop.arrivals):,} deliveries, "
        f"{breaks} breaks, all true; two months closed in {took:.1f} s of processor time"
    )


def test_both_people_and_each_exception_stand_on_the_report(played: Played) -> None:
    assert played.against == {
        MONTHS[0]: ["coverage:stripe/Available", "not_ours"],
        MONTHS[1]: ["unallocated"],
    }
    for month in MONTHS:
        told = played.books.did("period", "show", month, "--format", "table").out.decode()
        assert "Closed by Ann" in told
        assert "and Ben, approved" in told
        assert told.count("looked at, and known") == len(played.against[month])


def test_fees_suggested_from_one_month_are_right_in_both(played: Played, tmp_path: Path) -> None:
    """By card country, also of settled yen; a wrong percentage is noticed."""
    books, first = played.books, MONTHS[0]
    suggested = books.did("fees", "suggest", "--from", f"{first}-01", "--to", f"{first}-31").out
    rules = tmp_path / "rules.toml"
    found = []
    for text in (suggested, suggested.replace(b'"1.5"', b'"1.4"')):
        rules.write_bytes(text)
        run = books.did("reconcile", "run", "--rules", str(rules), "--format", "json").document
        found.append(sum(each["cause"] == "fee_unexpected" for each in run["breaks"]))
    assert found[0] == 0
    assert found[1] > 50
