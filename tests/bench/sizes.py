"""Sizes of the measurements, and the bars that their figures must meet."""

from dataclasses import dataclass
from typing import Literal, NamedTuple


class Bar(NamedTuple):
    """A promised value, and the direction in which it may be exceeded."""

    value: float
    sense: Literal["at least", "at most"]


_FLOORS = {
    "ingest": 0.50,
    "steady rate": 3_000.0,
    "drained": 8_000.0,
    "postgresql": 0.45,
    "two receivers": 1.5,
    "rebuild": 60_000.0,
    "rebuild on two": 90_000.0,
    "reconcile": 100_000.0,
    "flatness": 0.85,
    "flood share": 1.0,
    "import": 50_000.0,
    "match": 60_000.0,
    "sealing share": 0.9,
    "sealing": 5_000.0,
    "many check": 100_000.0,
    "scaling 4": 3.0,
    "scaling 8": 5.0,
    "append ceiling": 15_000.0,
    "numbering ceiling": 10_000.0,
    "sealing ceiling": 8_000.0,
}
_CEILINGS = {
    "offered p99": 20.0,
    "offered behind": 0.5,
    "offered memory": 300.0,
    "fold": 40.0,
    "rebuild memory": 400.0,
    "reconcile memory": 400.0,
    "flood p99": 250.0,
    "flood memory": 20.0,
    "put beside": 250.0,
    "verifying": 15.0,
    "recovery": 5.0,
    "match memory": 400.0,
    "workbook": 10.0,
    "bundle": 1.0,
    "proof": 50.0,
    "proof memory": 64.0,
    "order tree": 10.0,
    "many metrics": 50.0,
    "many erase": 400.0,  # it reads the whole database: 14 µs of the processor a delivery
    "many p99": 1.2,
    "console page": 100.0,
    "console loop": 20.0,
    "console size": 50.0,
    "console beside": 1.1,
    "scaling waits": 0.1,
}
BARS = {name: Bar(value, "at least") for name, value in _FLOORS.items()} | {
    name: Bar(value, "at most") for name, value in _CEILINGS.items()
}
"""Each figure states its unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """One size of the whole bench.

    round_orders   orders in a round of ingest; each has four deliveries
    rounds         rounds for flatness, all into one database; `ingest_rounds` for ingest alone
    idle_times     how often the do-nothing endpoint gets the same requests, as it is faster
    offered_s      seconds of one of `offered_legs` at 1,000/s, short enough for the age of
                   requests that are signed before it; `steady_s` at higher rates
    warm           requests at the beginning of each leg that are not counted
    connections    each with one request under way
    shared_orders  orders for each receiver in one of `shared_rounds` on PostgreSQL; `shared_warm`
                   of their deliveries are not counted; the do-nothing endpoints get them
                   `shared_idle_times`, to be watched as long
    scaling_orders orders of a backlog that several readers and workers drain
    folds          folds in one of `repeats`
    flood_unsigned unsigned requests, beside `flood_slow` slow connections and `flood_rate`
                   genuine deliveries a second
    beside_orders  orders in a burst beside the shop's calls; then `beside_rows` are imported
    report_rows    breaks in a workbook; `report_orders` orders are added up
    log_leaves     leaves of the log in which `log_proofs` are proved
    many_orders    orders sent in each of `many_legs` legs to a database of `many_deliveries`, and
                   to an empty one
    console_times  requests for each page; people browse in `console_legs` legs of `console_s`
                   seconds, beside as many without them
    """

    round_orders: int = 12_500
    rounds: int = 20
    ingest_rounds: int = 6
    idle_times: int = 2
    offered_s: int = 150
    offered_legs: int = 4
    steady_s: int = 60
    warm: int = 2_000
    connections: int = 64
    rebuild_orders: int = 250_000
    shared_orders: int = 6_000
    shared_rounds: int = 6
    shared_idle_times: int = 4
    shared_warm: int = 1_000
    scaling_orders: int = 15_000
    folds: int = 5_000
    repeats: int = 9
    flood_unsigned: int = 100_000
    flood_slow: int = 1_000
    flood_rate: float = 100.0
    beside_orders: int = 12_500
    beside_rows: int = 200_000
    recovery_orders: int = 250_000
    import_rows: int = 1_000_000
    match_orders: int = 1_000_000
    reconcile_orders: int = 1_000_000
    report_rows: int = 100_000
    report_orders: int = 200_000
    log_leaves: int = 10_000_000
    log_proofs: int = 500
    tree_orders: int = 1_000_000
    many_deliveries: int = 10_000_000
    many_orders: int = 2_500
    many_legs: int = 5
    console_orders: int = 250_000
    console_times: int = 40
    console_legs: int = 3
    console_s: int = 30


FULL = Sizes()
QUICK = Sizes(
    round_orders=3_125,
    rounds=4,
    ingest_rounds=3,
    offered_s=20,
    offered_legs=2,
    steady_s=10,
    warm=500,
    rebuild_orders=12_500,
    folds=1_000,
    flood_unsigned=5_000,
    flood_slow=50,
    shared_orders=1_500,
    shared_rounds=4,
    shared_warm=500,
    scaling_orders=3_000,
    beside_orders=3_125,
    beside_rows=20_000,
    recovery_orders=12_500,
    import_rows=50_000,
    match_orders=50_000,
    reconcile_orders=50_000,
    report_rows=5_000,
    report_orders=10_000,
    log_leaves=500_000,
    log_proofs=200,
    tree_orders=50_000,
    many_deliveries=500_000,
    many_orders=1_000,
    many_legs=3,
    console_orders=12_500,
    console_times=20,
    console_legs=2,
    console_s=10,
)
"""A twentieth: 50,000 deliveries in all, in fewer rounds so that each is still long enough."""
