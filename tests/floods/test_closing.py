"""A connection that has ended leaves nothing behind, without the cycle collector's help."""

import asyncio
import gc
import socket
import struct
import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress

import pytest
import uvicorn
import uvloop
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from app.receiving.connection_limits import ConnectionLimits, GateLimits
from app.receiving.guard import MAX_PIPELINED, GuardedConnection, guarded
from tests.waiting import PATIENCE_S, soon

GET = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
SHARED_KEYS = 30
"""Limit of attributes whose names the instances of a class share (CPython)."""

RESET = struct.pack("ii", 1, 0)
"""Socket option without linger time: closing resets the connection."""

LIMITS = GateLimits(
    receive_deadline_s=600, send_deadline_s=600, connections=9, per_address=9, max_head_bytes=9999
)


class Answering:
    """An application whose answers wait until they are released."""

    def __init__(self) -> None:
        self.asked = 0
        self.go_on = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked += 1
        await self.go_on.wait()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})


Story = Callable[[Answering, ConnectionLimits, socket.socket], Awaitable[object]]


@pytest.fixture(autouse=True)
def without_the_collector() -> Iterator[None]:
    """Keep what refers to itself, so that it is seen."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def _play(story: Story) -> None:
    application, limits, loop = Answering(), ConnectionLimits(LIMITS), asyncio.get_running_loop()
    config = uvicorn.Config(
        application, ws="none", lifespan="off", log_config=None, timeout_keep_alive=600
    )
    config.load()
    state, connection = ServerState(), guarded(limits)
    server = await loop.create_server(lambda: connection(config, state, {}), "127.0.0.1", 0)  # type: ignore[call-arg]
    try:
        with socket.create_connection(server.sockets[0].getsockname(), PATIENCE_S) as client:
            client.setblocking(False)
            await story(application, limits, client)
    finally:
        server.close()


def play(story: Story) -> None:
    """Run one client and one server on the service's own kind of event loop."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_play(story))


def _reference(limits: ConnectionLimits) -> weakref.ref[GuardedConnection]:
    (connection,) = limits.open
    assert isinstance(connection, GuardedConnection)
    return weakref.ref(connection)


def _there(reference: weakref.ref[GuardedConnection]) -> GuardedConnection:
    connection = reference()
    assert connection is not None
    return connection


def test_with_requests_that_were_still_waiting() -> None:
    """One request is being answered and others wait behind it."""

    async def story(
        application: Answering, limits: ConnectionLimits, client: socket.socket
    ) -> None:
        client.send(GET * (1 + MAX_PIPELINED))
        await soon(lambda: application.asked)
        connection = _reference(limits)
        await soon(lambda: len(_there(connection).pipeline) == MAX_PIPELINED)
        _there(connection).abort()
        await soon(lambda: not limits.open)
        application.go_on.set()
        await soon(lambda: connection() is None)
        assert application.asked == 1

    play(story)


def test_broken_off_when_idle() -> None:
    """The client resets long before the idle connection's time is over."""

    async def story(
        application: Answering, limits: ConnectionLimits, client: socket.socket
    ) -> None:
        application.go_on.set()
        client.send(GET)
        await soon(lambda: _answered(client))
        connection = _reference(limits)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        client.close()
        await soon(lambda: not limits.open)
        await soon(lambda: connection() is None)

    play(story)


def _answered(client: socket.socket) -> bool:
    with suppress(BlockingIOError):
        return client.recv(65_536).startswith(b"HTTP/1.1 204 ")
    return False


def test_its_attributes_share_their_names_with_all_others() -> None:
    """With more attributes every connection would have a dictionary of its own."""

    async def story(
        application: Answering, limits: ConnectionLimits, client: socket.socket
    ) -> None:
        application.go_on.set()
        client.send(GET)
        await soon(lambda: _answered(client))
        connection = _there(_reference(limits))
        assert len(vars(connection)) <= SHARED_KEYS

    play(story)
