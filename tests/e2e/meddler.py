"""A proxy that does to requests what networks do: it delays, cuts, duplicates and reorders them.

What happens to the n-th request of an order follows from the seed alone. After MOST_FAULTS of one
order its requests pass, as in a network that comes back; one order in DARK hears nothing until
then, which is longer than one call of the shop lasts.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

MOST_FAULTS = 6
DARK = 10

FAULTS = ("delayed", "cut before", "cut after", "cut within", "duplicated", "overtaken", "passed")


@dataclass
class Meddler:
    """Between clients and the server at `target`, on a port of its own."""

    seed: int
    target: int
    port: int = 0
    done: Counter[str] = field(default_factory=Counter)
    _seen: Counter[str] = field(default_factory=Counter)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _next: asyncio.Event = field(default_factory=asyncio.Event)

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle one connection, for one request."""
        task = asyncio.ensure_future(self._handle(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def end(self) -> None:
        """Give up on all that is under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            request, order = await _request(reader)
            answer = await self._meddle(request, self._fault(order), order)
            writer.write(answer)
            await writer.drain()
        writer.close()

    def _fault(self, order: str) -> str:
        number = self._seen[order]
        self._seen[order] += 1
        chance = random.Random(f"{self.seed}:{order}:{number}")
        dark = random.Random(f"{self.seed}:{order}").randrange(DARK) == 0
        fault = "cut after" if dark else chance.choice(FAULTS)
        fault = fault if number < MOST_FAULTS else "passed"
        self.done[fault] += 1
        return fault

    async def _meddle(self, request: bytes, fault: str, order: str) -> bytes:
        """Return what the client is sent; nothing where it is cut off."""
        self._next.set()
        if fault == "cut before":
            return b""
        if fault == "delayed":
            await asyncio.sleep(random.Random(f"{self.seed}:{order}").uniform(0.01, 0.3))
        if fault == "overtaken":
            await self._another()
        answer = await self._forward(request)
        if fault == "duplicated":
            answer = (await asyncio.gather(self._forward(request), self._forward(request)))[0]
        if fault == "cut after":
            return b""
        return answer[: len(answer) // 2] if fault == "cut within" else answer

    async def _another(self) -> None:
        """Wait until another request has come, or for half a second."""
        self._next.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._next.wait(), 0.5)

    async def _forward(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.target)
        try:
            writer.write(request)
            await writer.drain()
            return await reader.read()
        finally:
            writer.close()


async def _request(reader: asyncio.StreamReader) -> tuple[bytes, str]:
    """One request, asking for its connection to be closed after it, and the order it is about."""
    lines = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[:-2]
    kept = [line for line in lines if not line.lower().startswith(b"connection:")]
    lengths = [line for line in kept if line.lower().startswith(b"content-length:")]
    length = int(lengths[0].partition(b":")[2])
    body = await reader.readexactly(length)
    document = json.loads(body)
    reference = document.get("data", document)["order"]["reference"]
    return b"\r\n".join([*kept, b"connection: close", b"", b""]) + body, str(reference)


@asynccontextmanager
async def meddling(seed: int, *, target: int = 0) -> AsyncIterator[Meddler]:
    """Run a meddler until the block ends."""
    meddler = Meddler(seed, target)
    server = await asyncio.start_server(meddler.accept, "127.0.0.1", 0)
    meddler.port = server.sockets[0].getsockname()[1]
    try:
        yield meddler
    finally:
        server.close()
        await meddler.end()
