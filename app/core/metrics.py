"""Figures for Prometheus. Labels are source names and verdicts: few, and never from the sender.

What every delivery touches are plain integers of our own; they become Prometheus's only when
somebody asks. Everything runs on one event loop, so they need no lock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sized
from itertools import accumulate
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from app.core.logs import lost_lines

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Connections(Protocol):
    """What a server knows of its connections."""

    @property
    def open(self) -> Sized:
        """Those that are open."""

    @property
    def refused(self) -> Mapping[str, int]:
        """How many were not let in or were closed, by reason."""


class Metrics(Collector):
    """One registry for one application, so that tests may have many.

    gauges  what each further gauge says, by its name
    """

    def __init__(
        self, sources: frozenset[str], connections: Connections, *, gauges: Mapping[str, str]
    ) -> None:
        self._sources = sources
        self._server = connections
        self._texts = {**GAUGES, **gauges}
        self._deliveries: Counter[tuple[str, str]] = Counter()
        self._not_stored: Counter[str] = Counter()
        self._read: Mapping[tuple[str, str], int] = {}
        self._times = [0] * (len(_SECONDS) + 1)
        self._time_sum = 0.0
        self._gauges: Mapping[str, int] = {}
        self._orders: Mapping[str, int] = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def count(self, source: str, verdict: str | None, seconds: float) -> None:
        """Count one delivery. A source that is not configured is counted as `unknown`."""
        known = source if source in self._sources else "unknown"
        self._deliveries[known, verdict or "not_stored"] += 1
        self._times[bisect_left(_SECONDS, seconds)] += 1
        self._time_sum += seconds

    def count_not_stored(self, reason: str) -> None:
        """Count one delivery that was answered 503, by why."""
        self._not_stored[reason] += 1

    def set_state(
        self,
        gauges: Mapping[str, int],
        *,
        orders: Mapping[str, int],
        read: Mapping[tuple[str, str], int],
    ) -> None:
        """What the store says now: values of the gauges below, orders by outcome, and deliveries
        read by source and verdict, since the database was made."""
        self._gauges = gauges
        self._orders = orders
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """The figures as Prometheus's families."""
        deliveries = CounterMetricFamily(
            "tallyhook_deliveries",
            "Deliveries by verdict; not_stored where none was reached.",
            labels=("source", "verdict"),
        )
        for labels, count in sorted(self._deliveries.items()):
            deliveries.add_metric(labels, count)
        yield deliveries
        read = CounterMetricFamily(
            "tallyhook_deliveries_read",
            "Deliveries read from the inbox, by what became of them.",
            labels=("source", "verdict"),
        )
        for labels, count in sorted(self._read.items()):
            read.add_metric(labels, count)
        yield read
        not_stored = CounterMetricFamily(
            "tallyhook_deliveries_not_stored",
            "Deliveries answered 503, by why.",
            labels=("reason",),
        )
        for reason, count in sorted(self._not_stored.items()):
            not_stored.add_metric((reason,), count)
        yield not_stored
        yield self._histogram()
        yield from self._connections()
        yield CounterMetricFamily(
            "tallyhook_log_lines_lost", "Log lines that could not be written.", value=lost_lines()
        )
        for name, value in self._gauges.items():
            yield GaugeMetricFamily(f"tallyhook_{name}", self._texts[name], value=value)
        orders = GaugeMetricFamily(
            "tallyhook_orders", "Orders by outcome, as last folded.", labels=("outcome",)
        )
        for outcome, count in self._orders.items():
            orders.add_metric((outcome,), count)
        yield orders

    def _connections(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "tallyhook_connections",
            "Connections that are open.",
            value=len(self._server.open),
        )
        refused = CounterMetricFamily(
            "tallyhook_connections_refused",
            "Connections that were not let in, or were closed for what came or did not come.",
            labels=("reason",),
        )
        for reason, count in sorted(self._server.refused.items()):
            refused.add_metric((reason,), count)
        yield refused

    def _histogram(self) -> Metric:
        bounds = [*(str(bound) for bound in _SECONDS), "+Inf"]
        family = HistogramMetricFamily(
            "tallyhook_delivery_seconds", "From the request's headers to its answer."
        )
        buckets = list(zip(bounds, accumulate(self._times), strict=True))
        family.add_metric((), buckets=buckets, sum_value=self._time_sum)
        return family

    def exposition(self) -> bytes:
        """All figures in Prometheus's text form."""
        return generate_latest(self._registry)


GAUGES: Final = {
    "orders_due": "Orders whose fold is due and not yet done; 100000: or more.",
    "journal_queue": "Arrivals that wait to be committed.",
    "inbox_unread": "Deliveries and refused ones that are accepted and not read yet.",
    "inbox_unread_bytes": "Their bytes.",
    "inbox_set_aside": "Deliveries that could not be read; `tallyhook deliveries poisoned`.",
    "store_writable": "1 while deliveries can be stored; 0 while there is no room for them.",
    "write_faults": "Batches of deliveries in a row that could not be written, to this moment.",
    "notifications_waiting": "Notifications that the shop has not yet taken; 100000: or more.",
    "notifications_given_up": "Notifications that are sent no more unless a person asks for it.",
    "log_leaves": "Deliveries, records, revisions and audit entries that are sealed in the log.",
    "log_waiting": "Those that wait to be sealed, safe, not to be deleted yet; 100000: or more.",
    "orders_paid_but_not_fulfilled": "Orders paid for that the shop has not said to have shipped.",
    "orders_fulfilled_but_not_paid": "Orders that were shipped without having been paid for.",
    "orders_unread_money_event": "Orders with events of money going back that no profile knows.",
    "last_checkpoint_left_seconds": "Unix time when the largest checkpoint left; absent: none.",
    "last_checkpoint_left_leaves": "How many leaves of the log it has.",
    "last_backup_seconds": "Unix time of the last backup that was noted; absent: none.",
    "certificate_ends_seconds": "Unix time when the certificate of TALLYHOOK_PUBLIC_URL ends; 0: "
    "it is not trusted; absent: no https address, or nobody has answered there.",
    "disk_free_bytes": "Bytes that are free on the disk of the database.",
}
