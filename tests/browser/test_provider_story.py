"""A provider connected from pages alone, in a real browser: from the invitation to the order of a
signed test event, and to what is signed before going live."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from app.access.sessions import invite_operator
from app.config.load import load_settings
from app.wiring.opening import open_context
from tests.api.driving import environ
from tests.browser.conftest import Looking, new_context
from tests.browser.test_console import Seen, axe, console_on, listen
from tests.browser.test_finance_month import Story, measuring
from tests.e2e.processes import serving
from tests.ports import free_port
from tests.waiting import until

pytestmark = [pytest.mark.browser, pytest.mark.slow]


async def first_admin(folder: Path) -> str:
    """Return the token of the first invitation."""
    async with open_context(load_settings(environ(folder)), purpose="writing") as context:
        return await invite_operator(context, name="Dee", role="admin", by=None)


class Connecting(Story):
    """Dee's acts, page by page."""

    def reads(self) -> str:
        """Return what the provider has to be told."""
        self._leads("nav >> text=Service")
        self._leads("nav.beside >> text=Setting up")
        self._measured(self._page, "setting up")
        return str(self._page.locator("main").inner_text())

    def tests(self, service: str) -> str:
        """Send an event, signed as the provider signs; return the result."""
        self._leads("text=Send a signed test event")
        self._page.select_option("#field-event", "succeeded")
        self._page.fill("#field-service", service)
        self._measured(self._page, "test event")
        self._leads("button:has-text('Send it')")
        self._measured(self._page, "test event sent")
        return str(self._page.locator("main").inner_text())

    def finds(self, order: str) -> str:
        """Open the order that it made, by the menu, once it is read."""
        self._page.click("nav >> text=Orders")
        row = self._page.locator(f"tbody a.row:has-text('{order}')")

        def there() -> bool:
            self._page.reload()
            return bool(row.count())

        until(there)
        row.click()
        self._page.wait_for_selector(f"h1:has-text('{order}')")
        self._measured(self._page, "order of a test")
        return str(self._page.locator("main").inner_text())

    def signs(self) -> str:
        """Sign what a person must state before real money moves."""
        self._leads("nav >> text=Service")
        self._leads("nav.beside >> text=Going live")
        self._measured(self._page, "going live")
        self._page.click("li:has-text('turned off') >> a:has-text('Sign')")
        self._page.fill("#reason", "rehearsed with the shop on Monday; in the runbook")
        self._measured(self._page, "signing")
        self._page.click("button:has-text('State it')")
        self._page.wait_for_selector("text=Your statement stands below")
        return str(self._page.locator("li:has-text('turned off')").inner_text())


@pytest.fixture(scope="module")
def seen(look: Looking[Seen], tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """Play the story once, with a service that listens."""
    folder, found, script = tmp_path_factory.mktemp("connecting"), Seen(), axe()
    with serving(folder) as service:
        token = asyncio.run(first_admin(folder))
        with console_on(folder, free_port()) as url:

            def use(browser: Any) -> Seen:
                page = new_context(browser, color_scheme="light").new_page()
                listen(page, url, found)
                story = Connecting(page, url, found, measuring(found, script))
                said = found.plain
                story.comes_in(token)
                said["before"] = story.reads()
                said["sent"] = story.tests(f"http://127.0.0.1:{service.port}")
                order = re.search(r"of order (TEST-\w+)", said["sent"])
                assert order, said["sent"]
                said["order"] = story.finds(order[1])
                said["after"] = story.reads()
                said["signed"] = story.signs()
                return found

            return look(use)


@pytest.mark.soak
def test_a_provider_is_connected_from_pages_alone(seen: Seen) -> None:
    """Address, events and fields are stated; the test is accepted and makes an order; silence ends,
    and a statement stands in the developer's name."""
    said = seen.plain
    assert "/webhooks/shop" in said["before"]
    assert "payment.succeeded" in said["before"]
    assert "data.order.reference" in said["before"]
    assert "Nothing has come yet" in said["before"]
    assert "The event was accepted" in said["sent"]
    assert "Paid in full" in said["order"]
    assert "deliveries arrive and are read" in said["after"]
    assert "Dee" in said["signed"]


@pytest.mark.soak
def test_its_pages_fit_and_have_nothing_to_complain_of(seen: Seen) -> None:
    """The real content security policy applies."""
    assert {name: wide for name, wide in seen.wide.items() if wide > 0} == {}
    assert (seen.said, seen.elsewhere) == ([], [])
    assert {name: each for name, each in seen.violations.items() if each} == {}
