"""Deliver signed events, and repeat them until acknowledged."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

import anyio
import httpx2

from app.core.clock import Clock
from app.sandbox.settings import SandboxSettings
from reconcile.instants import Instant

Sleep = Callable[[float], Awaitable[None]]

USER_AGENT: Final = "tallyhook-sandbox/1"


class WebhookSigner(Protocol):
    """Interface of an object that signs events."""

    def sign(self, body: bytes, *, event_id: str, now: Instant) -> list[tuple[str, str]]:
        """Return the headers that sign a body at an instant."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """Delivery of the simulated provider, with signed and sent body."""

    event_id: str
    signed: bytes
    sent: bytes

    @property
    def tampered(self) -> bool:
        """Return whether the sent body was changed after signing."""
        return self.signed != self.sent

    def is_settled_by(self, status: int | None) -> bool:
        """Return whether this status ends the delivery."""
        if status is None:
            return False
        return 200 <= status < 300 or (self.tampered and 400 <= status < 500)


class WebhookSender:
    """Sender of deliveries to one webhook URL. Only a limited number of deliveries are sent at a
    time."""

    def __init__(
        self,
        settings: SandboxSettings,
        *,
        client: httpx2.AsyncClient,
        signer: WebhookSigner,
        clock: Clock,
        sleep: Sleep,
    ) -> None:
        self._settings = settings
        self._client = client
        self._signer = signer
        self._clock = clock
        self._sleep = sleep
        self._limiter = anyio.CapacityLimiter(settings.max_concurrent)

    async def deliver_once(self, parcel: Parcel) -> bool:
        """Send a delivery once. Return whether the answer ends the delivery."""
        async with self._limiter:
            return parcel.is_settled_by(await self._post(parcel))

    async def deliver_again(self, parcel: Parcel) -> None:
        """Repeat a delivery, with growing pauses, until an answer ends the delivery."""
        tries = 0
        schedule = self._settings.retry_schedule_units
        while True:
            delay = schedule[min(tries, len(schedule) - 1)]
            await self._sleep(delay * self._settings.unit_s)
            if await self.deliver_once(parcel):
                return
            tries += 1

    async def _post(self, parcel: Parcel) -> int | None:
        headers = [("content-type", "application/json"), ("user-agent", USER_AGENT)]
        headers += self._signer.sign(parcel.signed, event_id=parcel.event_id, now=self._clock.now())
        try:
            with anyio.fail_after(self._settings.delivery_timeout_s):
                answer = await self._client.post(
                    self._settings.webhook_url, content=parcel.sent, headers=headers
                )
        except (httpx2.HTTPError, TimeoutError):
            return None
        return answer.status_code


def webhook_client(
    settings: SandboxSettings, transport: httpx2.AsyncBaseTransport | None
) -> httpx2.AsyncClient:
    """Return the HTTP client for deliveries, which uses no proxy."""
    return httpx2.AsyncClient(
        timeout=settings.delivery_timeout_s,
        follow_redirects=False,
        trust_env=False,
        transport=transport,
        limits=httpx2.Limits(
            max_connections=settings.max_concurrent,
            max_keepalive_connections=settings.max_concurrent,
        ),
    )
