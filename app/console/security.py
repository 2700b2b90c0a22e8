"""Check the Host header and the origin of each request, and set security headers.

1 the Host header is allowed    so that no other site's name leads to the console
2 a POST comes from our page    by Sec-Fetch-Site or, if missing, Origin
3 every answer has the headers  nothing inline, nothing from other hosts, no cache
"""

import ipaddress
from collections import OrderedDict, deque
from collections.abc import Callable
from time import monotonic
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.console.view import Console
from app.core.logs import Repeating, log

CONTENT_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

HEADERS: Final = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

HSTS: Final = "max-age=31536000; includeSubDomains"

READING: Final = ("GET", "HEAD")


class SecurityMiddleware:
    """ASGI middleware that checks the Host header and the origin of each request, and sets security
    headers."""

    def __init__(self, application: ASGIApp, console: Console) -> None:
        self._application = application
        self._console = console
        self._counted = Repeating()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # the server's startup and shutdown events
            await self._application(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
                if self._console.secure:
                    headers["Strict-Transport-Security"] = HSTS
                if message["status"] in (401, 403) and (times := self._counted.times("refused")):
                    log.warning(
                        "the console refused requests", status=message["status"], count=times
                    )
            await send(message)

        refused = self._refused(scope["method"], Headers(scope=scope))
        if refused is not None:
            answer = PlainTextResponse(refused[1], status_code=refused[0])
            await answer(scope, receive, with_headers)
            return
        await self._application(scope, receive, with_headers)

    def _refused(self, method: str, headers: Headers) -> tuple[int, str] | None:
        if headers.getlist("host") not in [[host] for host in self._console.hosts]:  # 1
            return 421, f"This console answers at {self._console.origin} only.\n"
        if method in READING:
            return None
        site = headers.get("sec-fetch-site")  # 2
        if site is not None:
            ours = site == "same-origin"
        else:
            scheme = self._console.origin.partition("://")[0]
            ours = headers.get("origin") == f"{scheme}://{headers['host']}"
        return None if ours else (403, "This came from another site, and nothing was done.\n")


class RateLimiter:
    """Rate limiter for tries of each name in a period.

    At most MOST names are counted.
    """

    MOST: Final = 10_000
    MINUTE_S = 60.0

    def __init__(
        self, most: int, clock: Callable[[], float] = monotonic, *, within_s: float | None = None
    ) -> None:
        self._most = most
        self._within_s = within_s
        self._clock = clock
        self._tried: OrderedDict[str, deque[float]] = OrderedDict()

    def take(self, name: str) -> bool:
        """Count a try of this name. Return False beyond the limit."""
        now = self._clock()
        tried = self._tried.setdefault(name, deque(maxlen=self._most))
        self._tried.move_to_end(name)
        while len(self._tried) > self.MOST:
            self._tried.popitem(last=False)
        if len(tried) == self._most and now - tried[0] < (self._within_s or self.MINUTE_S):
            return False
        tried.append(now)
        return True


def network_block(address: str) -> str:
    """Return the network block of an IP address, for rate limits."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return "unknown"
    found = getattr(found, "ipv4_mapped", None) or found
    length = 24 if found.version == 4 else 56
    return str(ipaddress.ip_network(f"{found}/{length}", strict=False))
