"""Wiring: the console on a socket of its own."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from socket import socket
from typing import Final
from urllib.parse import urlsplit

import structlog
import uvicorn

from app.access.proposal import Proposal
from app.access.sessions import somebody_can_sign_in
from app.bootstrap import watched
from app.bootstrap_bundles import built_bundle, taken_letter
from app.bootstrap_console_work import work_elsewhere, work_here
from app.bootstrap_context import open_context
from app.bootstrap_evidence import key_path, merchant_of
from app.bootstrap_proposals import erasing_kind, proposals_of
from app.bootstrap_serving import SignallessServer
from app.bootstrap_sources import accounts, compile_sources
from app.config.settings import Settings
from app.console.application import build_console
from app.console.jobs import Work
from app.console.uploads import Uploads
from app.console.view import Console
from app.core.errors import ConfigurationError, PortTaken
from app.core.hosts import is_loopback
from app.core.ids import new_token
from app.core.jobs import Jobs
from app.core.schedule import entries_of
from app.core.zones import zone_named
from app.evidence.dispute_case import Case, CaseRequest, dispute_case
from app.evidence.dispute_letter import LetterForm
from app.evidence.seal import rotate_key
from app.privacy.erase import ErasureRequest, erase, propose_erasure
from app.privacy.erase_finding import Erasure
from app.privacy.erase_rules import ErasureRules
from app.providers.source import Source
from app.receiving.context import AppContext
from app.worker_process import leave_signals_to_parent

log = structlog.get_logger()

SHUTDOWN_S: Final = 3
"""Seconds that requests under way have to finish when the console is told to stop."""


def check_reachable(settings: Settings, *, host: str) -> None:
    """Raises ConfigurationError for a console that others reach without a public https address."""
    if not is_loopback(host) and not settings.console.public_url:
        raise ConfigurationError(
            [
                "TALLYHOOK_CONSOLE__PUBLIC_URL: say the https address at which people open the "
                f"console; on {host} others than this machine reach it"
            ]
        )


def console_of(
    context: AppContext, settings: Settings, *, host: str, port: int, work: Work | None = None
) -> Console:
    """A console for one address. work: what its jobs do; None: they are done in this process."""
    assert settings.environment is not None
    public = settings.console.public_url
    own = f"127.0.0.1:{port}"
    hosts = {own, f"localhost:{port}", f"[::1]:{port}"}
    origin = public or f"http://{own}"

    sources = compile_sources(settings)

    return Console(
        context=context,
        environment=settings.environment,
        zone=zone_named(settings.timezone or "UTC"),
        origin=origin,
        hosts=frozenset({urlsplit(public).netloc} if public else hosts),
        loopback=not public and is_loopback(host),
        cookie="__Host-tallyhook" if public else f"tallyhook-{port}",
        sources=sources,
        phone_country=settings.phone_country,
        accounts=accounts(settings),
        watched=watched(context, settings),
        closing_margin_days=settings.closing_margin_days,
        receiver=settings.public_url,
        mark_key=new_token(""),
        proposals=proposals_of(context, settings, sources=sources),
        build_evidence=partial(built_bundle, context, settings),
        case_of=casing(context, settings, sources),
        write_letter=writing_letters(context, settings),
        would_erase=looking(context, settings, sources),
        propose_erasing=proposing(context, settings, sources),
        rotate_key=rotating(context, settings),
        mappings=settings.console.mappings,
        work=work or work_here(context, settings),
        jobs=Jobs(context.clock),
        uploads=Uploads(context.clock),
        schedule=entries_of(settings.schedule),
    )


def casing(
    context: AppContext, settings: Settings, sources: Mapping[str, Source]
) -> Callable[[CaseRequest], Awaitable[Case]]:
    """What gathers an order's case."""

    async def gather(asked: CaseRequest) -> Case:
        return await dispute_case(context, asked, sources=sources, merchant=merchant_of(settings))

    return gather


def writing_letters(
    context: AppContext, settings: Settings
) -> Callable[[CaseRequest, LetterForm], Awaitable[bytes]]:
    """What writes an order's letter, as the command does."""

    async def write(asked: CaseRequest, form: LetterForm) -> bytes:
        _, content = await taken_letter(context, settings, asked, form)
        return content

    return write


def rotating(context: AppContext, settings: Settings) -> Callable[[str], Awaitable[str]]:
    """What begins a new evidence key, as the command does, and returns its fingerprint."""

    async def rotate(by: str) -> str:
        return (await rotate_key(context, key_path(settings), by=by)).public.fingerprint

    return rotate


def looking(
    context: AppContext, settings: Settings, sources: Mapping[str, Source]
) -> Callable[[ErasureRequest], Awaitable[Erasure]]:
    """What says what would go, as the command does: where digests are deleted by themselves,
    everything is looked through."""
    everywhere = bool(settings.retention_days or settings.retention_phones_days)

    async def look(asked: ErasureRequest) -> Erasure:
        return await erase(
            context,
            replace(asked, everywhere=everywhere),
            sources=sources,
            rules=ErasureRules.of_days(settings.retention_minimum_days),
            dry_run=True,
            progress=lambda _: None,
        )

    return look


def proposing(
    context: AppContext, settings: Settings, sources: Mapping[str, Source]
) -> Callable[[ErasureRequest], Awaitable[Proposal]]:
    """What proposes an erasure: whoever is signed in has proved who they are, and none of them
    erases alone."""

    async def propose(asked: ErasureRequest) -> Proposal:
        proposal = await propose_erasure(
            context,
            erasing_kind(context, settings, sources=sources),
            asked,
            sources=sources,
            rules=ErasureRules.of_days(settings.retention_minimum_days),
            progress=lambda _: None,
        )
        assert proposal is not None
        return proposal

    return propose


async def serve_console(
    settings: Settings,
    *,
    host: str,
    port: int,
    listener: socket | None = None,
    parent: socket | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; where there is a parent, until its socket is closed.

    Raises ConfigurationError for an address that others reach and nobody can sign in to, PortTaken
    where it cannot listen.
    """
    check_reachable(settings, host=host)
    async with open_context(settings, purpose="writing") as context:
        if not is_loopback(host) and not await somebody_can_sign_in(context):
            raise ConfigurationError(
                [
                    "nobody can sign in to the console yet: `tallyhook operators invite NAME "
                    "--role admin`, and open the link at the console on 127.0.0.1 first"
                ]
            )
        bound = listener or _bound(host, port)
        console = console_of(
            context,
            settings,
            host=host,
            port=bound.getsockname()[1],
            work=work_elsewhere(settings),
        )
        config = uvicorn.Config(
            build_console(console),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=bool(settings.forwarded_allow_ips),
            forwarded_allow_ips=list(settings.forwarded_allow_ips),
            timeout_graceful_shutdown=SHUTDOWN_S,
        )
        server = SignallessServer(config)
        _end_when_told(server, parent)
        log.info("the console is open", host=host, port=bound.getsockname()[1])
        await server.serve(sockets=[bound])


def _end_when_told(server: uvicorn.Server, parent: socket | None) -> None:
    loop = asyncio.get_running_loop()

    def end() -> None:
        server.should_exit = True
        if parent is not None:
            loop.remove_reader(parent)

    if parent is not None:
        leave_signals_to_parent()
        loop.add_reader(parent, end)
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)


def _bound(host: str, port: int) -> socket:
    try:
        return uvicorn.Config(lambda: None, host=host, port=port, log_config=None).bind_socket()
    except SystemExit as failed:  # Uvicorn's way of saying that it could not bind
        raise PortTaken(host, port) from failed
