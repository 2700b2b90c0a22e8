"""The network between provider and receiver, both ways, with its faults.

Every acknowledgement that leaves the receiver is recorded, whether or not it arrives: everything
later is compared with it.
"""

import asyncio
import contextvars
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2

from app.sandbox.webhook_sender import WebhookSigner
from reconcile.instants import Instant
from tests.simulation.asgi import Packet, Reply, call
from tests.simulation.faults import HELD_S, Faults
from tests.simulation.loop import OWNER
from tests.simulation.machine import Down, Machine
from tests.simulation.trace import Trace

TOO_SLOW_S = (11.0, 600.0)
"""Range of delays that are longer than either side waits."""

COPY_AFTER_S = 1_200.0


@dataclass(frozen=True, slots=True)
class Promise:
    """One acknowledgement that left the receiver."""

    delivery: str
    verdict: str
    event: str


@dataclass(kw_only=True)
class Inward(httpx2.AsyncBaseTransport):
    """The way from the provider's courier to the receiver.

    promises  acknowledgements that left the receiver
    wrongs    answers that must not be given
    copies    requests still on their way
    """

    machine: Machine
    chance: random.Random
    faults: Faults
    trace: Trace
    signer: WebhookSigner
    now: Callable[[], Instant]
    promises: list[Promise] = field(default_factory=list)
    wrongs: list[str] = field(default_factory=list)
    quiet: bool = False
    copies: int = 0

    def __post_init__(self) -> None:
        self._held: dict[str, float] = {}
        self._context = contextvars.copy_context()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Carry one attempt of a delivery."""
        await request.aread()
        packet = Packet.of(request)
        event = packet.header(b"webhook-id")
        loop = asyncio.get_running_loop()
        if self._is_held(event, loop.time()):
            return await self._nobody("held", event)
        fate = self.faults.of_request(self.chance)
        fate = "" if self.quiet else fate
        if fate == "lost":
            return await self._nobody(fate, event)
        if fate == "gateway":
            self.trace.say("network", f"{event} 502 on the way", count=fate)
            return httpx2.Response(502, stream=httpx2.ByteStream(b""))
        self._send_companions(packet, event)
        delay = self.chance.uniform(*TOO_SLOW_S) if fate == "slow" else self._delay()
        arrival = self._spawn(self._arrive(packet, delay, fate or "on time"))
        await asyncio.wait((arrival,))
        reply = arrival.result()
        if reply is None or fate == "answer_lost":
            raise httpx2.ReadError("no answer came")
        await asyncio.sleep(self._delay())
        answer: httpx2.Response = reply.response()
        return answer

    def _is_held(self, event: str, now: float) -> bool:
        if event not in self._held:
            held = self.chance.random() < self.faults.held
            self._held[event] = now + self.chance.uniform(0, HELD_S) if held else 0.0
        return now < self._held[event] and not self.quiet

    async def _nobody(self, why: str, event: str) -> httpx2.Response:
        self.trace.say("network", f"{event} {why}", count=why)
        await asyncio.sleep(self._delay())
        raise httpx2.ConnectError("nothing came through")

    def _delay(self) -> float:
        return float(10.0 ** self.chance.uniform(-3, 0.3))

    def _send_companions(self, packet: Packet, event: str) -> None:
        """Send a copy, a changed copy, or one of the other environment beside the request."""
        faults, chance = self.faults, self.chance
        draws = [chance.random() for _ in range(3)]
        if self.quiet:
            return
        if draws[0] < faults.doubled:
            delay = chance.uniform(0, COPY_AFTER_S) * chance.random()
            self._spawn(self._arrive(packet, delay, "doubled"))
        if draws[1] < faults.tampered:
            body, place = packet.body, chance.randrange(len(packet.body))
            flipped = bytes((body[place] ^ (1 << chance.randrange(8)),))
            changed = replace(packet, body=body[:place] + flipped + body[place + 1 :])
            self._spawn(self._arrive(changed, 0.0, "tampered"))
        if draws[2] < faults.live:
            body = json.dumps(json.loads(packet.body) | {"environment": "live"}).encode()
            signed = self.signer.sign(body, event_id=event, now=self.now())
            names = {name.lower().encode(): value.encode() for name, value in signed}
            headers = tuple((name, names.get(name, value)) for name, value in packet.headers)
            live = replace(packet, headers=headers, body=body)
            self._spawn(self._arrive(live, 0.0, "live"))

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        self.copies += 1
        return asyncio.get_running_loop().create_task(work, context=self._context)

    async def _arrive(self, packet: Packet, delay: float, how: str) -> Reply | None:
        await asyncio.sleep(delay)
        event = packet.header(b"webhook-id")
        try:
            reply = await self.machine.hear(packet)
        except Down:
            self.trace.say("door", f"{event} {how}: nobody there", count="nobody there")
            return None
        finally:
            self.copies -= 1
        said = json.loads(reply.body)
        verdict = said.get("verdict") or said.get("code")
        delivery = said.get("delivery", "-")
        self.trace.say("door", f"{event} {how}: {reply.status} {verdict} {delivery}", count=verdict)
        if 200 <= reply.status < 300:
            self.promises.append(Promise(delivery, verdict, event))
        if how in ("tampered", "live") and reply.status < 400:
            self.wrongs.append(f"{event}: a {how} delivery was answered {reply.status}")
        if reply.status not in (200, 401, 403, 503):
            self.wrongs.append(f"{event}: a delivery was answered {reply.status}")
        return reply


@dataclass(kw_only=True)
class Outward(httpx2.AsyncBaseTransport):
    """The way from the receiver's checkout client to the provider; `keys`: those of each order."""

    sandbox: Any
    chance: random.Random
    faults: Faults
    trace: Trace
    keys: dict[str, set[str]] = field(default_factory=dict)
    quiet: bool = False

    def __post_init__(self) -> None:
        self._context = contextvars.copy_context()
        self._context.run(OWNER.set, None)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Carry one session request."""
        await request.aread()
        packet = Packet.of(request)
        order = json.loads(packet.body)["order"]["reference"]
        self.keys.setdefault(order, set()).add(packet.header(b"idempotency-key"))
        fate = self.faults.of_request(self.chance)
        fate = "" if self.quiet else fate
        self.trace.say("checkout", f"{order} asks, {fate or 'well'}", count="session requests")
        if fate == "lost":
            raise httpx2.ConnectError("nothing came through")
        if fate == "gateway":
            return httpx2.Response(502, stream=httpx2.ByteStream(b""))
        delay = self.chance.uniform(*TOO_SLOW_S) if fate == "slow" else 0.05
        loop = asyncio.get_running_loop()
        asked = loop.create_task(_later(delay, self.sandbox, packet), context=self._context)
        await asyncio.wait((asked,))
        reply = asked.result()
        if fate == "answer_lost" or reply.dropped:
            raise httpx2.ReadError("no answer came")
        answer: httpx2.Response = reply.response()
        return answer


async def _later(delay: float, application: Any, packet: Packet) -> Reply:
    await asyncio.sleep(delay)
    return await call(application, packet)
