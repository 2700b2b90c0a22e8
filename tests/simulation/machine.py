"""The receiver's machine: one process of the real service at a time, killed and started again.

A killed process runs no clean-up in the world: its disk is copied as of that instant, and its
answers reach nobody. Its tasks are then cancelled.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx2

from app.checkout.client import CheckoutClient, ClientSettings
from app.config.settings import Settings
from app.context.context import AppContext
from app.core.clock import Clock
from app.core.errors import TallyhookError
from app.evidence.seal import open_signer
from app.providers.source import Source
from app.receiving.inbox import open_inbox
from app.wiring.service import Service
from app.wiring.serving import SHUTDOWN_S
from app.wiring.worker import working_parts
from tests.simulation.asgi import Packet, Reply, call
from tests.simulation.disk import Disk, Sizes
from tests.simulation.faults import Faults
from tests.simulation.loop import OWNER
from tests.simulation.trace import Trace

T = TypeVar("T")


class Down(Exception):
    """Raised if nobody listens, or the process ended before it answered."""


class Process:
    """One run of the service; tasks begun in its name end with it."""

    def __init__(self, machine: Machine, folder: Path, *, synced: Sizes) -> None:
        self.machine = machine
        self.disk = Disk(
            folder,
            synced=synced,
            chance=machine.chance,
            faults=machine.faults,
            kill=self.killed,
        )
        self.service: Service | None = None
        self.client: CheckoutClient | None = None
        self.context: AppContext | None = None
        self.ended = asyncio.Event()
        self.stop = asyncio.Event()
        self.survivor: Path | None = None
        self.owned = contextvars.copy_context()
        self.owned.run(OWNER.set, self)
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._calls: list[asyncio.Task[Any]] = []

    def begun(self, task: asyncio.Task[Any]) -> None:
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    @property
    def alive(self) -> bool:
        """Return whether answers still reach anybody."""
        return not self.disk.dead

    def killed(self, how: str, kept: Sizes | None) -> None:
        """End at this instant, with `kept` bytes of the logs left (None: all)."""
        if not self.alive:
            return
        self.machine.trace.say("machine", how, count=how.split(" an ")[0])
        self.survivor = self.machine.next_folder()
        self.disk.moved(self.survivor, kept)
        self.ended.set()
        for task in list(self._tasks):
            task.cancel()

    async def live(self) -> None:
        """Open the store, serve until stopped or failed, close."""
        machine = self.machine
        try:
            await self._serve()
        except TallyhookError as error:
            if self.alive:
                machine.trace.say("machine", f"could not go on: {type(error).__name__}: {error}")
        except asyncio.CancelledError:
            pass
        except Exception as error:
            if self.alive:
                machine.fault(f"the service failed with {error!r}")
                machine.wrecked = True
        finally:
            self.service = None
            self.ended.set()

    async def _serve(self) -> None:
        machine = self.machine
        url = f"sqlite+aiosqlite:///{self.disk.database}"
        evidence = machine.settings.evidence.model_copy(update={"key_file": machine.key})
        settings = machine.settings.model_copy(update={"database_url": url, "evidence": evidence})
        async with open_inbox(settings, purpose="serving") as inbox:
            self.client = CheckoutClient(machine.checkout, transport=machine.outward)
            self.context = inbox.context(clock=machine.clock, policy=settings.policy())
            signer = await open_signer(self.context)
            parts = working_parts(self.context, client=None, askers={}, signer=signer)
            service = Service(self.context, parts=parts, checkout=self.client)
            async with self.client, service.running():
                self.service = service
                machine.trace.say("machine", "ready", count="starts")
                broken = asyncio.create_task(service.stopped())
                told = asyncio.create_task(self.stop.wait())
                await asyncio.wait((broken, told), return_when=asyncio.FIRST_COMPLETED)
                self.service = None
                for each in (broken, told):
                    each.cancel()
                await self._finish_calls()
            if service.broken:
                machine.trace.say("machine", f"ends: {'; '.join(service.broken)}", count="failed")

    async def _finish_calls(self) -> None:
        """Wait for calls under way; late ones get no answer."""
        if self._calls:
            _, unordered = await asyncio.wait(self._calls, timeout=SHUTDOWN_S)
            late = [call_ for call_ in self._calls if call_ in unordered]
            for call_ in late:
                call_.cancel()
            if late:
                await asyncio.wait(late)

    async def do(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do something in the process's name. Raises Down if it ends before the answer."""

        async def awaited() -> T:
            return await work()

        task = asyncio.get_running_loop().create_task(awaited(), context=self.owned)
        self._calls.append(task)
        await asyncio.wait((task,))
        self._calls.remove(task)
        if not self.alive or task.cancelled():
            if not task.cancelled():
                task.exception()
            raise Down
        return task.result()


@dataclass(kw_only=True)
class Machine:
    """A machine that starts its process again whenever it ended, after a drawn time.

    fault    reports a failure that no process may have; `wrecked`: then it is not started again
    outward  the way to the provider
    key      the evidence key, which no crash of the database takes along
    """

    folder: Path
    settings: Settings
    sources: dict[str, Source]
    checkout: ClientSettings
    clock: Clock
    chance: random.Random
    faults: Faults
    trace: Trace
    fault: Callable[[str], None]
    outward: httpx2.AsyncBaseTransport | None = None
    process: Process | None = None
    quiet: bool = False
    wrecked: bool = False

    def __post_init__(self) -> None:
        self.key = self.folder / "evidence.key"
        self._number = 0

    def next_folder(self) -> Path:
        """Return the folder in which the next process finds the disk."""
        self._number += 1
        return self.folder / str(self._number)

    async def run(self) -> None:
        """Keep a process running, as long as the world lasts."""
        folder, synced = self.folder / "0", dict[str, int]()
        while not self.wrecked:
            process = self.process = Process(self, folder, synced=synced)
            process.disk.quiet = self.quiet
            loop = asyncio.get_running_loop()
            life = loop.create_task(process.live(), context=process.owned)
            await process.ended.wait()
            if process.alive:
                await life
                process.survivor = self.next_folder()
                process.disk.moved(process.survivor, None)
            self.process = None
            assert process.survivor is not None
            folder, synced = process.survivor, process.disk.synced
            await asyncio.sleep(0.5 if self.quiet else 10.0 ** self.chance.uniform(-0.3, 3.6))

    def hush(self) -> None:
        """Let nothing fail from now on."""
        self.quiet = True
        if self.process is not None:
            self.process.disk.quiet = True

    def restart(self) -> None:
        """Stop the process as a supervisor would; it is started again."""
        if self.process is not None and self.process.service is not None:
            self.trace.say("machine", "told to stop", count="stops")
            self.process.stop.set()

    def _serving(self) -> Process:
        process = self.process
        if process is None or process.service is None or not process.alive:
            raise Down
        return process

    async def hear(self, packet: Packet) -> Reply:
        """Handle one webhook request. Raises Down if no answer leaves the machine."""
        process = self._serving()
        service = process.service
        assert service is not None
        return await process.do(lambda: call(service.application, packet))

    async def ask(self, work: Callable[[AppContext, CheckoutClient], Awaitable[T]]) -> T:
        """Do an operation of the product in the running process. Raises Down without one."""
        process = self._serving()
        context, client = process.context, process.client
        assert context is not None
        assert client is not None
        return await process.do(lambda: work(context, client))
