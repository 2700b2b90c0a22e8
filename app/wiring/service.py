"""Run a service on its own database, without a socket.

If a part fails, the process ends, because it must not acknowledge deliveries.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, Literal

import httpx2
from starlette.routing import Route

from app.api.application import build_application
from app.api.probes import Probes
from app.checkout.ask_session import asking_again
from app.checkout.client import CheckoutClient, client_of
from app.config.settings import Settings
from app.context.configured import askers, compile_sources
from app.context.context import AppContext
from app.core.child_processes import WorkerProcess
from app.core.clock import Clock
from app.core.errors import ConfigurationError, StorePoisoned
from app.core.http import outgoing_client
from app.core.ids import new_token
from app.core.logs import log
from app.core.metrics import Metrics
from app.core.periodic import PeriodicTask, rest_when_idle
from app.core.process import affordable
from app.evidence.seal import open_signer
from app.monitoring.health import PublicCertificate, rest
from app.monitoring.watchdog import FIGURES, REST_S, Watchdog, Watched
from app.orders.folding_process import FoldingProcess
from app.providers.provider_client import LIMIT_S
from app.receiving.connection_limits import ConnectionLimits, GateLimits
from app.receiving.endpoint import Webhooks
from app.receiving.inbox import inbox_of
from app.receiving.receive import Receiver
from app.receiving.refusals import RefusedAges, RejectionRate
from app.receiving.unsigned import UnsignedAllowance, learning_names
from app.wiring.opening import open_context
from app.wiring.worker import (
    NOTICES_REST_S,
    Part,
    Parts,
    reading_parts,
    watching_server,
    working_parts,
)

LOOK_AFTER_S: Final = 10.0
"""Seconds before a large database is checked for damage."""


def gate_limits(settings: Settings) -> GateLimits:
    return GateLimits(
        receive_deadline_s=settings.receive_deadline_s,
        send_deadline_s=settings.send_deadline_s,
        connections=affordable(settings.max_connections),
        per_address=settings.max_connections_per_address,
        # The setting does not count the request line and the separators.
        max_head_bytes=2 * settings.max_header_bytes,
        proxies=settings.forwarded_allow_ips,
    )


def _receiver(context: AppContext, ages: RefusedAges) -> Receiver:
    settings = context.settings
    assert settings.environment is not None
    return Receiver(
        sources=context.sources,
        queue=inbox_of(context).queue,
        clock=context.clock,
        environment=settings.environment,
        rejected_body_bytes=settings.rejected_body_bytes,
        rejection_rate=RejectionRate(
            in_all=settings.rejections_per_minute,
            per_address=settings.rejections_per_minute_per_address,
        ),
        unsigned=UnsignedAllowance(
            RejectionRate(
                in_all=settings.unsigned_per_minute,
                per_address=settings.unsigned_per_minute_per_address,
            )
        ),
        ages=ages,
    )


def _watchdog(
    context: AppContext, ages: RefusedAges, client: httpx2.AsyncClient | None
) -> tuple[Watchdog, list[tuple[str, Part]]]:
    alarms, messages = context.settings.alarms, None
    if client is not None and (alarms.url or alarms.mail_to):
        from app.monitoring.alarm_messages import alarm_messages_of

        messages = alarm_messages_of(context, client)
    watchdog = Watchdog(Watched(context, ages), messages)
    looking = PeriodicTask(
        watchdog.look,
        component="the watchdog",
        rest=lambda done: min(REST_S, watchdog.due_in_s()),
    )
    context.signals.alarming.elsewhere = looking.wake
    inbox = inbox_of(context).writer
    inbox.on_look = lambda: looking.wake() if watchdog.reader_changed(inbox.oldest) else None
    parts: list[tuple[str, Part]] = [("the watchdog", looking)]
    if messages is not None:
        sending = PeriodicTask(
            messages.send_due, component="alarms", rest=rest_when_idle(NOTICES_REST_S)
        )
        parts.append(("the task that sends alarms", sending))
    return watchdog, parts


def _looking_at_certificate(
    settings: Settings, client: httpx2.AsyncClient | None
) -> tuple[PublicCertificate | None, list[tuple[str, Part]]]:
    address = settings.public_url
    if client is None or address is None or not address.startswith("https://"):
        return None, []
    certificate = PublicCertificate(address)
    task = PeriodicTask(certificate.look, component="the public certificate", rest=rest)
    return certificate, [("the task that checks the public certificate", task)]


class Service:
    """Receiver of deliveries, with the parts that run in the same process."""

    def __init__(
        self,
        context: AppContext,
        *,
        parts: Parts = (),
        checkout: CheckoutClient | None = None,
        client: httpx2.AsyncClient | None = None,
    ) -> None:
        """Prepare a service that is not running yet.

        The background `parts` run in this process.
        """
        settings = context.settings
        if settings.environment is None:
            raise ConfigurationError(["TALLYHOOK_ENVIRONMENT: write sandbox or live"])
        self.context = context
        self.name = new_token("")
        """Random name, chosen at the start, by which `doctor` recognizes this service's answer."""
        self.inbox = inbox_of(context)
        self.sources = context.sources
        self.checkout = checkout
        ages = RefusedAges()
        self.watchdog, watching = _watchdog(context, ages, client)
        certificate, looking = _looking_at_certificate(settings, client)
        self.parts: list[tuple[str, Part]] = [
            *parts,
            *watching,
            *looking,
            *watching_server(context),
        ]
        if checkout is not None:
            asking = asking_again(context, checkout)
            self.parts.append(("the task that looks up sessions with unknown results", asking))
        self.read_elsewhere = False
        """True if separately started processes read accepted deliveries."""
        self.worker_missing: Callable[[], str | None] = lambda: None
        """Function that returns why no accepted deliveries are read, if another process must read
        them."""
        self._journal_alive = False
        self._broken: list[str] = []
        self._stop = asyncio.Event()
        self.connection_limits = ConnectionLimits(gate_limits(settings))
        metrics = Metrics(frozenset(self.sources), self.connection_limits, gauges=FIGURES)
        receiver = _receiver(context, ages)
        self.webhooks = Webhooks(receiver, limits=settings, metrics=metrics)
        if any(each.unsigned for each in self.sources.values()):
            learning = learning_names(context, receiver.unsigned)
            self.parts.append(("the task that learns which references the shop named", learning))
        self.application = build_application(
            webhooks=self.webhooks,
            probes=Probes(
                context,
                reasons=self.reasons,
                metrics=metrics,
                watchdog=self.watchdog,
                read_elsewhere=lambda: self.read_elsewhere,
                certificate=certificate,
                checkout_denied=self.checkout_denied,
                name=self.name,
            ),
            api=self._api,
            failed=self.fail,
            count_refused=metrics.count_refused,
        )

    def _api(self) -> list[Route]:
        from app.api.api_routes import api_routes
        from app.wiring.work import ElsewhereOf, proposals_of

        return api_routes(
            self.context,
            checkout=self.checkout,
            alarms=lambda: self.watchdog.sentences,
            proposals=partial(proposals_of, self.context),
            elsewhere=ElsewhereOf(self.context.settings),
        )

    def reasons(self) -> list[str]:
        """Return the reasons why the service is not ready; empty if it is ready."""
        reasons = list(self._broken)
        if not self._journal_alive:
            reasons.append("the queue of the inbox is not running")
        reasons += [f"{name} is not running" for name, part in self.parts if not part.alive]
        missing = self.worker_missing()
        if missing is not None:
            reasons.append(missing)
        return reasons

    def checkout_denied(self) -> str | None:
        """Return the reason why no payment can be started; None if payments can be started."""
        if self.checkout is None or self.checkout.denied is None:
            return None
        return f"the payment service answered {self.checkout.denied}: check the checkout token"

    @property
    def broken(self) -> list[str]:
        """Return the failures of parts of the service; empty if none failed."""
        return self._broken

    def fail(self, reason: str) -> None:
        """Record that a part of the service has failed, so that the service stops."""
        self._broken.append(reason)
        self._stop.set()

    async def stopped(self) -> None:
        """Wait until a part of the service has failed."""
        await self._stop.wait()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the queue and background tasks during the block."""
        inbox, closing = self.inbox, self.context.signals.closing
        inbox.database.on_poison = self.fail
        queue = self._begun("the queue of the inbox", self._run_queue())
        keeping = self._begun("the inbox", inbox.writer.watch(closing))
        tasks = [(part, self._begun(name, part.run())) for name, part in self.parts]
        looking = self._begun("the database file", self._look())
        await asyncio.sleep(0)
        try:
            yield
        finally:
            closing.set()
            await asyncio.gather(looking, keeping)
            inbox.queue.close()
            await queue
            for part, task in tasks:  # the reader first, to read accepted deliveries
                part.stop()
                await task

    def _begun(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.create_task(self._supervise(name, work))

    async def _look(self) -> None:
        closing = self.context.signals.closing
        if self.inbox.database.looked:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_AFTER_S):
                await closing.wait()
        if not closing.is_set():
            await self.inbox.database.look(until=closing)

    async def _run_queue(self) -> None:
        self._journal_alive = True
        try:
            await self.inbox.queue.run()
        finally:
            self._journal_alive = False
            self.inbox.queue.abandon()

    async def _supervise(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            raise
        except Exception as error:
            if isinstance(error, StorePoisoned) and self.broken:
                return  # already reported
            log.error("a part of the service failed", component=name, exc_info=error)
            # A part can fail at a lost file before the next look at the files.
            loss = self.inbox.writer.writer.loss() or self.inbox.database.writer.loss()
            self.fail(loss or f"{name} failed")


Where = Literal["apart", "all", "reading", "none"]
"""Place where accepted deliveries are processed.

apart    in a separate process
all      in the receiver's process
reading  only the reading parts, in the receiver's process
none     nowhere, because the parts are started separately
"""


@asynccontextmanager
async def _behind(service: Service, *, drains: bool) -> AsyncIterator[None]:
    inbox, signals = service.inbox, service.context.signals
    worker = WorkerProcess(
        read=signals.read,
        news=(signals.accepted, signals.evidence_arrived),
        failed=inbox.database.writer.fail,
        alarming=signals.alarming.set,
        drains=drains,
        settings=service.context.settings,
    )
    service.worker_missing = worker.missing
    inbox.writer.may_delete = lambda: worker.ready
    # On PostgreSQL workers are started separately.
    if not inbox.database.shared and len(os.sched_getaffinity(0)) > 1:
        beside = FoldingProcess(
            waiting=lambda: inbox.writer.records if worker.ready else 0,
            leave=worker.leave_folding,
            failed=inbox.database.writer.fail,
            settings=service.context.settings,
        )
        worker.on_news = beside.tell
        service.parts.append(("the task that starts a second process", beside))
    async with worker.running():
        yield


@asynccontextmanager
async def open_service(
    settings: Settings, *, clock: Clock | None = None, work: Where = "all", drains: bool = True
) -> AsyncIterator[Service]:
    """Run a service on its own database until the block ends.

    work    place where the parts run that process accepted deliveries
    drains  whether the separate worker must first read all accepted deliveries
    """
    compile_sources(settings)  # before the database is created and stamped with its environment
    checkout = client_of(settings)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(outgoing_client(timeout_s=LIMIT_S))
        asking = askers(settings, client)
        if checkout is not None:
            await stack.enter_async_context(checkout)
        context = await stack.enter_async_context(
            open_context(settings, purpose="serving", clock=clock)
        )
        parts: list[tuple[str, Part]] = []
        if work == "reading":
            parts = reading_parts(context, asking)
        elif work != "none":
            # A separate process compiles them again, but wrong settings are reported here.
            signer = await open_signer(context)
            made = working_parts(context, client=client, askers=asking, signer=signer)
            parts = made if work == "all" else []
        service = Service(context, parts=parts, checkout=checkout, client=client)
        service.read_elsewhere = work == "none"
        if work == "apart":
            await stack.enter_async_context(_behind(service, drains=drains))
        await stack.enter_async_context(service.running())
        yield service
