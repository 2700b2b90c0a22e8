"""The receiver's HTTP connection, with deadlines, limits and strict framing (RFC 9112)."""

from __future__ import annotations

import asyncio
import re
import socket
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from app.core.problems import MEDIA_TYPE, problem_body
from app.receiving.connection_limits import ConnectionLimits
from app.receiving.receive import RETRY_AFTER_S

_HOST = re.compile(rb"[A-Za-z0-9._~%!$&'()*+,;=-]+(?::\d{0,5})?|\[[0-9A-Fa-f:.]+\](?::\d{0,5})?")

UNREAD_BYTES: Final = 16_384
"""Maximum bytes of answers that wait for a client."""

LINGER_S: Final = 2.0
LINGER_BYTES: Final = 12 * 1024 * 1024
"""Maximum discarded bytes after an early answer (RFC 9112, 9.6)."""

KERNEL_BYTES: Final = 65_536
"""Maximum bytes of answers in the kernel for one client."""

LAST_S: Final = 1.0
"""Seconds for which an idle connection survives a stop."""

MAX_PIPELINED: Final = 2
"""Maximum number of requests that wait on one connection, unverified."""


@lru_cache(maxsize=64)  # a service has one name, or a few
def _is_host(value: bytes) -> bool:
    return _HOST.fullmatch(value) is not None


def _answer(status: int, code: str, detail: str, *, more: bytes = b"") -> bytes:
    body = problem_body(status, code, detail)
    lines = [
        b"HTTP/1.1 %d %b" % (status, HTTPStatus(status).phrase.encode()),
        b"content-type: " + MEDIA_TYPE.encode(),
        b"content-length: %d" % len(body),
        b"connection: close",
        *([more] if more else []),
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


_MALFORMED = _answer(400, "request_malformed", "The request is not well-formed HTTP/1.1.")
_HEAD = _answer(
    431, "headers_too_large", "The header fields are larger than this endpoint accepts."
)
_BUSY = _answer(
    503,
    "too_many_connections",
    "Too many connections are open; try again in a moment.",
    more=b"retry-after: %d" % RETRY_AFTER_S,
)


HUNG_UP: Final = "tallyhook.hung_up"
"""Key in a request's scope when the sender has disconnected or sends no more."""


class AmbiguousRequest(Exception):
    """Error for a request whose end or target is ambiguous."""


class TooManyPipelined(Exception):
    """Error raised if too many requests wait on one connection. The requests within the limit are
    answered."""


_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_LENGTH_STATED: Final = b"\r\ncontent-length: "


class _Answering:
    __slots__ = ("_connection", "_head", "_transport")

    def __init__(self, connection: GuardedConnection) -> None:
        self._connection = connection
        self._transport = connection.transport
        self._head: bytes | None = None
        """Head that is held back; empty once a head was sent; None before."""

    def write(self, data: bytes) -> None:
        if self._head is None and data != _CONTINUE:
            self._head = data if _LENGTH_STATED in data else b""
            if self._head:
                return
        if self._head:
            data, self._head = self._head + data, b""
        if not self._transport.is_closing():  # else uvloop raises
            self._transport.write(data)

    def flush(self) -> None:
        if self._head:
            self.write(b"")

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self.flush()
        self._connection.hang_up()


class GuardedConnection(HttpToolsProtocol):
    """HTTP connection with limits. The function `guarded` makes a subclass for each server."""

    # Beside uvicorn's twenty-eight attributes these would be too many for a dictionary that shares
    # its keys, and every connection would take a kilobyte more.
    __slots__ = (
        "_answering",
        "_deaf",
        "_ends",
        "_fields",
        "_idle_since",
        "_lingers",
        "_owed_since",
        "_running",
        "_stage",
        "_thrown_away",
        "_unframed",
        "_unread",
    )

    connection_limits: ConnectionLimits

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit the connection, or answer that too many are open."""
        super().connection_made(transport)
        transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BYTES
        )
        transport.set_write_buffer_limits(high=UNREAD_BYTES)
        self._owed_since: float | None = self.loop.time()
        self._idle_since: float | None = None
        self._unread: tuple[int, float] | None = None
        self._stage, self._fields, self._unframed = "", 0, 0
        self._lingers: float | None = None
        self._answering: _Answering | None = None
        self._running: RequestResponseCycle | None = None
        self._thrown_away = 0
        self._ends = False
        self._deaf = not self.connection_limits.admits(self, self.client[0] if self.client else "")
        if self._deaf:
            transport.write(_BUSY)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything that the connection refers to, instead of the garbage collector."""
        self.connection_limits.leaves(self)
        self._note_hanging_up()
        super().connection_lost(exc)
        self.pipeline.clear()
        self.cycle = None  # type: ignore[assignment]
        self._answering = self._running = None

    # --- receiving --------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Accept bytes of a request. After a refused request, discard the bytes."""
        if self._deaf:
            self._throw_away(len(data))
            return
        self._idle_since = None
        if self._owed_since is None:
            self._owed_since = self.loop.time()
        self._unframed += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Ignored, as RFC 9110 (7.8) allows. The bytes after it are in no protocol we speak.
            self._deaf = True
            self.cycle.keep_alive = False
        except httptools.HttpParserError:
            self._refuse(_MALFORMED, "malformed")
        else:
            if self._unframed > self.connection_limits.limits.max_head_bytes:
                self._refuse(_HEAD, "head_too_large")

    def eof_received(self) -> bool:  # type: ignore[override]
        """Answer complete requests, then close the connection (RFC 9112, 9.6)."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is None or cycle.response_complete or cycle.more_body:
            return False
        cycle.keep_alive = False  # the latest request; earlier ones are answered, too
        self._note_hanging_up()
        return True

    def _note_hanging_up(self) -> None:
        for cycle in (self._running, *(waiting for waiting, _ in self.pipeline)):
            if cycle is not None:
                cast("dict[str, Any]", cycle.scope)[HUNG_UP] = True

    def on_message_begin(self) -> None:
        """Begin a request, and start the deadline of its sender."""
        super().on_message_begin()
        self._stage, self._idle_since = "head", None
        if self._owed_since is None:
            self._owed_since = self.loop.time()

    def on_headers_complete(self) -> None:
        """Check a request's head. Raise AmbiguousRequest for an unclear end or host."""
        version = self.parser.get_http_version()
        if version not in ("1.1", "1.0"):
            raise AmbiguousRequest("a version other than 1.0 and 1.1")
        hosts = 0
        for name, value in self.headers:
            if name == b"host":
                hosts += 1
                if not _is_host(value):
                    raise AmbiguousRequest("an invalid host")
            elif name == b"transfer-encoding" and value.lower() != b"chunked":
                raise AmbiguousRequest("a coding other than chunked")
        if hosts != 1 and (hosts or version != "1.0"):
            raise AmbiguousRequest("no host, or several")
        if len(self.pipeline) >= MAX_PIPELINED:
            raise TooManyPipelined
        super().on_headers_complete()
        if self._ends:
            self.cycle.keep_alive = False
        self._stage, self._fields = "body", len(self.headers)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering, self._running = _Answering(self), cycle
        cycle.transport = cast(Any, self._answering)
        super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        self._unframed = 0
        if self.cycle.response_complete:
            self._throw_away(len(body))
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Mark the request as complete. Its sender now waits for an answer."""
        if len(self.headers) != self._fields:
            raise AmbiguousRequest("header fields after the body, which are not accepted")
        self._stage, self._unframed = "", 0
        self._owed_since = None
        if self.cycle.response_complete:  # answered before its end: nothing is due any more
            self._idle_since = self.loop.time()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Start the next request after an answer."""
        if self._answering is not None:  # else the connection is lost
            self._answering.flush()
        now = self.loop.time()
        if self._owed_since is not None:
            self._owed_since = now
        self.server_state.total_requests += 1
        if self.transport.is_closing() or self._lingers is not None:
            return
        self._thrown_away = 0
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self._idle_since = now

    def shutdown(self) -> None:
        """Stop the connection after its running requests."""
        if self._deaf or self._answers():
            super().shutdown()
            return
        self._ends = True
        self.loop.call_later(LAST_S, self._end)

    def _end(self) -> None:
        if not self._answers() and not self.transport.is_closing():
            self.transport.close()

    def _answers(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is not None and not cycle.response_complete

    def hang_up(self) -> None:
        """Close the connection after an answer."""
        if self._deaf or not self.cycle.more_body or self.transport.is_closing():
            self.transport.close()
            return
        self._deaf = True
        self._lingers = self.loop.time()
        self.transport.write_eof()
        self.flow.resume_reading()

    def _throw_away(self, count: int) -> None:
        self._thrown_away += count
        if self._thrown_away > LINGER_BYTES:
            self.transport.close()

    def _refuse(self, answer: bytes, reason: str) -> None:
        self._deaf = True
        self.connection_limits.refused[reason] += 1
        cycle = cast("RequestResponseCycle | None", self.cycle)
        in_body = self._stage == "body"
        if cycle is not None and not cycle.response_complete and not in_body:
            cycle.keep_alive = False
        elif cycle is not None and in_body and (cycle.response_started or self.pipeline):
            self.abort()
        else:
            self.transport.write(answer)
            self.transport.close()

    # --- deadlines --------------------------------------------------------------------------------

    def overdue(self, now: float) -> str | None:
        """Return the reason to close a slow client's connection."""
        limits = self.connection_limits.limits
        if self._lingers is not None and now - self._lingers > LINGER_S:
            self.transport.close()
        if self._idle_since is not None and now - self._idle_since > self.timeout_keep_alive:
            self._idle_since = None
            self.transport.close()
        if self._owed_since is not None and now - self._owed_since > limits.receive_deadline_s:
            # While an answer is being made, pipelined requests wait for us.
            cycle = cast("RequestResponseCycle | None", self.cycle)
            if not self.pipeline and (cycle is None or cycle.response_complete or cycle.more_body):
                return "receive_deadline"
        return self._reader_overdue(now)

    def _reader_overdue(self, now: float) -> str | None:
        waiting = self.transport.get_write_buffer_size()
        if not waiting:
            self._unread = None
        elif self._unread is None or waiting <= self._unread[0] - UNREAD_BYTES:
            self._unread = (waiting, now)
        elif now - self._unread[1] > self.connection_limits.limits.send_deadline_s:
            return "send_deadline"
        return None

    def resume_writing(self) -> None:
        """Continue writing after the client has read most of the waiting bytes."""
        self._unread = None
        super().resume_writing()

    def abort(self) -> None:
        self._deaf = True
        self.transport.abort()


def guarded(connection_limits: ConnectionLimits) -> type[asyncio.Protocol]:
    return type("Connection", (GuardedConnection,), {"connection_limits": connection_limits})
