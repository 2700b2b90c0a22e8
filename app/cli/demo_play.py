"""The shop's part of the demo: places orders, opens their sessions, waits, and compares."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

import httpx2

from app.core.errors import TallyhookError, UnreachableError
from app.core.http import asked_to_wait
from app.receiving.context import Desk
from app.sandbox.scenarios import SCENARIOS, Scenario
from reconcile.instants import SECOND, Instant, parse_instant

AMOUNT: Final = "1500.00"
CURRENCY: Final = "KES"

PATIENCE_S: Final = 300.0
"""Everything must have happened within this time; a run takes a few hundredths of it."""

ANSWER_S: Final = 30.0
"""For one answer of a server; on a machine that does much else it may take long."""

AGAIN: Final = (429, 503)
"""Statuses after which the same call is to be made again, after Retry-After."""

LOOK_S: Final = 0.1

SAME_MOMENT_S: Final = 1.0
"""Seconds within which a Ctrl-C reaches every process of a terminal: the end of a server may be
seen before it."""

Ready = Callable[[], Awaitable[bool]]
"""Looks once whether something has happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """Where the two servers listen, and the token for the service's API."""

    service: str
    provider: str
    token: str

    @property
    def headers(self) -> dict[str, str]:
        """What the service's API wants to see."""
        return {"Authorization": f"Bearer {self.token}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One scenario, as it ended: what Tallyhook says and what really happened."""

    scenario: Scenario
    ledger: dict[str, Any]
    truth: dict[str, Any]

    @property
    def right(self) -> bool:
        """The outcome is the true one, and so is the money wherever an outcome states it."""
        if self.ledger["outcome"] != self.truth["outcome"]:
            return False
        if self.ledger["outcome"] == "unresolved":
            return not self.ledger["fulfillable"]
        totals = self.ledger["totals"]
        sides = ("captured", "refunded", "lost")
        return all(totals.get(side) == self.truth.get(side) for side in sides)

    def line(self) -> str:
        """One line for a person; the ids it rests on are shown by `orders show`."""
        first: str = self.ledger["explanation"][0]
        said = first.partition(" [")[0]
        codes = ", ".join(dict.fromkeys(f["code"] for f in self.ledger["findings"]))
        name = f"{self.scenario.ending} {self.scenario.name}"
        line = (
            f"{'ok   ' if self.right else 'WRONG'} {name:<30} {self.ledger['outcome']:<10} {said}"
        )
        if not self.right:
            line += f" — really {self.truth['outcome']}, captured {self.truth['captured']}"
        return line + (f" ({codes})" if codes else "")


def order_of(scenario: Scenario) -> str:
    """The demo's order for a scenario."""
    return f"DEMO-{scenario.ending}"


@asynccontextmanager
async def interrupted_first() -> AsyncIterator[None]:
    """Where what is done in it fails, a Ctrl-C that ended the servers has its turn before the
    failure does."""
    try:
        yield
    except TallyhookError:
        await asyncio.sleep(SAME_MOMENT_S)
        raise


async def until(ready: Ready, *, what: str, watch: Callable[[], None] = lambda: None) -> None:
    """Look until it has happened.

    Raises UnreachableError when it takes too long, or whatever `watch` raises meanwhile.
    """
    ends = monotonic() + PATIENCE_S
    while True:
        async with interrupted_first():
            watch()
        if await ready():
            return
        if monotonic() > ends:
            raise UnreachableError(f"{what} did not happen within {PATIENCE_S:g} s")
        await asyncio.sleep(LOOK_S)


async def answers(http: httpx2.AsyncClient, url: str) -> bool:
    """Whether a server answers 200 at the address."""
    try:
        return (await http.get(url)).status_code == 200
    except httpx2.TransportError:
        return False


async def call(
    http: httpx2.AsyncClient, method: str, url: str, *, again: Collection[int] = AGAIN, **words: Any
) -> httpx2.Response:
    """One call as a shop should make it: again while the server asks for that, or does not answer
    in time. All of ours may be made again: what they ask for happens once.

    Raises UnreachableError when it takes too long, or for what no repetition changes.
    """
    ends = monotonic() + PATIENCE_S
    while True:
        try:
            answer = await http.request(method, url, **words)
        except httpx2.TransportError as error:
            said, pause = type(error).__name__, LOOK_S
        else:
            if answer.is_success and answer.status_code not in again:
                return answer
            said = f"{answer.status_code} {answer.text}"
            pause = max(asked_to_wait(answer.headers) / SECOND, LOOK_S)
            if answer.status_code not in again:
                raise UnreachableError(f"{method} {url} was answered {said}")
        if monotonic() + pause > ends:
            raise UnreachableError(f"{method} {url} was not done within {PATIENCE_S:g} s: {said}")
        await asyncio.sleep(pause)


async def place_orders(http: httpx2.AsyncClient, party: Party) -> Instant:
    """Tell the service of every order and open every session, all at once.

    Returns when the last session expires.
    """
    opened = await asyncio.gather(*(_place(http, party, each) for each in SCENARIOS.values()))
    return max(opened)


async def _place(http: httpx2.AsyncClient, party: Party, scenario: Scenario) -> Instant:
    order = order_of(scenario)
    await call(
        http,
        "PUT",
        f"{party.service}/api/v1/orders/{order}",
        json={"amount": AMOUNT, "currency": CURRENCY},
        headers=party.headers,
    )
    started = await call(
        http,
        "POST",
        f"{party.service}/api/v1/checkout/sessions",
        again=(202, *AGAIN),
        json={
            "order": {"reference": order, "amount": AMOUNT, "currency": CURRENCY},
            "customer": {"phone": f"2547000000{scenario.ending}"},
            "return_urls": {
                "success": "https://shop.example/paid",
                "cancel": "https://shop.example/canceled",
            },
        },
        headers=party.headers,
    )
    expires_at = started.json()["expires_at"]
    return 0 if expires_at is None else parse_instant(expires_at)  # made again, and paid meanwhile


async def all_delivered(http: httpx2.AsyncClient, party: Party) -> bool:
    """Whether the provider has delivered all that it ever will."""
    state = (await call(http, "GET", f"{party.provider}/sandbox/state")).json()
    return bool(state["pending_events"] == 0 and state["undelivered"] == 0)


async def wait_for_end(desk: Desk, http: httpx2.AsyncClient, party: Party, last: Instant) -> None:
    """Until everything is delivered and every session has expired."""
    await until(lambda: all_delivered(http, party), what="the delivery of all events")
    await asyncio.sleep(max(0.0, (last - desk.clock.now()) / SECOND))


async def compare(http: httpx2.AsyncClient, party: Party) -> list[Played]:
    """Every order's ledger beside the provider's truth."""
    truths = (await call(http, "GET", f"{party.provider}/sandbox/truth")).json()
    by_order = {entry["order"]: entry for entry in truths}
    played = []
    for scenario in SCENARIOS.values():
        order = order_of(scenario)
        url = f"{party.service}/api/v1/orders/{order}"
        answer = await call(http, "GET", url, headers=party.headers)
        played.append(Played(scenario=scenario, ledger=answer.json(), truth=by_order[order]))
    return played


async def published_as_folded(
    http: httpx2.AsyncClient, party: Party, played: Sequence[Played]
) -> bool:
    """Whether the outcome feed has come to the same end as the ledgers."""
    url = f"{party.service}/api/v1/outcomes?limit=1000"
    feed = await call(http, "GET", url, headers=party.headers)
    last = {each["order"]: each["outcome"] for each in feed.json()["outcomes"]}
    return all(last.get(each.ledger["order"]) == each.ledger["outcome"] for each in played)


async def verdicts(http: httpx2.AsyncClient, party: Party) -> dict[str, int]:
    """Deliveries by verdict, from the service's own metrics."""
    text = (await call(http, "GET", f"{party.service}/metrics")).text
    counts = {}
    for line in text.splitlines():
        if line.startswith(("tallyhook_deliveries_total{", "tallyhook_deliveries_read_total{")):
            verdict = line.partition('verdict="')[2].partition('"')[0]
            counts[verdict] = int(float(line.rpartition(" ")[2]))
    counts.pop("accepted", None)  # each of them has been read, under its own verdict
    return counts
