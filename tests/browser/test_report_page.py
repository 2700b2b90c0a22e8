"""The report's page on a screen, on paper, and read aloud."""

from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pypdf
import pytest

from app.finance.reports.render import render
from tests.browser.conftest import Looking
from tests.finance.reports.samples import END, sample

pytestmark = pytest.mark.browser

NARROW = 800
PHONE = 390
PAPER = 672
"""A4 less its margins, at 96 dots an inch."""

OVERFLOWING = """() => [...document.querySelectorAll('table, svg, h1, h2, p, figcaption')]
    .filter(each => each.getBoundingClientRect().right > document.documentElement.clientWidth)
    .map(each => each.outerHTML.slice(0, 120))"""

UNREAD = """() => [...document.querySelectorAll('caption, svg')].filter(each => {
    const box = each.getBoundingClientRect(), page = document.documentElement.clientWidth;
    return each.tagName == 'svg' ? box.width < 600 : box.right > page;
}).map(each => each.outerHTML.slice(0, 120))"""

CHARTS = """() => [...document.querySelectorAll('svg[role=img]')].map(each => ({
    words: each.getAttribute('aria-labelledby').split(' ').map(
        id => document.getElementById(id).textContent),
    tables: each.closest('section').querySelectorAll('table').length,
    fills: [...new Set([...each.querySelectorAll('rect[stroke]')].map(
        part => part.getAttribute('fill')))]}))"""

MERCHANT = 'Salt & "Sons" </style>'

CONTRAST = """() => {
    const light = words => { const [r, g, b] = words.match(/[0-9.]+/g).map(Number).map(part =>
        (part /= 255) <= .04045 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4);
        return .2126 * r + .7152 * g + .0722 * b + .05; };
    const page = light(getComputedStyle(document.body).backgroundColor);
    const seen = document.querySelectorAll('svg text, svg > rect[fill^="#"], td');
    return Math.min(...[...seen].map(each => {
        const own = light(getComputedStyle(each)[each.tagName == 'TD' ? 'color' : 'fill']);
        return Math.max(own, page) / Math.min(own, page); })); }"""
"""The least contrast (WCAG 2.2, 1.4.3) of text and solid bars with the page behind them."""

COUNTS = """() => Object.fromEntries(['script', 'table', 'table > caption', 'thead th',
    'thead th[scope=col]'].map(name => [name, document.querySelectorAll(name).length]))"""


@dataclass
class Seen:
    """Findings of a browser on the page."""

    address: str
    asked: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    title: str = ""
    width: int = 0
    width_of_phone: int = 0
    wide: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    wide_on_paper: list[str] = field(default_factory=list)
    pages: list[str] = field(default_factory=list)
    contrasts: list[float] = field(default_factory=list)
    charts: list[dict[str, Any]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


@pytest.fixture(scope="module")
def seen(look: Looking[Seen], tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """Open a report with long references and large amounts from a disk."""
    report = sample(600, broken=60)
    long = replace(
        report.break_lines[0], order="ORD-" + "0123456789" * 6, payment="p" * 90, sum=10**12
    )
    path: Path = tmp_path_factory.mktemp("page") / "report.html"
    whole = replace(
        report,
        break_lines=(long, *report.break_lines),
        scope=replace(report.scope, merchant=MERCHANT, closed_by="Ann", closed_at=END),
    )
    path.write_bytes(render(whole, "html"))

    def use(browser: Any) -> Seen:
        found = Seen(path.as_uri())
        page = browser.new_page(viewport={"width": NARROW, "height": 900})
        page.on("request", lambda request: found.asked.append(request.url))
        page.on("console", lambda message: found.said.append(message.text))
        page.goto(found.address, wait_until="networkidle")
        found.width = page.evaluate("document.documentElement.scrollWidth")
        found.title = page.title()
        found.wide = page.evaluate(OVERFLOWING)
        found.charts = page.evaluate(CHARTS)
        found.counts = page.evaluate(COUNTS)
        found.pages = [
            each.extract_text() for each in pypdf.PdfReader(BytesIO(page.pdf(format="A4"))).pages
        ]
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            found.contrasts.append(page.evaluate(CONTRAST))
        page.set_viewport_size({"width": PHONE, "height": 900})
        found.width_of_phone = page.evaluate("document.documentElement.scrollWidth")
        found.unread = page.evaluate(UNREAD)
        page.emulate_media(media="print")
        page.set_viewport_size({"width": PAPER, "height": 900})
        found.wide_on_paper = page.evaluate(OVERFLOWING)
        return found

    return look(use)


def test_it_asks_for_nothing_but_itself_and_runs_nothing(seen: Seen) -> None:
    assert seen.asked == [seen.address]
    assert seen.said == []
    assert seen.counts["script"] == 0


def test_nothing_is_wider_than_a_narrow_screen(seen: Seen) -> None:
    assert seen.width == NARROW
    assert seen.wide == []


def test_on_a_phone_the_page_stands_and_each_table_scrolls_below_its_words(seen: Seen) -> None:
    """A table's subject is read without scrolling, and no chart becomes too small."""
    assert seen.width_of_phone == PHONE
    assert seen.unread == []


def test_the_title_names_the_first_and_the_last_day(seen: Seen) -> None:
    assert seen.title == f"{MERCHANT} · Period report 2026-10-01 to 2026-10-31"


def test_nothing_is_wider_than_paper_and_the_pages_are_few(seen: Seen) -> None:
    assert seen.wide_on_paper == []
    assert 3 < len(seen.pages) < 10


def test_every_sheet_of_paper_says_whose_and_of_when_it_is_and_who_closed_it(seen: Seen) -> None:
    told = f"{MERCHANT} · Period 2026-10-01 to 2026-10-31 · Closed by Ann, 2026-11-01"
    assert [told in page for page in seen.pages] == [True] * len(seen.pages)
    assert f"1 / {len(seen.pages)}" in seen.pages[0]


def test_text_and_bars_stand_out_from_the_page_light_and_dark(seen: Seen) -> None:
    assert [contrast > 4.5 for contrast in seen.contrasts] == [True, True]


def test_every_chart_is_told_in_words_and_has_a_table(seen: Seen) -> None:
    assert len(seen.charts) == 3
    for chart in seen.charts:
        title, about = chart["words"]
        assert title
        assert any(sign.isdigit() for sign in about)
        assert chart["tables"] == 1


def test_series_differ_without_colour(seen: Seen) -> None:
    """One is solid, each other has its own pattern."""
    fills = seen.charts[0]["fills"]
    assert len(fills) == 4
    assert sum(fill.startswith("url(#times-") for fill in fills) == 3


def test_every_table_has_a_caption_and_every_column_a_header(seen: Seen) -> None:
    assert seen.counts["table"] == seen.counts["table > caption"] > 10
    assert seen.counts["thead th"] == seen.counts["thead th[scope=col]"] > 0
