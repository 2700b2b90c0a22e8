"""How much is measured, and what is promised: the two things a reader wants to find at once."""

from __future__ import annotations

from dataclasses import dataclass

BARS = {
    "ingest": 0.50,
    "offered p99": 20.0,
    "offered behind": 0.5,
    "steady rate": 3_000.0,
    "drained": 8_000.0,
    "offered memory": 300.0,
    "postgresql": 0.45,
    "two receivers": 1.5,
    "fold": 40.0,
    "rebuild": 60_000.0,
    "rebuild on two": 90_000.0,
    "rebuild memory": 400.0,
    "reconcile": 100_000.0,
    "reconcile memory": 400.0,
    "flatness": 0.85,
    "flood share": 1.0,
    "flood p99": 250.0,
    "flood memory": 20.0,
    "put beside": 250.0,
    "verifying": 15.0,
    "recovery": 5.0,
    "import": 50_000.0,
    "match": 60_000.0,
    "match memory": 400.0,
    "workbook": 10.0,
    "sealing share": 0.9,
    "sealing": 5_000.0,
    "proof": 50.0,
    "proof memory": 64.0,
    "order tree": 10.0,
    "many metrics": 50.0,
    "many check": 100_000.0,
    "many erase": 2.0,
    "many p99": 1.2,
    "console page": 100.0,
    "console loop": 20.0,
    "console size": 50.0,
    "console beside": 1.1,
}
"""ingest, postgresql: of the do-nothing rate; offered, steady, drained: ms, s, a second, MiB;
two receivers: times the rate of one; fold: µs; rebuild, on one core and on two: events a second;
memory: MiB; flatness: of the first round's rate; flood: of the genuine deliveries, ms, MiB;
put beside: ms; verifying: µs, of any keyed hash; recovery, workbook, bundle: seconds; import,
match, reconcile: rows a second; sealing: of the rate without it, leaves a second; proof: ms;
order tree: seconds; many: ms, rows a second, seconds, of an empty database's; console: ms, ms, KB,
of that without people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """One size of the whole bench.

    round_orders   orders in one round of ingest; each has four deliveries
    rounds         rounds when flatness is measured; all go into one database
    ingest_rounds  rounds when only ingest is
    idle_times     how often the do-nothing endpoint gets the same requests: it is faster
    offered_s      seconds of one leg at a rate of 1,000/s, of `offered_legs`: requests are signed
                   before a leg, and must not be too old at its end; `steady_s` at higher rates
    warm           requests at the beginning of each leg that are not counted
    connections    each with one request under way
    rebuild_orders orders in the database that is rebuilt
    shared_orders  orders for each receiver in one round on PostgreSQL; `shared_warm` of their
                   deliveries are not counted, and there are `shared_rounds` rounds; the
                   do-nothing endpoints get them `shared_idle_times`, to be watched as long
    folds          folds in one repeat; `repeats` of them
    flood_unsigned unsigned requests in a flood, beside `flood_slow` slow connections and
                   `flood_rate` genuine deliveries a second
    beside_orders  orders whose deliveries come in a burst beside the shop's own calls, and
                   `beside_rows` of an order book that is imported beside them
    recovery_orders orders in the database of a service that is killed; each has four deliveries
    import_rows    rows of an order book
    match_orders   orders that are matched with as many book and statement lines
    reconcile_orders orders that are reconciled; each has about one line in book and statement
    report_rows    breaks in the report that a workbook is made of
    report_orders  orders that are added up to a report
    log_leaves     leaves of the log in which `log_proofs` are proved
    tree_orders    orders in the tree of all orders
    many_deliveries deliveries in a database beside an empty one; each gets `many_orders` orders of
                   deliveries in each of `many_legs` legs
    console_orders orders whose pages are asked for `console_times` times each; people browse them
                   in `console_legs` legs of `console_s` seconds, beside as many without them
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
