"""Plays constructions against orders of a running service, and says which of them broke one.

Leaves out: the constructions themselves, a table in each test file.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.orders.refold import refold_until_quiet
from app.providers.profile import load_profile
from app.providers.source import Source
from reconcile.instants import format_instant
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
"""No construction fails because another has used up an allowance."""


@dataclass(frozen=True)
class Target:
    """An order that is aimed at, with the names that its provider gives its session and payment."""

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
        """Its address under the API."""
        return f"/orders/{self.path or self.order}"

    def event(self, event_id: str, claim: str = "succeeded", **changes: Any) -> dict[str, Any]:
        """An event of the order's own payment. Parts of `data` are replaced, or left out."""
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
        """An event of a payment that somebody else made on the order."""
        of = {"payment": {"reference": f"theirs-{self.order}", **changes.pop("payment", {})}}
        return self.event(f"x-{event_id}", claim, session=None, **of, **changes)

    async def send(self, document: dict[str, Any] | bytes, **words: Any) -> int:
        """The status of the answer to a genuine delivery."""
        return (await self.driver.send(document, **words)).status_code

    async def put(self, **told: Any) -> int:
        """What the shop says of the order."""
        return (await self.driver.api("PUT", self.as_path, json=PRICE | told)).status_code

    async def ledger(self) -> dict[str, Any]:
        """What the API says of it."""
        found: dict[str, Any] = (await self.driver.api("GET", self.as_path)).json()
        return found


Act = Callable[[Target], Awaitable[Any]]


async def pay(target: Target) -> None:
    """The order's own payment, of exactly its price."""
    assert await target.send(target.event("paid")) == 200


async def place(target: Target) -> None:
    """The shop's own word on what the order costs."""
    assert await target.put() == 200


@dataclass(frozen=True)
class Construction:
    """One thing that an attacker does.

    says    what it is, in a sentence
    does    what is sent
    unpaid  whether it is played on an order that nobody has paid, which then must not be
            fulfillable; `pays`: and which the genuine payment must still make fulfillable
    paid    whether it is played on a paid order, which must stay fulfillable
    """

    says: str
    does: Act
    unpaid: bool = True
    paid: bool = True
    pays: bool = True


def events(*made: Callable[[Target], dict[str, Any] | bytes]) -> Act:
    """Deliveries one after the other, each signed with the key of the source, each taken."""

    async def does(target: Target) -> None:
        for make in made:
            assert await target.send(make(target)) == 200

    return does


@dataclass
class Play:
    """A table of constructions, played at once on a service.

    placed, paid  how an order comes to be, and how it is genuinely paid
    settled       what is done before a ledger is looked at, such as letting the provider be asked
    """

    driver: Driver
    name: str
    placed: Act = place
    paid: Act = pay
    settled: Callable[[], Awaitable[Any]] | None = None
    environment: str = "sandbox"
    broken: list[str] = field(default_factory=list)

    async def breaks(self, constructions: Sequence[Construction]) -> list[str]:
        """Which of them broke an order, and how; none, if all is well.

        Every order is also folded by the worker's own round: what was published, and what the shop
        would be notified of, has to agree with what the API says.
        """
        unpaid = [(each, self._target(n, "u")) for n, each in enumerate(constructions)]
        paid = [(each, self._target(n, "p")) for n, each in enumerate(constructions)]
        unpaid = [pair for pair in unpaid if pair[0].unpaid]
        paid = [pair for pair in paid if pair[0].paid]
        for _, target in (*unpaid, *paid):
            await self.placed(target)
        for _, target in paid:
            await self.paid(target)
        await self._settle()
        await self._look(paid, True, "the genuine payment does not make it fulfillable")
        for each, target in (*unpaid, *paid):
            try:
                await each.does(target)
            except AssertionError as error:
                raise AssertionError(f"not played: {each.says}") from error
        await self._settle()
        await self._look(unpaid, False, "an unpaid order is fulfillable")
        await self._look(paid, True, "a paid order is not fulfillable any more")
        still = [pair for pair in unpaid if pair[0].pays]
        for _, target in still:
            await self.paid(target)
        await self._settle()
        await self._look(still, True, "paid after it, the order is not fulfillable")
        return self.broken

    def _target(self, number: int, state: str) -> Target:
        return Target(self.driver, f"{self.name}{state}{number:03}A2", self.environment)

    async def _settle(self) -> None:
        if self.settled is not None:
            await self.settled()
        await refold_until_quiet(self.driver.context, limit=1000, progress=lambda count: None)

    async def _look(
        self, pairs: Sequence[tuple[Construction, Target]], wanted: bool, wrong: str
    ) -> None:
        published = await self._published() if pairs else {}
        for each, target in pairs:
            ledger = await target.ledger()
            if ledger["fulfillable"] is not wanted:
                found = f"{ledger['outcome']}, {[f['code'] for f in ledger['findings']]}"
                self.broken.append(f"{each.says}: {wrong} ({found})")
            elif published.get(target.order, False) is not wanted:
                self.broken.append(f"{each.says}: {wrong} (as published)")

    async def _published(self) -> dict[str, bool]:
        """Of each order what the feed said last."""
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
    """The answer to what the provider of a source signs, sent to that source or to another."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    url = url or f"http://service/webhooks/{source.name}"
    made = source.signed(body, event_id="msg_1", now=target.driver.clock.now(), url=url)
    path = made.url.replace(f"/webhooks/{source.name}", f"/webhooks/{to or source.name}")
    headers = [(name, value) for name, value in made.headers if name.lower() != "host"]
    answer = await target.driver.client.request(method, path, content=made.body, headers=headers)
    return answer.status_code


def signer(name: str, profile: str, secrets: Any) -> Source:
    """Who signs in the name of a provider."""
    return Source(name=name, profile=load_profile(profile), secrets=secrets, strict=False)
