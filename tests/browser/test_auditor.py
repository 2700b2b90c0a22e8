"""Two months as an auditor asks about them, answered from pages alone, and the clicks of the
commonest tasks counted."""

import asyncio
import csv
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from app.core.clock import SetClock, SystemClock
from app.finance.reports.journal_forms import JOURNAL_FORMATS
from app.orders.refold import refold_until_quiet
from reconcile.instants import parse_instant
from tests.browser.conftest import Looking, new_context
from tests.browser.test_console import Seen, console_on
from tests.browser.test_finance_month import COMPLETE, PASSWORD, Story
from tests.database.builders import opened
from tests.finance.test_two_months import LAST, Books
from tests.finance.two_months import MONTHS
from tests.ports import free_port

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.soak]

OCTOBER, NOVEMBER = MONTHS
OCTOBERS_END = parse_instant("2024-10-31T20:00:00Z")

UNSTATED = ("book", "stripe")
"""Files whose export does not say which days it covers."""


class Person:
    """A person at a browser, with every click counted; choosing files is one, typing is none."""

    def __init__(self, browser: Any, url: str, invitation: str) -> None:
        self.page, self.clicks, self._url = new_context(browser).new_page(), 0, url
        story = Story(self.page, url, Seen(), lambda *_: None)
        story.comes_in(invitation.partition("/invite#")[2].strip())

    def opens(self, path: str) -> str:
        """Open a page, wait until it is complete, and return its text."""
        self.page.goto(self._url + path)
        return self.reads()

    def reads(self) -> str:
        self.page.wait_for_selector(COMPLETE)
        return str(self.page.locator("main").inner_text())

    def clicks_on(self, what: str) -> str:
        """Click what does not leave the page, or only ticks it."""
        self.clicks += 1
        self.page.click(what)
        return self.reads()

    def goes_by(self, what: str) -> str:
        """Click what leads to another page."""
        with self.page.expect_navigation():
            self.clicks += 1
            self.page.click(what)
        return self.reads()

    def downloads(self, what: str | Any) -> bytes:
        """Download what a link (its selector, or itself) leads to."""
        link = self.page.locator(what) if isinstance(what, str) else what
        with self.page.expect_download() as waiting:
            link.click()
        return Path(waiting.value.path()).read_bytes()

    @contextmanager
    def counted(self, task: str, clicks: dict[str, int]) -> Iterator[None]:
        before = self.clicks
        yield
        clicks[task] = max(self.clicks - before, clicks.get(task, 0))

    # --- tasks ------------------------------------------------------------------------------------

    def imports(self, paths: list[Path], *, month: str = "") -> None:
        """Import files from the page of imports. `month`: that they cover, if they do not say."""
        if month:
            self.goes_by("text=Choose how to read them")
            self.page.fill("#field-first_day", f"{month}-01")
            self.page.fill("#field-last_day", LAST[month])
        self.clicks += 1
        self.page.set_input_files("input[type=file]", [str(each) for each in paths])
        self.goes_by("button:has-text('Read them')")
        one = len(paths) == 1
        self.goes_by("button:has-text('Import it')" if one else "text=Import all that are clear")

    def proposes_to_close(self, month: str) -> None:
        """Propose on Now to close a month, with a reason for each line that does not hold."""
        self.goes_by(f"dd a:has-text('{month}')")
        self.goes_by("text=Close it with exceptions")
        for place in self.page.locator("input[name^=except-]").all():
            place.fill("looked at, and known")
        self.page.fill("#reason", "every file is in")
        self.page.fill("#password", PASSWORD)
        self.goes_by("button:has-text('Propose')")

    def approves(self) -> None:
        """Approve what waits, from Now."""
        self.goes_by("p.then a[href^='/proposals/'] >> nth=0")
        self.goes_by("text=Approve…")
        self.page.fill("#reason", "seen")
        if self.page.locator("#password").count():
            self.page.fill("#password", PASSWORD)
        self.goes_by("button:has-text('Approve it')")

    def matches_by_hand(self, money: str, other: str) -> None:
        """Match a break from the list with a line that a person finds."""
        self.goes_by(f"tr:has-text('{money}') >> text=Find and match…")
        self.clicks_on(f"tr:has-text('{other}') >> input[name=line]")
        self.goes_by("button:has-text('Match the chosen')")
        self.page.fill("#reason", "the bank kept 12.00")
        self.goes_by("button:has-text('Match them')")

    # --- an auditor's questions -------------------------------------------------------------------

    def opened_rows(self) -> Iterator[tuple[str, int, list[str]]]:
        """Open each number of rows on the page of a run: (its address, the number, the rows)."""
        links = self.page.locator("td[data-name=Rows] a")
        numbers = [
            (each.get_attribute("href"), int(each.inner_text().replace(",", "")))
            for each in links.all()
        ]
        for href, number in numbers:
            self.opens(href)
            rows = self.page.evaluate(ROWS_SHOWN)
            while self.page.locator("nav.pager a[rel=next]").count():
                self.goes_by("nav.pager a[rel=next]")
                rows += self.page.evaluate(ROWS_SHOWN)
            yield href, number, rows


ROWS_SHOWN = """() => [...document.querySelectorAll("main tbody th")].map(
    each => each.innerText)"""


@dataclass
class Audited:
    """Figures read on pages.

    clicks     the most that a task took, by its name
    closed     page of each closed month
    reports    its report, as closed
    prints     October's report and journals, downloaded after its closing and after November's
    opened     (number of rows, rows that it opens) by address
    placed     address of the place of each order of the book
    adjusting  rows of November's journal that adjust October
    trail      title of each page on the way from the order `followed` to the bank, and back
    """

    books: Books
    clicks: dict[str, int] = field(default_factory=dict)
    closed: dict[str, str] = field(default_factory=dict)
    reports: dict[str, str] = field(default_factory=dict)
    prints: list[dict[str, bytes]] = field(default_factory=list)
    opened: dict[str, tuple[int, int]] = field(default_factory=dict)
    placed: dict[str, str] = field(default_factory=dict)
    adjusting: list[str] = field(default_factory=list)
    trail: list[str] = field(default_factory=list)
    followed: str = ""


def played(books: Books, look: Looking[Audited]) -> Audited:
    """Let Ann and Ben do both months on pages, and look at what an auditor asks for."""
    seen = Audited(books)
    invited = {
        name: books.did("operators", "invite", name, "--by", "Root").out.decode()
        for name in ("Ann", "Ben")
    }
    books.hear(OCTOBER)
    asyncio.run(judged(books))
    with console_on(books.folder, free_port(), variables=books.variables()) as url:

        def use(browser: Any) -> Audited:
            ann, ben = (Person(browser, url, invited[name]) for name in ("Ann", "Ben"))
            for month in MONTHS:
                if month == NOVEMBER:
                    aside(books.hear, month, now=SystemClock().now())
                    aside(books.did, "refold")
                imports(ann, seen, month)
                aside(books.did, "reconcile", "run")
                if month == NOVEMBER:
                    matches(ann, seen)
                    aside(books.did, "reconcile", "run")
                closes(ann, ben, seen, month)
                seen.prints.append(prints(ann, OCTOBER))
            audits(ann, seen)
            return seen

        return look(use)


async def judged(books: Books) -> None:
    """Judge October's orders at its end, as the service does."""
    async with opened(books.variables()["TALLYHOOK_DATABASE_URL"]) as inbox:
        context = inbox.context(clock=SetClock(OCTOBERS_END))
        await refold_until_quiet(context, limit=1_000, progress=lambda _: None)


def aside(work: Callable[..., Any], *given: Any, **named: Any) -> None:
    """Work in a thread of its own: that of the browser has an event loop already."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(work, *given, **named).result()


def imports(ann: Person, seen: Audited, month: str) -> None:
    files = {name.partition("/")[2]: path for name, path in seen.books.files.items()
             if name.startswith(month)}  # fmt: skip
    ann.opens("/imports")
    with ann.counted("import", seen.clicks):
        ann.imports([files.pop("shillings")])
    ann.opens("/imports")
    before = ann.clicks
    ann.imports([files.pop(name) for name in UNSTATED], month=month)
    ann.opens("/imports")
    ann.imports(list(files.values()))
    assert ann.clicks - before <= 3 * (len(UNSTATED) + len(files))


def matches(ann: Person, seen: Audited) -> None:
    """Match what is suggested for a payout that came 12.00 short; take it back, and find it."""
    ann.opens("/breaks?cause=payout_not_in_bank")
    with ann.counted("match a suggestion", seen.clicks):
        told = ann.goes_by("tr:has-text('352.79') >> button:has-text('Match')")
    assert "Matched by hand" in told
    ann.goes_by("text=Take it back…")
    ann.page.fill("#reason", "to see once more")
    ann.goes_by("button:has-text('Take it back')")
    ann.opens("/breaks?cause=payout_not_in_bank")
    with ann.counted("match by hand", seen.clicks):
        ann.matches_by_hand("352.79", "340.79")


def closes(ann: Person, ben: Person, seen: Audited, month: str) -> None:
    ann.opens("/")
    with ann.counted("close", seen.clicks):
        ann.proposes_to_close(month)
    ben.opens("/")
    with ben.counted("approve", seen.clicks):
        ben.approves()
    if ben.page.locator("text=Go on").count():  # it takes long: its page says when it is done
        ben.goes_by("text=Go on")
    seen.closed[month] = ann.opens(f"/periods/{month}")
    seen.reports[month] = ann.downloads("text=Its report").decode()


def prints(person: Person, month: str) -> dict[str, bytes]:
    """Download the report and each form of the journal of a closed month from its page."""
    person.opens(f"/periods/{month}")
    links = person.page.locator("section:has-text('Closings') li a").all()
    return {each.inner_text(): person.downloads(each) for each in links}


def audits(ann: Person, seen: Audited) -> None:
    ann.opens("/runs")
    ann.goes_by("tbody a.row >> nth=0")
    for href, number, rows in ann.opened_rows():
        seen.opened[href] = (number, len(rows))
        if "side=book" in href:
            seen.placed |= dict.fromkeys(rows, href)
    ann.opens("/reports")
    ann.goes_by(f"tr:has-text('{NOVEMBER}') >> text=Journal")
    ann.goes_by("tbody a:has-text('Assets:Clearing:Provider') >> nth=0")
    rows = ann.page.locator("tr:has-text('adjusts')").all()
    seen.adjusting = [each.inner_text() for each in rows]
    follows(ann, seen)


def follows(ann: Person, seen: Audited) -> None:
    """Follow October's first card payment from its order to the bank, and back to the order."""
    with seen.books.files[f"{OCTOBER}/stripe"].open() as file:
        paid = next(row for row in csv.DictReader(file) if row["reporting_category"] == "charge")
    order, payout = paid["payment_metadata[order_id]"], paid["automatic_payout_id"]
    of_order = f"tr:has(a:text-is('{order}'))"
    ann.opens(f"/orders/{quote(order)}")
    for step in (
        "text=Trail of its money",
        f"section:has(h2:text-is('Statement')) >> {of_order} >> small a",
        f"section:has(h2:text-is('Statement')) >> a:text-is('{payout}')",
        "section:has(h2:text-is('Bank')) >> small a",
        f"section:has(h2:text-is('Payouts')) >> a:text-is('{payout}')",
        f"section:has(h2:text-is('Statement')) >> {of_order} >> small a",
        f"section:has(h2:text-is('Orders')) >> a:text-is('{order}')",
    ):
        ann.goes_by(step)
        seen.trail.append(ann.page.locator("h1").inner_text())
    seen.followed = order


@pytest.fixture(scope="module")
def seen(look: Looking[Audited], tmp_path_factory: pytest.TempPathFactory) -> Audited:
    return played(Books(tmp_path_factory.mktemp("audited")), look)


def test_each_number_of_a_run_opens_as_many_rows_as_it_says(seen: Audited) -> None:
    assert len(seen.opened) > 20
    assert {href: both for href, both in seen.opened.items() if both[0] != both[1]} == {}


def test_every_order_of_the_book_has_a_place(seen: Audited) -> None:
    orders = set()
    for month in MONTHS:
        with seen.books.files[f"{month}/book"].open() as file:
            orders |= {row["Name"] for row in csv.DictReader(file)}
    assert seen.placed.keys() == orders


def test_a_late_payment_stands_in_the_open_month_with_its_own_day(seen: Audited) -> None:
    (late,) = [each for each in seen.adjusting if seen.books.shop.odd["late"] in each]
    assert f"of {OCTOBER}-30, adjusts {OCTOBER}" in late
    assert f"{NOVEMBER}-01" in late


@pytest.mark.parametrize("month", MONTHS)
def test_both_people_and_their_times_stand_on_page_and_report(seen: Audited, month: str) -> None:
    assert "Ann and Ben closed it at" in seen.closed[month]
    told = re.sub(r"<[^>]+>", "", seen.reports[month])
    moment = r"\d{4}-\d\d-\d\d \d\d:\d\d"
    assert re.search(
        rf"Closed by Ann.{{0,40}}{moment}.{{0,60}}Ben, approved.{{0,40}}{moment}", told
    )


def test_a_closed_month_is_the_same_after_the_next_one_was_closed(seen: Audited) -> None:
    first, second = seen.prints
    assert len(first) == 1 + len(JOURNAL_FORMATS)
    assert first == second


def test_the_trail_leads_from_an_order_to_the_bank_and_back(seen: Audited) -> None:
    lines = ["Trail of stm_", "Trail of po_", "Trail of bnk_", "Trail of pyt_", "Trail of stm_"]
    kinds = [f"Trail of {seen.followed}", *lines, seen.followed]
    assert len(seen.trail) == len(kinds)
    for title, kind in zip(seen.trail, kinds, strict=True):
        assert title.startswith(kind)


MOST_CLICKS = {
    "import": 3,
    "match a suggestion": 1,
    "match by hand": 4,
    "approve": 3,
    "close": 5,
}


def test_common_tasks_take_few_clicks(seen: Audited) -> None:
    assert seen.clicks.keys() == MOST_CLICKS.keys()
    assert {task: n for task, n in seen.clicks.items() if n > MOST_CLICKS[task]} == {}
