"""Every byte of an answer is the same as from unmodified uvicorn."""

import asyncio
import os
from collections.abc import Sequence

import pytest
from starlette.types import Message, Receive, Scope, Send

from tests.api.wire import (
    GET,
    LIMITS,
    Application,
    Client,
    connect,
    length,
    part,
    start,
    turns,
)

OF_10 = b"GET / HTTP/1.0\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
EXPECTING = b"POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n"
REQUESTS = {
    "plain": GET,
    "the last": LAST,
    "of 1.0": OF_10,
    "HEAD": b"HEAD / HTTP/1.1\r\nhost: a\r\n\r\n",
    "with a body": b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc",
    "with its body to come": b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\n",
    "that expects 100": EXPECTING,
    "that expects 100 of 1.0": EXPECTING.replace(b"1.1", b"1.0"),
    "three": GET * 3,
    "two and a doubtful one": GET * 2 + b"GET / HTTP/1.1\r\n\r\n",
}

EACH = 1 if os.environ.get("TALLYHOOK_LONG") else 3
"""Step through the combinations of answers and requests. Every third still has each answer and
kind."""

CHUNKED = (b"transfer-encoding", b"chunked")
WHOLE = [start((b"x-a", b"1"), length(2)), part(b"ok")]

ANSWERS: dict[str, Sequence[Message]] = {
    "whole": WHOLE,
    "in capitals": [start((b"X-A", b"B"), (b"Content-Length", b"2")), part(b"ok")],
    "without a length": [start(), part(b"ok")],
    "without headers": [{"type": "http.response.start", "status": 200}, part(b"ok")],
    "without a body": [start(length(0)), {"type": "http.response.body"}],
    "without length and body": [start(), part()],
    "204": [start(status=204), part()],
    "304 with the length of another": [start(length(2), status=304), part()],
    "204 with a body": [start(length(2), status=204), part(b"ok")],
    "of no known status": [start(length(2), status=599), part(b"ok")],
    "in parts": [start(length(4)), part(b"ok", more=True), part(more=True), part(b"ok")],
    "in parts, without a length": [start(), part(b"ok", more=True), part(b"ok", more=True), part()],
    "the last": [start(length(2), (b"connection", b"close")), part(b"ok")],
    "the last, in capitals": [start(length(2), (b"Connection", b"X, Close")), part(b"ok")],
    "one that keeps on": [start(length(2), (b"connection", b"keep-alive")), part(b"ok")],
    "chunked, and with a length": [start(length(2), CHUNKED), part(b"ok")],
    "with a length, and chunked": [start(CHUNKED, length(2)), part(b"ok")],
    "with the right length and another": [start(length(2), length(3)), part(b"ok")],
    "with another length and the right one": [start(length(3), length(2)), part(b"ok")],
    "longer than said": [start(length(1)), part(b"ok")],
    "shorter than said": [start(length(3)), part(b"ok")],
    "of no length": [start((b"content-length", b"two")), part(b"ok")],
    "with a line in a value": [start(length(2), (b"x", b"a\r\nset-cookie: b")), part(b"ok")],
    "with CR in a value": [start(length(2), (b"x", b"a\rb")), part(b"ok")],
    "with LF in a value": [start(length(2), (b"x", b"a\nb")), part(b"ok")],
    "with NUL in a value": [start(length(2), (b"x", b"a\0b")), part(b"ok")],
    "with a line in a name": [start(length(2), (b"x: a\r\ny", b"b")), part(b"ok")],
    "with a colon in a name": [start(length(2), (b"x:", b"b")), part(b"ok")],
    "a body first": [part(b"ok"), *WHOLE],
    "with two heads": [start(length(2)), start(length(2)), part(b"ok")],
    "twice": [*WHOLE, *WHOLE],
    "with more behind it": [*WHOLE, part(b"more")],
    "with a head behind it": [*WHOLE, *WHOLE[:1]],
    "with a head within it": [start(length(4)), part(b"ok", more=True), start(), part(b"ok")],
    "with something else for a body": [start(length(2)), {**part(b"ok"), "type": "http.other"}],
}


def answering(messages: Sequence[Message], *, asks: str = "") -> Application:
    """Return an application that sends these messages.

    asks  `first` or `last`: when it reads the request's body
    """

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if asks == "first":
            await receive()
        for message in messages:
            await send(message)
        if asks == "last":
            await receive()

    return application


@pytest.mark.parametrize("name", ANSWERS)
async def test_the_bytes_are_uvicorns(name: str) -> None:
    """Each answer meets each kind of request, each with every way to ask for its body."""
    for turn, asks in enumerate(("", "first", "last"), [*ANSWERS].index(name)):
        for request in [*REQUESTS][turn % EACH :: EACH]:
            sent = []
            for by_uvicorn in (True, False):
                application = answering(ANSWERS[name], asks=asks)
                client = connect(application, by_uvicorn=by_uvicorn)
                await client.ask(REQUESTS[request])
                sent.append(client.wire.sent)
            assert sent[0] == sent[1], (asks, request)


# --- step by step ---------------------------------------------------------------------------------


class Stepping:
    """An application that sends the messages it is given, one after the other."""

    def __init__(self) -> None:
        self._next: asyncio.Queue[Message | Exception | None] = asyncio.Queue()
        self.error: BaseException | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send messages until given None, or an error, which is raised."""
        try:
            while (message := await self._next.get()) is not None:
                if isinstance(message, Exception):
                    raise message
                await send(message)
        except BaseException as error:
            self.error = error
            raise

    async def go_on(self, *messages: Message | Exception | None) -> None:
        """Pass the messages on and wait until the application has sent them."""
        for message in messages:
            self._next.put_nowait(message)
        await turns()


async def stepping(request: bytes = GET, *, by_uvicorn: bool = False) -> tuple[Stepping, Client]:
    """Return such an application that has received a request, and its client."""
    application = Stepping()
    client = connect(application, by_uvicorn=by_uvicorn)
    await client.ask(request)
    return application, client


async def test_a_head_that_says_its_length_goes_out_with_the_first_part() -> None:
    """One write is one packet and wakes the client once."""
    application, client = await stepping()
    await application.go_on(start(length(4)))
    assert client.wire.writes == []
    await application.go_on(part(b"ok", more=True))
    (first,) = client.wire.writes
    assert first.endswith(b"\r\n\r\nok")
    await application.go_on(part(b"ok"), None)
    assert client.wire.writes == [first, b"ok"]


async def test_a_head_of_no_length_goes_out_at_once() -> None:
    """Its answer may never end, and the client must see that it began."""
    application, client = await stepping()
    await application.go_on(start())
    (head,) = client.wire.writes
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    await application.go_on(part(b"\r\ncontent-length: 2", more=True))
    assert client.wire.writes == [head, b"13\r\n\r\ncontent-length: 2\r\n"]


FAILURE = RuntimeError("of the application")


@pytest.mark.parametrize("ends", [FAILURE, None])
async def test_an_answer_that_ends_within_its_body_is_cut_off_as_uvicorn_does(
    ends: Exception | None,
) -> None:
    found = []
    for by_uvicorn in (True, False):
        application, client = await stepping(by_uvicorn=by_uvicorn)
        await application.go_on(start(length(4)), part(b"ok", more=True), ends)
        found.append(client.wire.sent)
    assert found[0] == found[1]
    assert found[1][0].endswith(b"\r\n\r\nok")


async def test_a_client_is_asked_to_go_on_before_the_answer_is_written() -> None:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        answer = asyncio.ensure_future(answering(WHOLE)(scope, receive, send))
        await turns()
        await receive()
        await answer

    found = []
    for by_uvicorn in (True, False):
        client = connect(application, by_uvicorn=by_uvicorn)
        client.connection.pause_writing()
        for data in (EXPECTING, b"abc"):
            await client.ask(data)
        client.connection.resume_writing()
        await turns()
        found.append(client.wire.sent)
    assert found[0] == found[1]
    assert found[0][0].startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")


async def test_a_reader_that_does_not_read_does_not_stay_for_ever() -> None:
    """The connection is closed after a while, and dropped when even then nothing is read."""
    client = connect(answering(WHOLE))
    await client.ask()
    client.wire.unread = 1
    rested = asyncio.get_running_loop().time() + client.connection.timeout_keep_alive + 1
    assert client.connection.overdue(rested) is None
    assert client.wire.is_closing()
    assert client.connection.overdue(rested + 1 + LIMITS.send_deadline_s) == "send_deadline"
