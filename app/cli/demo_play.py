"""The shop's part of the demo: places orders, opens their sessions, waits, and compares."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

import httpx2

from app.errors import UnreachableError
from app.operations.desk import Desk
from app.sandbox.scenarios import SCENARIOS, Scenario
from reconcile.instants import SECOND, Instant, parse_instant

AMOUNT: Final = "1500.00"
CURRENCY: Final = "KES"

PATIENCE_S: Final = 120.0
"""Everything must have happened within this time; a run takes a tenth of it."""

LOOK_S: Final = 0.1

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
        return all(totals[side] == self.truth[side] for side in ("captured", "refunded"))

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


async def until(ready: Ready, *, what: str, watch: Callable[[], None] = lambda: None) -> None:
    """Look until it has happened.

    Raises UnreachableError when it takes too long, or whatever `watch` raises meanwhile.
    """
    ends = monotonic() + PATIENCE_S
    while True:
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


async def place_orders(http: httpx2.AsyncClient, party: Party) -> Instant:
    """Tell the service of every order and open every session, all at once.

    Returns when the last session expires.
    """
    opened = await asyncio.gather(*(_place(http, party, each) for each in SCENARIOS.values()))
    return max(opened)


async def _place(http: httpx2.AsyncClient, party: Party, scenario: Scenario) -> Instant:
    order = order_of(scenario)
    told = await http.put(
        f"{party.service}/api/v1/orders/{order}",
        json={"amount": AMOUNT, "currency": CURRENCY},
        headers=party.headers,
    )
    told.raise_for_status()
    started = await http.post(
        f"{party.service}/api/v1/checkout/sessions",
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
    if started.status_code != 201:
        raise UnreachableError(f"no session for {order}: {started.text}")
    return parse_instant(started.json()["expires_at"])


async def all_delivered(http: httpx2.AsyncClient, party: Party) -> bool:
    """Whether the provider has delivered all that it ever will."""
    state = (await http.get(f"{party.provider}/sandbox/state")).json()
    return bool(state["pending_events"] == 0 and state["undelivered"] == 0)


async def wait_for_end(desk: Desk, http: httpx2.AsyncClient, party: Party, last: Instant) -> None:
    """Until everything is delivered and every session has expired."""
    await until(lambda: all_delivered(http, party), what="the delivery of all events")
    await asyncio.sleep(max(0.0, (last - desk.clock.now()) / SECOND))


async def compare(http: httpx2.AsyncClient, party: Party) -> list[Played]:
    """Every order's ledger beside the provider's truth."""
    truths = (await http.get(f"{party.provider}/sandbox/truth")).json()
    by_order = {entry["order"]: entry for entry in truths}
    played = []
    for scenario in SCENARIOS.values():
        order = order_of(scenario)
        answer = await http.get(f"{party.service}/api/v1/orders/{order}", headers=party.headers)
        answer.raise_for_status()
        played.append(Played(scenario=scenario, ledger=answer.json(), truth=by_order[order]))
    return played


async def published_as_folded(
    http: httpx2.AsyncClient, party: Party, played: Sequence[Played]
) -> bool:
    """Whether the outcome feed has come to the same end as the ledgers."""
    feed = await http.get(f"{party.service}/api/v1/outcomes?limit=1000", headers=party.headers)
    last = {each["order"]: each["outcome"] for each in feed.json()["outcomes"]}
    return all(last.get(each.ledger["order"]) == each.ledger["outcome"] for each in played)


async def verdicts(http: httpx2.AsyncClient, party: Party) -> dict[str, int]:
    """Deliveries by verdict, from the service's own metrics."""
    text = (await http.get(f"{party.service}/metrics")).text
    counts = {}
    for line in text.splitlines():
        if line.startswith("tallyhook_deliveries_total{"):
            verdict = line.partition('verdict="')[2].partition('"')[0]
            counts[verdict] = int(float(line.rpartition(" ")[2]))
    return counts
