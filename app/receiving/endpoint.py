"""POST /webhooks/{source}, the endpoint of every delivery."""

from collections.abc import Sequence
from time import perf_counter
from typing import Final, NamedTuple

from starlette.types import Message, Receive, Scope, Send

from app.config.settings import Settings
from app.core.logs import log
from app.core.metrics import Metrics
from app.core.problems import MEDIA_TYPE, problem_body
from app.providers.request import Incoming
from app.receiving.receive import (
    RETRY_AFTER_S,
    Receiver,
    ReceiverAnswer,
    receive_delivery,
)

Header = tuple[bytes, bytes]

_JSON: Final[Header] = (b"content-type", b"application/json")
_PROBLEM: Final[Header] = (b"content-type", MEDIA_TYPE.encode())
_CLOSE: Final[Header] = (b"connection", b"close")

_DETAILS: Final = {
    401: ("signature_invalid", "The signature or its age was not accepted."),
    403: ("wrong_environment", "The event belongs to another environment than this endpoint."),
    404: ("source_unknown", "No source with this name receives webhooks here."),
    405: ("method_not_allowed", "This source does not send that method; see the Allow header."),
    413: ("body_too_large", "The body is larger than this endpoint accepts."),
    415: ("encoding_unsupported", "Send the body as signed, without a Content-Encoding."),
    429: ("too_many_rejections", "Too many unverified requests came; wait before you send more."),
    431: ("headers_too_large", "The header fields are larger than this endpoint accepts."),
    503: ("not_stored", "The delivery could not be stored now; send it again."),
}


FREE_BYTES: Final = 65_536
"""Size in bytes above which a body counts as long."""

TOO_MANY_RETRY_S: Final = 60
"""Seconds in the Retry-After header of a 429 answer."""

_RETRY_AFTER: Final[dict[int, Header]] = {
    429: (b"retry-after", b"%d" % TOO_MANY_RETRY_S),
    503: (b"retry-after", b"%d" % RETRY_AFTER_S),
}


class ClientGone(Exception):
    """Error raised if the sender disconnected before the body was complete."""


class NoRoom(Exception):
    """Error raised if the long bodies that are arriving already use all the memory for long
    bodies."""


class Webhooks:
    """The webhook endpoint. One instance serves all sources."""

    def __init__(self, receiver: Receiver, *, limits: Settings, metrics: Metrics) -> None:
        self.receiver = receiver
        self._limits = limits
        self.metrics = metrics
        self._long_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = perf_counter()
        headers = scope["headers"]
        end, address = scope["path_params"]["source"], _address(scope)
        source = self.receiver.source_of(end)
        refused, declared = self._by_headers(headers)
        if scope["method"] != "POST" and not self._hears(source, scope["method"]):
            await _send(send, _problem(405, self._allowed(source)))
            return
        try:
            body = None if refused else await self._body(declared, receive)
        except ClientGone:
            return
        except NoRoom:
            refused, body = 503, None
        if refused is not None:
            status, code = self._refusal(refused, address)
            self.metrics.count(source, code, perf_counter() - began)
            if status == 503:
                self.metrics.count_not_stored(code)
                self.receiver.unstored.note("no_room")
            await _send(send, _problem(status))
            return
        incoming = Incoming(
            headers,
            body or b"",
            scope["method"],
            _url(scope, source),
            source,
            address,
            body is None,
        )
        long_bytes = max(0, len(incoming.body) - FREE_BYTES)
        self._long_bytes += long_bytes  # until written: many wait on a slow disk
        try:
            answer = await receive_delivery(self.receiver, incoming)
        finally:
            self._long_bytes -= long_bytes
        self.metrics.count(incoming.source, answer.verdict, perf_counter() - began)
        if answer.reason is not None:
            self.metrics.count_not_stored(answer.reason)
        await _send(send, _written(answer))

    def _hears(self, source: str, method: str) -> bool:
        known = self.receiver.sources.get(source)
        return known is not None and method in known.methods

    def _allowed(self, source: str) -> Header:
        known = self.receiver.sources.get(source)
        methods = ["POST"] if known is None else sorted(known.methods)
        return (b"allow", ", ".join(methods).encode("ascii"))

    def _by_headers(self, headers: list[Header]) -> tuple[int | None, int]:
        size = declared = 0
        for name, value in headers:
            size += len(name) + len(value)
            if name == b"content-length" and value.isdigit():
                declared = declared or int(value[:19])
            elif name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
                return 415, 0
        return (431 if size > self._limits.max_header_bytes else None), declared

    def _refusal(self, status: int, address: str) -> tuple[int, str]:
        if status == 503:
            return status, "no_room"
        decided = self.receiver.rejection_rate.decide(address)
        code, _ = _DETAILS[429 if decided == "too_many" else status]
        if decided == "kept":
            log.info("a delivery was refused because of its headers", status=status, reason=code)
        return (429 if decided == "too_many" else status), code

    async def _body(self, declared: int, receive: Receive) -> bytes | None:
        if declared > self._limits.max_body_bytes:
            return None
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            body: bytes = message.get("body", b"")
            return body if len(body) <= self._limits.max_body_bytes else None
        return await self._long_body(message, receive)

    async def _long_body(self, message: Message, receive: Receive) -> bytes | None:
        body, counted = bytearray(), 0  # separate tiny parts take twenty times the memory
        try:
            while True:
                if message["type"] == "http.disconnect":
                    raise ClientGone
                body += message.get("body", b"")
                if len(body) > self._limits.max_body_bytes:
                    return None
                self._long_bytes -= counted
                counted = max(0, len(body) - FREE_BYTES)
                self._long_bytes += counted
                if counted and self._long_bytes > self._limits.max_bodies_bytes:
                    raise NoRoom
                if not message.get("more_body", False):
                    return bytes(body)
                message = await receive()
        finally:
            self._long_bytes -= counted


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""


def _url(scope: Scope, source: str) -> str:
    query = scope.get("query_string", b"")
    path: str = scope["path"]
    if scope["path_params"]["source"] != source:
        path = f"/webhooks/{source}"
    return f"{path}?{query.decode('latin-1')}" if query else path


class Written(NamedTuple):
    """Status, headers and body of an HTTP answer."""

    status: int
    headers: Sequence[Header]
    body: bytes


def _written(answer: ReceiverAnswer) -> Written:
    status, verdict, delivery_id, reply, _ = answer
    if status >= 300:
        return _problem(status)
    if reply is not None:
        return Written(reply.status, [*reply.headers, _length(reply.body)], reply.body)
    body = f'{{"verdict": "{verdict or ""}", "delivery": "{delivery_id}"}}'.encode()
    return Written(status, (_JSON, _length(body)), body)


def _length(body: bytes) -> Header:
    return b"content-length", b"%d" % len(body)


def _problem(status: int, *more: Header) -> Written:
    code, detail = _DETAILS[status]
    body = problem_body(status, code, detail)
    headers = [_PROBLEM, _length(body), *more]
    if status in _RETRY_AFTER:
        headers.append(_RETRY_AFTER[status])
    if status in (413, 415, 431):
        headers.append(_CLOSE)  # the rest of the body is not worth reading
    return Written(status, headers, body)


async def _send(send: Send, answer: Written) -> None:
    status, headers, body = answer
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
