"""Requests that go out: bounded in time and size, to the host that was configured and no other.

TLS is verified. Proxies and credentials of the environment take no part, and redirects are not
followed: a credential goes to the configured host or nowhere. Nothing that an answer says is kept
for the next request: no cookie.
"""

from __future__ import annotations

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
"""Most bytes of an answer that are read; a real one has a few hundred."""

MAX_CONNECTIONS: Final = 32
"""Connections to one service at one moment; more callers wait for one."""

USER_AGENT: Final = "tallyhook/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What came back for one request.

    status   None: no whole answer came; `problem` says why
    problem  `connection_failed`, `timed_out`, `too_large`, `encoded`; None: read to its end
    headers  the answer's, names in lower case; the last of several of one name
    """

    status: int | None = None
    problem: str | None = None
    body: bytes = field(default=b"", repr=False)
    headers: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def taken(self) -> bool:
        """Whether the answer says that the request was taken (2xx)."""
        return self.status is not None and 200 <= self.status < 300

    @property
    def why(self) -> str:
        """Why it was not: `timed_out`, or `status_503`."""
        return self.problem or f"status_{self.status}"


def outgoing_client(
    *, timeout_s: float, transport: httpx2.AsyncBaseTransport | None = None
) -> httpx2.AsyncClient:
    """A pooled client. `transport` takes the requests instead of the network."""
    return httpx2.AsyncClient(
        verify=trusting() if transport is None else True,
        timeout=timeout_s,
        follow_redirects=False,
        trust_env=False,
        transport=transport,
        # Cookies would be sent back, ever more of them to whoever gives each a name of its own.
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
    """What certificates are checked with, which all clients of a process share: reading the
    machine's takes longer than all else of a client."""
    return httpx2.create_ssl_context(trust_env=False)


async def _without_address(answer: httpx2.Response) -> None:
    """Forget where a redirect leads: the library reads the address even if it does not go there,
    and raises what is no HTTPError for some."""
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
    """One request and its whole answer. A broken connection and a lapse of time are answers.

    headers  by name; or as pairs, where one may come twice
    most     bytes of an answer that are read
    """
    try:
        with anyio.fail_after(limit_s):
            async with client.stream(method, url, content=content, headers=headers) as answer:
                body, problem = await _content(answer, most)
                return Exchange(
                    status=answer.status_code,
                    problem=problem,
                    body=body,
                    headers={name.lower(): value for name, value in answer.headers.items()},
                )
    except (TimeoutError, httpx2.TimeoutException):
        return Exchange(problem="timed_out")
    except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError):  # the last: no name of a host
        return Exchange(problem="connection_failed")


def asked_to_wait(headers: Mapping[str, str]) -> Duration:
    """What an answer asks us to wait, where Retry-After is in seconds; else none. Not bounded."""
    asked = headers.get("retry-after", "")
    usable = asked.isascii() and asked.isdigit() and len(asked) < 7
    return int(asked) * SECOND if usable else NO_TIME


async def _content(answer: httpx2.Response, most: int) -> tuple[bytes, str | None]:
    """The body as sent, and why it was not read to its end, if so.

    Nothing is inflated: we ask for no encoding, and a small body can unpack to gigabytes.
    """
    if answer.headers.get("content-encoding", "identity").lower() != "identity":
        return b"", "encoded"
    content = bytearray()
    async for chunk in answer.aiter_raw():
        content += chunk
        if len(content) > most:
            return b"", "too_large"
    return bytes(content), None
