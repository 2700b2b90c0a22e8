"""Figures for Prometheus. Labels are source names and verdicts: few, and never from the sender."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Metrics:
    """One registry for one application, so that tests may have many."""

    def __init__(self, sources: frozenset[str]) -> None:
        self._sources = sources
        self._registry = CollectorRegistry()
        self._deliveries = Counter(
            "tallyhook_deliveries",
            "Deliveries by verdict; not_stored where none was reached.",
            ("source", "verdict"),
            registry=self._registry,
        )
        self._time = Histogram(
            "tallyhook_delivery_seconds",
            "From the request's headers to its answer.",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.due = self._gauge("orders_due", "Orders whose fold is due and not yet done.")
        self.queue = self._gauge("journal_queue", "Arrivals that wait to be committed.")
        self.orders = Gauge(
            "tallyhook_orders",
            "Orders by outcome, as last folded.",
            ("outcome",),
            registry=self._registry,
        )
        self._children: dict[tuple[str, str | None], Counter] = {}

    def _gauge(self, name: str, help_text: str) -> Gauge:
        return Gauge(f"tallyhook_{name}", help_text, registry=self._registry)

    def count(self, source: str, verdict: str | None) -> None:
        """Count one delivery. A source that is not configured is counted as `unknown`."""
        child = self._children.get((source, verdict))
        if child is None:
            known = source if source in self._sources else "unknown"
            child = self._deliveries.labels(known, verdict or "not_stored")
            if source in self._sources:
                self._children[source, verdict] = child
        child.inc()

    def delivery_time(self) -> AbstractContextManager[object]:
        """Times the block as one delivery."""
        timer: AbstractContextManager[object] = self._time.time()
        return timer

    def exposition(self) -> bytes:
        """All figures in Prometheus's text form."""
        return generate_latest(self._registry)
