"""Passkeys as a second factor: made on My account, asked for at sign-in."""

import json
import re
from collections.abc import AsyncIterator, Callable
from html import unescape
from typing import Any

import httpx2
import pytest

from app.access.passkeys import MOST, passkey_origin
from app.access.sessions import accept_invitation, invite_operator, own_passkeys
from app.console.security import RateLimiter
from reconcile.instants import SECOND
from tests.access.authenticator import PRESENT, Authenticator, base64url
from tests.console.conftest import ORIGIN, SAME_SITE, RunningConsole, hidden_in, session_for
from tests.console.test_signing_in import PASSWORD, invited

NAMED = passkey_origin(ORIGIN)


def options_in(page: str) -> str:
    found = re.search(r'data-passkey="([^"]+)"', page)
    assert found, page
    return unescape(found[1])


@pytest.fixture
async def client(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[httpx2.AsyncClient]:
    """Return a browser of a viewer who has a password."""
    monkeypatch.setattr(RateLimiter, "take", lambda _limiter, _name: True)
    await invited(console, "a viewer")
    token = await session_for(console.context, "a viewer")
    async with console.client(token, **SAME_SITE) as made:
        yield made


async def add(
    client: httpx2.AsyncClient, key: Authenticator, *, label: str = "the grey one", **changed: str
) -> httpx2.Response:
    """Fill in the form, and have a passkey made."""
    page = (await client.get("/do/add-passkey")).text
    given = hidden_in(page) | {"label": label, "password": PASSWORD}
    return await client.post(
        "/do/add-passkey", data=given | {"passkey": key.make(options_in(page)), **changed}
    )


async def sign_in(
    client: httpx2.AsyncClient, answer: Callable[[str], str] | None = None, **changed: str
) -> httpx2.Response:
    """Fill in the sign-in form; answer: a passkey's to the form's options."""
    page = (await client.get("/sign-in")).text
    given = {"name": "a viewer", "password": PASSWORD, "code": ""} | hidden_in(page)
    if answer is not None:
        given["passkey"] = answer(options_in(page))
    return await client.post("/sign-in", data=given | changed)


async def test_a_passkey_is_made_asked_for_and_removed(
    console: RunningConsole, client: httpx2.AsyncClient
) -> None:
    key = Authenticator(NAMED)
    other = await session_for(console.context, "a viewer")
    done = await add(client, key)
    assert (done.status_code, done.headers["location"]) == (303, "/me?done=add-passkey")
    async with console.client(other) as ended:
        assert (await ended.get("/me")).status_code == 303
    asked = json.loads(options_in((await client.get("/do/add-passkey")).text))
    assert asked["authenticatorSelection"]["userVerification"] == "preferred"
    assert [each["id"] for each in asked["excludeCredentials"]] == [base64url(key.identity)]
    assert "the grey one" in (page := (await client.get("/me")).text)
    assert "with a password and a passkey" in page
    async with console.client(**SAME_SITE) as browser:
        assert (await sign_in(browser)).status_code == 403, "the password is not enough any more"
        assert (await sign_in(browser, key.sign, password="wrong")).status_code == 403
        assert (await sign_in(browser, Authenticator(NAMED).sign)).status_code == 403
        assert (await sign_in(browser, key.sign)).status_code == 303
        assert (await browser.get("/me")).status_code == 200
    (kept,) = await own_passkeys(console.context, "a viewer")
    assert (kept.sign_count, kept.used_at) == (key.count, console.driver.clock.now())
    path = f"/do/remove-passkey?passkey={kept.id}"
    form = hidden_in((await client.get(path)).text)
    assert (await client.post(path, data=form | {"password": "wrong"})).status_code == 400
    assert (await client.post(path, data=form | {"password": PASSWORD})).status_code == 303
    async with console.client(**SAME_SITE) as browser:
        assert (await sign_in(browser, key.sign)).status_code == 403
        assert (await sign_in(browser)).status_code == 303
    acts = console.driver.rows("SELECT action FROM audit WHERE action LIKE 'passkey%'")
    assert acts == [("passkey_added",), ("passkey_removed",)]


async def test_a_challenge_counts_once_in_its_own_browser_and_for_ten_minutes(
    console: RunningConsole, client: httpx2.AsyncClient
) -> None:
    """Also where the authenticator counts no signatures, and has verified nobody."""
    key = Authenticator(NAMED, counts=False, flags=PRESENT)
    assert (await add(client, key)).status_code == 303
    clock = console.driver.clock
    async with console.client(**SAME_SITE) as one, console.client(**SAME_SITE) as other:
        page = (await one.get("/sign-in")).text
        given = {"name": "a viewer", "password": PASSWORD, **hidden_in(page)}
        given["passkey"] = key.sign(options_in(page))
        cookies = dict(one.cookies)
        assert (await other.post("/sign-in", data=given)).status_code == 403
        assert (await one.post("/sign-in", data=given)).status_code == 303
        one.cookies.clear()
        one.cookies.update(cookies)
        assert (await one.post("/sign-in", data=given)).status_code == 403, "it was used"
        page = (await one.get("/sign-in")).text
        given |= hidden_in(page) | {"passkey": key.sign(options_in(page))}
        clock.put(clock.now() + 600 * SECOND)
        assert (await one.post("/sign-in", data=given)).status_code == 403, "it is too old"


@pytest.mark.parametrize(
    ("changed", "because"),
    [
        ({"passkey": "{}"}, "made no passkey"),
        ({"challenge": base64url(b"c" * 56)}, "open the form again"),
        ({"label": ""}, "Give the passkey a name"),
        ({"password": "wrong"}, "not your password"),
    ],
)
async def test_what_is_no_passkey_is_not_stored(
    console: RunningConsole, client: httpx2.AsyncClient, changed: dict[str, Any], because: str
) -> None:
    refused = await add(client, Authenticator(NAMED), **changed)
    assert (refused.status_code, because in refused.text) == (400, True)
    assert await own_passkeys(console.context, "a viewer") == []


async def test_a_passkey_is_made_for_its_own_session_once_and_ten_of_them_at_most(
    console: RunningConsole, client: httpx2.AsyncClient
) -> None:
    page = (await client.get("/do/add-passkey")).text
    given = hidden_in(page) | {"label": "one", "password": PASSWORD}
    given["passkey"] = Authenticator(NAMED).make(options_in(page))
    console.driver.clock.put(console.driver.clock.now() + SECOND)
    other = await session_for(console.context, "a viewer")
    async with console.client(other, **SAME_SITE) as elsewhere:
        refused = await elsewhere.post("/do/add-passkey", data=given)
        assert "another session opened it" in refused.text
    for number in range(MOST):
        key = Authenticator(NAMED, identity=f"credential {number}".encode())
        assert (await add(client, key)).status_code == 303
    assert "remove one first" in (await add(client, Authenticator(NAMED))).text


async def test_an_invitation_ends_the_passkeys_too(
    console: RunningConsole, client: httpx2.AsyncClient
) -> None:
    """Whoever took over an account may have added one."""
    assert (await add(client, Authenticator(NAMED))).status_code == 303
    token = await invite_operator(console.context, name="a viewer", role=None, by="a admin")
    await accept_invitation(console.context, token, password=PASSWORD, code="")
    assert await own_passkeys(console.context, "a viewer") == []
