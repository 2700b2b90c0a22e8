"""Sizes of the measurements, and the bars that their figures must meet."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple


class Bar(NamedTuple):
    """A promised value, the direction in which it may be exceeded, and what is hoped for."""

    value: float
    sense: Literal["at least", "at most"]
    goal: float | None = None

    def met(self, value: float, wanted: float) -> bool:
        """Return whether a value is at least, or at most, what is wanted."""
        return value >= wanted if self.sense == "at least" else value <= wanted

    def times(self, factor: float) -> "Bar":
        """Return the bar of a smaller or larger job, or of another machine."""
        goal = None if self.goal is None else self.goal * factor
        return self._replace(value=self.value * factor, goal=goal)


_FLOORS: Mapping[str, tuple[float, float | None]] = {
    "beside obvious": (10.0, 14.0),
    "beside lean": (2.2, 3.0),
    "drained": (8_000.0, 12_000.0),
    "many drained": (0.85, 0.95),
    "many acknowledged": (0.9, 1.0),
    "postgresql": (0.45, None),
    "rebuild": (90_000.0, 150_000.0),
    "sealing": (8_000.0, 12_000.0),
    "reconcile": (100_000.0, None),
    "import": (50_000.0, None),
    "scaling 4": (3.0, 3.6),
    "scaling 8": (5.0, 6.5),
    "append ceiling": (15_000.0, 40_000.0),
    "numbering ceiling": (10_000.0, 20_000.0),
    "sealing ceiling": (8_000.0, 12_000.0),
}
_CEILINGS: Mapping[str, tuple[float, float | None]] = {
    "the receiver": (2.0, 1.6),
    "all processes until sealed": (5.5, 4.0),
    "offered p99": (20.0, 10.0),
    "offered behind": (0.5, 0.2),
    "steady lag": (2.0, 1.0),
    "start": (1.0, None),
    "first fold": (2.0, None),
    "orders show": (0.7, None),
    "memory idle": (200.0, None),
    "memory": (330.0, None),
    "disk": (2.4, 1.8),
    "db check": (60.0, 30.0),
    "refold": (100.0, 60.0),
    "reconcile memory": (400.0, None),
    "workbook": (10.0, None),
    "bundle": (1.0, None),
    "many erase": (400.0, None),  # it reads the whole database: 14 µs of the processor a delivery
    "console page": (100.0, None),
    "scaling waits": (0.1, 0.05),
}
BARS = {name: Bar(value, "at least", goal) for name, (value, goal) in _FLOORS.items()} | {
    name: Bar(value, "at most", goal) for name, (value, goal) in _CEILINGS.items()
}
"""Bars by figure, in the unit that the figure states."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """One size of the whole bench.

    round_orders   orders in a round of a burst; each has four deliveries
    offered_s      seconds of one of `offered_legs`, at 1,000/s and at 3,000/s
    warm           requests at the beginning of each leg that are not counted
    connections    each with one request under way
    stock_orders   orders of a stock that commands fold, check and rebuild
    shared_orders  orders for each receiver in one of `shared_rounds` on PostgreSQL; `shared_warm`
                   of their deliveries are not counted; the do-nothing endpoints get them
                   `shared_idle_times`, to be watched as long
    scaling_orders orders of a backlog that several readers and workers drain
    report_rows    breaks in a workbook
    many_orders    orders sent in each of `many_legs` legs to a database of `many_deliveries`, and
                   to an empty one
    console_times  requests for each page
    """

    round_orders: int = 12_500
    rounds: int = 4
    offered_s: tuple[int, int] = 150, 300
    offered_legs: tuple[int, int] = 4, 1
    warm: int = 2_000
    connections: int = 64
    stock_orders: int = 425_000
    shared_orders: int = 6_000
    shared_rounds: int = 4
    shared_idle_times: int = 4
    shared_warm: int = 1_000
    scaling_orders: int = 15_000
    import_rows: int = 1_000_000
    reconcile_orders: int = 1_000_000
    report_rows: int = 100_000
    many_deliveries: int = 10_000_000
    many_orders: int = 12_500
    many_legs: int = 4
    console_orders: int = 250_000
    console_times: int = 40


FULL = Sizes()
QUICK = Sizes(
    round_orders=3_125,
    rounds=2,
    offered_s=(20, 15),
    offered_legs=(2, 1),
    warm=500,
    stock_orders=21_250,
    shared_orders=1_500,
    shared_rounds=2,
    shared_warm=500,
    scaling_orders=3_000,
    import_rows=50_000,
    reconcile_orders=50_000,
    report_rows=5_000,
    many_deliveries=500_000,
    many_orders=1_000,
    many_legs=2,
    console_orders=12_500,
    console_times=20,
)
"""A twentieth, in fewer rounds so that each is still long enough."""
