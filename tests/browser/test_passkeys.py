"""Passkeys in a real browser, with its own software authenticator."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from app.access.operators import register_operator
from app.access.sessions import invite_operator
from app.core.clock import SystemClock
from tests.api.driving import driving
from tests.browser.conftest import Looking, new_context
from tests.browser.test_console import console_on
from tests.console.test_signing_in import PASSWORD
from tests.ports import free_port

pytestmark = [pytest.mark.browser, pytest.mark.slow]

AUTHENTICATOR = {
    "protocol": "ctap2", "transport": "internal", "hasResidentKey": True,
    "hasUserVerification": True, "isUserVerified": True, "automaticPresenceSimulation": True,
}  # fmt: skip


async def _invited(folder: Path) -> str:
    """Make a database with an invited viewer, and return the invitation."""
    async with driving(folder) as driver:
        driver.clock.put(SystemClock().now())
        context = driver.service.context
        await register_operator(context, name="Ann", role="admin", by=None)
        return await invite_operator(context, name="Vic", role="viewer", by="Ann")


def test_a_passkey_is_made_and_takes_the_place_of_the_code(
    look: Looking[tuple[str, str, str]], tmp_path: Path
) -> None:
    token, port = asyncio.run(_invited(tmp_path)), free_port()

    def use(browser: Any) -> tuple[str, str, str]:
        context = new_context(browser)
        page = context.new_page()
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        devices = context.new_cdp_session(page)
        devices.send("WebAuthn.enable")
        devices.send("WebAuthn.addVirtualAuthenticator", {"options": AUTHENTICATOR})
        url = f"http://localhost:{port}"
        page.goto(f"{url}/invite#{token}")
        page.fill("#password", PASSWORD)
        page.fill("#again", PASSWORD)
        page.click("form button")
        page.goto(f"{url}/do/add-passkey")
        page.fill("#field-label", "this computer")
        page.fill("#password", PASSWORD)
        page.click("[data-passkey-button]")
        page.wait_for_url("**/me?done=add-passkey")
        made = page.inner_text("main")
        page.click("text=Sign out")
        page.fill("#name", "Vic")
        page.fill("#password", PASSWORD)
        page.click("form button:text-is('Sign in')")
        alone = page.inner_text(".problem[role=alert]")
        page.fill("#password", PASSWORD)
        page.click("[data-passkey-button]")
        page.wait_for_url(f"{url}/")
        return made, alone, "\n".join(each for each in said if "403" not in each)

    with console_on(tmp_path, port):
        made, alone, said = look(use)
    assert "this computer" in made
    assert "Sign-in failed" in alone, "the password is not enough"
    assert said == "", "nothing breaks the content policy"
