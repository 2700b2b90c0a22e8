"""The only wiring: from settings to open stores, compiled sources and a running service.

A service runs three things side by side: the HTTP server, the journal and the fold worker. When
one of the last two ends by itself, or the store is poisoned, readiness turns red, the server
stops, and the process ends: nothing may be acknowledged by half a service.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import httpx2
import structlog
from starlette.applications import Starlette

from app.bootstrap_evidence import sealing, signer_of
from app.bootstrap_keys import erasure_journal_path, known_phone_key, phone_key
from app.bootstrap_sources import askers, checkout_client, retention_of, shop_of, storing_sources
from app.checkout.client import CheckoutClient
from app.clock import Clock, SystemClock
from app.config import Settings
from app.errors import ConfigurationError, UnreachableError
from app.open_files import affordable
from app.operations.checkout.ask_again import asking_again
from app.operations.deliveries.confirm_events import Confirmer
from app.operations.deliveries.confirming import confirming
from app.operations.deliveries.read_inbox import Reader, ReaderContext
from app.operations.deliveries.receive_delivery import Door
from app.operations.deliveries.rejection_rate import RejectionRate
from app.operations.desk import Desk
from app.operations.evidence.seal import Signer
from app.operations.folding.order_records import in_force_since, start_requiring
from app.operations.folding.preview import Preview, previewed
from app.operations.folding.worker import FoldWorker
from app.operations.keeping.pruner import Pruner
from app.operations.keeping.replay_erasures import begin_journal
from app.operations.orders.notify_shop import Notifier, Shop, destination_of, notify_due
from app.operations.rounds import IDLE_S, Rounds, SideBySide, rest_when_idle
from app.operations.watching.refused_ages import RefusedAges
from app.operations.watching.watchdog import REST_S, Watchdog, Watched
from app.outbound.asker import LIMIT_S, Asker
from app.outbound.http import outgoing_client
from app.providers.source import Source
from app.store.database.postgresql import Purpose
from app.store.folding.folded_by import required_since
from app.store.store import Store, StoreSettings, open_store
from app.web.api import Api
from app.web.application import build_application
from app.web.checkouts import Checkouts
from app.web.gate import Gate, GateLimits
from app.web.health import Health
from app.web.metrics import Metrics
from app.web.webhooks import Limits, Webhooks
from reconcile.policy import Policy

log = structlog.get_logger()


def store_settings(settings: Settings) -> StoreSettings:
    """The part of the settings that the store needs."""
    return StoreSettings(
        url=settings.database_url,
        environment=settings.environment,
        notifies=settings.shop.url is not None,
        journal_queue=settings.journal_queue,
        journal_batch=settings.journal_batch,
        rejections_max_count=settings.rejections_max_count,
        rejections_max_bytes=settings.rejections_max_bytes,
        disk_low_water_mib=settings.disk_low_water_mb,
    )


def gate_limits(settings: Settings) -> GateLimits:
    """The part of the settings that connections are held to."""
    return GateLimits(
        receive_deadline_s=settings.receive_deadline_s,
        send_deadline_s=settings.send_deadline_s,
        connections=affordable(settings.max_connections),
        per_address=settings.max_connections_per_address,
        # The request line and the separators come on top of what the setting counts.
        max_head_bytes=2 * settings.max_header_bytes,
        proxies=settings.forwarded_allow_ips,
    )


def request_limits(settings: Settings) -> Limits:
    """The part of the settings that deliveries are held to."""
    return Limits(
        max_body_bytes=settings.max_body_bytes,
        max_header_bytes=settings.max_header_bytes,
        max_bodies_bytes=settings.max_bodies_bytes,
    )


def destination(settings: Settings) -> str | None:
    """What the health of the shop's address is kept under; None where no shop is notified."""
    url = settings.shop.url
    return None if url is None else destination_of(url)


def notifying(desk: Desk, shop: Shop, client: httpx2.AsyncClient) -> Rounds:
    """The background task that tells the shop."""
    notifier = Notifier(desk=desk, shop=shop, client=client)
    return Rounds(
        lambda: notify_due(notifier), component="notifications", rest=rest_when_idle(IDLE_S)
    )


@asynccontextmanager
async def open_desk(settings: Settings, *, purpose: Purpose) -> AsyncIterator[Desk]:
    """A desk on its own store, for a purpose: see `open_store`."""
    async with open_store(store_settings(settings), purpose=purpose) as store:
        key = known_phone_key(settings) if purpose == "reading" else phone_key(settings)
        clock = SystemClock()
        policy = await policy_of(store, settings, clock=clock, serving=purpose == "serving")
        desk = Desk(
            store=store,
            policy=policy,
            clock=clock,
            phone_key=key,
            erasure_journal=erasure_journal_path(settings),
        )
        if purpose in ("serving", "writing"):  # to a database that was put back, `restored` sees
            await _begin_journal(desk)
        yield desk


async def policy_of(store: Store, settings: Settings, *, clock: Clock, serving: bool) -> Policy:
    """By what orders are judged: the settings, and since when the database has one of them."""
    required = settings.requires_order_record
    if serving:
        since = await start_requiring(store, required=required, clock=clock)
    else:
        since = await in_force_since(store, required=required)
    return settings.policy(required_since=since)


async def _begin_journal(desk: Desk) -> None:
    """The journal of erasures is made with the database. Where it cannot be, money is received all
    the same: whoever wants to erase is told."""
    try:
        await begin_journal(desk)
    except (ConfigurationError, UnreachableError) as error:
        log.warning("the journal of erasures could not be made", exc_info=error)


async def upgrade_database(settings: Settings) -> tuple[str | None, str]:
    """Run the migrations that are due. Returns the versions before and after."""
    store = Store(store_settings(settings))
    try:
        return await store.upgrade()
    finally:
        await store.close()


async def preview_upgrade(settings: Settings, *, progress: Callable[[int, int], None]) -> Preview:
    """What `upgrade_database` and the start after it would do. Nothing is written."""
    store = Store(store_settings(settings))
    try:
        async with store.previewing() as (connection, version):
            required = settings.requires_order_record
            since = await required_since(connection) if required else None
            policy = settings.policy(required_since=since)
            return await previewed(connection, version=version, policy=policy, progress=progress)
    finally:
        await store.close()


def _door(
    store: Store,
    settings: Settings,
    sources: dict[str, Source],
    clock: Clock,
    ages: RefusedAges,
) -> Door:
    assert settings.environment is not None
    return Door(
        sources=sources,
        journal=store.journal,
        clock=clock,
        environment=settings.environment,
        rejected_body_bytes=settings.rejected_body_bytes,
        rejection_rate=RejectionRate(
            in_all=settings.rejections_per_minute,
            per_address=settings.rejections_per_minute_per_address,
        ),
        unsigned_rate=RejectionRate(
            in_all=settings.unsigned_per_minute,
            per_address=settings.unsigned_per_minute_per_address,
        ),
        ages=ages,
    )


def _watchdog(desk: Desk, settings: Settings, ages: RefusedAges) -> tuple[Watchdog, Rounds]:
    watchdog = Watchdog(Watched(desk, ages, destination(settings)))
    looking = Rounds(watchdog.look, component="the watchdog", rest=rest_when_idle(REST_S))
    return watchdog, looking


class Service:
    """A receiver with its journal and, unless it is left out, its fold worker."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        sources: dict[str, Source],
        clock: Clock,
        policy: Policy,
        with_worker: bool,
        askers: Mapping[str, Asker],
        checkout: CheckoutClient | None = None,
        client: httpx2.AsyncClient | None = None,
        signer: Signer | None = None,
    ) -> None:
        """`client` is what the shop is told with, `signer` who signs what is sealed; where one is
        None, another process does that, or nobody."""
        if settings.environment is None:
            raise ConfigurationError(["TALLYHOOK_ENVIRONMENT: say sandbox or live"])
        self.store = store
        self.sources = sources
        self.desk = desk = Desk(
            store=store,
            policy=policy,
            clock=clock,
            phone_key=phone_key(settings),
            erasure_journal=erasure_journal_path(settings),
        )
        self.worker = FoldWorker(desk, batch=settings.worker_batch) if with_worker else None
        confirmer = Confirmer(desk=desk, sources=sources, askers=askers)
        self.confirming = confirming(confirmer) if askers else None
        self.checkout = checkout
        self.asking_again = None if checkout is None else asking_again(desk, checkout)
        shop = shop_of(settings) if with_worker else None
        self.notifying = notifying(desk, shop, client) if shop and client else None
        self.sealing = None if signer is None else sealing(desk, signer)
        ages = RefusedAges()
        self.watchdog, self.watching = _watchdog(desk, settings, ages)
        retention = retention_of(settings, sources) if with_worker else None
        self.pruner = None if retention is None else Pruner(desk, retention)
        self._journal_alive = False
        self._broken: list[str] = []
        self._stop = asyncio.Event()
        self.gate = Gate(gate_limits(settings))
        metrics = Metrics(frozenset(self.sources), self.gate)
        door = _door(self.store, settings, self.sources, clock, ages)
        self.webhooks = Webhooks(door, limits=request_limits(settings), metrics=metrics)
        reads = ReaderContext(desk, sources, settings.environment, count=metrics.count_read)
        self.reader = Reader(reads)
        self.application = self._application(settings, metrics)

    def _application(self, settings: Settings, metrics: Metrics) -> Starlette:
        api = Api(
            self.desk,
            sources=self.sources,
            page_max=settings.page_max,
            longpoll_max_s=settings.longpoll_max_s,
            alarms=lambda: self.watchdog.sentences,
        )
        return build_application(
            webhooks=self.webhooks,
            api=api,
            checkouts=Checkouts(self.desk, self.checkout),
            health=Health(
                self.desk,
                reasons=self.reasons,
                metrics=metrics,
                watchdog=self.watchdog,
                inbox_red_s=settings.inbox_red_s,
            ),
        )

    def reasons(self) -> list[str]:
        """Why the service is not ready; empty when it is."""
        reasons = list(self._broken)
        if not self._journal_alive:
            reasons.append("the journal is not running")
        if not self.reader.alive:
            reasons.append("the reader of the inbox is not running")
        if self.worker is not None and not self.worker.alive:
            reasons.append("the fold worker is not running")
        if self.confirming is not None and not self.confirming.alive:
            reasons.append("the task that asks providers back is not running")
        if self.asking_again is not None and not self.asking_again.alive:
            reasons.append("the task that asks for unknown sessions again is not running")
        if self.checkout is not None and self.checkout.denied is not None:
            reasons.append(
                f"the payment service answers {self.checkout.denied}: check the checkout token"
            )
        if self.notifying is not None and not self.notifying.alive:
            reasons.append("the task that notifies the shop is not running")
        if self.sealing is not None and not self.sealing.alive:
            reasons.append("the task that seals the evidence is not running")
        return reasons

    @property
    def broken(self) -> list[str]:
        """What failed, if anything did; the process must then end with an error."""
        return self._broken

    def _break(self, reason: str) -> None:
        self._broken.append(reason)
        self._stop.set()

    async def stopped(self) -> None:
        """Returns when a part of the service has failed."""
        await self._stop.wait()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Journal and background tasks at work; on leaving, all that waits has been written."""
        self.store.writer.on_poison = self._break
        journal = asyncio.create_task(self._supervise("the journal", self._run_journal()))
        reader = asyncio.create_task(self._supervise("the reader of the inbox", self.reader.run()))
        tasks = []
        for name, part in self._parts():
            tasks.append((part, asyncio.create_task(self._supervise(name, part.run()))))
        looking = asyncio.create_task(self._supervise("the database file", self._look()))
        await asyncio.sleep(0)
        try:
            yield
        finally:
            self.store.closing.set()
            await looking
            self.store.journal.close()
            await journal
            self.reader.stop()  # what was accepted is read, if it can be
            await reader
            for part, task in tasks:
                part.stop()
                await task

    def _parts(
        self,
    ) -> Iterator[tuple[str, FoldWorker | SideBySide | Pruner | Rounds]]:
        if self.worker is not None:
            yield "the fold worker", self.worker
        if self.confirming is not None:
            yield "the task that asks providers back", self.confirming
        if self.asking_again is not None:
            yield "the task that asks for unknown sessions again", self.asking_again
        if self.notifying is not None:
            yield "the task that notifies the shop", self.notifying
        if self.pruner is not None:
            yield "the pruner", self.pruner
        if self.sealing is not None:
            yield "the task that seals the evidence", self.sealing
        yield "the watchdog", self.watching

    async def _look(self) -> None:
        if not self.store.looked:
            await self.store.look()

    async def _run_journal(self) -> None:
        self._journal_alive = True
        try:
            await self.store.journal.run()
        finally:
            self._journal_alive = False
            self.store.journal.abandon()

    async def _supervise(self, name: str, work: object) -> None:
        try:
            await work  # type: ignore[misc]
        except asyncio.CancelledError:
            raise
        except Exception as error:
            log.error("a part of the service failed", component=name, exc_info=error)
            self._break(f"{name} failed")


@asynccontextmanager
async def open_service(
    settings: Settings, *, clock: Clock | None = None, with_worker: bool = True
) -> AsyncIterator[Service]:
    """A service at work on its own store, without a socket."""
    # Before the store: a database is stamped with its environment when it is made.
    sources = storing_sources(settings)
    checkout = checkout_client(settings)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(outgoing_client(timeout_s=LIMIT_S))
        asking = askers(settings, client)
        if checkout is not None:
            await stack.enter_async_context(checkout)
        store = await stack.enter_async_context(
            open_store(store_settings(settings), purpose="serving")
        )
        clock = clock or SystemClock()
        policy = await policy_of(store, settings, clock=clock, serving=True)
        desk = Desk(store=store, policy=policy, clock=clock)
        service = Service(
            store,
            settings,
            sources=sources,
            clock=clock,
            policy=policy,
            with_worker=with_worker,
            askers=asking,
            checkout=checkout,
            client=client,
            signer=await signer_of(desk, settings) if with_worker else None,
        )
        await _begin_journal(service.desk)
        await stack.enter_async_context(service.running())
        yield service
