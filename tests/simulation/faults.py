"""Rates of faults: one table, drawn for each world so that worlds differ."""

import random
from dataclasses import dataclass, fields
from typing import Final

HOUR_S: Final = 3_600.0

HELD_S: Final = 75 * HOUR_S
"""The longest that an event is held back: providers give up after about that time."""

CLOCK_STEP_S: Final = 15 * 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Shares from 0 to 1, of deliveries or of operations of the disk; or counts.

    held          of events: every attempt is lost for up to 75 hours
    lost          of requests: they never arrive
    gateway       of requests: a gateway answers 502 and forwards nothing
    answer_lost   of requests: they arrive, the answer does not
    slow          of requests: they take longer than the sender waits
    doubled       of requests: a copy arrives as well, up to 20 minutes later
    tampered      of requests: a changed copy arrives first
    live          of requests: a properly signed copy of the other environment arrives first
    killed        of disk operations: the process is killed before or after one
    power_cut     of disk operations: the power fails before, after, or during one
    disk_full     of disk operations: refused for lack of space
    disk_broken   of disk operations: an I/O error, after which the process must end
    stops         graceful restarts at any time
    clock_steps   of the receiver's clock, each up to 15 minutes either way
    """

    held: float = 0.06
    lost: float = 0.12
    gateway: float = 0.05
    answer_lost: float = 0.12
    slow: float = 0.05
    doubled: float = 0.15
    tampered: float = 0.05
    live: float = 0.05
    killed: float = 0.0015
    power_cut: float = 0.0015
    disk_full: float = 0.002
    disk_broken: float = 0.001
    stops: float = 1.0
    clock_steps: float = 2.0

    def of_request(self, chance: random.Random) -> str:
        """Draw the fate of a request on its way, by the names above; "": it arrives in time."""
        draw = chance.random()
        for name in ("lost", "gateway", "answer_lost", "slow"):
            share = getattr(self, name)
            if draw < share:
                return name
            draw -= share
        return ""

    def of_disk(self, chance: random.Random) -> str:
        """Draw the fate of a disk operation; "": it succeeds."""
        draw = chance.random()
        for share, fates in (
            (self.killed, ("killed before", "killed after")),
            (self.power_cut, ("cut", "cut before", "cut after")),
            (self.disk_full, ("full",)),
            (self.disk_broken, ("broken",)),
        ):
            if draw < share:
                return chance.choice(fates)
            draw -= share
        return ""


def drawn(chance: random.Random) -> Faults:
    """Draw the faults of one world: each rate of the table times 0, ½, 1 or 3."""
    table = Faults()
    most = {
        each.name: getattr(table, each.name) * chance.choice((0.0, 0.5, 1.0, 3.0))
        for each in fields(Faults)
    }
    return Faults(**most)
