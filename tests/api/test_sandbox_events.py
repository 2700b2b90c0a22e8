"""Genuine events of providers' sandboxes, aimed at the orders of a live service, change nothing.

They change no order, nothing in the feed, and no notification to the shop.
"""

import asyncio
import base64
import copy
import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count, cycle, islice, product
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.core.http import outgoing_client
from app.orders.read_orders import order_document
from app.orders.refold import refold_until_quiet
from app.providers.paths import compile_path
from app.providers.profile import load_profile, shipped_profiles
from app.providers.reader import EventReader
from app.providers.source import Source
from app.receiving.caught_up import behind_s
from app.wiring import service as wiring
from reconcile.ledger.records import UNREADABLE
from tests.api.driving import Driver, Header, driving, event
from tests.privacy.test_erase import quiet
from tests.providers.samples import is_declared
from tests.providers.test_payloads import LINES
from tests.reconcile.build import T

profile_of = cache(load_profile)

PROFILES = [
    name
    for name in shipped_profiles()
    if profile_of(name).environment.where and is_declared(profile_of(name))
]
"""Profiles whose bodies state their environment, and for which a test can sign."""

LIVE = {
    "ENVIRONMENT": "live",
    "SHOP__URL": "https://shop.example/outcomes",
    "SHOP__SECRET": "whsec_c2hvcC1zZWNyZXQtb2YtMzAtYnl0ZXMtbG9uZyE=",
    "SOURCES__MERCADOPAGO__CREDENTIALS": '{"access_token": "APP_USR-7265"}',
    **dict.fromkeys(("REJECTIONS_PER_MINUTE", "REJECTIONS_PER_MINUTE_PER_ADDRESS"), "1000000"),
}
TABLES = ("events", "records", "ledgers", "revisions", "notifications", "order_due")
BATCH = 200
ORDERS = {"ORD-1": (1500, "KES"), "ORD-1042": ("1500.00", "KES"), "qTPrJoy9Bx": ("100.00", "NGN")}
"""Orders that the payloads name, with their prices."""


def secret(account: str, encoding: str) -> str:
    """Return an account's secret as its profile writes it."""
    key = hashlib.sha256(account.encode())
    text = base64.b64encode(key.digest()).decode()
    return {"hex": key.hexdigest(), "text": key.hexdigest(), "whsec": "whsec_" + text}[encoding]


@dataclass(frozen=True)
class Account:
    """One account at a provider: the service's own, or the provider's sandbox."""

    profile: str
    name: str

    @property
    def secret(self) -> str:
        return secret(f"{self.profile} {self.name}", profile_of(self.profile).secret.encoding)

    @property
    def source(self) -> Source:
        profile = profile_of(self.profile)
        return Source(name=self.profile, profile=profile, secrets=[self.secret], strict=False)


def settings() -> dict[str, Any]:
    """Return a source for each profile, during a change of its secret."""
    found = {}
    for name in PROFILES:
        listed = [Account(name, age).secret for age in ("new", "old")]
        found[f"SOURCES__{name.upper()}__PROFILE"] = name
        found[f"SOURCES__{name.upper()}__SECRETS"] = json.dumps(listed)
    return LIVE | found


def bodies(profile: str) -> list[tuple[dict[str, Any], str]]:
    """Return a provider's documented payloads, and the address at which each is received."""
    lines = [line for line in LINES.get(profile, []) if "events" in line]
    found = [(line["body"], line.get("url", "")) for line in lines if type(line["body"]) is dict]
    if profile == "checkout":
        claims = ("succeeded", "pending", "declined", "refunded", "disputed")
        found = [(event(f"e-{claim}", claim), "") for claim in claims]
    return found


def marked(profile: str, body: dict[str, Any], word: str | None) -> Iterator[dict[str, Any]]:
    """Yield the body with the environment's word at each possible place, as text and as its JSON
    value."""
    places = [each for each in profile_of(profile).environment.where if "[" not in each]
    for place in places:  # where there is a condition stands what the event is, and no environment
        spellings: list[Any] = [word]
        if word in ("true", "false"):
            spellings.append(word == "true")
        for spelling in spellings:
            document = copy.deepcopy(body)
            held = {put(document, each, spelling if each == place else None) for each in places}
            if held == {True}:
                yield document


def put(document: dict[str, Any], place: str, value: Any) -> bool:
    """Set one member. Return whether the body can contain it."""
    *parents, last = compile_path(place.partition(":")[2])
    inner: Any = document
    for name in parents:
        inner = inner.setdefault(name, {}) if isinstance(inner, dict) else None
    if isinstance(inner, dict):
        inner[last] = value
    return isinstance(inner, dict)


def numbered(document: dict[str, Any], number: int) -> bytes:
    """Return the document's bytes with an id that no other event has."""
    return json.dumps({**document, "number": number}).encode()


Shot = tuple[Account, str, dict[str, Any], str, set[int]]
"""One request: signing account, endpoint, body, address, and the allowed statuses."""


def aimed(profile: str) -> Iterator[Shot]:
    """Yield all events aimed at the orders in a provider's name.

    Whoever signs, an event marked as the sandbox's is refused. An event that is marked otherwise,
    or not at all, is refused if another account signed it.
    """
    rule, own = (
        profile_of(profile).environment,
        [Account(profile, "new"), Account(profile, "old")],
    )
    other = PROFILES[PROFILES.index(profile) - 1]
    others = [Account(profile, "sandbox"), Account(profile, "new sandbox")]
    for body, url in bodies(profile):
        for document in marked(profile, body, rule.sandbox):
            yield from ((each, profile, document, url, {403}) for each in own)
        for word, account in product((rule.sandbox, rule.live, None), others):
            for document in marked(profile, body, word):
                yield account, profile, document, url, {401}
        for document in marked(profile, body, rule.sandbox):
            yield own[0], other, document, url, {401}
        for document in marked(profile, body, "no such word"):
            yield own[0], profile, document, url, {200}


async def deliver(
    driver: Driver, endpoint: str, headers: list[Header], body: bytes, url: str
) -> int:
    """Send one delivery; return the answer's status."""
    scope = {
        "type": "http",
        "method": "POST",
        "path": f"/webhooks/{endpoint}",
        "query_string": url.partition("?")[2].encode(),
        "headers": headers,
    }
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message)

    await driver.service.application(scope, receive, send)
    return int(sent[0]["status"])


async def shoot(driver: Driver, shots: Iterator[Shot], *, strict: bool = True) -> Counter[int]:
    """Deliver all, many at a time; check each status against the allowed ones."""
    answers = Counter[int]()
    sources: dict[Account, Source] = {}
    numbers = count()

    async def one(shot: Shot) -> None:
        account, endpoint, document, url, expected = shot
        if account not in sources:
            sources[account] = account.source
        body = numbered(document, next(numbers))
        request = sources[account].signed(body, event_id="msg_1", now=T, method="POST", url=url)
        headers = [(name.lower().encode(), value.encode()) for name, value in request.headers]
        status = await deliver(driver, endpoint, headers, request.body, request.url)
        assert not strict or status in expected, (account, endpoint, document, status)
        answers[status] += 1

    while batch := list(islice(shots, BATCH)):
        await asyncio.gather(*map(one, batch))
    return answers


async def state(driver: Driver) -> dict[str, Any]:
    """Return all orders, revisions and notifications."""
    await behind_s(driver.context)
    await refold_until_quiet(driver.context, limit=100, progress=quiet)
    tables = {name: driver.rows(f"SELECT * FROM {name} ORDER BY 1, 2") for name in TABLES}
    ledgers = [await order_document(driver.context, name, as_of=T) for name in ORDERS]
    feed = (await driver.api("GET", "/outcomes")).json()
    return {**tables, "ledgers as published": ledgers, "feed": feed}


def money_of(found: dict[str, Any]) -> list[Any]:
    """Return the events, and the money of each order."""
    members = ("order", "outcome", "totals", "entries", "attempts")
    ledgers = found["ledgers as published"]
    return [found["events"], [{name: each[name] for name in members} for each in ledgers]]


@asynccontextmanager
async def live(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Driver]:
    """Run a live service whose shop has placed every order in the payloads, one of them paid.

    Providers that are asked back do not answer.
    """

    def client(timeout_s: float) -> httpx2.AsyncClient:
        nothing = httpx2.MockTransport(lambda request: httpx2.Response(503))
        return outgoing_client(timeout_s=timeout_s, transport=nothing)

    monkeypatch.setattr(wiring, "outgoing_client", client)
    async with driving(folder, with_worker=False, **settings()) as driver:
        for name, (amount, currency) in ORDERS.items():
            answer = await driver.api(
                "PUT", f"/orders/{name}", json={"amount": amount, "currency": currency}
            )
            assert answer.status_code == 200
        paid = event("e-live", environment="live")
        shot = Account("checkout", "new"), "checkout", paid, "", {200}
        assert await shoot(driver, iter([shot])) == {200: 1}
        yield driver


@pytest.mark.disk
@pytest.mark.parametrize("events", [2_700, pytest.param(20_000, marks=pytest.mark.soak)])
async def test_none_changes_a_live_order(
    events: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sent are every provider's documented events with the environment at every place, signed with
    every secret in force and with a sandbox account's, also to other sources' endpoints."""
    kinds = [shot for profile in PROFILES for shot in aimed(profile)]
    genuine = [shot for shot in kinds if shot[-1] == {403}]
    async with live(tmp_path, monkeypatch) as driver:
        before = await state(driver)
        answers = await shoot(driver, islice(cycle([*kinds, *genuine * 3]), events))
        after = await state(driver)
        assert money_of(after) == money_of(before)
        # One whose environment is no word of the provider cannot be read: it only withholds.
        for ledger in after["ledgers as published"]:
            holds = [f["facts"]["hold"] for f in ledger["findings"] if f["code"] == "held_back"]
            assert holds in ([], [UNREADABLE])
    print(f"{len(kinds)} kinds of sandbox events: {dict(answers)}")
    assert set(answers) == {200, 401, 403}
    assert answers[403] > events // 4


@pytest.mark.disk
async def test_without_the_environment_check_each_providers_would_change_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EventReader, "_environment_of", lambda reader, facts: None)
    async with live(tmp_path, monkeypatch) as driver:
        after = await state(driver)
        for profile in PROFILES:
            before, genuine = after, [shot for shot in aimed(profile) if shot[-1] == {403}]
            answers = await shoot(driver, iter(genuine[:4]), strict=False)
            assert set(answers) == {200}
            after = await state(driver)
            changed = {name for name in before if before[name] != after[name]}
            assert "events" in changed, profile
            if profile not in ("mercadopago", "mollie"):  # those name no order by themselves
                assert {"feed", "notifications", "ledgers as published"} <= changed, profile
