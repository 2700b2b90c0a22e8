"""Files of recorded requests, which can be sent again unchanged.

Each line is a JSON object with `method`, `url`, `headers` as pairs, and the body: `body` if it is
UTF-8, else `body_base64`. Headers of the connection are not recorded.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from app.core.errors import UsageError

if TYPE_CHECKING:
    import httpx2

    from app.core.http import Exchange

MAX_BODY_BYTES: Final = 1024 * 1024
"""Maximum size of a recorded body in bytes. The receiver of webhooks accepts no larger body."""

MAX_URL_CHARS: Final = 32 * 1024
"""Maximum number of characters in a recorded path and query. Servers accept less."""

MAX_LINE_BYTES: Final = 2 * MAX_BODY_BYTES
MAX_LINES: Final = 100_000
SEND_LIMIT_S: Final = 30.0
"""Maximum seconds for a request and its answer. Providers do not wait longer either."""

Headers = list[tuple[str, str]]

_OF_THE_CONNECTION: Final = frozenset(
    {"host", "content-length", "connection", "keep-alive", "transfer-encoding", "te", "trailer",
     "upgrade", "proxy-connection", "expect"}
)  # fmt: skip
_OF_THE_ANSWER: Final = "accept-encoding"
"""Header that is always sent with the value `identity`, because answers are not decompressed."""

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
"""Pattern of a header's value (RFC 9110, 5.5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Recorded HTTP request."""

    method: str = "POST"
    url: str
    """Path and query."""
    headers: Headers = field(repr=False)
    """Names and values, decoded as Latin-1, so that every byte is kept."""
    body: bytes = field(repr=False)


def of_request(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return a request's headers without the headers that belong to the connection."""
    named = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers)
    return [(name, value) for name, value in named if name.lower() not in _OF_THE_CONNECTION]


def line_of(request: Recorded) -> str:
    """Return a request as one line of JSON, without the line end."""
    try:
        body: dict[str, str] = {"body": request.body.decode("utf-8")}
    except UnicodeDecodeError:
        body = {"body_base64": base64.b64encode(request.body).decode("ascii")}
    whole = {"method": request.method, "url": request.url, "headers": request.headers}
    return json.dumps(whole | body)


def requests_in(file: IO[bytes], name: str) -> Iterator[Recorded]:
    """Yield the recorded requests in a file. Raise UsageError at the first invalid line."""
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES or number > MAX_LINES:
            raise UsageError(f"{name}:{number}: is too long: split the file")
        if not line.strip():
            continue
        try:
            yield _request(json.loads(line))
        except (ValueError, KeyError, TypeError, binascii.Error, RecursionError):
            raise UsageError(
                f"{name}:{number}: is not a recorded request, such as "
                '{"method": "POST", "url": "/webhooks/shop", "headers": [["name", "value"]], '
                '"body": "…"}'
            ) from None


def _request(found: Any) -> Recorded:
    body = found.get("body_base64")
    content = (
        found["body"].encode("utf-8") if body is None else base64.b64decode(body, validate=True)
    )
    headers = [(str(name), str(value)) for name, value in found["headers"]]
    method, url = found.get("method", "POST"), found.get("url", "")
    # A path, a query, both or nothing: anything else might name another host.
    is_path = url[:1] in ("", "/", "?") and url.isprintable() and len(url) <= MAX_URL_CHARS
    if len(content) > MAX_BODY_BYTES or not (_TOKEN.fullmatch(method) and is_path):
        raise ValueError
    if not all(_TOKEN.fullmatch(name) and _VALUE.fullmatch(value) for name, value in headers):
        raise ValueError
    return Recorded(method=method, url=url, headers=headers, body=content)


def target_of(to: str, url: str) -> str:
    """Return the address at which a recorded request is sent to the server `to`.

    It is `to` with the request's query, and its path if `to` has none. Raises UsageError if `to` is
    no http address, or if the path would lead to another host.
    """
    try:
        parts = urlsplit(to)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.fragment
        _ = parts.port
    except ValueError:
        sound = False
    if not sound or not (to.isascii() and to.isprintable()) or " " in to:
        raise UsageError("the address must be like http://127.0.0.1:8080/webhooks/shop")
    path, _, query = url.partition("?")
    base = to if parts.path not in ("", "/") else to.rstrip("/") + (path or "/")
    whole = base if not query else f"{base}{'&' if parts.query else '?'}{query}"
    if urlsplit(whole)[:2] != parts[:2]:
        raise UsageError(f"a request for {url[:40]!r} would go to another host than {to}")
    return whole


async def send_on(
    client: httpx2.AsyncClient, request: Recorded, to: str, *, limit_s: float = SEND_LIMIT_S
) -> Exchange:
    """Send a recorded request to the address `to`, asking for an uncompressed answer."""
    from app.core.http import exchange  # what few commands need

    left = {*_OF_THE_CONNECTION, _OF_THE_ANSWER}
    own = [(name, value) for name, value in request.headers if name.lower() not in left]
    own.append((_OF_THE_ANSWER, "identity"))
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in own]
    return await exchange(
        client,
        request.method,
        target_of(to, request.url),
        headers=raw,
        content=request.body,
        limit_s=limit_s,
    )
