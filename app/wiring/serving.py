"""Run a service on a socket, a worker without a socket, and the console, from start to end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import replace
from socket import socket
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import uvicorn

from app.access.sessions import somebody_can_sign_in
from app.config.settings import Settings
from app.context.configured import keep_profiles
from app.context.context import AppContext, Elsewhere
from app.core import errors
from app.core.child_processes import console_beside, leave_signals_to_parent
from app.core.hosts import is_loopback
from app.core.ids import new_token
from app.core.jobs import Jobs
from app.core.logs import log, tell_left_out
from app.core.process import ending_signals
from app.database.engine import database_place, is_sqlite
from app.golive.golive import unfinished
from app.monitoring.service_note import note_service
from app.receiving.connection_limits import SWEEP_S, ConnectionLimits
from app.receiving.guard import guarded
from app.wiring.opening import no_database_yet, open_context
from app.wiring.service import (
    Service,
    gate_limits,
    open_service,
)
from app.wiring.work import ElsewhereOf, approve, proposals_of
from app.wiring.worker import cancelled, watching_server

if TYPE_CHECKING:
    from app.console.live import Live
    from app.console.view import Console

SHUTDOWN_S = 10

BACKLOG = 2048
"""Maximum number of connections that wait to be accepted."""


class SignallessServer(uvicorn.Server):
    """Uvicorn server without Uvicorn's signal handling.

    That handling would end the process before the service is closed.
    """

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
    console: tuple[str, int] | None = None,
) -> None:
    """Run the service until a signal ends it. Raises UnreachableError if a part failed.

    listener     socket that is already bound to host and port, if any
    console      host and port of a console to start, too
    """
    if not with_worker and is_sqlite(settings.database_url):
        raise errors.UsageError(
            "--no-worker is for PostgreSQL; on SQLite `serve` is the worker too"
        )
    keep_profiles(settings)
    new = no_database_yet(settings)
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(
            # Behind a socket that stays open, the next process reads the rest.
            open_service(settings, work="apart" if with_worker else "none", drains=listener is None)
        )
        await _say_what_it_is(service, new=database_place(settings.database_url) if new else None)
        server = SignallessServer(_uvicorn(service, settings, host=host, port=port))
        loop = asyncio.get_running_loop()
        for number in ending_signals():
            loop.add_signal_handler(number, _stop, service, server)
        beside = [
            asyncio.create_task(_stop_when_broken(service, server)),
            asyncio.create_task(_announce(service, server)),
            asyncio.create_task(sweep_connections(service.connection_limits)),
        ]
        if console is not None:
            await stack.enter_async_context(
                console_beside(host=console[0], port=console[1], settings=settings)
            )
        try:
            await server.serve(sockets=None if listener is None else [listener])
        except SystemExit as failed:  # Uvicorn raises this if it could not bind
            raise errors.PortTaken(host, port) from failed
        finally:
            await cancelled(*beside)
            for number in ending_signals():
                loop.remove_signal_handler(number)
        if service.broken:
            raise errors.UnreachableError(
                "; ".join(service.broken) + "; see the log, then start again"
            )
        if not server.started:
            raise errors.PortTaken(host, port)
    log.info("stopped")
    tell_left_out(at_once=True)


async def _say_what_it_is(service: Service, *, new: str | None) -> None:
    if new is not None:
        log.info("there was no database, so a new one is created", database=new)
    if await unfinished(service.context) is not None:
        log.error("NOT READY FOR REAL MONEY: run `tallyhook golive` and complete its checklist")
    log.info("this instance serves one merchant: an order reference names one order only")


def _uvicorn(service: Service, settings: Settings, *, host: str, port: int) -> uvicorn.Config:
    proxied = bool(settings.forwarded_allow_ips)
    return uvicorn.Config(
        service.application,
        host=host,
        port=port,
        http=guarded(service.connection_limits),
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
    service.context.signals.closing.set()
    server.should_exit = True


async def sweep_connections(connection_limits: ConnectionLimits) -> None:
    """Close stalled connections and report omitted log lines, once a second."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(SWEEP_S)
        connection_limits.sweep(loop.time())
        tell_left_out()


async def _stop_when_broken(service: Service, server: uvicorn.Server) -> None:
    await service.stopped()
    _stop(service, server)


NOTE_AGAIN_S: Final = 5.0
"""Number of seconds until the service stores its note again."""


async def _announce(service: Service, server: uvicorn.Server) -> None:
    # Uvicorn announces its start only by a flag.
    while not server.started:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    settings, place = service.context.settings, ""
    for each in server.servers:
        for listens in each.sockets:
            host, port = listens.getsockname()[:2]
            database = database_place(settings.database_url)
            environment = settings.environment
            log.info("serving", host=host, port=port, environment=environment, database=database)
            near = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
            place = f"http://{f'[{near}]' if ':' in near else near}:{port}"
    while True:
        with suppress(errors.StoreUnavailable):
            return await note_service(service.context, address=place, name=service.name)
        await asyncio.sleep(NOTE_AGAIN_S)


# --- the console ----------------------------------------------------------------------------------

CONSOLE_SHUTDOWN_S: Final = 3

UPLOAD_S: Final = 300.0
"""Maximum number of seconds for receiving a request."""


def check_reachable(settings: Settings, *, host: str) -> None:
    """Raise ConfigurationError if others can reach the console without a public https address."""
    if not is_loopback(host) and not settings.console.public_url:
        raise errors.ConfigurationError(
            [
                "TALLYHOOK_CONSOLE__PUBLIC_URL: write the https address at which people open the "
                f"console, because other machines can reach it on {host}"
            ]
        )


def console_of(context: AppContext, *, host: str, port: int, elsewhere: Elsewhere) -> Console:
    """Build the console that listens at this host and port."""
    # A receiver and a worker would load 70 modules more, an eighth of their start.
    from app.access.company_account import BACK, CompanyProvider
    from app.console.live import Live
    from app.console.uploads import Uploads
    from app.console.view import Console

    public = context.settings.console.public_url
    own = f"127.0.0.1:{port}"
    origin = public or f"http://{own}"
    hosts = {own, f"localhost:{port}", f"[::1]:{port}"}
    work = elsewhere(purpose="writing", at_once=AT_ONCE, died=UNCHANGED)
    makes = elsewhere(
        purpose="writing",
        at_once=AT_ONCE,
        died=UNCHANGED,
        most_s=MADE_MOST_S,
        too_long=f"it was not finished within {MADE_MOST_S:.0f} s: use the command instead",
    )
    reads_rules = elsewhere(
        purpose="writing", at_once=AT_ONCE, died=UNCHANGED, most_s=RULES_MOST_S, too_long=TOO_LONG
    )
    # An erasure stores its approval before it deletes the first row.
    approving = elsewhere(purpose="writing", at_once=AT_ONCE, died=BEGUN)
    return Console(
        context=context,
        origin=origin,
        hosts=frozenset({urlsplit(public).netloc} if public else hosts),
        loopback=not public and is_loopback(host),
        cookie="__Host-tallyhook" if public else f"tallyhook-{port}",
        mark_key=new_token(""),
        proposals=proposals_of(context),
        work=work,
        makes=makes,
        reads_rules=reads_rules,
        approve=lambda *words: approving(approve, *words),
        jobs=Jobs(context.clock),
        uploads=Uploads(context.clock),
        live=Live(context),
        company=None
        if context.settings.oidc.issuer is None
        else CompanyProvider(context.settings.oidc, back=origin + BACK, clock=context.clock),
    )


AT_ONCE: Final = 2
"""Maximum number of processes for one kind of job."""

MADE_MOST_S: Final = 180.0
"""Maximum number of seconds for making a document."""

RULES_MOST_S: Final = 1_800.0

UNCHANGED: Final = (
    "its process ended unexpectedly and nothing was changed: check whether memory ran out, and "
    "start again"
)
TOO_LONG: Final = (
    f"it took more than {RULES_MOST_S / 60:.0f} minutes and was stopped; nothing was changed: "
    "send fewer and shorter rules"
)
BEGUN: Final = (
    "its process ended unexpectedly. The work may have been approved and started: before you "
    "start again, check the proposal, Personal data and whether memory ran out"
)


async def _check_somebody_can_sign_in(context: AppContext, *, host: str) -> None:
    company = context.settings.oidc.issuer is not None
    if not (is_loopback(host) or company or await somebody_can_sign_in(context)):
        raise errors.ConfigurationError(
            [
                "nobody can sign in to the console yet: run `tallyhook operators invite NAME "
                "--role admin`, and open the link at the console on 127.0.0.1 first"
            ]
        )


async def serve_console(
    settings: Settings,
    *,
    host: str,
    port: int,
    listener: socket | None = None,
    parent: socket | None = None,
) -> None:
    """Run the console until told to end, or until the parent's socket is closed.

    Raises ConfigurationError if nobody can sign in, and PortTaken for a used port.
    """
    from app.console.application import build_console  # see `console_of`

    check_reachable(settings, host=host)
    keep_profiles(settings)
    async with open_context(settings, purpose="writing") as context:
        await _check_somebody_can_sign_in(context, host=host)
        bound = listener or _bound(host, port)
        console = console_of(
            context,
            host=host,
            port=bound.getsockname()[1],
            elsewhere=ElsewhereOf(settings),
        )
        limits = ConnectionLimits(replace(gate_limits(settings), receive_deadline_s=UPLOAD_S))
        config = uvicorn.Config(
            build_console(console),
            http=guarded(limits),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=bool(settings.forwarded_allow_ips),
            forwarded_allow_ips=list(settings.forwarded_allow_ips),
            timeout_graceful_shutdown=CONSOLE_SHUTDOWN_S,
        )
        server = SignallessServer(config)
        end = _end_on_demand(server, parent, console.live)
        beside = [
            asyncio.create_task(_end_when_replaced(context, end)),
            asyncio.create_task(sweep_connections(limits)),
            *(asyncio.create_task(part.run()) for _, part in watching_server(context)),
        ]
        log.info("the console is open", host=host, port=bound.getsockname()[1])
        await server.serve(sockets=[bound])
        for task in beside:
            task.cancel()
        if context.database.poison is not None:
            raise errors.UnreachableError(context.database.poison)


LOOK_S: Final = 2.0
"""Number of seconds between checks for a replaced database file."""


async def _end_when_replaced(context: AppContext, end: Callable[[], None]) -> None:
    while context.database.poison is None:
        await asyncio.sleep(LOOK_S)
        with suppress(errors.StorePoisoned):
            context.database.writer.check_place()
    end()


def _end_on_demand(server: uvicorn.Server, parent: socket | None, live: Live) -> Callable[[], None]:
    loop, ending = asyncio.get_running_loop(), list[asyncio.Task[None]]()

    def end() -> None:
        server.should_exit = True
        ending.append(loop.create_task(live.close()))  # an event loop keeps no reference to tasks
        if parent is not None:
            loop.remove_reader(parent)

    if parent is not None:
        leave_signals_to_parent()
        loop.add_reader(parent, end)
        return end
    for number in ending_signals():
        loop.add_signal_handler(number, end)
    return end


def _bound(host: str, port: int) -> socket:
    try:
        return uvicorn.Config(lambda: None, host=host, port=port, log_config=None).bind_socket()
    except SystemExit as failed:  # Uvicorn raises this if it could not bind
        raise errors.PortTaken(host, port) from failed
