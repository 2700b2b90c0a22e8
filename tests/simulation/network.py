"""The roads between the provider and the receiver, both ways, with what goes wrong on them.

Every acknowledgement that leaves the receiver is written down, whether or not it arrives: that is
the promise that everything later is held against.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
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
"""Longer than either side waits for an answer."""

COPY_AFTER_S = 1_200.0


@dataclass(frozen=True, slots=True)
class Promise:
    """One acknowledgement that left the receiver."""

    delivery: str
    verdict: str
    event: str


class Inward(httpx2.AsyncBaseTransport):
    """From the provider's courier to the receiver's door."""

    def __init__(
        self,
        machine: Machine,
        *,
        chance: random.Random,
        faults: Faults,
        trace: Trace,
        signer: WebhookSigner,
        now: Callable[[], Instant],
    ) -> None:
        self.promises: list[Promise] = []
        self.wrongs: list[str] = []
        self.quiet = False
        self.copies = 0
        self._machine = machine
        self._chance = chance
        self._faults = faults
        self._trace = trace
        self._signer = signer
        self._now = now
        self._held: dict[str, float] = {}
        self._context = contextvars.copy_context()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """One try of a delivery."""
        await request.aread()
        packet = Packet.of(request)
        event = packet.header(b"webhook-id")
        loop = asyncio.get_running_loop()
        if self._is_held(event, loop.time()):
            return await self._nobody("held", event)
        fate = self._fate()
        if fate == "lost":
            return await self._nobody(fate, event)
        if fate == "gateway":
            self._trace.say("network", f"{event} 502 on the way", count=fate)
            return httpx2.Response(502, stream=httpx2.ByteStream(b""))
        self._send_companions(packet, event)
        delay = self._chance.uniform(*TOO_SLOW_S) if fate == "slow" else self._delay()
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
            held = self._chance.random() < self._faults.held
            self._held[event] = now + self._chance.uniform(0, HELD_S) if held else 0.0
        return now < self._held[event] and not self.quiet

    async def _nobody(self, why: str, event: str) -> httpx2.Response:
        self._trace.say("network", f"{event} {why}", count=why)
        await asyncio.sleep(self._delay())
        raise httpx2.ConnectError("nothing came through")

    def _fate(self) -> str:
        draw = self._chance.random()
        if self.quiet:
            return ""
        for name in ("lost", "gateway", "answer_lost", "slow"):
            share = getattr(self._faults, name)
            if draw < share:
                return name
            draw -= share
        return ""

    def _delay(self) -> float:
        return float(10.0 ** self._chance.uniform(-3, 0.3))

    def _send_companions(self, packet: Packet, event: str) -> None:
        """What travels beside the request: a copy, a changed copy, one of the other environment."""
        faults, chance = self._faults, self._chance
        draws = [chance.random() for _ in range(3)]
        if self.quiet:
            return
        if draws[0] < faults.doubled:
            delay = chance.uniform(0, COPY_AFTER_S) * chance.random()
            self._spawn(self._arrive(packet, delay, "doubled"))
        if draws[1] < faults.tampered:
            changed = replace(packet, body=_tampered(packet.body, chance))
            self._spawn(self._arrive(changed, 0.0, "tampered"))
        if draws[2] < faults.live:
            self._spawn(self._arrive(self._of_live(packet, event), 0.0, "live"))

    def _of_live(self, packet: Packet, event: str) -> Packet:
        document = json.loads(packet.body)
        body = json.dumps(document | {"environment": "live"}).encode()
        signed = self._signer.sign(body, event_id=event, now=self._now())
        names = {name.lower().encode(): value.encode() for name, value in signed}
        headers = tuple((name, names.get(name, value)) for name, value in packet.headers)
        return replace(packet, headers=headers, body=body)

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        self.copies += 1
        return asyncio.get_running_loop().create_task(work, context=self._context)

    async def _arrive(self, packet: Packet, delay: float, how: str) -> Reply | None:
        await asyncio.sleep(delay)
        event = packet.header(b"webhook-id")
        try:
            reply = await self._machine.hear(packet)
        except Down:
            self._trace.say("door", f"{event} {how}: nobody there", count="nobody there")
            return None
        finally:
            self.copies -= 1
        said = json.loads(reply.body)
        verdict = said.get("verdict") or said.get("code")
        delivery = said.get("delivery", "-")
        self._trace.say(
            "door", f"{event} {how}: {reply.status} {verdict} {delivery}", count=verdict
        )
        if 200 <= reply.status < 300:
            self.promises.append(Promise(delivery, verdict, event))
        self._judge(reply.status, how, event)
        return reply

    def _judge(self, status: int, how: str, event: str) -> None:
        if how in ("tampered", "live") and status < 400:
            self.wrongs.append(f"{event}: a {how} delivery was answered {status}")
        if status not in (200, 401, 403, 503):
            self.wrongs.append(f"{event}: a delivery was answered {status}")


def _tampered(body: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(body))
    return body[:place] + bytes((body[place] ^ (1 << chance.randrange(8)),)) + body[place + 1 :]


class Outward(httpx2.AsyncBaseTransport):
    """From the receiver's checkout client to the provider."""

    def __init__(
        self, sandbox: Any, *, chance: random.Random, faults: Faults, trace: Trace
    ) -> None:
        self.keys: dict[str, set[str]] = {}
        self.quiet = False
        self._sandbox = sandbox
        self._chance = chance
        self._faults = faults
        self._trace = trace
        self._context = contextvars.copy_context()
        self._context.run(OWNER.set, None)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """One session request."""
        await request.aread()
        packet = Packet.of(request)
        order = json.loads(packet.body)["order"]["reference"]
        self.keys.setdefault(order, set()).add(packet.header(b"idempotency-key"))
        draw = self._chance.random()
        fate = "" if self.quiet else self._fate(draw)
        self._trace.say("checkout", f"{order} asks, {fate or 'well'}", count="session requests")
        if fate == "lost":
            raise httpx2.ConnectError("nothing came through")
        if fate == "gateway":
            return httpx2.Response(502, stream=httpx2.ByteStream(b""))
        delay = self._chance.uniform(*TOO_SLOW_S) if fate == "slow" else 0.05
        loop = asyncio.get_running_loop()
        asked = loop.create_task(_later(delay, self._sandbox, packet), context=self._context)
        await asyncio.wait((asked,))
        reply = asked.result()
        if fate == "answer_lost" or reply.dropped:
            raise httpx2.ReadError("no answer came")
        answer: httpx2.Response = reply.response()
        return answer

    def _fate(self, draw: float) -> str:
        for name in ("lost", "gateway", "answer_lost", "slow"):
            share = getattr(self._faults, name)
            if draw < share:
                return name
            draw -= share
        return ""


async def _later(delay: float, application: Any, packet: Packet) -> Reply:
    await asyncio.sleep(delay)
    return await call(application, packet)
