"""An explorer that cuts the power at every recorded call, in four ways, and checks each disk."""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import chain, repeat
from multiprocessing import get_context
from pathlib import Path

from app.core.errors import TallyhookError
from tests.faults.check import Found, look
from tests.faults.disk import KINDS, Disk, Image
from tests.faults.injecting import start
from tests.faults.trace import Call, events

EXAMPLES = 5
SERVED_EVERY = 500
"""Every n-th state is first opened by the service itself, which takes forty times as long."""

MEMORY = Path("/dev/shm")
"""The folder for states, if there is one: they need no real disk."""


@dataclass(slots=True, kw_only=True)
class Explored:
    """Counts of disk states, and of those in which something was wrong.

    points    calls after which the power may be cut; `states` is four for each explored one
    opened    states that were laid out and checked: a known one is not checked again
    acks      acknowledgements that were sent in all
    examples  the first wrong states, one sentence each
    """

    points: int = 0
    states: int = 0
    opened: int = 0
    acks: int = 0
    lost: int = 0
    corrupt: int = 0
    halves: int = 0
    examples: list[str] = field(default_factory=list)

    def count(self, found: Found, told: set[str], *, place: str) -> None:
        self.states += 1
        missing = found.lost(told)
        self.lost += bool(missing)
        self.corrupt += bool(found.corrupt)
        self.halves += bool(found.halves)
        if (missing or found.corrupt or found.halves) and len(self.examples) < EXAMPLES:
            wrong = (*found.corrupt, *found.halves, f"{len(missing)} of {len(told)} lost")
            self.examples.append(f"{place}: {'; '.join(wrong)}")

    def add(self, other: Explored) -> None:
        """Add the findings of another recording."""
        for name in ("points", "states", "opened", "acks", "lost", "corrupt", "halves"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.examples += other.examples[: EXAMPLES - len(self.examples)]

    def sentence(self) -> str:
        return (
            f"{self.states:,} disk states ({self.opened:,} of them opened) from {self.points:,} "
            f"calls and {self.acks:,} acknowledgements: {self.lost} with a loss, "
            f"{self.corrupt} corrupt, {self.halves} half applied"
        )


class _Looking:
    """A checker that lays a state out as files; the surely synced state is checked once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: tuple[int, Found] | None = None
        self.opened = 0

    def at(self, disk: Disk, kind: str, chance: random.Random) -> Found:
        if kind != "dropped":
            return self._look(disk.after_cut(kind, chance))
        if self._known is None or self._known[0] != disk.syncs:
            self._known = disk.syncs, self._look(disk.after_cut(kind, chance))
        return self._known[1]

    def _look(self, image: Image) -> Found:
        self.opened += 1
        for old in self._folder.iterdir():
            old.unlink()
        for name, content in image.items():
            (self._folder / name).write_bytes(content)
        database = self._folder / "t.db"
        if self.opened % SERVED_EVERY == 0:
            try:
                asyncio.run(start(self._folder))
            except TallyhookError as refused:
                return Found(corrupt=(f"not served: {refused}",))
        return look(database)


def explore(recording: Path, *, seed: int, every: int = 1) -> Explored:
    """Explore one recording: a service's folder, with the trace of each of its lives.

    seed   chooses the fate of unsynced data
    every  explores each call, or every n-th
    """
    found, told = Explored(), set[str]()
    chance, disk = random.Random(seed), Disk(str(recording))
    lives = chain.from_iterable(events(trace) for trace in sorted(recording.glob("*.trace")))
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        looking = _Looking(Path(folder))
        for number, event in enumerate(lives):
            if not isinstance(event, Call):
                told.add(event.delivery)
            elif disk.apply(event):
                found.points += 1
                for kind in KINDS if found.points % every == 0 else ():
                    place = f"{recording.name}, event {number}, {event.name}, {kind}"
                    found.count(looking.at(disk, kind, chance), told, place=place)
        found.opened, found.acks = looking.opened, len(told)
    return found


def explore_all(recordings: Sequence[Path], *, every: int = 1) -> Explored:
    """Explore several recordings on every core; one here, without another process."""
    if len(recordings) == 1:
        return explore(recordings[0], seed=0, every=every)
    total = Explored()
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        for found in pool.map(_explored, enumerate(recordings), repeat(every)):
            total.add(found)
    return total


def _explored(numbered: tuple[int, Path], every: int) -> Explored:
    seed, recording = numbered
    return explore(recording, seed=seed, every=every)
