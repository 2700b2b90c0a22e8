"""The endpoints /livez, /readyz and /metrics for monitoring programs."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.context.context import AppContext
from app.core.alarm import Alarm
from app.core.errors import TallyhookError
from app.core.metrics import Metrics
from app.golive.golive import unfinished
from app.monitoring import health
from app.monitoring.service_note import ANSWERED_BY
from app.monitoring.watchdog import WATCHES, Watchdog
from app.receiving.source_state import SourceState, SourceStateDocument, source_states
from reconcile.instants import SECOND

Reasons = Callable[[], list[str]]


def _seconds(alarm: Alarm | None) -> int:
    return 0 if alarm is None or alarm.since is None else alarm.since // SECOND


def _moments(
    state: health.StoreState, certificate: health.PublicCertificate | None
) -> dict[str, int]:
    gauges = dict[str, int]()
    if state.left is not None:
        gauges["last_checkpoint_left_seconds"] = state.left[1] // SECOND
        gauges["last_checkpoint_left_leaves"] = state.left[0]
    if state.backup is not None:
        gauges["last_backup_seconds"] = state.backup // SECOND
    if certificate is not None and certificate.ends is not None:
        gauges["certificate_ends_seconds"] = certificate.ends // SECOND
    return gauges


class Probes:
    """The endpoints /livez, /readyz and /metrics."""

    def __init__(
        self,
        context: AppContext,
        *,
        reasons: Reasons,
        metrics: Metrics,
        watchdog: Watchdog,
        read_elsewhere: Callable[[], bool] = lambda: False,
        certificate: health.PublicCertificate | None = None,
        checkout_denied: Callable[[], str | None] = lambda: None,
        name: str = "",
    ) -> None:
        self._context = context
        self._name = name
        self._reasons = reasons
        self._metrics = metrics
        self._watchdog = watchdog
        self._read_elsewhere = read_elsewhere
        self._began = context.clock.now()
        self._nodes = health.nodes_of(context)
        self._certificate = certificate
        self._checkout_denied = checkout_denied
        # If a source that signs nothing has no address of its own, its name is its only secret.
        unsigned = sorted(
            name
            for name, each in context.sources.items()
            if each.unsigned and name in each.addresses
        )
        self._unsigned = {
            f"unsigned source {number}": re.compile(
                rf"(?<![a-z0-9]){re.escape(name)}(?![a-z0-9])", re.IGNORECASE
            )
            for number, name in enumerate(unsigned, 1)
        }

    async def livez(self, request: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def readyz(self, request: Request) -> Response:
        """Answer 200 if deliveries can be stored and read, or 503 with the reasons if not.

        sources   the state of each source
        unsafe    settings that risk the loss of stored data
        checkout  why no payment can be started
        golive    the steps that a live instance still lacks
        findings  the number of orders that need a person

        Each active alarm adds a member with its name, such as `silence`.
        """
        reasons, dangers, states = self._reasons(), list[str](), list[SourceState]()
        golive = None

        async def look() -> None:
            nonlocal dangers, states, golive
            refuses = await health.refusal(self._context)
            behind = await health.reader_behind(
                self._context,
                limit_s=self._context.settings.inbox_red_s,
                elsewhere=self._began if self._read_elsewhere() else None,
            )
            reasons.extend(why for why in (refuses, behind) if why)
            nodes = await self._nodes.look()
            reasons.extend(nodes.down())  # before anything that reads rows of a node
            states = await source_states(self._context)
            dangers = await health.unsafe(self._context, nodes)
            golive = await unfinished(self._context)

        try:
            await health.bounded(look())
        except TallyhookError as error:
            reasons += [] if str(error) in reasons else [str(error)]
        status = 503 if reasons else 200
        document: dict[str, object] = {
            "status": "not ready" if reasons else "ready",
            "reasons": reasons,
        }
        if states:
            document["sources"] = self._documents(states)
        if dangers:
            document["unsafe"] = dangers
        if denied := self._checkout_denied():
            document["checkout"] = [denied]
        if golive is not None:
            document["golive"] = [golive]
        document |= {name: [alarm.sentence] for name, alarm in self._watchdog.alarms.items()}
        if any(self._watchdog.findings.values()):
            document["findings"] = self._watchdog.findings
        headers = {ANSWERED_BY: self._name}
        return JSONResponse(self._without_names(document), status_code=status, headers=headers)

    def _documents(self, states: Sequence[SourceState]) -> list[SourceStateDocument]:
        explained = {each.source: each.explanation for each in self._watchdog.sources}
        return [
            replace(
                each, explanation=explained.get(each.source) if each.state == "refusing" else None
            ).document()
            for each in states
        ]

    def _without_names(self, value: Any) -> Any:
        """Replace the names of sources without signatures. Such a name is part of a secret webhook
        address."""
        if isinstance(value, dict):
            return {name: self._without_names(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self._without_names(each) for each in value]
        if isinstance(value, str):
            for name, pattern in self._unsigned.items():
                value = pattern.sub(name, value)
        return value

    async def metrics(self, request: Request) -> Response:
        """Answer with metrics in the text format of Prometheus."""
        try:
            state = await health.bounded(health.store_state(self._context))
            nodes = await health.bounded(self._nodes.look())
        except TallyhookError:
            # Report what this process knows without the database, and that it can store nothing.
            # Alerts need this now; after a failed scrape they would report that nobody answers.
            gauges = {"store_writable": 0} | self._alarms()
            self._metrics.set_state(gauges, orders={}, read={}, unallocated={})
            return Response(self._metrics.exposition(), media_type=CONTENT_TYPE_LATEST)
        gauges = {
            "orders_due": state.due,
            "journal_queue": state.queue,
            "inbox_unread": state.unread,
            "inbox_unread_bytes": state.unread_bytes,
            "inbox_kept_bytes": state.kept,
            "inbox_set_aside": state.aside,
            "store_writable": int(state.refuses is None),
            "write_faults": state.faults,
            "notifications_waiting": state.notifications[0],
            "notifications_given_up": state.notifications[1],
            "log_leaves": state.sealed[0],
            "log_waiting": state.sealed[1],
        }
        gauges |= self._alarms()
        gauges |= {
            f"{each.name}_since_seconds": _seconds(self._watchdog.alarms.get(each.name))
            for each in WATCHES
            if each.dated
        }
        gauges |= {f"orders_{code}": n for code, n in self._watchdog.findings.items()}
        gauges |= _moments(state, self._certificate)
        if nodes.own is not None:
            gauges["synchronous_standbys"] = nodes.own.synchronous
        if state.free is not None:
            gauges["disk_free_bytes"] = state.free
        unallocated = self._watchdog.unallocated
        gauges["unallocated_payments"] = unallocated.count
        self._metrics.set_state(
            gauges,
            orders=state.outcomes,
            read=state.read,
            unallocated={money.currency: money.minor for money in unallocated.held},
        )
        return Response(self._metrics.exposition(), media_type=CONTENT_TYPE_LATEST)

    def _alarms(self) -> dict[str, int]:
        return {f"{each.name}_alarm": int(each.name in self._watchdog.alarms) for each in WATCHES}
