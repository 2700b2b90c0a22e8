"""The short way of a delivery: from the connection straight to the journal, and back.

Nearly every delivery is one small POST with a known length, alone on its connection. For such a one
ASGI's messages, and a task for each request, are a sixth of all that the service does for it. Here
the connection hands the whole request to the same steps as the endpoint does, and writes the answer
itself. Whatever is not as plain as that takes the way through ASGI.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import lru_cache
from time import perf_counter
from typing import TYPE_CHECKING, Final

import structlog
from uvicorn.protocols.http.httptools_impl import HEADER_RE, HEADER_VALUE_RE, STATUS_LINE

from app.errors import StorePoisoned, StoreUnavailable
from app.operations.deliveries.receive_delivery import (
    Answer,
    Arrival,
    Incoming,
    Rejected,
    StoredVerdict,
    conclude,
    decide,
    kept,
    not_stored,
)
from app.web.problems import MEDIA_TYPE, problem_body
from app.web.webhooks import Webhooks, Written, written

if TYPE_CHECKING:
    from app.web.connection import GuardedConnection

log = structlog.get_logger()

_FAILED_BODY: Final = problem_body(500, "internal_error", "The service failed; send it again.")
_FAILED: Final = Written(
    500,
    (
        (b"content-type", MEDIA_TYPE.encode()),
        (b"content-length", b"%d" % len(_FAILED_BODY)),
        (b"connection", b"close"),
    ),
    _FAILED_BODY,
)

PORTION: Final = 8
"""Deliveries judged in one turn, before others have theirs, above all the batch that has been
committed: as long as it waits, nothing is written. Where more than the square of this wait, a turn
grows with them: it takes one in so many of those that wait, for senders that hang up and come again
may not make the queue grow for ever."""


class ShortWay:
    """Finds the requests that may take it. One for one server that no proxy speaks for: only ASGI
    reads the headers in which a proxy says who is calling."""

    def __init__(self, webhooks: Webhooks) -> None:
        self._webhooks = webhooks
        self._sources = {f"/webhooks/{name}".encode(): name for name in webhooks.door.sources}
        self._complete: deque[Delivery] = deque()

    def begin(self, connection: GuardedConnection) -> Delivery | None:
        """The delivery whose head is complete; None where this is not one of the plain ones."""
        source = self._sources.get(connection.url)
        parser = connection.parser
        if (
            source is None
            or parser.get_method() != b"POST"
            or connection.expect_100_continue
            or parser.should_upgrade()
            or not self._webhooks.is_plain(connection.headers)
        ):
            return None
        return Delivery(self._webhooks, connection, source)

    def complete(self, delivery: Delivery) -> None:
        """The whole request is here."""
        delivery.more_body = False
        if not self._complete:
            asyncio.get_running_loop().call_soon(self._judge)
        self._complete.append(delivery)

    def _judge(self) -> None:
        waiting = len(self._complete)
        for _ in range(min(waiting, max(PORTION, waiting // PORTION))):
            self._complete.popleft().judge()
        if self._complete:
            asyncio.get_running_loop().call_soon(self._judge)


class _NoEvent:
    """What uvicorn would wake an application by; here none waits."""

    def set(self) -> None:
        """Nothing to wake."""


class Delivery:
    """One delivery under way, in the place of uvicorn's request and answer (`cycle`), whose names
    it bears. It is what the journal tells the verdict to."""

    __slots__ = (
        "_arrivals",
        "_began",
        "_body",
        "_connection",
        "_headers",
        "_incoming",
        "_source",
        "_webhooks",
        "disconnected",
        "keep_alive",
        "more_body",
        "response_complete",
        "response_started",
    )

    message_event: Final = _NoEvent()

    def __init__(self, webhooks: Webhooks, connection: GuardedConnection, source: str) -> None:
        parser = connection.parser
        self._webhooks = webhooks
        self._connection = connection
        self._source = source
        self._headers = connection.headers  # the connection's own are soon those of the next
        self._body = b""
        self._arrivals: list[Arrival] = []
        self._began = perf_counter()
        self.keep_alive = parser.get_http_version() != "1.0" and parser.should_keep_alive()
        self.more_body = True
        self.disconnected = self.response_started = self.response_complete = False

    def add(self, part: bytes) -> None:
        """A part of the body, nearly always all of it. Many tiny ones, kept as they come, would
        take twenty times the room of the body."""
        self._body += part

    def judge(self) -> None:
        """Decide what becomes of it. Never raises."""
        try:
            self._decide()
        except Exception as error:
            self._fail(error)

    def _decide(self) -> None:
        connection, door = self._connection, self._webhooks.door
        self._incoming = Incoming(
            self._source,
            self._headers,
            self._body,
            f"/webhooks/{self._source}",
            connection.client[0] if connection.client else "",
        )
        decided = decide(door, self._incoming)
        if not isinstance(decided, list) or len(decided) > 1:
            task = asyncio.create_task(self._conclude(decided))
            connection.tasks.add(task)
            task.add_done_callback(connection.tasks.discard)
            return
        self._arrivals = decided
        try:
            door.journal.enter(decided, [self])
        except StoreUnavailable as error:
            self._answer(not_stored(decided, error))

    async def _conclude(self, decided: Answer | Rejected | list[Arrival]) -> None:
        try:
            self._answer(await conclude(self._webhooks.door, self._incoming, decided))
        except Exception as error:
            self._fail(error)

    # --- what the journal tells -------------------------------------------------------------------

    def done(self) -> bool:
        """It is told even if the sender is gone: what was stored is logged and counted."""
        return False

    def set_result(self, verdict: StoredVerdict, /) -> None:
        """It is durably committed. Never raises."""
        try:
            answer = kept(self._webhooks.door, self._incoming, self._arrivals, [verdict])
            self._answer(answer)
        except Exception as error:
            self._fail(error)

    def set_exception(self, error: Exception, /) -> None:
        """It may or may not have been kept. Never raises."""
        if not isinstance(error, StoreUnavailable | StorePoisoned):
            self._fail(error)
            return
        try:
            self._answer(not_stored(self._arrivals, error))
        except Exception as failure:
            self._fail(failure)

    # --- answering --------------------------------------------------------------------------------

    def _answer(self, answer: Answer) -> None:
        seconds = perf_counter() - self._began
        self._webhooks.metrics.count(self._source, answer.verdict, seconds)
        self._write(written(answer))

    def _fail(self, error: Exception) -> None:
        log.error("a delivery could not be answered", source=self._source, exc_info=error)
        if self.response_complete:
            self._connection.transport.close()
        else:
            self._write(_FAILED)

    def _write(self, answer: Written) -> None:
        transport, head = self._connection.transport, self._head(answer)
        self.response_started = self.response_complete = True
        if self.disconnected or transport.is_closing():
            return
        transport.write(head + answer.body)
        if not self.keep_alive:
            transport.close()
        self._connection.on_response_complete()

    def _head(self, answer: Written) -> bytes:
        lines = [STATUS_LINE[answer.status]]
        for name, value in (*self._connection.server_state.default_headers, *answer.headers):
            if name == b"connection":
                self.keep_alive = False
            else:
                lines.append(_line(name, value))
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        return b"".join(lines)


@lru_cache(maxsize=256)  # nearly all answers have the same
def _line(name: bytes, value: bytes) -> bytes:
    if HEADER_RE.search(name) or HEADER_VALUE_RE.search(value):
        raise ValueError("an answer's header has a character that none may have")
    return b"%b: %b\r\n" % (name, value)
