"""The HTTP client of the payment service.

Each call sends the same bytes and idempotency key until the answer is clear or a limit is reached.
The client stores nothing: the caller has committed the key before.
"""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

import anyio
import httpx2

from app.checkout import request as requests
from app.checkout.request import AnswerUnclear, RetryLater, ServiceReply, Verdict
from app.checkout.session_api import SESSION_APIS, SessionApi
from app.config.settings import Settings
from app.context.configured import profile_of
from app.core.errors import ConfigurationError
from app.core.http import exchange, outgoing_client
from app.core.logs import Repeating, log
from app.core.masking import Mask


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    """Limits of one call to the payment service, during which a customer waits."""

    tries: int = 5
    """Maximum number of requests in the call."""
    try_s: float = 8.0
    """Maximum seconds for one request with its whole answer."""
    total_s: float = 25.0
    """Maximum seconds for the whole call with its pauses."""
    first_s: float = 0.2
    """Seconds of the first pause. Each later pause is twice as long."""
    most_s: float = 4.0
    """Maximum seconds of a pause, unless the service asks for more."""
    jitter_s: float = 0.5
    """Maximum random seconds added to each pause."""


def pause_before(number: int, *, key: str, asked_s: float, settings: RetrySettings) -> float:
    """Return the seconds to pause before request `number` (2, 3, …) of a call.

    asked_s  minimum pause that the service asked for
    """
    # A larger exponent only costs time: `most_s` limits the pause long before.
    grown = settings.first_s * 2.0 ** min(number - 2, 30)
    return max(asked_s, min(grown, settings.most_s)) + settings.jitter_s * _share(key, number)


def _share(key: str, number: int) -> float:
    digest = hashlib.sha256(f"{number}:{key}".encode()).digest()
    return int.from_bytes(digest[:4], "big") / 2**32


T = TypeVar("T")

MAX_CALLERS: Final = 2_048
"""Maximum number of calls at a time in one process. Each call takes a few kilobytes of memory for a
minute."""


class Flight(Generic[T]):
    """A running call for one order, and the callers that wait for it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.callers = 0
        self._answer: tuple[object, T] | None = None

    def answer_to(self, asked: object) -> T | None:
        """Return the stored answer if an earlier caller's request was equal, or None."""
        return self._answer[1] if self._answer is not None and self._answer[0] == asked else None

    def leave(self, asked: object, answer: T) -> T:
        """Store the answer for waiting callers whose request is equal, and return it."""
        self._answer = (asked, answer)
        return answer


class SingleFlight(Generic[T]):
    """Queue that runs one call at a time for each order. Waiting callers with equal requests share
    one answer."""

    def __init__(self, limit: int = MAX_CALLERS) -> None:
        self._limit = limit
        self._callers = 0
        self._flights: dict[str, Flight[T]] = {}

    def __len__(self) -> int:
        return len(self._flights)

    @asynccontextmanager
    async def of(self, order: str) -> AsyncIterator[Flight[T]]:
        """Wait until no other caller works on the order, then run the block. Raise
        CheckoutBusyError if too many callers wait."""
        if self._callers >= self._limit:
            raise requests.CheckoutBusyError(
                "Too many checkouts are being opened right now; try again in a minute."
            )
        flight = self._flights.setdefault(order, Flight())
        self._callers += 1
        flight.callers += 1
        try:
            async with flight.lock:
                yield flight
        finally:
            self._callers -= 1
            flight.callers -= 1
            if not flight.callers:
                del self._flights[order]


LONGEST_HOLD_S: Final = 900.0
"""Maximum seconds for which the service can delay our requests. A longer delay is probably a
mistake, such as a wrong date."""

WAITS_FOR_ALL: Final = frozenset({"status_429", "status_503"})
"""Codes of answers whose Retry-After header applies to all requests."""

DENIAL_LASTS_S: Final = 300.0
"""Seconds for which this process is not ready after the service has refused our token."""

TOKEN_DENIED: Final = frozenset({401, 403})
"""HTTP statuses by which the service refuses our token and says nothing else."""

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Settings for the payment service. Invalid ones raise one ConfigurationError."""

    base_url: str
    """Http or https URL, to which `api.path` is appended."""
    token: str = field(repr=False)
    """Bearer token for the service."""
    source: str
    """Provider account that opens the sessions and sends their webhooks."""
    api: SessionApi = field(default_factory=SessionApi)
    retry: RetrySettings = field(default_factory=RetrySettings)

    def __post_init__(self) -> None:
        problems = []
        if not requests.is_web_address(self.base_url):
            problems.append("TALLYHOOK_CHECKOUT__BASE_URL: must be an http or https URL")
        if not self.token or not self.token.isascii() or not self.token.isprintable():
            problems.append("TALLYHOOK_CHECKOUT__TOKEN: must be printable ASCII")
        if not self.source:
            problems.append("TALLYHOOK_CHECKOUT__SOURCE: must name a source")
        if problems:
            raise ConfigurationError(problems)


class CheckoutClient:
    """HTTP client of the payment service, used as `async with CheckoutClient(settings) as client`.

    sleep  waits between requests
    transport  replacement for the network, in tests

    Calls for one order wait for each other.
    """

    def __init__(
        self,
        settings: ClientSettings,
        *,
        sleep: Sleep = anyio.sleep,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.settings = settings
        self.flights: SingleFlight[Any] = SingleFlight()
        self.unasked = Repeating()
        """Log of due sessions for which no request could be sent."""
        self._denied: tuple[int, float] | None = None
        """Status of the service's last refusal of our token, and the refusal's time on the
        monotonic clock. None if the service has accepted the token since."""
        self._held_off_until = 0.0
        """Time on the monotonic clock before which the service wants no requests."""
        self._sleep = sleep
        self._url = settings.base_url.rstrip("/") + settings.api.path
        self._http = outgoing_client(timeout_s=settings.retry.try_s, transport=transport)

    def __repr__(self) -> str:
        return f"CheckoutClient({self._url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.aclose()

    @property
    def denied(self) -> int | None:
        """Return the HTTP status with which the service refused our token in the last five minutes,
        if it did."""
        if self._denied is None or time.monotonic() - self._denied[1] >= DENIAL_LASTS_S:
            return None
        return self._denied[0]

    def mask_for(self, phone: str | None) -> Mask:
        """Return a mask that hides this phone number and our token in texts before they are
        stored."""
        return Mask(phone=phone, token=self.settings.token)

    async def ask(self, order: str, body: bytes, *, key: str, again: bool = False) -> Verdict:
        """Send requests for the order's session until the answer is clear or the time is over.

        again  whether an earlier call may have sent a request with this key

        Return AnswerUnclear if the network or the service fails.
        """
        verdict = await self._until_clear(order, body, key, lost=again)
        if isinstance(verdict, requests.Denied) and verdict.status in TOKEN_DENIED:
            self._denied = verdict.status, time.monotonic()
        elif not isinstance(verdict, AnswerUnclear) or verdict.reached:
            self._denied = None
        return verdict

    async def _until_clear(self, order: str, body: bytes, key: str, *, lost: bool) -> Verdict:
        retry, api = self.settings.retry, self.settings.api
        mask = self.mask_for(requests.phone_in(body))
        number, spent = 1, self._held_off_s(key)
        if spent + retry.try_s > retry.total_s:
            return AnswerUnclear(code=requests.HELD_OFF, wait_s=spent)
        if spent:
            await self._sleep(spent)
        while True:
            started = time.monotonic()
            reply = await self._request(body, key, limit_s=min(retry.try_s, retry.total_s - spent))
            spent += time.monotonic() - started
            verdict = requests.judge_reply(reply, order=order, api=api, mask=mask, lost=lost)
            if not isinstance(verdict, RetryLater):
                return verdict
            if verdict.code in WAITS_FOR_ALL:
                until = time.monotonic() + min(verdict.wait_s, LONGEST_HOLD_S)
                self._held_off_until = max(self._held_off_until, until)
            lost = True
            number += 1
            pause = pause_before(number, key=key, asked_s=verdict.wait_s, settings=retry)
            if number > retry.tries or spent + pause >= retry.total_s:
                return AnswerUnclear(code=verdict.code, wait_s=self._held_off_s(key))
            log.info(
                "a checkout request is repeated",
                order=order,
                attempt_number=number,
                reason=verdict.code,
                seconds=round(pause, 3),
            )
            await self._sleep(pause)
            spent += pause

    def _held_off_s(self, key: str) -> float:
        left = self._held_off_until - time.monotonic()
        return left + self.settings.retry.jitter_s * _share(key, 1) if left > 0 else 0.0

    async def _request(self, body: bytes, key: str, *, limit_s: float) -> ServiceReply:
        headers = {
            "authorization": f"Bearer {self.settings.token}",
            "idempotency-key": key,
            "content-type": "application/json",
        }
        answer = await exchange(
            self._http, "POST", self._url, headers=headers, content=body, limit_s=limit_s
        )
        return ServiceReply(
            status=answer.status,
            problem=answer.problem,
            body=answer.body,
            retry_after=answer.headers.get("retry-after"),
            date=answer.headers.get("date"),
        )


def client_settings(settings: Settings) -> ClientSettings:
    """Return the settings for the payment service.

    Raise ConfigurationError for a missing setting, or another environment's token.
    """
    checkout = settings.checkout
    if checkout.base_url is None or checkout.token is None or checkout.source is None:
        raise ConfigurationError(
            ["TALLYHOOK_CHECKOUT__BASE_URL: set the service's address, token and source"]
        )
    api = SESSION_APIS.get(profile_of(settings, checkout.source).name, SessionApi())
    token, environment = checkout.token.get_secret_value(), settings.environment or "sandbox"
    if api.refuses(token, environment=environment):
        variable = "TALLYHOOK_CHECKOUT__TOKEN" + ("_FILE" if checkout.token_file else "")
        raise ConfigurationError(
            [
                f"{variable}: looks like a token for the other environment; write the one for "
                f"{environment}"
            ]
        )
    return ClientSettings(base_url=checkout.base_url, token=token, source=checkout.source, api=api)


def client_of(settings: Settings) -> CheckoutClient | None:
    """Return the client of the payment service, or None if this instance opens no sessions."""
    if settings.checkout.base_url is None:
        return None
    return CheckoutClient(client_settings(settings))
