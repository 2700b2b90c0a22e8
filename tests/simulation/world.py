"""One world from one seed: a provider, a network, a receiver, a shop, some hundred simulated hours.

    1 the seed draws orders, scenarios and rates of faults         faults.py, shop.py
    2 customers pay at the real simulated provider                 app/sandbox
    3 events travel, get lost, doubled, held back for days         network.py
    4 the real service receives, folds, publishes; it is killed    machine.py, disk.py
    5 after 76 hours nothing fails any more: all is delivered
    6 then everything is compared with the truth                   invariants.py

Everything runs in one virtual event loop (`loop.py`), so a seed gives the same trace every time.
"""

import asyncio
import random
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from app.checkout.client import ClientSettings
from app.config.load import load_settings
from app.config.settings import Settings
from app.context.configured import compile_sources
from app.providers.source import Source
from app.sandbox.provider import Provider
from app.sandbox.server import build_sandbox
from app.sandbox.settings import SANDBOX_SECRET, SANDBOX_TOKEN, SandboxSettings
from reconcile.instants import EARLIEST, SECOND, Duration, Instant
from tests.database.made import put_new
from tests.memory import memory
from tests.simulation import invariants
from tests.simulation.faults import CLOCK_STEP_S, HELD_S, HOUR_S, drawn
from tests.simulation.fixed import everything_fixed
from tests.simulation.loop import VirtualLoop
from tests.simulation.machine import Machine
from tests.simulation.network import Inward, Outward
from tests.simulation.shop import Shop, drawn_orders
from tests.simulation.trace import Trace

BEGINNING: Instant = EARLIEST + 1_790_000_000 * SECOND

TROUBLE_S = HELD_S + HOUR_S
"""Seconds in which things fail."""

REDELIVERY_S = (5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400)
"""Seconds between attempts of a delivery, as Standard Webhooks recommends: 75 hours in all."""

UNITS_S = (60.0, 60.0, 2.0, 0.005)
"""Seconds in a unit of a scenario: an hour for a payment, or all of its events at once."""

DAY_AHEAD_EVERY = 8
"""Number of worlds among which one has a clock that is a day ahead for minutes or hours."""

LAST_S = 30 * HOUR_S
"""Seconds after the trouble: the longest pause between two attempts, and all deadlines."""


class SteppedClock:
    """A clock that shows the world's time plus a step."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.step_s = 0.0

    def now(self) -> Instant:
        """Return microseconds since the epoch."""
        return BEGINNING + Duration(round((self._loop.time() + self.step_s) * SECOND))


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Result of one seed; without `problems` every invariant held."""

    seed: int
    problems: tuple[str, ...]
    trace: Trace
    steps: int
    simulated_s: float
    real_s: float


def run_seed(seed: int) -> Run:
    """Live through the world of this seed, in memory if possible."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=memory()) as name:
        folder = Path(name)
        (folder / "0").mkdir()
        put_new(folder / "0" / "t.db")
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            loop = runner.get_loop()
            assert isinstance(loop, VirtualLoop)
            with everything_fixed(loop, random.Random(f"{seed}:ids")):
                world = World(seed, folder=folder, loop=loop)
                problems = runner.run(world.live())
    return Run(
        seed=seed,
        problems=tuple(problems),
        trace=world.trace,
        steps=loop.turns,
        simulated_s=world.lasted_s,
        real_s=time.perf_counter() - began,
    )


class World:
    """Everything there is, put together."""

    def __init__(self, seed: int, *, folder: Path, loop: VirtualLoop) -> None:
        chance = random.Random(f"{seed}:world")
        self.loop = loop
        self.lasted_s = 0.0
        self.problems: list[str] = []
        self.trace = Trace(loop.time)
        self.faults = drawn(chance)
        self.clock, self.true_clock = SteppedClock(loop), SteppedClock(loop)
        self._chance, self._seed = chance, seed
        settings, sources = _settings(), _sources()
        self.machine = Machine(
            folder=folder,
            settings=settings,
            sources=sources,
            checkout=ClientSettings(
                base_url="http://provider.example", token=SANDBOX_TOKEN, source="checkout"
            ),
            clock=self.clock,
            chance=random.Random(f"{seed}:machine"),
            faults=self.faults,
            trace=self.trace,
            fault=self.problems.append,
        )
        self.inward = Inward(
            machine=self.machine,
            chance=random.Random(f"{seed}:inward"),
            faults=self.faults,
            trace=self.trace,
            signer=sources["checkout"],
            now=self.true_clock.now,
        )
        unit_s = chance.choice(UNITS_S)
        self.sandbox = build_sandbox(
            SandboxSettings(
                webhook_url="http://receiver.example/webhooks/checkout",
                seed=seed,
                unit_s=unit_s,
                retry_schedule_units=tuple(pause / unit_s for pause in REDELIVERY_S),
            ),
            signer=sources["checkout"],
            clock=self.true_clock,
            sleep=asyncio.sleep,
            transport=self.inward,
        )
        endpoint = self.sandbox.routes[0].endpoint  # type: ignore[attr-defined]
        self.provider: Provider = endpoint.__self__._provider
        self.outward = Outward(
            sandbox=self.sandbox,
            chance=random.Random(f"{seed}:outward"),
            faults=self.faults,
            trace=self.trace,
        )
        self.machine.outward = self.outward
        self.orders = drawn_orders(chance)
        self.shop = Shop(
            machine=self.machine,
            chance=random.Random(f"{seed}:shop"),
            trace=self.trace,
            now=self.clock.now,
            may_ship=self.is_paid,
        )

    def truth(self) -> dict[str, invariants.Truth]:
        """Return the provider's account, by order."""
        return invariants.truth_in(self.provider.truth.to_json())

    def is_paid(self, order: str) -> bool:
        """Return whether the order's whole price has come in, whatever went back since."""
        truth = self.truth().get(order)
        return truth is not None and truth.captured_minor >= self.shop.prices[order].minor

    async def live(self) -> list[str]:
        """Live from the first order to the last check; return all problems."""
        async with self.sandbox.router.lifespan_context(self.sandbox):
            lives = (
                self.machine.run(),
                self.shop.read(),
                self._step_clocks(),
                self._day_ahead(self._seed),
                self._stop_now_and_then(),
            )
            tasks = [asyncio.create_task(work) for work in lives]
            selling = [asyncio.create_task(self.shop.sell(order)) for order in self.orders]
            await asyncio.sleep(TROUBLE_S)
            self.trace.say("world", "calm")
            self.clock.step_s = 0.0
            self.inward.quiet = self.outward.quiet = True
            self.machine.hush()
            await self._gathered(selling)
            await self._drain()
            self.problems += self.inward.wrongs + self.shop.wrongs
            self.problems += await invariants.problems(self)
            self.lasted_s = self.loop.time()
            for problem in self.problems:
                self.trace.say("PROBLEM", problem)
            self.trace.say("world", f"ends after {self.loop.turns} turns of the loop")
            await self._end(tasks)
        return self.problems

    async def _drain(self) -> None:
        """Wait until everything is delivered, then until every deadline has passed."""
        counts = self.provider.counts
        while counts.pending or counts.undelivered or self.inward.copies:
            await asyncio.sleep(HOUR_S)
            if self.loop.time() > 20 * TROUBLE_S:
                self.problems.append(f"{counts.undelivered} deliveries are never acknowledged")
                return
        await asyncio.sleep(LAST_S)
        for _ in range(2):  # the shop's words after the first reading are folded before the second
            while await self.shop.look():
                continue
            await asyncio.sleep(HOUR_S)

    async def _step_clocks(self) -> None:
        for _ in range(round(self._chance.uniform(0, self.faults.clock_steps))):
            await asyncio.sleep(10.0 ** self._chance.uniform(1.5, 4.5))
            if self.inward.quiet:
                return
            self.clock.step_s = self._chance.uniform(-CLOCK_STEP_S, CLOCK_STEP_S)
            self.trace.say("clock", f"set off by {self.clock.step_s:.6f} s", count="clock steps")
            await asyncio.sleep(10.0 ** self._chance.uniform(1.5, 4.0))
            self.trace.say("clock", "set right")
            self.clock.step_s = 0.0

    async def _day_ahead(self, seed: int) -> None:
        """Let the clock be a day ahead for a while, in one of DAY_AHEAD_EVERY worlds."""
        chance = random.Random(f"{seed}:day ahead")
        if seed % DAY_AHEAD_EVERY:
            return
        await asyncio.sleep(10.0 ** chance.uniform(2.5, 4.5))
        for step_s, words in ((24 * HOUR_S, "a day ahead"), (0.0, "set right")):
            self.clock.step_s = step_s
            self.trace.say("clock", words, count="clock steps")
            context = None if self.machine.process is None else self.machine.process.context
            if context is not None:  # its worker never rests long
                context.signals.evidence_arrived.set()
            await asyncio.sleep(10.0 ** chance.uniform(2.5, 4.0))

    async def _stop_now_and_then(self) -> None:
        for _ in range(round(self._chance.uniform(0, self.faults.stops))):
            await asyncio.sleep(10.0 ** self._chance.uniform(1.5, 4.5))
            self.machine.restart()

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        process = self.machine.process
        if process is not None and process.service is not None:
            process.stop.set()
            await process.ended.wait()
        for task in tasks:
            task.cancel()
        await self._gathered(tasks)

    async def _gathered(self, tasks: list[asyncio.Task[None]]) -> None:
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                self.problems.append(f"a part of the world failed with {outcome!r}")


@cache
def _settings() -> Settings:
    return load_settings(
        {
            "TALLYHOOK_ENVIRONMENT": "sandbox",
            "TALLYHOOK_DATABASE_URL": "sqlite+aiosqlite:///nowhere/t.db",
            "TALLYHOOK_SOURCES__CHECKOUT__SECRETS": SANDBOX_SECRET,
        }
    )


@cache
def _sources() -> dict[str, Source]:
    return compile_sources(_settings())
