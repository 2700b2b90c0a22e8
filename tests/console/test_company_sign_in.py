"""Signing in with the company's account: the way there and back, and what it opens."""

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest

from app.access.company_account import BACK, FRESH_FOR, CompanyProvider
from app.access.operators import Proven, known_operators, retire_operator
from app.access.proposals import Proposals
from app.access.sessions import (
    LET_IN_FOR,
    LinkRefused,
    SignInRefused,
    accept_invitation,
    invite_operator,
    let_in_link,
    sign_in,
)
from app.access.tokens import issue_own_token
from app.console.application import build_console
from app.console.security import RateLimiter
from app.core.errors import UsageError
from app.privacy.erase import ErasureRequest
from reconcile.instants import SECOND
from tests.access.openid_provider import OpenIdProvider, settings_of_company
from tests.console.conftest import (
    ORIGIN,
    SAME_SITE,
    RunningConsole,
    console_over,
    erasure_proposed,
    send,
    session_for,
    with_orders,
)
from tests.console.test_signing_in import PASSWORD, invited
from tests.copied import copy_of
from tests.rows import for_each

WAMBUI = "wambui@shop.example"


@dataclass
class CompanyConsole:
    """A console whose people sign in at a provider."""

    running: RunningConsole
    provider: OpenIdProvider

    def trail(self) -> list[tuple[str, str, dict[str, str]]]:
        rows = self.running.driver.rows(
            "SELECT who, action, facts FROM audit WHERE action NOT LIKE 'sign_in_%' "
            "ORDER BY number DESC LIMIT 4"
        )
        return [(who, action, json.loads(facts)) for who, action, facts in rows]

    def operators(self) -> list[tuple[str, ...]]:
        return self.running.driver.rows(
            "SELECT name, role FROM operators WHERE company IS NOT NULL ORDER BY name"
        )

    async def there(self, client: httpx2.AsyncClient, path: str = "/sign-in/company") -> str:
        """Begin, and return where the provider sends the browser back to."""
        sent_there = await client.get(path)
        assert sent_there.status_code == 303, sent_there.text
        return f"{BACK}?{urlencode(self.provider.authorize(sent_there.headers['location']))}"

    async def come_in(
        self, client: httpx2.AsyncClient, path: str = "/sign-in/company"
    ) -> httpx2.Response:
        """Go there and come back."""
        return await client.get(await self.there(client, path))


@asynccontextmanager
async def of_company(folder: Path, **more: str) -> AsyncIterator[CompanyConsole]:
    copy_of(with_orders, folder)
    settings: dict[str, Any] = settings_of_company(**more)
    async with console_over(folder, **settings) as running:
        clock = running.driver.clock
        provider = OpenIdProvider(clock)
        company = CompanyProvider(
            running.context.settings.oidc,
            back=ORIGIN + BACK,
            clock=clock,
            transport=provider.transport,
        )
        running.console = replace(running.console, company=company)
        running.application = build_console(running.console)
        yield CompanyConsole(running, provider)


@pytest.fixture
async def company(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CompanyConsole]:
    monkeypatch.setattr(RateLimiter, "take", lambda _limiter, _name: True)
    async with of_company(tmp_path) as made:
        yield made


async def test_a_person_comes_in_by_the_company_with_the_role_of_the_claim(
    company: CompanyConsole,
) -> None:
    async with company.running.client(**SAME_SITE) as client:
        page = (await client.get("/sign-in?next=/breaks")).text
        link = re.search(r'href="(/sign-in/company[^"]+)"', page)
        assert link
        done = await company.come_in(client, unescape(link[1]))
        assert (done.status_code, done.headers["location"]) == (303, "/breaks")
        assert (await client.get("/breaks")).status_code == 200
        assert (await client.get("/tokens")).status_code == 403, "finance may not"
        people = company.running.driver.rows("SELECT name, role, company FROM operators")
        assert (WAMBUI, "finance", "https://login.example/realms/shop/ u-1") in people
        assert company.trail()[:2] == [
            (WAMBUI, "signed_in", {"way": "company"}),
            (WAMBUI, "operator_added", {"role": "finance", "way": "company"}),
        ]
        out = await client.post("/sign-out")
        left = (await client.get(out.headers["location"])).text
        assert 'href="https://login.example/leave"' in left
        assert (await client.get("/breaks")).status_code == 303


async def test_the_role_changes_with_the_claim_and_ends_with_it(company: CompanyConsole) -> None:
    async with company.running.client(**SAME_SITE) as client:
        await company.come_in(client)
        company.provider.claims = {"groups": ["tally-admins"], "email": "new.name@shop.example"}
        await company.come_in(client)
        assert company.operators() == [(WAMBUI, "admin")], "the trail knows one person by one name"
        assert (await client.get("/tokens")).status_code == 200
        changed = {"before": "finance", "role": "admin"}
        assert (WAMBUI, "role_changed", changed) in company.trail()
        await issue_own_token(
            company.running.context, operator=WAMBUI, until="9d", by="a admin", zone=UTC
        )
        company.provider.claims = {"groups": ["everybody"]}
        refused = await company.come_in(client)
        assert refused.status_code == 403
        assert "has no role in Tallyhook" in refused.text
        assert (await client.get("/orders")).status_code == 303, "the old session has ended, too"
    rows = company.running.driver.rows("SELECT revoked_at IS NULL FROM tokens")
    assert rows == [(0,)]


async def test_who_has_no_role_or_is_disabled_or_has_a_taken_name_does_not_come_in(
    company: CompanyConsole,
) -> None:
    async with company.running.client(**SAME_SITE) as client:
        for claims, because in (
            ({"groups": []}, "no role in Tallyhook"),
            ({"email": "A Admin", "sub": "u-2"}, "the name of a present or former operator"),
            ({"email": "w\0", "sub": "u-3"}, "printable characters"),
        ):
            company.provider.claims = claims
            refused = await company.come_in(client)
            assert (refused.status_code, because in refused.text) == (403, True)
        assert company.operators() == []
        company.provider.claims = {}
        await company.come_in(client)
        await retire_operator(company.running.context, name=WAMBUI, by="a admin")
        assert "is disabled here" in (await company.come_in(client)).text
        assert (await client.get("/orders")).status_code == 303


Change = Callable[[str], str]


@for_each(
    "change",
    [
        lambda back: re.sub("state=[^&]+", "state=", back),
        lambda back: re.sub("state=(.)", "state=_", back),
        lambda back: re.sub("&?state=[^&]+", "", back),
        lambda back: back + "%3D",
    ],
)
async def test_another_state_lets_nobody_in(company: CompanyConsole, change: Change) -> None:
    async with company.running.client(**SAME_SITE) as client:
        back = await company.there(client)
        refused = await client.get(change(back))
        assert refused.status_code == 403
        assert "begun in another browser" in refused.text
    assert "token" not in company.provider.fetched


async def test_a_state_counts_once_in_its_own_browser_and_for_ten_minutes(
    company: CompanyConsole,
) -> None:
    """A stranger's answer signs nobody in as the stranger, and a copied one nobody at all."""
    clock = company.running.driver.clock
    async with company.running.client(**SAME_SITE) as one, company.running.client() as other:
        back = await company.there(one)
        await company.there(other)
        refused = await other.get(back)
        assert (refused.status_code, "another browser" in refused.text) == (403, True)
        cookies = dict(one.cookies)
        assert (await one.get(back)).status_code == 303
        one.cookies.update(cookies)
        again = await one.get(back)
        assert (again.status_code, "This sign-in was used already" in again.text) == (403, True)
        assert company.provider.fetched.count("token") == 1
        late = await company.there(one)
        clock.put(clock.now() + 600 * SECOND)
        assert "more than ten minutes ago" in (await one.get(late)).text
    failures = company.running.driver.rows("SELECT who FROM audit WHERE action = 'sign_in_failed'")
    assert {each for (each,) in failures} == {"somebody"}


@for_each(
    "asked",
    ["//evil.example", "https://evil.example/", "/\\evil.example", "/" + "a" * 3000, "/a\n"],
)
async def test_nobody_is_sent_to_another_host_after_coming_in(
    company: CompanyConsole, asked: str
) -> None:
    async with company.running.client(**SAME_SITE) as client:
        done = await company.come_in(client, f"/sign-in/company?{urlencode({'next': asked})}")
        assert (done.status_code, done.headers["location"]) == (303, "/")


async def test_a_provider_that_is_down_is_said(company: CompanyConsole) -> None:
    company.provider.status = 503
    async with company.running.client(**SAME_SITE) as client:
        answer = await client.get("/sign-in/company")
    assert answer.status_code == 503
    assert "cannot be fetched (status_503)" in answer.text


async def test_an_irreversible_act_asks_the_provider_again(company: CompanyConsole) -> None:
    """A stolen session closes nothing, and a form's text comes back."""
    clock = company.running.driver.clock
    async with company.running.client(**SAME_SITE) as client:
        await company.come_in(client)
        month = (await client.get("/periods.json")).json()["open"][0]["period"]
        path = f"/do/close?month={month}"
        page = (await client.get(path)).text
        assert 'type="password"' not in page
        given = {"form": "once", "reason": "month end"}
        assert "prove again" not in (await client.post(path, data=given)).text
        clock.put(clock.now() + FRESH_FOR)
        refused = await client.post(path, data=given | {"form": "twice"})
        assert (refused.status_code, "prove it again" in refused.text) == (400, True)
        link = re.search(r'href="(/sign-in/company\?for=again[^"]+)"', refused.text)
        assert link
        company.provider.claims = {"sub": "u-9", "email": "other@shop.example"}
        stranger = await company.come_in(client, unescape(link[1]))
        assert (stranger.status_code, "This session belongs to" in stranger.text) == (403, True)
        company.provider.claims = {}
        old = client.cookies[company.running.console.cookie]
        done = await company.come_in(client, unescape(link[1]))
        assert (done.status_code, done.headers["location"]) == (303, path)
        assert company.provider.asked["max_age"] == "0"
        assert client.cookies[company.running.console.cookie] != old
        page = (await client.get(path)).text
        assert 'value="month end"' in page
        assert "/sign-in/company" not in page


async def test_who_proves_again_has_the_role_that_the_provider_states_then(
    company: CompanyConsole,
) -> None:
    """An irreversible act is not confirmed under a role that somebody has lost."""
    async with company.running.client(**SAME_SITE) as client:
        await company.come_in(client)
        month = (await client.get("/periods.json")).json()["open"][0]["period"]
        again = f"/sign-in/company?for=again&next=/do/close%3Fmonth%3D{month}"
        company.provider.claims = {"groups": ["desk"]}
        assert (await company.come_in(client, again)).status_code == 303
        assert company.operators() == [(WAMBUI, "support")]
        assert (await client.get("/periods")).status_code == 403
        company.provider.claims = {"groups": ["everybody"]}
        refused = await company.come_in(client, again)
        assert (refused.status_code, "has no role in Tallyhook" in refused.text) == (403, True)
        assert (await client.get("/orders")).status_code == 303, "the session has ended, too"


async def test_an_operator_links_the_companys_account_and_has_no_password_any_more(
    company: CompanyConsole,
) -> None:
    running = company.running
    await invited(running, "a viewer")
    here = await session_for(running.context, "a viewer")
    earlier = await invite_operator(running.context, name="a viewer", role=None, by="a admin")
    async with running.client(here, **SAME_SITE) as client:
        assert (await client.get("/sign-in/company?for=link")).status_code == 403
        assert "not your password" in (await send(client, "/do/link-company", password="x")).text
        shown = await send(client, "/do/link-company", password=PASSWORD)
        link = re.search(r'href="(/sign-in/company\?for=link[^"]+)"', shown.text)
        assert link
        done = await company.come_in(client, unescape(link[1]))
        assert (done.status_code, done.headers["location"]) == (303, "/me")
        assert "You sign in with the company's account" in (await client.get("/me")).text
    assert company.operators() == [("a viewer", "finance")]
    assert ("a viewer", "company_linked", {}) in company.trail()
    with pytest.raises(LinkRefused):
        await accept_invitation(running.context, earlier, password=PASSWORD, code="")
    with pytest.raises(SignInRefused):
        await sign_in(running.context, name="a viewer", password=PASSWORD, code="")
    with pytest.raises(UsageError, match="has no password"):
        await invite_operator(running.context, name="a viewer", role=None, by="a admin")
    async with running.client(**SAME_SITE) as client:
        await company.come_in(client)
    assert company.operators() == [("a viewer", "finance")]


async def test_a_password_and_a_companys_account_are_not_two_persons(
    company: CompanyConsole,
) -> None:
    """One person may have both, and would approve what they proposed."""
    context = company.running.context
    async with company.running.client(**SAME_SITE) as client:
        company.provider.claims = {"groups": ["tally-admins"]}
        await company.come_in(client)
    proposals: Proposals = company.running.console.proposals
    asked = ErasureRequest(order="ORD-1", reason="asked for it", by=Proven("a admin"))
    proposal = await erasure_proposed(context, asked)
    with pytest.raises(UsageError, match="may be one person"):
        await proposals.approve(proposal, by=Proven(WAMBUI), reason="I agree")


async def test_without_local_accounts_the_owner_alone_makes_a_way_in(
    tmp_path: Path,
) -> None:
    async with of_company(tmp_path, OIDC__LOCAL_ACCOUNTS="off") as company:
        running = company.running
        local = await session_for(running.context, "a admin")
        async with running.client(local, **SAME_SITE) as client:
            assert (await client.get("/orders")).status_code == 303
            page = (await client.get("/sign-in")).text
            assert 'type="password"' not in page
            for path in ("/sign-in", "/invite"):
                form = {"name": "a viewer", "password": PASSWORD, "code": "", "token": "x"}
                refused = await client.post(path, data=form)
                assert (refused.status_code, "let-in" in refused.text) == (403, True)
            link = await let_in_link(
                running.context, name="a admin", reason="provider is down", by="a admin"
            )
            assert (await client.post("/enter", data={"token": link})).status_code == 303
            assert (await client.post("/enter", data={"token": link})).status_code == 403
            assert (await client.get("/orders")).status_code == 200
            useless = await client.get("/do/invite")
            assert (useless.status_code, "let-in" in useless.text) == (400, True)
            clock = running.driver.clock
            clock.put(clock.now() + LET_IN_FOR)
            assert (await client.get("/orders")).status_code == 303
        made = running.driver.rows(
            "SELECT subject, reason, facts FROM audit WHERE action = 'operator_invited' "
            "ORDER BY number DESC LIMIT 1"
        )
        assert made[0][:2] == ("a admin", "provider is down")
        assert {each.name for each in await known_operators(running.context)} >= {"a admin"}
