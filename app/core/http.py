"""Outgoing requests, limited in time and size, and only to the configured host.

TLS is verified. Proxies and credentials from the environment are ignored, and redirects are not
followed, so a credential only goes to the configured host. No cookie is stored.
"""

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
"""Most bytes of an answer that are read. A real answer has a few hundred."""

MAX_CONNECTIONS: Final = 32
"""Concurrent connections to one service. Further callers wait."""

USER_AGENT: Final = "tallyhook/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """The answer to a request, or why there is none.

    status   None if no complete answer came; `problem` says why
    problem  `connection_failed`, `timed_out`, `too_large` or `encoded`; None if the answer was read
             whole
    headers  by name in lower case; the last one counts if a name is repeated
    """

    status: int | None = None
    problem: str | None = None
    body: bytes = field(default=b"", repr=False)
    headers: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def taken(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def why(self) -> str:
        """Reason for a refusal or failure: `timed_out`, or `status_503`."""
        return self.problem or f"status_{self.status}"


def outgoing_client(
    *, timeout_s: float, transport: httpx2.AsyncBaseTransport | None = None
) -> httpx2.AsyncClient:
    """Build a pooled client. `transport` replaces the network in tests."""
    return httpx2.AsyncClient(
        verify=trusting() if transport is None else True,
        timeout=timeout_s,
        follow_redirects=False,
        trust_env=False,
        transport=transport,
        # Otherwise a host could make us send ever more cookies.
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        event_hooks={"response": [_without_address]},
        limits=httpx2.Limits(
            max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_CONNECTIONS
        ),
        headers={
            "user-agent": USER_AGENT,
            "accept": "application/json",
            "accept-encoding": "identity",
        },
    )


@cache
def trusting() -> ssl.SSLContext:
    """Load the machine's certificates once for each process, because this is slow."""
    return httpx2.create_ssl_context(trust_env=False)


async def _without_address(answer: httpx2.Response) -> None:
    """Drop the address of a redirect. The library would parse it without following it, and raise
    errors that are not HTTPErrors."""
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
    """Send a request and read its whole answer. A lost connection or a timeout is returned, not
    raised.

    headers  by name, or as pairs if a name is repeated
    most     largest number of bytes to read of an answer
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
    """Return the duration of a Retry-After header in seconds, without a limit; zero for any other
    value."""
    asked = headers.get("retry-after", "")
    usable = asked.isascii() and asked.isdigit() and len(asked) < 7
    return int(asked) * SECOND if usable else NO_TIME
