"""A month closed from pages alone, in a real browser: from the invitation to the report."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.access.credentials import step_of, totp_code
from app.access.sessions import invite_operator
from app.config.load import load_settings
from app.core.clock import SystemClock
from app.wiring.opening import open_context
from reconcile.instants import format_instant, parse_instant
from tests.api.driving import driving, environ, event
from tests.browser.conftest import Looking, new_context
from tests.browser.test_console import (
    LONG,
    SEEN,
    SIZES,
    VIOLATIONS,
    WIDE,
    Seen,
    axe,
    console_on,
    listen,
)
from tests.ports import free_port
from tests.waiting import soon

pytestmark = [pytest.mark.browser, pytest.mark.slow]

THEN = parse_instant("2024-10-10T10:00:00Z")
MONTH = "2024-10"
PASSWORD = "four words in a row"

PRICES = {1: 1500, 2: 1400, 3: 1500, 4: 99}
PAID = (
    (1, "pay_1", 1500),
    (2, "pay_2", 1400),
    (3, "pay_3", 1499),
    (3, "pay_3", 1450),
    (4, "pay_4", 99),
    (4, "pay_5", 99),
)
"""Order, payment, amount: of one payment the provider says two things, one order is paid twice."""

STATEMENT = """\ufeffTransaction ID,Type,Order,Created (UTC),Currency,Gross,Fee,Net,Payout
pay_1,charge,ORD-1,2024-10-10 12:00:00,kes,"1,500.00",43.50,"1,456.50",po_7
pay_2,charge,ORD-2,2024-10-10 12:05:00,kes,"1,400.00",40.60,"1,359.40",po_7
pay_3,charge,ORD-3,2024-10-10 12:09:00,kes,"1,499.00",43.47,"1,455.53",po_7
pay_4,charge,ORD-4,2024-10-31 23:00:00,kes,99.00,,,po_8
pay_5,charge,ORD-4,2024-10-31 23:00:00,kes,99.00,,,po_8
pay_9,chargeback fee,,sometime,kes,12.00,,,po_8
Total,,,,kes,"4,597.00",,,
"""
"""A provider's file: a mark of its encoding, marks of thousands, words of its own, a row that sums
up, and one that nobody can read."""

OF_PROVIDER = """thousands = ","
zone = "UTC"
[columns]
payment_reference = "Transaction ID"
order_reference = "Order"
settled_at = "Created (UTC)"
gross = "Gross"
payout = "Payout"
[words.type]
charge = "payment"
"chargeback fee" = "fee"
"""

BANK = "booked_at,amount,currency,text\n2024-10-12,4271.43,KES,PAYOUT po_7\n"

BOOK = """Rechnung;Betrag;Datum;Status;Kommentar
ORD-1;1.500,00;10.10.2024;bezahlt;
ORD-2;1.500,00;10.10.2024;bezahlt;wrote it down wrongly
ORD-3;1.500,00;10.10.2024;bezahlt;
ORD-4;99,00;10.10.2024;bezahlt;
"""
"""A shop's file from a spreadsheet of another country."""

OF_SHOP = """delimiter = ";"
decimal = ","
thousands = "."
dates = "day_first"
zone = "Africa/Nairobi"
[columns]
reference = "Rechnung"
amount = "Betrag"
placed_at = "Datum"
[defaults]
currency = "KES"
[words.status]
bezahlt = "paid"
"""


async def prepared(folder: Path) -> str:
    """Make a database with four paid orders of a past month, and mappings of two files; return the
    token of the first invitation."""
    mappings = folder / "mappings"
    mappings.mkdir()
    (mappings / "the provider.toml").write_text(OF_PROVIDER)
    (mappings / "our shop.toml").write_text(OF_SHOP)
    (folder / "payouts-october.csv").write_text(STATEMENT)
    (folder / "rechnungen.csv").write_text(BOOK)
    (folder / "bank.csv").write_text(BANK)
    async with driving(folder, at=THEN, looking=True) as driver:
        for place, (number, payment, amount) in enumerate(PAID):
            await driver.send(
                event(
                    f"evt_{place}",
                    occurred_at=format_instant(THEN),
                    order={"reference": f"ORD-{number}", "amount": PRICES[number]},
                    session={"reference": f"cs_{number}"},
                    payment={"reference": payment, "amount": amount},
                )
            )
        await soon(lambda: len(driver.rows("SELECT DISTINCT order_key FROM revisions")) == 4)
    async with open_context(load_settings(environ(folder)), purpose="writing") as context:
        return await invite_operator(context, name="Ann", role="admin", by=None)


COMPLETE = "main:not(:has([data-again]))"
"""A page that does not load itself again, as one does whose answer is still being made."""


class Story:
    """Ann's acts, page by page; each page that is new to the story is measured."""

    def __init__(self, page: Any, url: str, found: Seen, measured: Callable[[Any, str], None]):
        self._page, self._url = page, url
        self._measured = measured

    def comes_in(self, token: str) -> None:
        """Accept the invitation: a password, and the code of an authenticator."""
        page = self._page
        page.goto(f"{self._url}/invite#{token}")
        page.fill("#password", PASSWORD)
        page.fill("#again", PASSWORD)
        page.wait_for_selector(".qr svg")
        self._measured(page, "invitation")
        secret = page.locator(".secret").inner_text().replace(" ", "").strip()
        page.fill("#code", totp_code(secret, step_of(SystemClock().now())))
        page.click("text=Set it and sign in")
        page.wait_for_url(f"{self._url}/")

    def sends(self, path: Path, *, kind: str, mapping: str, account: str = "") -> str:
        """Send a file of October, by the menu; return what its dry run says."""
        page = self._page
        self._leads("nav >> text=Finance")
        self._leads("nav.beside >> text=Imports")
        self._measured(page, "imports")
        page.click("text=Choose how to read them")
        page.set_input_files("#field-file", str(path))
        page.select_option("#field-kind", kind)
        page.select_option("#field-mapping", mapping)
        page.fill("#field-account", account)
        page.fill("#field-first_day", "2024-10-01")
        page.fill("#field-last_day", "2024-11-15")
        self._measured(page, "upload form")
        page.click("button:has-text('Read them')")
        self._arrives(r"/imports/upl_")
        self._measured(page, f"dry run of {kind}")
        return str(page.locator("main").inner_text())

    def imports(self) -> str:
        page = self._page
        page.click("button:has-text('Import')")
        page.wait_for_selector(".badge:has-text('imported')")
        self._measured(page, "import done")
        told = str(page.locator("main").inner_text())
        if page.locator("text=Take it back").count():
            self._leads("text=Take it back")
            self._measured(page, "taking back form")
            page.go_back()
        return told

    def runs(self) -> str:
        page = self._page
        page.click("text=Start a run")
        page.fill("#reason", "October's files are in")
        page.click("button:has-text('Run it now')")
        page.wait_for_selector("text=Run 1")
        self._measured(page, "runs")
        told = str(page.locator("main").inner_text())
        page.click("tbody a.row >> nth=0")
        page.wait_for_selector("h1:has-text('Run 1')")
        self._measured(page, "run")
        self._leads("td[data-name=Rows] a >> nth=0")
        self._measured(page, "rows of a run")
        page.goto(f"{self._url}/trail/po_7")
        page.wait_for_selector(COMPLETE)
        self._measured(page, "trail")
        return told

    def checks(self) -> str:
        """Open the checklist of the month; return what is against closing it."""
        page = self._page
        self._leads("nav.beside >> text=Months")
        self._measured(page, "months")
        self._leads(f"a:has-text('{MONTH}')")
        self._measured(page, "checklist")
        return str(page.locator("main").inner_text())

    def accepts(self) -> None:
        """Accept a break that the checklist leads to."""
        page = self._page
        self._leads("li:has-text('to be resolved') >> text=Look at it")
        self._measured(page, "breaks")
        self._leads("tbody a.row >> nth=0")
        self._measured(page, "break")
        page.goto(page.url.replace("/breaks/", "/match/"))
        self._measured(page, "find and match")
        page.go_back()
        page.go_back()
        page.check("input[name=break] >> nth=0")
        self._leads("text=Accept the chosen")
        self._measured(page, "accept form")
        page.fill("#reason", "one shilling, not worth a letter")
        page.click("button:has-text('Accept it')")
        page.wait_for_selector("text=Accepted: nothing more is to be done")

    def decides(self) -> str:
        """Decide about the money that came twice."""
        page = self._page
        self._leads("nav.beside >> text=Late money")
        self._measured(page, "late money")
        page.click("text=Decide…")
        page.fill("#reason", "it came twice")
        self._measured(page, "decision")
        page.click("button:has-text('Decide it')")
        page.wait_for_selector("text=It was decided")
        return str(page.locator("main").inner_text())

    def tries_rules(self) -> None:
        """Look at what a tolerance would change."""
        page = self._page
        self._leads("nav.beside >> text=Rules")
        self._measured(page, "rules")
        self._leads("text=Set a limit")
        self._measured(page, "form of a limit")
        page.go_back()
        self._leads("text=Try rules")
        self._measured(page, "rules form")
        page.fill("#field-rules", '[tolerance]\nKES = "100.00"\n')
        page.click("button:has-text('Compare')")
        self._arrives(r"/previews/job_")
        self._measured(page, "preview")
        self._leads("text=Put them in force")
        self._measured(page, "rules to be in force")
        page.go_back()

    def closes(self) -> str:
        page = self._page
        page.click("text=Close it…")
        page.fill("#reason", "October is complete")
        page.fill("#password", PASSWORD)
        page.click("button:has-text('Close it')")
        page.wait_for_selector(".badge:has-text('closed')")
        self._measured(page, "closed month")
        return str(page.locator("main").inner_text())

    def downloads(self) -> bytes:
        """Return the report as it was closed."""
        page = self._page
        with page.expect_download() as waiting:
            page.click("text=Its report")
        return Path(waiting.value.path()).read_bytes()

    def _leads(self, link: str) -> None:
        """Follow a link and wait for the next page: a click alone returns while the old document is
        replaced."""
        with self._page.expect_navigation():
            self._page.click(link)
        self._page.wait_for_selector(COMPLETE)

    def _arrives(self, where: str) -> None:
        self._page.wait_for_url(re.compile(where))
        self._page.wait_for_selector(COMPLETE)


CHECKED = SEEN if LONG else SEEN[1:]
"""Widths and schemes for the accessibility checker: narrow and dark, and all in the long form."""


def measuring(found: Seen, script: str | None) -> Callable[[Any, str], None]:
    """Return a function that measures a page wide in the light and narrow in the dark: its
    overflow, and the findings of the accessibility checker."""

    def measured(page: Any, name: str) -> None:
        if f"{name} 1280 light" in found.wide:
            return
        if script is not None:
            page.evaluate(script)
        for width, scheme in SEEN:
            page.set_viewport_size({"width": width, "height": dict(SIZES)[width]})
            page.emulate_media(color_scheme=scheme)
            where = f"{name} {width} {scheme}"
            found.wide[where] = page.evaluate(WIDE)
            if script is not None and (width, scheme) in CHECKED:
                found.violations[where] = page.evaluate(VIOLATIONS)
        page.set_viewport_size(dict(zip(("width", "height"), SIZES[0], strict=True)))

    return measured


def played(folder: Path, look: Looking[Seen], measure: Any = measuring) -> Seen:
    """Play the whole story; return what was said on the way."""
    token = asyncio.run(prepared(folder))
    found, script = Seen(), axe()
    with console_on(folder, free_port(), CONSOLE__MAPPINGS=str(folder / "mappings")) as url:

        def use(browser: Any) -> Seen:
            page = new_context(browser, color_scheme="light").new_page()
            listen(page, url, found)
            story = Story(page, url, found, measure(found, script))
            said = found.plain
            story.comes_in(token)
            said["statement"] = story.sends(
                folder / "payouts-october.csv", kind="statement", mapping="the provider"
            )
            said["statement done"] = story.imports()
            said["book"] = story.sends(folder / "rechnungen.csv", kind="book", mapping="our shop")
            said["book done"] = story.imports()
            said["bank"] = story.sends(folder / "bank.csv", kind="bank", mapping="", account="main")
            story.imports()
            said["run"] = story.runs()
            said["against"] = story.checks()
            story.accepts()
            said["late"] = story.decides()
            story.tries_rules()
            said["free"] = story.checks()
            said["closed"] = story.closes()
            said["report"] = story.downloads().decode()
            return found

        return look(use)


@pytest.fixture(scope="module")
def seen(look: Looking[Seen], tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return played(tmp_path_factory.mktemp("month"), look)


@pytest.mark.soak
def test_a_month_is_closed_from_pages_alone(seen: Seen) -> None:
    """Each page says what the next one is needed for."""
    said = seen.plain
    assert "1 of 6 rows are not clear" in said["statement"]
    assert "KES 4,597.00" in said["statement"]
    assert "1 row that was set aside" in said["statement done"]
    assert "Every row is clear" in said["book"]
    assert "main: 2024-10-01 to 2024-11-15, as you declare" in said["bank"]
    assert "everything" in said["run"]
    assert "Breaks to be decided, order to be resolved: 1" in said["against"]
    assert "waits for refund" in said["late"]
    assert "Nothing is against closing it" in said["free"]
    assert "Ann closed it" in said["closed"]
    assert MONTH in said["report"]


@pytest.mark.soak
def test_its_pages_fit_and_have_nothing_to_complain_of(seen: Seen) -> None:
    """The real content security policy applies."""
    assert {name: wide for name, wide in seen.wide.items() if wide > 0} == {}
    assert (seen.said, seen.elsewhere) == ([], [])
    assert {name: each for name, each in seen.violations.items() if each} == {}
