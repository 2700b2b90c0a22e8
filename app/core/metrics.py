"""Metrics for Prometheus, built from plain integers when Prometheus asks.

Labels are verdicts, reasons or names of configured sources, so that senders cannot create labels.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sized
from itertools import accumulate
from typing import Any, Final, Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client import core as families
from prometheus_client.registry import Collector

from app.core.logs import lost_lines

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Connections(Protocol):
    """Open and refused connections of a server."""

    @property
    def open(self) -> Sized:
        """Return the connections that are open now."""

    @property
    def refused(self) -> Mapping[str, int]:
        """Return the number of refused or closed connections for each reason."""


class Metrics(Collector):
    """Metrics of one running application.

    gauges  descriptions of additional gauges, by name
    """

    def __init__(
        self, sources: frozenset[str], connections: Connections, *, gauges: Mapping[str, str]
    ) -> None:
        self._sources = sources
        self._server = connections
        self._texts = {**GAUGES, **gauges}
        self._deliveries: Counter[tuple[str, str]] = Counter()
        self._not_stored: Counter[str] = Counter()
        self._refused: Counter[tuple[str]] = Counter()
        self._read: Mapping[tuple[str, str], int] = {}
        self._times = [0] * (len(_SECONDS) + 1)
        self._time_sum = 0.0
        self._gauges: Mapping[str, int] = {}
        self._orders: Mapping[str, int] = {}
        self._unallocated: Mapping[str, int] = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def count(self, source: str, verdict: str | None, seconds: float) -> None:
        """Count a delivery and the seconds until its answer. `unknown` stands for unconfigured
        sources.

        verdict  None if the delivery was not stored
        """
        known = source if source in self._sources else "unknown"
        self._deliveries[known, verdict or "not_stored"] += 1
        self._times[bisect_left(_SECONDS, seconds)] += 1
        self._time_sum += seconds

    def count_not_stored(self, reason: str) -> None:
        """Count a delivery that was not stored, and therefore answered with 503.

        reason  code that tells why the delivery was not stored
        """
        self._not_stored[reason] += 1

    def count_refused(self, status: int) -> None:
        """Count an API request that was answered with 401 or 403."""
        self._refused[str(status),] += 1

    def set_state(
        self,
        gauges: Mapping[str, int],
        *,
        orders: Mapping[str, int],
        read: Mapping[tuple[str, str], int],
        unallocated: Mapping[str, int],
    ) -> None:
        """Set the gauges to values from the database.

        gauges  values by gauge name
        orders  number of orders for each outcome
        read    number of deliveries ever read, by source and verdict
        unallocated  money without an order, in minor units, by currency
        """
        self._gauges = gauges
        self._orders = orders
        self._read = read
        self._unallocated = unallocated

    def collect(self) -> Iterator[families.Metric]:
        by_verdict, by_reason = ("source", "verdict"), ("reason",)
        yield _counter(
            "deliveries",
            "Deliveries by verdict; not_stored if no verdict was reached.",
            by_verdict,
            self._deliveries,
        )
        yield _counter(
            "deliveries_read",
            "Deliveries read from the inbox, by result.",
            by_verdict,
            self._read,
        )
        yield _counter(
            "deliveries_not_stored",
            "Deliveries answered 503, by reason.",
            by_reason,
            {(reason,): count for reason, count in self._not_stored.items()},
        )
        yield _counter(
            "requests_refused",
            "Requests of the API that were answered 401 or 403.",
            ("status",),
            self._refused,
        )
        times = families.HistogramMetricFamily(
            "tallyhook_delivery_seconds", "Time from a request's headers to its answer."
        )
        bounds = [*(str(bound) for bound in _SECONDS), "+Inf"]
        buckets = list(zip(bounds, accumulate(self._times), strict=True))
        times.add_metric((), buckets=buckets, sum_value=self._time_sum)
        yield times
        yield families.GaugeMetricFamily(
            "tallyhook_connections", "Connections that are open.", value=len(self._server.open)
        )
        yield _counter(
            "connections_refused",
            "Connections that were refused, or closed for invalid data or inactivity.",
            by_reason,
            {(reason,): count for reason, count in self._server.refused.items()},
        )
        yield families.CounterMetricFamily(
            "tallyhook_log_lines_lost", "Log lines that could not be written.", value=lost_lines()
        )
        for name, value in self._gauges.items():
            yield families.GaugeMetricFamily(f"tallyhook_{name}", self._texts[name], value=value)
        orders = families.GaugeMetricFamily(
            "tallyhook_orders", "Orders by outcome, as last folded.", labels=("outcome",)
        )
        for outcome, count in self._orders.items():
            orders.add_metric((outcome,), count)
        yield orders
        money = families.GaugeMetricFamily(
            "tallyhook_unallocated_minor_units",
            "Money of payments without an order that wait for a decision, in minor units.",
            labels=("currency",),
        )
        for currency, minor in self._unallocated.items():
            money.add_metric((currency,), minor)
        yield money

    def exposition(self) -> bytes:
        return generate_latest(self._registry)


def _counter(
    name: str, about: str, labels: tuple[str, ...], counts: Mapping[Any, int]
) -> families.Metric:
    family = families.CounterMetricFamily(f"tallyhook_{name}", about, labels=labels)
    for each, count in sorted(counts.items()):
        family.add_metric(each, count)
    return family


GAUGES: Final = {
    "orders_due": "Orders whose ledger must be computed again; counted up to 100000.",
    "journal_queue": "Received deliveries that wait to be committed.",
    "inbox_unread": "Accepted and refused deliveries that have not been read yet.",
    "inbox_unread_bytes": "Bytes of deliveries that have not been read yet.",
    "inbox_kept_bytes": (
        "Bytes of deliveries that have been read, but not yet deleted from the inbox."
    ),
    "inbox_set_aside": (
        "Deliveries that could not be read; `tallyhook deliveries poisoned` lists them."
    ),
    "store_writable": "1 while deliveries can be stored; 0 while there is no room for them.",
    "write_faults": "Number of most recent consecutive batches that could not be written.",
    "notifications_waiting": "Notifications that the shop has not accepted; counted up to 100000.",
    "notifications_given_up": "Notifications that are sent again only if a person asks for it.",
    "log_leaves": "Deliveries, records, revisions and audit entries that are sealed in the log.",
    "log_waiting": "Leaves that wait to be sealed; counted up to 100000.",
    "unallocated_payments": "Payments with money and without an order that wait for a decision.",
    "orders_paid_but_not_fulfilled": "Paid orders that the shop has not reported as shipped.",
    "orders_fulfilled_but_not_paid": "Orders that were shipped without being paid.",
    "orders_unread_money_event": (
        "Orders with events of unknown kinds that may report returned money."
    ),
    "last_checkpoint_left_seconds": (
        "Unix time when the largest checkpoint was delivered; absent if there is none."
    ),
    "last_checkpoint_left_leaves": "Leaves of the log in the largest delivered checkpoint.",
    "last_backup_seconds": "Unix time of the last recorded backup; absent if there is none.",
    "certificate_ends_seconds": (
        "Unix time when the certificate of TALLYHOOK_PUBLIC_URL expires; "
        "0 if the certificate is not trusted; absent if the address is not https or does not "
        "answer."
    ),
    "synchronous_standbys": "Connected standby servers that commits wait for; absent on SQLite.",
    "disk_free_bytes": "Bytes that are free on the disk of the database.",
}
