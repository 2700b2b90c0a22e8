"""Send outgoing requests, limited in time and size, to the configured host only.

TLS certificates are verified. Redirects, cookies, and proxies and credentials of the environment
are not used.
"""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Final

import anyio
import httpx2

from reconcile.instants import NO_TIME, SECOND, Duration

MAX_ANSWER_BYTES: Final = 1024 * 1024
"""Maximum size of an answer in bytes. A real answer has a few hundred bytes."""

MAX_CONNECTIONS: Final = 32

USER_AGENT: Final = "tallyhook/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Answer to a request, or the reason why there is no complete answer."""

    status: int | None = None
    """Status code. None without a complete answer."""
    problem: str | None = None
    """`connection_failed`, `timed_out`, `too_large` or `encoded`. None for a complete answer."""
    body: bytes = field(default=b"", repr=False)
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    """Values by name in lower case. The last of a repeated name."""

    @property
    def taken(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def why(self) -> str:
        """Return the code of a refusal or failure, such as `timed_out` or `status_503`."""
        return self.problem or f"status_{self.status}"


def outgoing_client(
    *, timeout_s: float, transport: httpx2.AsyncBaseTransport | None = None
) -> httpx2.AsyncClient:
    """Return a new HTTP client with a connection pool.

    transport  replacement for the network in tests
    """
    return httpx2.AsyncClient(
        timeout=timeout_s,
        follow_redirects=False,
        trust_env=False,
        transport=transport or _Trusting(),
        # Otherwise a host could make us send ever more cookies.
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        event_hooks={"response": [_without_address]},
        headers={
            "user-agent": USER_AGENT,
            "accept": "application/json",
            "accept-encoding": "identity",
        },
    )


class _Trusting(httpx2.AsyncBaseTransport):
    """Transport that trusts the machine's certificate authorities. They are loaded at the first
    request, because loading is slow."""

    _loaded: httpx2.AsyncHTTPTransport | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self._loaded is None:
            context = await asyncio.to_thread(trusting)
            self._loaded = self._loaded or httpx2.AsyncHTTPTransport(
                verify=context,
                trust_env=False,
                limits=httpx2.Limits(
                    max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_CONNECTIONS
                ),
            )
        return await self._loaded.handle_async_request(request)

    async def aclose(self) -> None:
        if self._loaded is not None:
            await self._loaded.aclose()


@cache
def trusting() -> ssl.SSLContext:
    """Return a TLS context with the machine's certificate authorities. The context is cached,
    because building one is slow."""
    return httpx2.create_ssl_context(trust_env=False)


async def _without_address(answer: httpx2.Response) -> None:
    answer.headers.pop("location", None)


async def exchange(
    client: httpx2.AsyncClient,
    method: str,
    url: str,
    *,
    headers: dict[str, str] | list[tuple[bytes, bytes]],
    content: bytes | None = None,
    limit_s: float,
    most: int = MAX_ANSWER_BYTES,
) -> Exchange:
    """Send a request and read the whole answer. Failures become an Exchange with a `problem`.

    headers  values by name, or pairs if a name is repeated
    limit_s  seconds for the whole exchange
    most     maximum number of bytes of the answer
    """
    try:
        with anyio.fail_after(limit_s):
            async with client.stream(method, url, content=content, headers=headers) as answer:
                body, problem = bytearray(), None
                # Never decompress: we ask for no encoding, and a body could unpack to gigabytes.
                if answer.headers.get("content-encoding", "identity").lower() != "identity":
                    problem = "encoded"
                else:
                    async for chunk in answer.aiter_raw():
                        body += chunk
                        if len(body) > most:
                            problem = "too_large"
                            break
                return Exchange(
                    status=answer.status_code,
                    problem=problem,
                    body=b"" if problem else bytes(body),
                    headers={name.lower(): value for name, value in answer.headers.items()},
                )
    except (TimeoutError, httpx2.TimeoutException):
        return Exchange(problem="timed_out")
    except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError):  # UnicodeError: not a host name
        return Exchange(problem="connection_failed")


def asked_to_wait(headers: Mapping[str, str]) -> Duration:
    """Return the duration of a Retry-After header in seconds; zero without a number."""
    asked = headers.get("retry-after", "")
    usable = asked.isascii() and asked.isdigit() and len(asked) < 7
    return int(asked) * SECOND if usable else NO_TIME
