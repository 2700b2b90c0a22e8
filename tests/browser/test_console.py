"""The console in a real browser: wide and narrow, light and dark, with and without script."""

import asyncio
import base64
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2
import pytest

from app.access.operators import Proven, register_operator
from app.access.proposal import Proposal
from app.config.load import load_settings
from app.core.clock import SetClock, SystemClock
from app.finance.match_rules import save_rules
from app.wiring.service import open_service
from tests.api.driving import Driver, Following, driving, environ, event, of_order, signed
from tests.browser.conftest import Looking, new_context
from tests.console.conftest import session_for
from tests.e2e.processes import end
from tests.forking import start
from tests.ports import free_port
from tests.waiting import PATIENCE_S, soon, until

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CUSTOMER: dict[str, Any] = {
    "order": {"reference": "ORD-4"},
    "session": {"reference": "cs_4"},
    "payment": {"reference": "pay_4"},
    "customer": {"phone": "+254712345678"},
}

AXE = "axe-core@4.14.1"
AXE_SHA512 = (
    "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
)
KEPT = Path(sys.prefix) / "axe-core-4.14.1.tgz"
"""The file is beside the environment, so that it is fetched once."""

PATHS = ("/", "/orders", "/orders/ORD-1", "/orders/no")
FURTHER = (
    "/notifications", "/log", "/people", "/do/erase", "/orders?choose=numbers", "/bank", "/tokens",
    "/breaks", "/runs", "/rules", "/golive", "/setup", "/imports", "/periods", "/late", "/reports",
    "/trends",
    "/audit", "/privacy", "/do/note?order=ORD-1", "/do/save-list?list=orders",
    "/do/unmask-many?list=orders", "/deliveries", "/proposals", "/do/tell-again?order=ORD-1",
)  # fmt: skip
"""Pages of which the gate looks at an eighth, narrow and in the dark only."""

PHONE = "+254712345678"
SIZES = ((1280, 900), (390, 844))
LOOKS = (((1280, "light"), (390, "dark")), ((1280, "dark"), (390, "light")))
"""Widths and schemes."""

SEEN = LOOKS[0] + LOOKS[1] if os.environ.get("TALLYHOOK_LONG") else LOOKS[0]
NARROW = LOOKS[0][1:]
LONG = LOOKS[0] != SEEN
"""True: look at all pages and check each. False: look at an eighth of `FURTHER`, unchecked."""

LOOKED_AT = FURTHER if LONG else FURTHER[::8]
TABS = 8 if LONG else 2

PAPER = {"width": 718, "height": 1_015}
"""Pixels between the margins of A4."""

PRINTED = ("/orders?outcome=unresolved", "/orders?choose=numbers", "/audit", "/deliveries")
"""Pages that are printed; the gate prints only the first."""

PRINT = """() => ({
    cut: [...document.querySelectorAll('.table, main')].filter(
        each => each.scrollWidth > each.clientWidth + 1 ||
            each.getBoundingClientRect().right > innerWidth + 1).length,
    said: document.body.innerText,
    broken: [...document.querySelectorAll('.number, .day')].filter(
        each => each.offsetParent && each.getClientRects().length > 1).map(each => each.innerText),
})"""
"""Measurements of a printed page: cut tables, its text, and figures that take two lines."""

WIDE = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


SIDEWAYS = """() => [...document.querySelectorAll("pre, .table")].filter(
    each => each.scrollWidth > each.clientWidth + 1).length"""
"""Number of texts and tables that must be scrolled sideways."""

HEARD = """() => new Promise(heard => {
    new BroadcastChannel("tallyhook-live").onmessage = () => heard(); })"""
"""Waits until the page has heard news, which it repeats to other tabs."""

UNDERLINED = "each => getComputedStyle(each).textDecorationLine"


def axe() -> str | None:
    """Return the checker's script, fetched from the registry and compared with its hash; None
    without npm or a registry."""
    if not KEPT.exists():
        if shutil.which("npm") is None:
            return None
        # Put in its place when it is whole: another worker may be reading it, or fetching it, too.
        with TemporaryDirectory(dir=KEPT.parent) as folder:
            words = ["npm", "pack", "--silent", AXE, "--pack-destination", folder]
            if subprocess.run(words, capture_output=True, timeout=120, check=False).returncode:
                return None
            (Path(folder) / KEPT.name).replace(KEPT)
    content = KEPT.read_bytes()
    assert base64.b64encode(hashlib.sha512(content).digest()).decode() == AXE_SHA512
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        script = archive.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode()


async def prepared(folder: Path) -> tuple[str, str, str]:
    """Make a database with orders, refused deliveries and operators; return the cookies of an admin
    and of support, and the id of another's proposal."""
    async with driving(folder, at=SystemClock().now(), looking=True) as driver:
        await driver.send(event("evt_1"))
        await driver.send(event("evt_9", payment={"reference": "pay_2", "amount": 1500}))
        await driver.send(of_order("ORD-2", "evt_2", "declined"))
        await driver.send(
            event("evt_4", order={"reference": "ORD-3"}, session={"reference": "cs_3"},
                  payment={"reference": "pay_3", "amount": 1499})
        )  # fmt: skip
        body = json.dumps(event("evt_3")).encode()
        await driver.send(body, signed(body, at=driver.clock.now(), key=b"another key"))
        await driver.send(event("evt_5", "declined", **CUSTOMER))
        paid = json.dumps(event("evt_6", "succeeded", **CUSTOMER)).encode()
        await driver.send(paid, signed(paid, at=driver.clock.now(), key=b"another key"))
        await soon(lambda: len(driver.rows("SELECT 1 FROM ledgers")) >= 4)
        context = driver.service.context
        await register_operator(context, name="Ann", role="admin", by=None)
        await register_operator(context, name="Sam", role="support", by="Ann")
        await register_operator(context, name="Ben", role="finance", by="Ann")
        await save_rules(context, "close_alone = false\n", by="Ann")
        other = '[accept_alone_max]\nKES = "5000.00"  # as agreed with the accountant in October\n'
        proposal = await save_rules(context, other, by=Proven("Ben"), reason="prices rose")
        assert isinstance(proposal, Proposal)
        ann, sam = await session_for(context, "Ann"), await session_for(context, "Sam")
        return ann, sam, proposal.id


async def arrived(folder: Path, *events: dict[str, Any]) -> None:
    """Let a service receive, read and fold events, and end it."""
    clock = SetClock(SystemClock().now())
    settings = load_settings(environ(folder), serving=True)
    async with open_service(settings, clock=clock, work="all") as service:
        transport = Following(service, raising=True)
        async with httpx2.AsyncClient(transport=transport, base_url="http://service") as client:
            driver = Driver(service, client, clock, service.context, folder / "t.db")
            before = len(driver.rows("SELECT 1 FROM revisions"))
            for each in events:
                await driver.send(each)
            await soon(lambda: len(driver.rows("SELECT 1 FROM revisions")) >= before + len(events))


@contextmanager
def console_on(
    folder: Path, port: int, *, variables: dict[str, str] | None = None, **more: str
) -> Iterator[str]:
    """Run a console in a process of its own; yield its address.

    variables  the service's, if not those of `environ`
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TALLYHOOK_")}
    with (folder / "console.log").open("wb") as log:
        process = start(
            [sys.executable, "-m", "app", "console", "--port", str(port)],
            env=kept | (environ(folder, **more) if variables is None else variables),
            stdout=log,
            stderr=log,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        until(lambda: _answers(url))
        yield url
    finally:
        end(process)


def _answers(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/sign-in", trust_env=False).status_code == 200
    except httpx2.TransportError:
        return False


@dataclass
class Seen:
    """Findings of the browser, by page, width and scheme."""

    wide: dict[str, int] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    violations: dict[str, list[str]] = field(default_factory=dict)
    printed: dict[str, dict[str, Any]] = field(default_factory=dict)
    plain: dict[str, str] = field(default_factory=dict)
    keys: dict[str, Any] = field(default_factory=dict)
    live: str = ""
    story: dict[str, Any] = field(default_factory=dict)
    tabs: list[list[str]] = field(default_factory=list)
    typing: list[str] = field(default_factory=list)
    left: str = ""
    small: dict[str, Any] = field(default_factory=dict)
    chosen: str = ""


@pytest.fixture(scope="module")
def seen(look: Looking[None], tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """Look at all pages, then use them, over one console."""
    folder = tmp_path_factory.mktemp("console")
    token, support, proposal = asyncio.run(prepared(folder))
    decided = (f"/proposals/{proposal}", f"/do/approve?proposal={proposal}")
    found, script, port = Seen(), axe(), free_port()
    with ExitStack() as running:
        url = running.enter_context(console_on(folder, port))

        cookie = {"name": f"tallyhook-{port}", "value": token, "url": url}

        def looks(browser: Any) -> None:
            with visiting(browser, cookie) as page:
                listen(page, url, found)
                look_at(page)

        def look_at(page: Any) -> None:
            for path in (*PATHS, *decided, *LOOKED_AT):
                page.goto(url + path)
                short = path in FURTHER and not LONG
                if script is not None and not short:
                    page.evaluate(script)
                for width, scheme in NARROW if short else SEEN:
                    page.set_viewport_size({"width": width, "height": dict(SIZES)[width]})
                    page.emulate_media(color_scheme=scheme)
                    name = f"{path} {width} {scheme}"
                    found.wide[name] = page.evaluate(WIDE)
                    if script is not None and (LONG or (scheme == "light" and not short)):
                        found.violations[name] = page.evaluate(VIOLATIONS)
            _as_some_see_it(page, url, ("/orders/ORD-1", decided[0]), found)
            page.set_viewport_size(PAPER)
            page.emulate_media(media="print", color_scheme="light")
            for path in PRINTED if LONG else PRINTED[:1]:
                page.goto(url + path)
                found.printed[path] = page.evaluate(PRINT)

        def acts(browser: Any) -> None:
            _by_keyboard(browser, url, cookie, found)
            _support(browser, url, cookie | {"value": support}, found)
            _clicked_twice(browser, url, cookie, found)

            def restart() -> None:
                running.close()
                _arrive(folder, of_order("ORD-8", "evt_8"))
                running.enter_context(console_on(folder, port))

            _in_many_tabs(browser, url, cookie, found, restart)
            _while_typing(browser, url, cookie, found, folder)
            _signed_out(browser, url, cookie, found)
            _without_script(browser, url, cookie, found)

        look(looks)
        look(acts)
    return found


VIOLATIONS = """async () => (await axe.run({ resultTypes: ["violations"] })).violations.flatMap(
    each => each.nodes.map(node => `${each.id}: ${node.html.slice(0, 160)}`))"""


def listen(page: Any, url: str, found: Seen) -> None:
    def said(message: Any) -> None:
        if "404" not in message.text:  # the page that is not there is asked for on purpose
            found.said.append(message.text)

    page.on("console", said)
    page.on("pageerror", lambda error: found.said.append(str(error)))
    page.on(
        "request",
        lambda asked: None if asked.url.startswith(url) else found.elsewhere.append(asked.url),
    )


@contextmanager
def visiting(browser: Any, cookie: dict[str, str], **words: Any) -> Iterator[Any]:
    """Open a page in a new session of a person."""
    context = new_context(browser, **words)
    context.add_cookies([cookie])
    yield context.new_page()
    context.close()


def _as_some_see_it(page: Any, url: str, paths: tuple[str, ...], found: Seen) -> None:
    """Look on the smallest screen, and in colors that the reader has chosen."""
    page.set_viewport_size({"width": 320, "height": 568})
    for path in paths:
        page.goto(url + path)
        found.small[path] = page.evaluate(WIDE), page.evaluate(SIDEWAYS)
    page.emulate_media(forced_colors="active")
    page.goto(f"{url}/orders?outcome=failed")
    found.chosen = page.locator(".filters [aria-current]").evaluate(UNDERLINED)
    page.emulate_media(forced_colors="none")


def _by_keyboard(browser: Any, url: str, cookie: dict[str, str], found: Seen) -> None:
    with visiting(browser, cookie) as page:
        page.goto(f"{url}/orders")
        rows = page.locator("a.row").all_inner_texts()
        focused = "() => document.activeElement.id || document.activeElement.textContent"
        for name, keys in (("j", "j"), ("jj", "j"), ("k", "k"), ("typed", "/j")):
            for key in keys:
                page.keyboard.press(key)
            found.keys[name] = page.evaluate(focused)
        found.keys["rows"], found.keys["text"] = rows, page.locator("#text").input_value()
        page.locator("h1").click()
        page.keyboard.press("?")
        found.keys["list"] = page.locator("#keys").get_attribute("open") is not None
        page.keyboard.press("Escape")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url(f"{url}/orders/*")
        found.keys["opened"] = page.locator("h1").inner_text()
        page.wait_for_selector("#live:not([hidden])")
        found.live = page.locator("#live-said").inner_text()


def _support(browser: Any, url: str, cookie: dict[str, str], found: Seen) -> None:
    """Play support from the call of a customer, who paid, to the bundle, in the long form."""
    with visiting(browser, cookie, accept_downloads=True) as page:
        said = list[str]()
        page.on("request", lambda asked: said.append(asked.url))
        page.goto(url)
        page.fill("#text", PHONE)
        page.keyboard.press("Enter")
        page.wait_for_url(f"{url}/orders/ORD-4")
        found.story["answer"] = page.locator(".answer").inner_text()
        found.story["why"] = page.locator(".sentences").inner_text()
        found.story["order"] = page.locator("main").inner_text()
        if LONG:
            page.get_by_text("Evidence bundle").click()
            with page.expect_download() as coming:
                page.get_by_role("button", name="Download the bundle").click()
            bundle = Path(coming.value.path())
            found.story["bundle"] = zipfile.ZipFile(bundle).namelist()
            page.goto(f"{url}/orders/ORD-4")
        page.locator("h3 ~ ul a").first.click()
        page.wait_for_url(f"{url}/deliveries/*")
        found.story["refused"] = page.locator("main").inner_text()
        found.story["addresses"] = said


def _clicked_twice(browser: Any, url: str, cookie: dict[str, str], found: Seen) -> None:
    """Double-click on a slow line, where the answer takes longer."""
    with visiting(browser, cookie) as page:
        page.goto(f"{url}/do/invite")
        page.fill("[name=name]", "Dora")
        network = page.context.new_cdp_session(page)
        network.send("Network.enable")
        slow = {"offline": False, "latency": 400, "downloadThroughput": -1, "uploadThroughput": -1}
        network.send("Network.emulateNetworkConditions", slow)
        button = page.locator("main form button").bounding_box()
        for _ in range(2):
            page.mouse.click(button["x"] + 9, button["y"] + 9)
            page.wait_for_timeout(100)
        page.locator(".trail, .answer").filter(has_not_text="a person").first.wait_for()
        found.story["twice"] = page.locator("main").inner_text()


def _arrive(folder: Path, *events: dict[str, Any]) -> None:
    with ThreadPoolExecutor(1) as elsewhere:  # the browser's driver has a loop here
        elsewhere.submit(asyncio.run, arrived(folder, *events)).result()


def _in_many_tabs(
    browser: Any, url: str, cookie: dict[str, str], found: Seen, restart: Callable[[], None]
) -> None:
    """Open tabs that share one stream, and restart the console."""
    context = new_context(browser)
    context.add_cookies([cookie])
    pages = [context.new_page() for _ in range(TABS)]
    for page in pages:
        page.goto(f"{url}/orders")
        page.wait_for_selector("#live:not([hidden])")
    restart()
    for page in pages:
        page.wait_for_function(
            "() => [...document.querySelectorAll('a.row')].some(row => row.textContent == 'ORD-8')",
            timeout=PATIENCE_S * 1_000,
        )
        found.tabs.append(page.locator("a.row").all_inner_texts())
    context.close()


def _while_typing(
    browser: Any, url: str, cookie: dict[str, str], found: Seen, folder: Path
) -> None:
    """Fill in a field of a live page while something arrives."""
    with visiting(browser, cookie) as page:
        page.goto(f"{url}/orders/ORD-1")
        page.wait_for_selector("#live:not([hidden])")
        page.fill("#as-of", "2026-11")
        page.evaluate(HEARD)  # the first news says only where things stand
        _arrive(folder, of_order("ORD-9", "evt_99"))
        page.wait_for_function("() => document.getElementById('live-said').textContent != 'live'")
        found.typing = [page.input_value("#as-of"), page.locator("#live-said").inner_text()]
        page.fill("#as-of", "")
        page.locator("#as-of").blur()
        page.wait_for_function("() => document.getElementById('live-said').textContent == 'live'")


def _signed_out(browser: Any, url: str, cookie: dict[str, str], found: Seen) -> None:
    """End the session while a page is open that nobody touches."""
    with visiting(browser, cookie) as page:

        def over(route: Any) -> None:
            page.context.clear_cookies()
            route.fulfill(status=401)

        page.route("**/live", over)
        page.goto(f"{url}/orders")
        page.wait_for_url(f"{url}/sign-in?next=*")
        found.left = page.locator("main").inner_text()


def _without_script(browser: Any, url: str, cookie: dict[str, str], found: Seen) -> None:
    with visiting(browser, cookie, java_script_enabled=False) as page:
        page.goto(f"{url}/")
        found.plain["buttons"] = "; ".join(page.get_by_role("button").all_inner_texts())
        page.fill("#text", "ORD-1")
        page.click("form.search button")
        page.wait_for_url(f"{url}/orders/ORD-1")
        found.plain["order"] = page.locator("main").inner_text()
        page.get_by_text("Notify the shop again").click()
        found.plain["form"] = page.locator("main").inner_text()
        page.click(".who button")
        page.wait_for_url(f"{url}/sign-in")


def test_nothing_is_wider_than_the_page(seen: Seen) -> None:
    assert {name: wide for name, wide in seen.wide.items() if wide > 0} == {}


def test_on_the_smallest_screen_nothing_is_read_by_scrolling_sideways(seen: Seen) -> None:
    """It has 320 pixels, which is 1280 at 400 %."""
    assert len(seen.small) == 2
    assert set(seen.small.values()) == {(0, 0)}


def test_what_is_chosen_is_seen_where_colors_are_the_readers(seen: Seen) -> None:
    assert seen.chosen == "underline"


def test_on_paper_tables_are_whole_and_say_of_what_and_when_they_are(seen: Seen) -> None:
    """The chosen filter and the zone of times stand there; forms and links do not."""
    for path, found in seen.printed.items():
        assert (found["cut"], found["broken"]) == (0, []), path
        assert "Looked up at" in found["said"], path
        assert "Times are in" in found["said"], path
        assert "JSON" not in found["said"], path
    orders = seen.printed["/orders?outcome=unresolved"]["said"]
    assert "Orders\nunresolved\n1" in orders
    assert "succeeded" not in orders
    assert len(seen.printed) == (len(PRINTED) if LONG else 1)


def test_the_browser_has_nothing_to_complain_of(seen: Seen) -> None:
    """The real content security policy applies, and nothing is fetched from elsewhere."""
    assert (seen.said, seen.elsewhere) == ([], [])


def test_the_accessibility_checker_finds_nothing(seen: Seen) -> None:
    if not seen.violations:
        pytest.skip("no npm, or no registry: axe-core could not be fetched")
    checked = {name.split()[0] for name in seen.violations}
    assert checked == {name.split()[0] for name in seen.wide} - (set() if LONG else set(FURTHER))
    assert {name: each for name, each in seen.violations.items() if each} == {}


def test_an_order_is_opened_by_keys_and_stays_live(seen: Seen) -> None:
    rows = seen.keys["rows"]
    assert [seen.keys[name] for name in ("j", "jj", "k")] == [rows[0], rows[1], rows[0]]
    assert (seen.keys["typed"], seen.keys["text"]) == ("text", "j")
    assert seen.keys["list"]
    assert seen.keys["opened"] == rows[0]
    assert seen.live == "live"


def test_support_answers_whoever_says_that_they_paid(seen: Seen) -> None:
    """The order is found by a number that is in no address, and explained, with the refused
    delivery and a bundle."""
    story = seen.story
    assert "The payment was declined." in story["answer"]
    assert "declined" in story["why"]
    assert "Refused deliveries that may be about this order" in story["order"]
    assert "signature mismatch" in story["refused"]
    assert not LONG or "manifest.json" in story["bundle"]
    assert not [each for each in story["addresses"] if PHONE[-8:] in each]


def test_a_double_click_shows_what_the_first_one_came_to(seen: Seen) -> None:
    """A link that is shown once would be lost."""
    assert "Dora is invited" in seen.story["twice"]
    assert "/invite#" in seen.story["twice"]


def test_tabs_go_on_when_the_console_is_back(seen: Seen) -> None:
    """Each shows the order that came meanwhile, and every order once."""
    assert len(seen.tabs) == TABS
    assert {tuple(sorted(rows)) for rows in seen.tabs} == {
        ("ORD-1", "ORD-2", "ORD-3", "ORD-4", "ORD-8")
    }


def test_news_wait_while_somebody_types(seen: Seen) -> None:
    """News reloads the rows of a page with its fields, and would wipe what was typed."""
    assert seen.typing == ["2026-11", "waits while you type"]


def test_a_page_whose_session_has_ended_leaves_the_screen(seen: Seen) -> None:
    """Nobody can read an idle screen after its session."""
    assert "Password" in seen.left
    assert "ORD-1" not in seen.left


def test_pages_work_without_script(seen: Seen) -> None:
    assert "Keys" not in seen.plain["buttons"], "it would do nothing"
    assert "Paid more than once:" in seen.plain["order"]
    assert "no notification of this order" in seen.plain["form"]


def test_the_script_is_short() -> None:
    script = Path(__file__).parents[2] / "app/console/static/console.js"
    assert len(script.read_text().splitlines()) <= 200
