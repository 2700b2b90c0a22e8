"""The console in a real browser: wide and narrow, light and dark, with and without script."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.access.operators import register_operator
from reconcile.instants import Instant
from tests.api.driving import driving, environ, event, of_order, signed
from tests.browser.conftest import Looking
from tests.console.conftest import session_for, until_async
from tests.ports import free_port
from tests.waiting import until

pytestmark = [pytest.mark.browser, pytest.mark.slow]

AXE = "axe-core@4.14.1"
AXE_SHA512 = (
    "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
)
KEPT = Path(sys.prefix) / "axe-core-4.14.1.tgz"
"""Beside the environment, so that it is fetched once."""

PATHS = ("/", "/orders", "/orders/ORD-1", "/deliveries", "/do/tell-again?order=ORD-1", "/orders/no")
SIZES = ((1280, 900), (390, 844))
WIDE = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


def axe() -> str | None:
    """The checker's script, fetched from the registry and compared with its hash; None where there
    is no npm or no registry."""
    if not KEPT.exists():
        if shutil.which("npm") is None:
            return None
        words = ["npm", "pack", "--silent", AXE, "--pack-destination", str(KEPT.parent)]
        if subprocess.run(words, capture_output=True, timeout=120, check=False).returncode:
            return None
    content = KEPT.read_bytes()
    assert base64.b64encode(hashlib.sha512(content).digest()).decode() == AXE_SHA512
    with tarfile.open(KEPT) as archive:
        script = archive.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode()


async def prepared(folder: Path) -> str:
    """A database with orders, a refused delivery and an admin; the cookie of their session."""
    async with driving(folder, at=_now()) as driver:
        await driver.send(event("evt_1"))
        await driver.send(event("evt_9", payment={"reference": "pay_2", "amount": 1500}))
        await driver.send(of_order("ORD-2", "evt_2", "declined"))
        await driver.send(
            event("evt_4", order={"reference": "ORD-3"}, session={"reference": "cs_3"},
                  payment={"reference": "pay_3", "amount": 1499})
        )  # fmt: skip
        body = json.dumps(event("evt_3")).encode()
        await driver.send(body, signed(body, at=driver.clock.now(), key=b"another key"))
        await until_async(lambda: len(driver.rows("SELECT 1 FROM revisions")) >= 3)
        context = driver.service.context
        await register_operator(context, name="Ann", role="admin", by=None)
        return await session_for(context, "Ann")


def _now() -> Instant:
    from app.core.clock import SystemClock

    return SystemClock().now()


@contextmanager
def console_on(folder: Path, **more: str) -> Iterator[str]:
    """A console in a process of its own, with more settings; its address."""
    port = free_port()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TALLYHOOK_")}
    with (folder / "console.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "app", "console", "--port", str(port)],
            env=kept | environ(folder, **more),
            stdout=log,
            stderr=log,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        until(lambda: _answers(url))
        yield url
    finally:
        process.terminate()
        process.wait(30)


def _answers(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/sign-in", trust_env=False).status_code == 200
    except httpx2.TransportError:
        return False


@dataclass
class Seen:
    """What the browser saw, by page, width and scheme."""

    wide: dict[str, int] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    violations: dict[str, list[str]] = field(default_factory=dict)
    plain: dict[str, str] = field(default_factory=dict)
    keys: str = ""
    live: str = ""
    script: int = 0


@pytest.fixture(scope="module")
def seen(look: Looking[Seen], tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """All pages, looked at by one browser over one console."""
    folder = tmp_path_factory.mktemp("console")
    token = asyncio.run(prepared(folder))
    found, script = Seen(), axe()
    with console_on(folder) as url:

        def use(browser: Any) -> Seen:
            port = url.rpartition(":")[2]
            cookie = {"name": f"tallyhook-{port}", "value": token, "url": url}
            for width, height in SIZES:
                for scheme in ("light", "dark"):
                    context = browser.new_context(
                        viewport={"width": width, "height": height}, color_scheme=scheme
                    )
                    context.add_cookies([cookie])
                    page = context.new_page()
                    listen(page, url, found)
                    for path in PATHS:
                        page.goto(url + path)
                        name = f"{path} {width} {scheme}"
                        found.wide[name] = page.evaluate(WIDE)
                        if script is not None:
                            page.evaluate(script)
                            found.violations[name] = page.evaluate(VIOLATIONS)
                    context.close()
            _by_keyboard(browser, url, cookie, found)
            _without_script(browser, url, cookie, found)
            return found

        return look(use)


VIOLATIONS = """async () => (await axe.run()).violations.flatMap(
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


def _by_keyboard(browser: Any, url: str, cookie: dict[str, str], found: Seen) -> None:
    context = browser.new_context()
    context.add_cookies([cookie])
    page = context.new_page()
    page.goto(f"{url}/orders")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{url}/orders/*")
    found.keys = page.locator("h1").inner_text()
    page.wait_for_selector("#live:not([hidden])")
    found.live = page.locator("#live-said").inner_text()
    context.close()


def _without_script(browser: Any, url: str, cookie: dict[str, str], found: Seen) -> None:
    context = browser.new_context(java_script_enabled=False)
    context.add_cookies([cookie])
    page = context.new_page()
    page.goto(f"{url}/")
    page.fill("#text", "ORD-1")
    page.click("form.search button")
    page.wait_for_url(f"{url}/orders/ORD-1")
    found.plain["order"] = page.locator("main").inner_text()
    page.click(".acts a:last-of-type")
    found.plain["form"] = page.locator("main").inner_text()
    page.click(".who button")
    page.wait_for_url(f"{url}/sign-in")
    context.close()


def test_nothing_is_wider_than_the_page(seen: Seen) -> None:
    assert {name: wide for name, wide in seen.wide.items() if wide > 0} == {}


def test_the_browser_has_nothing_to_complain_of(seen: Seen) -> None:
    """Under the real content security policy; and nothing is fetched from elsewhere."""
    assert (seen.said, seen.elsewhere) == ([], [])


def test_the_accessibility_checker_finds_nothing(seen: Seen) -> None:
    if not seen.violations:
        pytest.skip("no npm, or no registry: axe-core could not be fetched")
    assert len(seen.violations) == len(seen.wide)
    assert {name: each for name, each in seen.violations.items() if each} == {}


def test_an_order_is_opened_by_keys_and_stays_live(seen: Seen) -> None:
    assert seen.keys.startswith("ORD-")
    assert seen.live == "live"


def test_pages_work_without_script(seen: Seen) -> None:
    assert "Paid more than once:" in seen.plain["order"]
    assert "never to be told" in seen.plain["form"]


def test_the_script_is_short() -> None:
    script = Path(__file__).parents[2] / "app/console/static/console.js"
    assert len(script.read_text().splitlines()) <= 200
