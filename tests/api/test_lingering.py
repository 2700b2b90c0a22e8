"""An answer that is sent before the body's end reaches a client that is still sending."""

import asyncio

from starlette.types import Receive, Scope, Send

from app.receiving.guard import LINGER_BYTES, LINGER_S
from tests.api.wire import GET, connect, length, part, start

POST = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999\r\n\r\nxx"


async def too_long(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer before the body has arrived, and read no more of it."""
    await send(start(length(2), (b"connection", b"close"), status=413))
    await send(part(b"no"))


async def test_who_still_sends_can_read_the_answer() -> None:
    """Closing at once would reset the connection and lose the answer; what arrives is dropped."""
    client = connect(too_long)
    await client.ask(POST)
    assert client.wire.ended
    assert not client.wire.is_closing()
    for _ in range(LINGER_BYTES // 1_048_576):
        await client.ask(b"x" * 1_048_576)
    assert not client.wire.is_closing()
    await client.ask(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    assert client.wire.is_closing()
    assert client.wire.sent[0].count(b"HTTP/1.1 ") == 1


async def test_who_sends_no_more_is_hung_up_on_soon() -> None:
    client = connect(too_long)
    await client.ask(POST)
    now = asyncio.get_running_loop().time()
    assert client.connection.overdue(now + LINGER_S - 0.5) is None
    assert not client.wire.is_closing()
    assert client.connection.overdue(now + LINGER_S + 0.5) is None
    assert client.wire.is_closing()


async def test_an_answer_behind_the_whole_request_closes_at_once() -> None:
    client = connect(too_long)
    await client.ask(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nxx")
    assert client.wire.is_closing()


async def too_soon(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer before the body has arrived, and keep the connection."""
    await send(start(length(2), status=429))
    await send(part(b"no"))


async def test_a_body_that_nobody_reads_does_not_come_for_ever() -> None:
    """A client that goes on sending is disconnected before its deadline."""
    client = connect(too_soon)
    await client.ask(POST)
    for _ in range(LINGER_BYTES // 1_048_576):
        await client.ask(b"x" * 1_048_576)
    assert not client.wire.is_closing()
    await client.ask(b"x")
    assert client.wire.is_closing()


async def test_the_rest_of_a_short_body_leaves_the_connection_as_it_was() -> None:
    """Each request has the whole bound for itself."""
    client = connect(too_soon)
    size = LINGER_BYTES - 1
    for answers in (1, 2, 3):
        await client.ask(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % size)
        await client.ask(b"x" * size)
        assert client.wire.sent[0].count(b"HTTP/1.1 ") == answers
    assert not client.wire.is_closing()


async def test_a_request_behind_a_body_that_was_answered_early_is_not_taken() -> None:
    """The client was told that the connection ends and has to send it on another one."""
    client = connect(too_long)
    await client.ask(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nxx")
    assert client.wire.ended
    await client.ask(b"xx" + GET)
    assert b"".join(client.wire.writes).count(b"HTTP/1.1 ") == 1
    assert not client.wire.is_closing()
