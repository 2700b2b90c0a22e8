"""A payment service on a loopback socket that does to each request what its script says."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from app.checkout.client import CheckoutClient, ClientSettings, RetrySettings
from app.checkout.request import CheckoutRequest

PHONE = "254712345678"
TOKEN = "test_token_4f1d9c"
EXPIRES = "2026-11-20T10:30:00Z"
LATE = "2099-11-20T10:30:00Z"
"""Expiry of a session that must be open under any clock."""
FAST = RetrySettings(tries=4, try_s=2.0, total_s=20.0)

Write = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One request as it came."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def key(self) -> str:
        return self.headers["idempotency-key"]

    @property
    def document(self) -> Any:
        return json.loads(self.body, parse_float=Decimal)


@dataclass
class Service:
    """`script` has what is done to the first, second, … request; the last is repeated."""

    script: Sequence[Write]
    seen: list[Seen] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)
    port: int = 0
    _arrival: asyncio.Event = field(default_factory=asyncio.Event)
    _handlers: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def keys(self) -> set[str]:
        return {seen.key for seen in self.seen}

    async def until(self, count: int) -> None:
        """Wait for this many requests."""
        while len(self.seen) < count:
            self._arrival.clear()
            await self._arrival.wait()

    async def end(self) -> None:
        """Give up on every request that is still under way."""
        for task in self._handlers:
            task.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle one connection."""
        task = asyncio.ensure_future(self._handle(reader, writer))
        self._handlers.add(task)
        task.add_done_callback(self._handlers.discard)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                self.seen.append(await _request(reader))
                self._arrival.set()
                await self.script[min(len(self.seen), len(self.script)) - 1](writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)

    def client(self, retry: RetrySettings = FAST, **changes: Any) -> CheckoutClient:
        values: dict[str, Any] = {
            "base_url": f"http://127.0.0.1:{self.port}",
            "token": TOKEN,
            "source": "shop",
            "retry": retry,
        }
        return CheckoutClient(ClientSettings(**values | changes), sleep=self.sleep)


async def _request(reader: asyncio.StreamReader) -> Seen:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    pairs = (line.split(": ", 1) for line in head[1:] if line)
    headers = {name.lower(): value for name, value in pairs}
    body = await reader.readexactly(int(headers["content-length"]))
    return Seen(line=head[0], headers=headers, body=body)


@asynccontextmanager
async def service(*script: Write) -> AsyncIterator[Service]:
    """Serve these answers on a free port until the block ends."""
    service = Service(script)
    server = await asyncio.start_server(service.accept, "127.0.0.1", 0)
    service.port = server.sockets[0].getsockname()[1]
    try:
        yield service
    finally:
        server.close()
        await service.end()


def answer(status: int, document: Any = None, *, raw: bytes | None = None, **headers: str) -> Write:
    """Make a whole answer; header names are written with _ for -."""
    body = json.dumps(document).encode() if raw is None else raw
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]

    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)

    return write


def opened(reference: str = "cs_1", **more: Any) -> Write:
    """Make the answer that opens a session."""
    document = {
        "reference": reference,
        "status": "open",
        "checkout_url": f"https://pay.test/checkout/{reference}",
        "expires_at": EXPIRES,
    }
    return answer(201, document | more)


async def drop(writer: asyncio.StreamWriter) -> None:
    """End the connection without a byte."""
    writer.close()


async def half(writer: asyncio.StreamWriter) -> None:
    """Begin an answer and end the connection within it."""
    writer.write(b'HTTP/1.1 201 Created\r\ncontent-length: 100\r\n\r\n{"reference":"cs_half"')
    await writer.drain()
    writer.close()


async def silence(writer: asyncio.StreamWriter) -> None:
    """Leave the request without an answer."""
    await asyncio.Event().wait()


async def drip(writer: asyncio.StreamWriter) -> None:
    """Send a byte now and then, for ever: no single read ever takes long."""
    writer.write(b"HTTP/1.1 201 Created\r\ncontent-length: 100000\r\n\r\n")
    while not writer.is_closing():
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.02)


async def flood(writer: asyncio.StreamWriter) -> None:
    """Send a gigabyte, as fast as it is taken."""
    writer.write(b"HTTP/1.1 201 Created\r\ncontent-length: 1073741824\r\n\r\n")
    for _ in range(16_384):
        writer.write(b" " * 65_536)
        await writer.drain()


def asked(order: str = "ORD-1", **changes: Any) -> CheckoutRequest:
    """Make a valid request."""
    values: dict[str, Any] = {
        "order": order,
        "amount": "1500.00",
        "currency": "KES",
        "phone": PHONE,
        "success_url": "https://shop.test/ok?customer=c77",
        "cancel_url": "https://shop.test/no",
    }
    return CheckoutRequest(**values | changes)
