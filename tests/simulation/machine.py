"""The receiver's machine: one process of the real service at a time, killed and started again.

A killed process runs none of its clean-up in the world: its disk is copied as it is at that
instant, its answers reach nobody. (Its tasks are then cancelled, to leave no litter behind.)
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Awaitable, Callable
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
from app.wiring.service import Service, working_parts
from app.wiring.serving import SHUTDOWN_S
from tests.simulation.asgi import Packet, Reply, call
from tests.simulation.disk import Disk, Sizes
from tests.simulation.faults import Faults
from tests.simulation.loop import OWNER
from tests.simulation.trace import Trace

T = TypeVar("T")


class Down(Exception):
    """Nobody listens, or the process ended before it answered."""


class Process:
    """One run of the service, from its start to its end. Tasks begun in its name end with it."""

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
        """Remember a task that ends with the process."""
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    @property
    def alive(self) -> bool:
        """Whether what it does still reaches anybody."""
        return not self.disk.dead

    def killed(self, how: str, kept: Sizes | None) -> None:
        """End at this instant; of the log on the disk `kept` bytes remain (None: all)."""
        if not self.alive:
            return
        self.machine.trace.say("machine", how, count=how.split(" an ")[0])
        self.survivor = self.machine.next_folder()
        self.disk.moved(self.survivor, kept)
        self.ended.set()
        for task in list(self._tasks):
            task.cancel()

    async def live(self) -> None:
        """Open the store, serve until told to stop or until something fails, close."""
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
        settings = machine.settings.model_copy(update={"database_url": url})
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
        """Calls under way may end; those that take too long get no answer."""
        if self._calls:
            _, unordered = await asyncio.wait(self._calls, timeout=SHUTDOWN_S)
            late = [call_ for call_ in self._calls if call_ in unordered]
            for call_ in late:
                call_.cancel()
            if late:
                await asyncio.wait(late)

    async def do(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do something in the process's name. Raises Down when it ends before the answer."""
        task = asyncio.get_running_loop().create_task(_awaited(work), context=self.owned)
        self._calls.append(task)
        await asyncio.wait((task,))
        self._calls.remove(task)
        if not self.alive or task.cancelled():
            if not task.cancelled():
                task.exception()
            raise Down
        return task.result()


async def _awaited(work: Callable[[], Awaitable[T]]) -> T:
    return await work()


class Machine:
    """Starts the process again whenever it ended, after a drawn time. One disk, one clock."""

    def __init__(
        self,
        folder: Path,
        *,
        settings: Settings,
        sources: dict[str, Source],
        checkout: ClientSettings,
        clock: Clock,
        chance: random.Random,
        faults: Faults,
        trace: Trace,
        fault: Callable[[str], None],
    ) -> None:
        self.settings = settings
        self.sources = sources
        self.checkout = checkout
        self.clock = clock
        self.chance = chance
        self.faults = faults
        self.trace = trace
        self.fault = fault
        self.outward: httpx2.AsyncBaseTransport | None = None
        self.process: Process | None = None
        self.quiet = False
        self.wrecked = False
        """The service failed in a way that no process may: it is not started again."""
        self.key = folder / "evidence.key"
        """The evidence key, which no crash of the database takes along."""
        self._root = folder
        self._number = 0

    def next_folder(self) -> Path:
        """Where the next process finds the disk."""
        self._number += 1
        return self._root / str(self._number)

    async def run(self) -> None:
        """Keep a process running, for as long as the world lasts."""
        folder, synced = self._root / "0", dict[str, int]()
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
            await asyncio.sleep(0.5 if self.quiet else self._downtime())

    def _downtime(self) -> float:
        return float(10.0 ** self.chance.uniform(-0.3, 3.6))

    def hush(self) -> None:
        """From now on nothing of the machine fails."""
        self.quiet = True
        if self.process is not None:
            self.process.disk.quiet = True

    def restart(self) -> None:
        """Ask the process to stop as a supervisor would; it is started again."""
        if self.process is not None and self.process.service is not None:
            self.trace.say("machine", "told to stop", count="stops")
            self.process.stop.set()

    def _serving(self) -> Process:
        process = self.process
        if process is None or process.service is None or not process.alive:
            raise Down
        return process

    async def hear(self, packet: Packet) -> Reply:
        """One webhook request. Raises Down when no answer leaves the machine."""
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
