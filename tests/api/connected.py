"""Drive connections of a service without a socket."""

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from app.receiving.connection_limits import ConnectionLimits, GateLimits
from app.receiving.guard import guarded
from tests.api.driving import Driver, Header, driving, signed
from tests.api.wire import Client, turns
from tests.waiting import soon

LIMITS = GateLimits(
    receive_deadline_s=600,
    send_deadline_s=600,
    connections=99,
    per_address=99,
    max_head_bytes=32_768,
)


@dataclass
class Door:
    """A service, with a way to connect to it."""

    driver: Driver
    kind: Any
    config: uvicorn.Config
    state: ServerState = field(default_factory=ServerState)

    def connect(self) -> Client:
        return Client(self.kind(self.config, self.state, {}))

    async def ask(self, *data: bytes, client: Client | None = None) -> Client:
        """Send these bytes one after the other, until nothing is under way any more."""
        client = client or self.connect()
        for each in data:
            await client.ask(each)
        await soon(lambda: is_at_rest(client))
        return client


def is_at_rest(client: Client) -> bool:
    """Return whether every request was answered."""
    connection: Any = client.connection
    cycle = connection.cycle
    return client.wire.is_closing() or (
        not connection.pipeline and (cycle is None or cycle.response_complete or cycle.more_body)
    )


@asynccontextmanager
async def door(folder: Path, **more: Any) -> AsyncIterator[Door]:
    """Run a service in the folder and yield it as a Door."""
    async with driving(folder, with_worker=False, **more) as driver:
        service = driver.service
        config = uvicorn.Config(
            service.application, ws="none", lifespan="off", log_config=None, proxy_headers=False
        )
        config.load()
        yield Door(driver, guarded(ConnectionLimits(LIMITS)), config)
        await turns()


def genuine(document: dict[str, Any] | bytes, *more: Header, **words: Any) -> bytes:
    """Return a signed delivery as bytes on the wire."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return post(body, *signed(body), *more, **words)


def post(
    body: bytes = b"",
    *headers: Header,
    path: str = "/webhooks/shop",
    length: bytes | None = None,
    line: str = "POST {} HTTP/1.1",
) -> bytes:
    """Return a request. `length` overrides its Content-Length."""
    size = b"%d" % len(body) if length is None else length
    fields: Iterable[Header] = ((b"host", b"a"), *headers, (b"content-length", size))
    lines = [line.format(path).encode(), *(b"%b: %b" % each for each in fields)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body
