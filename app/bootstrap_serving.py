"""Wiring: a service on a socket, and a worker without one, from their start to their end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from socket import socket

import structlog
import uvicorn

from app.bootstrap import Service, notifying, open_desk, open_service
from app.bootstrap_evidence import sealing, signer_of
from app.bootstrap_sources import compile_sources, keeps_everything, retention_of, shop_of
from app.config import Settings
from app.errors import PortTaken, UnreachableError
from app.logs import tell_left_out
from app.operations.folding.worker import FoldWorker
from app.operations.going_live.golive import unfinished
from app.operations.keeping.pruner import Pruner
from app.operations.orders.notify_shop import LIMIT_S
from app.operations.rounds import Rounds
from app.outbound.http import outgoing_client
from app.web.connection import guarded
from app.web.gate import SWEEP_S, Gate

log = structlog.get_logger()

SHUTDOWN_S = 10
"""Seconds that requests in flight have to finish when the service is told to stop."""

BACKLOG = 2048
"""Connections that may wait to be accepted."""


class _Server(uvicorn.Server):
    """Uvicorn without its own signal handling, which would end the process before we close."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(
    settings: Settings,
    *,
    host: str,
    port: int,
    with_worker: bool = True,
    listener: socket | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT. Raises UnreachableError when a part of the service failed.

    listener  a socket that is bound to host and port already; None: one is made
    """
    async with open_service(settings, with_worker=with_worker) as service:
        await _warn_unfinished(service)
        log.info("this instance serves one merchant: one order reference is one order")
        server = _Server(_uvicorn(service, settings, host=host, port=port))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, _stop, service, server)
        watcher = asyncio.create_task(_stop_when_broken(service, server))
        announcer = asyncio.create_task(_announce(server, settings))
        guard = asyncio.create_task(_guard(service.gate))
        try:
            await server.serve(sockets=None if listener is None else [listener])
        except SystemExit as failed:  # Uvicorn's way of saying that it could not bind
            raise PortTaken(host, port) from failed
        finally:
            for task in (watcher, announcer, guard):
                task.cancel()
            await asyncio.gather(watcher, announcer, guard, return_exceptions=True)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
        if service.broken:
            raise UnreachableError("; ".join(service.broken) + "; see the log, then start again")
        if not server.started:
            raise PortTaken(host, port)
    log.info("stopped")
    tell_left_out(at_once=True)


async def _warn_unfinished(service: Service) -> None:
    if await unfinished(service.desk) is not None:
        log.error("NOT READY FOR REAL MONEY: run `tallyhook golive` and complete its checklist")


def _uvicorn(service: Service, settings: Settings, *, host: str, port: int) -> uvicorn.Config:
    proxied = bool(settings.forwarded_allow_ips)
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
        proxy_headers=proxied,
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
        for listens in each.sockets:
            host, port = listens.getsockname()[:2]
            log.info("serving", host=host, port=port, environment=settings.environment)


async def work(settings: Settings) -> None:
    """Fold due orders, seal, notify the shop, and prune settled orders, until SIGTERM or SIGINT."""
    retention = None
    if not keeps_everything(settings):  # only then are the sources needed
        retention = retention_of(settings, compile_sources(settings))
    shop = shop_of(settings)
    async with (
        outgoing_client(timeout_s=LIMIT_S) as client,
        open_desk(settings, purpose="serving") as desk,
    ):
        parts: list[FoldWorker | Rounds | Pruner] = [FoldWorker(desk, batch=settings.worker_batch)]
        parts += [sealing(desk, await signer_of(desk, settings))]
        parts += [] if shop is None else [notifying(desk, shop, client)]
        parts += [] if retention is None else [Pruner(desk, retention)]
        await _until_told(parts, environment=desk.store.environment)
    log.info("stopped")


async def _until_told(
    parts: Sequence[FoldWorker | Rounds | Pruner], *, environment: str | None
) -> None:
    """Run all until a signal; where one of them fails, end the others and say so."""

    def stop() -> None:
        for part in parts:
            part.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    log.info("working", environment=environment)
    tasks = [asyncio.create_task(part.run()) for part in parts]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    stop()
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(ended, BaseException):
            raise UnreachableError("a part of the worker failed; see the log") from ended
