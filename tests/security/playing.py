"""A player of constructions against orders of a running service, which reports broken orders."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.orders.holds import release_all
from app.orders.refold import refold_until_quiet
from app.providers.profile import load_profile
from app.providers.source import Source
from reconcile.instants import MILLISECOND, Instant, format_instant
from reconcile.ledger.records import UNREADABLE
from tests.api.driving import Driver
from tests.reconcile.build import T

PRICE = {"amount": "1500.00", "currency": "KES"}
OPEN: dict[str, Any] = dict.fromkeys(
    [
        f"{what}_PER_MINUTE{whose}"
        for what in ("REJECTIONS", "UNSIGNED")
        for whose in ("", "_PER_ADDRESS")
    ],
    "1000000",
)
"""Rate limits that no construction uses up for another."""


@dataclass(frozen=True)
class Target:
    """An attacked order, with its provider's names for session and payment."""

    driver: Driver
    order: str
    environment: str = "sandbox"
    path: str = ""

    @property
    def session(self) -> str:
        return f"cs-{self.order}"

    @property
    def payment(self) -> str:
        return f"pay-{self.order}"

    @property
    def as_path(self) -> str:
        """Address under the API."""
        return f"/orders/{self.path or self.order}"

    def event(self, event_id: str, claim: str = "succeeded", **changes: Any) -> dict[str, Any]:
        """Return an event of the order's own payment; None leaves a part out."""
        data: dict[str, Any] = {
            "order": {"reference": self.order},
            "session": {"reference": self.session},
            "payment": {"reference": self.payment, "amount": 1500, "currency": "KES"},
        }
        document: dict[str, Any] = {
            "id": f"{event_id}-{self.order}",
            "type": f"payment.{claim}",
            "occurred_at": format_instant(T),
            "environment": self.environment,
        }
        for name, value in changes.items():
            place = document if name in document else data
            if value is None:
                del place[name]
            elif isinstance(value, dict) and name in place:
                place[name] = {**place[name], **value}
            else:
                place[name] = value
        return {**document, "data": data}

    def stranger(self, event_id: str, claim: str = "succeeded", **changes: Any) -> dict[str, Any]:
        """Return an event of a payment that somebody else made on the order."""
        of = {"payment": {"reference": f"theirs-{self.order}", **changes.pop("payment", {})}}
        return self.event(f"x-{event_id}", claim, session=None, **of, **changes)

    async def send(self, document: dict[str, Any] | bytes, **words: Any) -> int:
        """Send a genuine delivery; return the status of the answer."""
        return (await self.driver.send(document, **words)).status_code

    async def put(self, **stated: Any) -> int:
        """Let the shop state the order; return the status of the answer."""
        return (await self.driver.api("PUT", self.as_path, json=PRICE | stated)).status_code

    async def ledger(self) -> dict[str, Any]:
        found: dict[str, Any] = (await self.driver.api("GET", self.as_path)).json()
        return found


Act = Callable[[Target], Awaitable[Any]]


async def pay(target: Target) -> None:
    """Send the order's own payment, of exactly its price."""
    assert await target.send(target.event("paid")) == 200


async def place(target: Target) -> None:
    """Let the shop state the order's price."""
    assert await target.put() == 200


@dataclass(frozen=True)
class Construction:
    """One thing that an attacker does.

    does    what is sent
    unpaid  whether it is played on an unpaid order, which must not become fulfillable; `pays`: and
            which the genuine payment must still make fulfillable
    paid    whether it is played on a paid order, which must stay fulfillable
    """

    does: Act
    unpaid: bool = True
    paid: bool = True
    pays: bool = True


Table = Mapping[str, Act | Construction]
"""Constructions by their sentences; an act alone is played on unpaid and on paid orders."""


def events(*made: Callable[[Target], dict[str, Any] | bytes]) -> Act:
    """Return an act that sends genuine deliveries in turn, each of which is accepted."""

    async def does(target: Target) -> None:
        for make in made:
            assert await target.send(make(target)) == 200

    return does


@dataclass
class Play:
    """A table of constructions, played at once on a service.

    placed, paid  acts that create an order and pay it genuinely
    settled       an act before ledgers are read, such as asking the provider
    """

    driver: Driver
    name: str
    placed: Act = place
    paid: Act = pay
    settled: Callable[[], Awaitable[Any]] | None = None
    environment: str = "sandbox"
    broken: list[str] = field(default_factory=list)

    async def breaks(self, table: Table) -> list[str]:
        """Return the constructions that broke an order, and how.

        The worker's own round also folds every order: what was published must agree with the API.
        """
        acts = [
            (says, each if isinstance(each, Construction) else Construction(each))
            for says, each in table.items()
        ]
        unpaid = [(*act, self._target(n, "u")) for n, act in enumerate(acts) if act[1].unpaid]
        paid = [(*act, self._target(n, "p")) for n, act in enumerate(acts) if act[1].paid]
        for _, _, target in (*unpaid, *paid):
            await self.placed(target)
        for _, _, target in paid:
            await self.paid(target)
        await self._settle()
        await self._look(paid, True, "the genuine payment does not make it fulfillable")
        for says, each, target in (*unpaid, *paid):
            try:
                await each.does(target)
            except AssertionError as error:
                raise AssertionError(f"not played: {says}") from error
        await self._settle()
        await self._look(unpaid, False, "an unpaid order is fulfillable")
        await self._look(paid, True, "a paid order is not fulfillable any more")
        still = [row for row in unpaid if row[1].pays]
        for _, _, target in still:
            await self.paid(target)
        await self._settle()
        await self._look(still, True, "paid after it, the order is not fulfillable")
        return self.broken

    def _target(self, number: int, state: str) -> Target:
        return Target(self.driver, f"{self.name}{state}{number:03}A2", self.environment)

    async def _settle(self) -> None:
        if self.settled is not None:
            await self.settled()
        for _ in range(2):
            await refold_until_quiet(self.driver.context, limit=1000, progress=lambda count: None)
            # A message that cannot be read withholds what it names until a person has judged it.
            if await release_all(self.driver.context, reason=UNREADABLE, why="played"):
                self.driver.clock.put(Instant(self.driver.clock.now() + MILLISECOND))

    async def _look(
        self, rows: Sequence[tuple[str, Construction, Target]], wanted: bool, wrong: str
    ) -> None:
        published = await self._published() if rows else {}
        for says, _, target in rows:
            ledger = await target.ledger()
            if ledger["fulfillable"] is not wanted:
                found = f"{ledger['outcome']}, {[f['code'] for f in ledger['findings']]}"
                self.broken.append(f"{says}: {wrong} ({found})")
            elif published.get(target.order, False) is not wanted:
                self.broken.append(f"{says}: {wrong} (as published)")

    async def _published(self) -> dict[str, bool]:
        """Return for each order whether the feed last called it fulfillable."""
        found, after = dict[str, bool](), 0
        while True:
            page = (await self.driver.api("GET", f"/outcomes?after={after}&limit=1000")).json()
            found |= {each["order"]: each["fulfillable"] for each in page["outcomes"]}
            if not page["outcomes"]:
                return found
            after = page["cursor"]


async def deliver(
    target: Target,
    source: Source,
    document: dict[str, Any] | bytes,
    *,
    to: str = "",
    url: str = "",
    method: str = "POST",
) -> int:
    """Send a request signed by a source's provider to that source or another; return the status."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    url = url or f"http://service/webhooks/{source.name}"
    made = source.signed(body, event_id="msg_1", now=target.driver.clock.now(), url=url)
    path = made.url.replace(f"/webhooks/{source.name}", f"/webhooks/{to or source.name}")
    headers = [(name, value) for name, value in made.headers if name.lower() != "host"]
    answer = await target.driver.client.request(method, path, content=made.body, headers=headers)
    return answer.status_code


def signer(name: str, profile: str, secrets: Any) -> Source:
    return Source(name=name, profile=load_profile(profile), secrets=secrets, strict=False)
