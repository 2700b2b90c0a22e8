"""The only wiring: from settings to open stores, compiled sources and a running service.

A service runs three things side by side: the HTTP server, the journal and the fold worker. When
one of the last two ends by itself, or the store is poisoned, readiness turns red, the server
stops, and the process ends: nothing may be acknowledged by half a service.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager

import httpx2
import structlog
import uvicorn
from starlette.applications import Starlette

from app.checkout.client import ClientSettings
from app.clock import Clock, SystemClock
from app.config import Settings, SourceSettings
from app.errors import ConfigurationError, UnreachableError
from app.logs import tell_left_out
from app.open_files import affordable
from app.operations.confirm_events import Confirmer
from app.operations.confirming import Confirming
from app.operations.desk import Desk
from app.operations.prune import retention_for
from app.operations.pruner import Pruner
from app.operations.receive_delivery import Door
from app.operations.rejection_rate import RejectionRate
from app.operations.worker import FoldWorker
from app.outbound.asker import LIMIT_S, Asker
from app.outbound.http import outgoing_client
from app.providers.doctor import Account
from app.providers.profile import load_profile
from app.providers.questions import Questions
from app.providers.sections import Profile
from app.providers.source import Source
from app.store.postgresql import Purpose
from app.store.store import Store, StoreSettings, open_store
from app.web.api import Api
from app.web.application import build_application
from app.web.connection import guarded
from app.web.gate import SWEEP_S, Gate, GateLimits
from app.web.health import Health
from app.web.metrics import Metrics
from app.web.webhooks import Limits, Webhooks

log = structlog.get_logger()

SHUTDOWN_S = 10
"""Seconds that requests in flight have to finish when the service is told to stop."""

MAX_TOLERANCE_S = 3600
"""Seconds that a signature's time may differ from ours, in live. Providers sign each try afresh;
with more, who has seen one delivery can send it again when its event has been forgotten."""

BACKLOG = 2048
"""Connections that may wait to be accepted."""


def store_settings(settings: Settings) -> StoreSettings:
    """The part of the settings that the store needs."""
    return StoreSettings(
        url=settings.database_url,
        environment=settings.environment,
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


def secrets_of(given: SourceSettings) -> list[str] | dict[str, str]:
    """A source's secrets as its profile takes them: by key id where they are given so."""
    if given.keys:
        return {name: key.get_secret_value() for name, key in given.keys.items()}
    return [secret.get_secret_value() for secret in given.secrets]


def accounts(settings: Settings) -> dict[str, Account]:
    """Every configured source with its secrets, for the signature doctor."""
    return {
        name: Account(
            name=name,
            profile=load_profile(given.profile),
            secrets=secrets_of(given),
            address=settings.public_url,
        )
        for name, given in settings.sources.items()
    }


def askers(settings: Settings, client: httpx2.AsyncClient) -> dict[str, Asker]:
    """Whoever asks back the provider of each source whose profile demands it.

    Raises ConfigurationError with every credential that is missing.
    """
    found: dict[str, Asker] = {}
    problems: list[str] = []
    for name, given in settings.sources.items():
        rule = load_profile(given.profile).fetch_back
        if rule is None:
            continue
        credentials = {key: value.get_secret_value() for key, value in given.credentials.items()}
        environment = settings.environment or "sandbox"
        try:
            questions = Questions(name, rule, environment=environment, credentials=credentials)
        except ConfigurationError as error:
            problems += error.problems
        else:
            found[name] = Asker(questions, client)
    if problems:
        raise ConfigurationError(problems)
    return found


def compile_sources(settings: Settings) -> dict[str, Source]:
    """Every configured source. Raises ConfigurationError with the mistakes of all of them."""
    sources, problems = {}, []
    for name, given in settings.sources.items():
        variable = f"TALLYHOOK_SOURCES__{name.upper()}__PROFILE"
        try:
            profile = load_profile(given.profile)
            if settings.environment == "live":
                _refuse_long_tolerance(profile)
            variable = f"TALLYHOOK_SOURCES__{name.upper()}__SECRETS"
            address = settings.public_url
            source = Source(name=name, profile=profile, secrets=secrets_of(given), address=address)
            if source.signs_address and not address:
                variable = "TALLYHOOK_PUBLIC_URL"
                raise ConfigurationError([f"source {name}: its provider signs the address: say it"])
            sources[name] = source
        except ConfigurationError as error:
            problems += [f"{variable}: {problem}" for problem in error.problems]
    if problems:
        raise ConfigurationError(problems)
    return sources


def _refuse_long_tolerance(profile: Profile) -> None:
    rule = profile.timestamp
    if rule is not None and max(rule.past_s, rule.future_s) > MAX_TOLERANCE_S:
        raise ConfigurationError(
            [
                "takes deliveries signed more than an hour before or after they come, so that an "
                f"old one can be played again; write at most {MAX_TOLERANCE_S} in [timestamp]"
            ]
        )


@asynccontextmanager
async def open_desk(settings: Settings, *, purpose: Purpose) -> AsyncIterator[Desk]:
    """A desk on its own store, for a purpose: see `open_store`."""
    async with open_store(store_settings(settings), purpose=purpose) as store:
        yield Desk(store=store, policy=settings.policy(), clock=SystemClock())


async def upgrade_database(settings: Settings) -> tuple[str | None, str]:
    """Run the migrations that are due. Returns the versions before and after."""
    store = Store(store_settings(settings))
    try:
        return await store.upgrade()
    finally:
        await store.close()


class Service:
    """A receiver with its journal and, unless it is left out, its fold worker."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        sources: dict[str, Source],
        clock: Clock,
        with_worker: bool,
        askers: Mapping[str, Asker],
    ) -> None:
        if settings.environment is None:
            raise ConfigurationError(["TALLYHOOK_ENVIRONMENT: say sandbox or live"])
        self.store = store
        desk = Desk(store=store, policy=settings.policy(), clock=clock)
        self.worker = FoldWorker(desk, batch=settings.worker_batch) if with_worker else None
        confirmer = Confirmer(desk=desk, sources=sources, askers=askers)
        self.confirming = Confirming(confirmer) if askers else None
        retention = retention_for(settings.retention_days, sources) if with_worker else None
        self.pruner = None if retention is None else Pruner(desk, retention)
        self._journal_alive = False
        self._broken: list[str] = []
        self._stop = asyncio.Event()
        self.gate = Gate(gate_limits(settings))
        metrics = Metrics(frozenset(sources), self.gate)
        door = Door(
            sources=sources,
            journal=store.journal,
            clock=clock,
            environment=settings.environment,
            rejected_body_bytes=settings.rejected_body_bytes,
            rejection_rate=RejectionRate(
                in_all=settings.rejections_per_minute,
                per_address=settings.rejections_per_minute_per_address,
            ),
        )
        limits = Limits(
            max_body_bytes=settings.max_body_bytes,
            max_header_bytes=settings.max_header_bytes,
            max_bodies_bytes=settings.max_bodies_bytes,
        )
        api = Api(desk, page_max=settings.page_max, longpoll_max_s=settings.longpoll_max_s)
        health = Health(desk, reasons=self.reasons, metrics=metrics)
        self.application: Starlette = build_application(
            webhooks=Webhooks(door, limits=limits, metrics=metrics), api=api, health=health
        )

    def reasons(self) -> list[str]:
        """Why the service is not ready; empty when it is."""
        reasons = list(self._broken)
        if not self._journal_alive:
            reasons.append("the journal is not running")
        if self.worker is not None and not self.worker.alive:
            reasons.append("the fold worker is not running")
        if self.confirming is not None and not self.confirming.alive:
            reasons.append("the task that asks providers back is not running")
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
        self.store.writer.on_poison = lambda: self._break("the store failed")
        journal = asyncio.create_task(self._supervise("the journal", self._run_journal()))
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
            # What asks back stores its answers through the journal, which therefore ends last.
            if self.confirming is not None:
                self.confirming.stop()
                await asyncio.gather(*(task for part, task in tasks if part is self.confirming))
            self.store.journal.close()
            await journal
            for part, task in tasks:
                part.stop()
                await task

    def _parts(self) -> Iterator[tuple[str, FoldWorker | Confirming | Pruner]]:
        if self.worker is not None:
            yield "the fold worker", self.worker
        if self.confirming is not None:
            yield "the task that asks providers back", self.confirming
        if self.pruner is not None:
            yield "the pruner", self.pruner

    async def _look(self) -> None:
        if not self.store.looked:
            await self.store.look()

    async def _run_journal(self) -> None:
        self._journal_alive = True
        try:
            await self.store.journal.run()
        finally:
            self._journal_alive = False

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
    sources = compile_sources(settings)
    async with outgoing_client(timeout_s=LIMIT_S) as client:
        asking = askers(settings, client)
        async with open_store(store_settings(settings), purpose="serving") as store:
            service = Service(
                store,
                settings,
                sources=sources,
                clock=clock or SystemClock(),
                with_worker=with_worker,
                askers=asking,
            )
            async with service.running():
                yield service


class _Server(uvicorn.Server):
    """Uvicorn without its own signal handling, which would end the process before we close."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(settings: Settings, *, host: str, port: int, with_worker: bool = True) -> None:
    """Serve until SIGTERM or SIGINT. Raises UnreachableError when a part of the service failed."""
    async with open_service(settings, with_worker=with_worker) as service:
        server = _Server(_uvicorn(service, settings, host=host, port=port))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, _stop, service, server)
        watcher = asyncio.create_task(_stop_when_broken(service, server))
        announcer = asyncio.create_task(_announce(server, settings))
        guard = asyncio.create_task(_guard(service.gate))
        try:
            await server.serve()
        except SystemExit as failed:  # Uvicorn's way of saying that it could not bind
            raise UnreachableError(_unheard(host, port)) from failed
        finally:
            for task in (watcher, announcer, guard):
                task.cancel()
            await asyncio.gather(watcher, announcer, guard, return_exceptions=True)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
        if service.broken:
            raise UnreachableError("; ".join(service.broken) + "; see the log, then start again")
        if not server.started:
            raise UnreachableError(_unheard(host, port))
    log.info("stopped")
    tell_left_out(at_once=True)


def _unheard(host: str, port: int) -> str:
    return (
        f"cannot listen on {host} port {port}: is the address one of this machine's, "
        "and the port free?"
    )


def checkout_settings(settings: Settings) -> ClientSettings:
    """The payment service to open sessions at. Raises ConfigurationError where none is given."""
    checkout = settings.checkout
    if checkout.base_url is None or checkout.token is None or checkout.source is None:
        raise ConfigurationError(
            ["TALLYHOOK_CHECKOUT__BASE_URL: give the service's address, its token and its source"]
        )
    return ClientSettings(
        base_url=checkout.base_url,
        token=checkout.token.get_secret_value(),
        source=checkout.source,
    )


def _uvicorn(service: Service, settings: Settings, *, host: str, port: int) -> uvicorn.Config:
    return uvicorn.Config(
        service.application,
        host=host,
        port=port,
        http=guarded(service.gate),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.forwarded_allow_ips),
        forwarded_allow_ips=list(settings.forwarded_allow_ips),
        backlog=BACKLOG,
        timeout_keep_alive=settings.idle_deadline_s,
        timeout_graceful_shutdown=SHUTDOWN_S,
    )


def _stop(service: Service, server: uvicorn.Server) -> None:
    """Take no more requests; those that wait for news are answered with what there is."""
    service.store.closing.set()
    server.should_exit = True


async def _guard(gate: Gate) -> None:
    """Once a second: close connections that do not get on, and tell of log lines left out."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(SWEEP_S)
        gate.sweep(loop.time())
        tell_left_out()


async def _stop_when_broken(service: Service, server: uvicorn.Server) -> None:
    await service.stopped()
    _stop(service, server)


async def _announce(server: uvicorn.Server, settings: Settings) -> None:
    # Uvicorn says that it has started in a flag only.
    while not server.started:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    for each in server.servers:
        for socket in each.sockets:
            host, port = socket.getsockname()[:2]
            log.info("serving", host=host, port=port, environment=settings.environment)


async def work(settings: Settings) -> None:
    """Fold due orders, and prune settled ones, until SIGTERM or SIGINT."""
    retention = None
    if settings.retention_days:  # only then are the sources needed
        retention = retention_for(settings.retention_days, compile_sources(settings))
    async with open_desk(settings, purpose="serving") as desk:
        worker = FoldWorker(desk, batch=settings.worker_batch)
        task = asyncio.create_task(worker.run())
        pruner = None if retention is None else Pruner(desk, retention)
        pruning = None if pruner is None else asyncio.create_task(pruner.run())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, worker.stop)
        log.info("working", environment=desk.store.environment)
        await asyncio.gather(task, return_exceptions=True)
        if pruner is not None and pruning is not None:
            pruner.stop()
            await pruning
        if not task.cancelled() and task.exception() is not None:
            raise UnreachableError("the fold worker failed; see the log") from task.exception()
    log.info("stopped")
