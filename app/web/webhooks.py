"""POST /webhooks/{source}: a plain ASGI endpoint, because this is the path of every delivery.

It reads the body under a running cap, hands everything to `receive_delivery`, and writes the
answer. A refused encoding is answered here: what we will not inflate we cannot verify.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Final

import structlog
from starlette.types import Message, Receive, Scope, Send

from app.operations.receive_delivery import (
    RETRY_AFTER_S,
    Answer,
    Door,
    Incoming,
    receive_delivery,
)
from app.web.metrics import Metrics
from app.web.problems import MEDIA_TYPE, problem_body

log = structlog.get_logger()

Header = tuple[bytes, bytes]

_JSON: Final[Header] = (b"content-type", b"application/json")
_PROBLEM: Final[Header] = (b"content-type", MEDIA_TYPE.encode())
_CLOSE: Final[Header] = (b"connection", b"close")

_DETAILS: Final = {
    401: ("signature_invalid", "The signature or its age was not accepted."),
    403: ("wrong_environment", "The event belongs to another environment than this endpoint."),
    404: ("source_unknown", "No source of this name receives webhooks here."),
    413: ("body_too_large", "The body is larger than this endpoint accepts."),
    415: ("encoding_unsupported", "Send the body as it was signed, without a Content-Encoding."),
    431: ("headers_too_large", "The header fields are larger than this endpoint accepts."),
    503: ("not_stored", "The delivery could not be stored now; send it again."),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bytes that a request may bring; each is a setting."""

    max_body_bytes: int
    max_header_bytes: int


class ClientGone(Exception):
    """The sender hung up before the body was complete."""


class Webhooks:
    """The endpoint. One instance serves all sources."""

    def __init__(self, door: Door, *, limits: Limits, metrics: Metrics) -> None:
        self._door = door
        self._limits = limits
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One delivery."""
        began = perf_counter()
        headers = scope["headers"]
        refused = self._refused(headers)
        if refused is not None:
            code, _ = _DETAILS[refused]
            self._metrics.count(scope["path_params"]["source"], code, perf_counter() - began)
            log.info("delivery refused by its headers", status=refused, reason=code)
            await _send_problem(send, refused)
            return
        try:
            body = await self._body(receive)
        except ClientGone:
            return
        incoming = Incoming(scope["path_params"]["source"], headers, body, _url(scope))
        answer = await receive_delivery(self._door, incoming)
        self._metrics.count(incoming.source, answer.verdict, perf_counter() - began)
        await _send_answer(send, answer)

    def _refused(self, headers: list[Header]) -> int | None:
        """The status for what is refused by its headers alone."""
        size = 0
        for name, value in headers:
            size += len(name) + len(value)
            if name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
                return 415
        return 431 if size > self._limits.max_header_bytes else None

    async def _body(self, receive: Receive) -> bytes | None:
        """The body's bytes; None once they go over the cap. Nothing beyond the cap is kept."""
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            body: bytes = message.get("body", b"")
            return body if len(body) <= self._limits.max_body_bytes else None
        return await self._long_body(message, receive)

    async def _long_body(self, message: Message, receive: Receive) -> bytes | None:
        parts, size = [], 0
        while True:
            if message["type"] == "http.disconnect":
                raise ClientGone
            part = message.get("body", b"")
            size += len(part)
            if size > self._limits.max_body_bytes:
                return None
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)
            message = await receive()


def _url(scope: Scope) -> str:
    """The path and query as requested. Schemes that sign a URL get their own from the profile."""
    query = scope.get("query_string", b"")
    path: str = scope["path"]
    return f"{path}?{query.decode('latin-1')}" if query else path


async def _send_answer(send: Send, answer: Answer) -> None:
    if answer.status >= 300:
        await _send_problem(send, answer.status)
        return
    body = b'{"verdict": "%b", "delivery": "%b"}' % (
        (answer.verdict or "").encode(),
        answer.delivery_id.encode(),
    )
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": answer.status, "headers": [_JSON, length]})
    await send({"type": "http.response.body", "body": body})


async def _send_problem(send: Send, status: int) -> None:
    code, detail = _DETAILS[status]
    body = problem_body(status, code, detail)
    headers = [_PROBLEM, (b"content-length", b"%d" % len(body))]
    if status == 503:
        headers.append((b"retry-after", b"%d" % RETRY_AFTER_S))
    if status in (413, 415, 431):
        headers.append(_CLOSE)  # the rest of the body is not worth reading
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
