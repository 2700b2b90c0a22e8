"""Live streams, without a browser."""

import asyncio

from app.console.live import MOST, Live
from tests.console.conftest import RunningConsole


async def always() -> bool:
    """Return that the session is in force."""
    return True


async def test_a_stream_that_ends_at_once_leaves_its_place(console: RunningConsole) -> None:
    """Pages may be left before their first line; the next one has room, and the poller ends once
    nobody listens."""
    live = Live(console.context)
    for _ in range(MOST):
        stream = live.stream(always)
        assert (await anext(stream)).startswith("retry:")
        await stream.aclose()  # type: ignore[attr-defined]
    assert not live.full
    await live.close()


async def test_all_streams_hear_of_an_arrival(console: RunningConsole) -> None:
    live = Live(console.context)
    streams = [live.stream(always) for _ in range(3)]
    for stream in streams:
        await anext(stream)
    heard = await asyncio.wait_for(asyncio.gather(*map(anext, streams)), 60)
    assert len(set(heard)) == 1
    assert heard[0].startswith("data: ")
    await live.close()
    for stream in streams:
        await stream.aclose()  # type: ignore[attr-defined]
