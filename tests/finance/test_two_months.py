"""Two months of a shop with its providers' real exports: imported, matched, booked and closed by
commands, to the cent, with no break that is not true."""

import asyncio
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.database.builders import opened
from tests.finance.shop import Ended, ran
from tests.finance.two_months import MONTHS, SECRET, SHORT_CODE, TwoMonths

BEAN_CHECK = Path(sys.executable).with_name("bean-check")
UNDER_WAY = ("Assets:Clearing", "Assets:Wallets", "Liabilities:Unallocated")


class Books:
    """The shop's database, and its finance person, who works by commands."""

    def __init__(self, folder: Path) -> None:
        self.shop, self.folder = TwoMonths(folder / "files"), folder
        self.files = self.shop.write()
        self._url = f"sqlite+aiosqlite:///{folder}/t.db"

        async def hear() -> None:
            async with opened(self._url) as inbox:
                await self.shop.heard(inbox)

        asyncio.run(hear())

    def ran(self, *words: str) -> Ended:
        stripe, mpesa = "TALLYHOOK_SOURCES__STRIPE__", "TALLYHOOK_SOURCES__MPESA__"
        return ran(
            words,
            {
                "TALLYHOOK_ENVIRONMENT": "sandbox",
                "TALLYHOOK_DATABASE_URL": self._url,
                "TALLYHOOK_TIMEZONE": "Africa/Nairobi",
                f"{stripe}PROFILE": "stripe",
                f"{stripe}SECRETS": SECRET,
                f"{stripe}ONLY": '{"data.object.metadata.shop": ["main"]}',
                f"{mpesa}PROFILE": "mpesa_stk",
                f"{mpesa}ADDRESS": "kq7Zp2Xw9Lr4Tn6Vb8",
                f"{mpesa}CREDENTIALS": f'{{"consumer": "k:s", "shortcode": "{SHORT_CODE}", '
                '"timestamp": "20241120100000", "password": "cGFzcw=="}',
            },
        )

    def did(self, *words: str) -> Ended:
        ended = self.ran(*words)
        assert ended.code == 0, (words, ended.err, ended.out[:2_000])
        return ended

    def imports(self, month: str) -> None:
        """Import a month's files, of which some do not state their days."""
        some = [str(path) for name, path in self.files.items() if name.startswith(month)]
        last = {"2024-10": "31", "2024-11": "30"}[month]
        self.did("import", *some, "--from", f"{month}-01", "--to", f"{month}-{last}")

    def breaks(self) -> Counter[tuple[str, str]]:
        """Reconcile; return the breaks as `TwoMonths.expected` names them."""
        run = self.did("reconcile", "run", "--format", "json").document
        assert run["ties"]
        return Counter((each["cause"], name_of(each)) for each in run["breaks"])

    def balances(self) -> dict[tuple[str, str], Decimal]:
        """Return what accounts of money under way hold, by account and currency; bean-check must
        find nothing wrong with the journal."""
        path = self.folder / "all.beancount"
        words = ("--from", "2024-10-01", "--to", "2024-11-30", "-o", str(path))
        self.did("report", "journal", *words)
        checked = subprocess.run([BEAN_CHECK, path], capture_output=True, text=True, check=False)
        assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
        held = Counter[tuple[str, str]]()
        for line in path.read_text().splitlines():
            parts = line.split()
            if line.startswith("  ") and parts[0].startswith(UNDER_WAY):
                held[parts[0], parts[2]] += Decimal(parts[1])  # type: ignore[assignment]
        return {key: Decimal(each) for key, each in held.items() if each}


def name_of(each: dict[str, Any]) -> str:
    """Return the order or payment of a break, else the payout, or the amount that the bank has."""
    if each["cause"] == "bank_line_unknown":
        return str(each["money"]["amount"])
    return str(each["order"] or each["payment"] or each["sentence"].split(" ", 4)[3])


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Books:
    books = Books(tmp_path_factory.mktemp("months"))
    for month in MONTHS:
        books.imports(month)
    return books


def test_the_months_are_the_same_however_often_they_are_made(tmp_path: Path) -> None:
    one, other = TwoMonths(tmp_path / "one"), TwoMonths(tmp_path / "other")
    for first, second in zip(one.write().values(), other.write().values(), strict=True):
        assert first.name == second.name
        assert first.read_bytes() == second.read_bytes()


def test_a_refund_that_fails_later_is_no_break_of_its_own_month(tmp_path: Path) -> None:
    """November's statement, which gives it back, is not imported yet."""
    october = Books(tmp_path)
    october.imports(MONTHS[0])
    assert october.shop.odd["refund failed"] not in {name for _, name in october.breaks()}


def test_every_break_is_true(books: Books) -> None:
    assert books.breaks() == books.shop.expected


def test_accounts_of_money_under_way_hold_what_breaks_leave(books: Books) -> None:
    assert books.balances() == books.shop.left


def test_fees_suggested_from_one_month_are_right_in_both(books: Books, tmp_path: Path) -> None:
    """By card country, also of settled yen; a wrong percentage is noticed."""
    first, _ = MONTHS
    suggested = books.did("fees", "suggest", "--from", f"{first}-01", "--to", f"{first}-31").out
    rules = tmp_path / "rules.toml"
    found = []
    for text in (suggested, suggested.replace(b'"1.5"', b'"1.4"')):
        rules.write_bytes(text)
        run = books.did("reconcile", "run", "--rules", str(rules), "--format", "json").document
        found.append(sum(each["cause"] == "fee_unexpected" for each in run["breaks"]))
    assert found[0] == 0
    assert found[1] > 50
