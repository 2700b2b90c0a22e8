"""How often what goes wrong: one table, drawn for each world so that worlds differ.

Leaves out: how any of it is done (`disk.py`, `network.py`, `machine.py`).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, fields
from typing import Final

HOUR_S: Final = 3_600.0

HELD_S: Final = 75 * HOUR_S
"""The longest that an event is kept from us: providers give up after about so long."""

CLOCK_STEP_S: Final = 15 * 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Shares from 0 to 1, of deliveries or of operations of the disk; or counts.

    held          of events: every try of theirs is lost until up to 75 hours have passed
    lost          of requests: they never arrive
    gateway       of requests: something between answers 502 and hands nothing on
    answer_lost   of requests: they arrive, the answer does not
    slow          of requests: longer on their way than the sender waits
    doubled       of requests: a copy arrives as well, up to 20 minutes later
    tampered      of requests: a changed copy arrives first
    live          of requests: a properly signed copy of the other environment arrives first
    killed        of disk operations: the process is killed before or after one
    power_cut     of disk operations: the power goes before, after, or in the middle of one
    disk_full     of disk operations: refused for want of space
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


def drawn(chance: random.Random) -> Faults:
    """Faults of one world: each of the table, times 0, ½, 1 or 3."""
    table = Faults()
    most = {
        each.name: getattr(table, each.name) * chance.choice((0.0, 0.5, 1.0, 3.0))
        for each in fields(Faults)
    }
    return Faults(**most)
