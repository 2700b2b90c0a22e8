"""Large bodies at a service with 256 MiB of memory: it is not killed, and hardly grows."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.driving import SECRET
from tests.e2e.processes import Process, running
from tests.floods.flood import a_process, told
from tests.floods.large import KINDS, SENDERS, send_large
from tests.floods.memory import MIB, MemoryGroup, forget_peak, memory_group, peak_mib

GROUP_MIB = 256
"""Limit of the service, its page cache included."""

GROWN_MIB = 3 * SENDERS
"""Growth that large bodies may cause: a mebibyte for each under way, and twice that while it grows
and moves. It comes to 2 to 5 MiB."""

PAGES_MIB = 8 / 1024
"""Further growth for each genuine delivery, whose rows stay in SQLite's page caches until these
have reached their bounds: five KiB without any large body."""

WARM = 30
"""Large bodies after which the allocator keeps its memory."""

RATE = 20
"""Genuine deliveries a second."""

MOST = 64 * MIB
"""Limit in bytes of one body: by then the server should have closed the connection."""

EATING = """
import json, socket, sys
import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

async def receive(request):
    await request.body()
    return Response()

listening = socket.create_server(("127.0.0.1", 0))
word = json.dumps({"event": "serving", "port": listening.getsockname()[1]}, separators=(",", ":"))
print(word, file=sys.stderr, flush=True)
application = Starlette(routes=[Route("/webhooks/shop", receive, methods=["POST"])])
uvicorn.Server(uvicorn.Config(application, log_config=None)).run(sockets=[listening])
"""
"""An endpoint as it is commonly written."""


@pytest.fixture
def group() -> Iterator[MemoryGroup]:
    with memory_group(GROUP_MIB) as made:
        yield made


def check(process: Process, group: MemoryGroup, *, count: int) -> None:
    """Send so many beside genuine deliveries, and check what holds then."""
    pid = process.popen.pid
    assert pid in group.members
    with a_process("tests.floods.steady", str(process.port), SECRET, str(RATE)) as provider:
        send_large(process.port, WARM, most=MOST)
        assert (process.popen.poll(), group.killed) == (None, 0)
        forget_peak(pid)
        warm = peak_mib(pid)
        ended = send_large(process.port, count, most=MOST)
        assert (process.popen.poll(), group.killed) == (None, 0)
        grown = peak_mib(pid) - warm
        genuine = told(provider)
    print(f"{count:,} large bodies: {grown:+.1f} MiB to {warm:.1f}; {dict(ended)}; {genuine}")
    assert grown <= GROWN_MIB + PAGES_MIB * genuine.sent
    assert all(each.hung_up for each in ended)
    # Where the machine stood still, a sender may have been too late to hear the answer.
    assert all(each.status in (KINDS[each.kind].status, 0) for each in ended)
    assert {each.kind for each in ended if each.status} == set(KINDS)
    assert genuine.sent > 0
    assert genuine.acknowledged == genuine.sent


@pytest.mark.slow
@pytest.mark.parametrize("count", [90, pytest.param(1_000, marks=pytest.mark.soak)])
def test_large_bodies(tmp_path: Path, group: MemoryGroup, count: int) -> None:
    """Each is refused and closed, none is kept; all genuine deliveries get through."""
    with running(tmp_path, "serve", "--port", "0", within=group.entering) as process:
        check(process, group, count=count)


@pytest.mark.slow
def test_an_endpoint_that_reads_bodies_whole_is_killed(tmp_path: Path, group: MemoryGroup) -> None:
    """As a control, the same bodies in the same group take it down."""
    with running(tmp_path, script=EATING, within=group.entering) as process:
        ended = send_large(process.port, SENDERS, most=GROUP_MIB * MIB)
        assert {(each.status, each.hung_up) for each in ended} == {(0, True)}
        assert (process.code(), group.killed) == (-9, 1)
