"""Wiring: the console on a socket of its own, and what its jobs do, in this process or in one of
their own.

A job's process is killed where the console ends before it (`bootstrap_elsewhere`): a run, an import
or a closing that is killed has changed nothing, as when its command is. An approval that is killed
may have been kept: an erasure is approved before its first row goes, and what is left of it is
carried out by the next erasure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from socket import socket
from typing import Any, Final
from urllib.parse import urlsplit

import structlog
import uvicorn

from app.access.proposal import Proposal
from app.access.sessions import somebody_can_sign_in
from app.bootstrap import gate_limits, watched
from app.bootstrap_context import open_context
from app.bootstrap_elsewhere import (
    MOST_S,
    Elsewhere,
    Use,
    built_bundle,
    made_preview,
    made_report,
    taken_letter,
)
from app.bootstrap_evidence import key_path, merchant_of, own_key
from app.bootstrap_golive import check_now, examine
from app.bootstrap_privacy import erasing_kind, proposals_of
from app.bootstrap_serving import SignallessServer, sweep_connections
from app.bootstrap_sources import accounts, compile_sources
from app.config.settings import Settings
from app.console.application import build_console
from app.console.live import Live
from app.console.uploads import Uploads
from app.console.view import Checked, Console, Work
from app.context.context import AppContext
from app.core.child_processes import leave_signals_to_parent
from app.core.errors import (
    ConfigurationError,
    PortTaken,
    StorePoisoned,
    UnreachableError,
    UsageError,
)
from app.core.hosts import is_loopback
from app.core.ids import new_token
from app.core.jobs import Jobs
from app.core.process import ending_signals
from app.core.schedule import schedule_entries
from app.core.zones import zone_named
from app.evidence.dispute_case import CaseRequest, DisputeCase, dispute_case
from app.evidence.dispute_letter import LetterForm
from app.evidence.seal import rotate_key
from app.finance import (
    bank_match,
    close_period,
    imports,
    match_rules,
    reconcile_period,
    withdraw_import,
)
from app.golive.golive import checklist
from app.privacy.erase import ErasureRequest, erase, propose_erasure
from app.privacy.erase_finding import Erasure
from app.privacy.erase_rules import ErasureRules
from app.providers.source import Source
from app.receiving.connection_limits import ConnectionLimits
from app.receiving.guard import guarded
from reconcile.reporting.closing import Blocker

log = structlog.get_logger()

SHUTDOWN_S: Final = 3
"""Seconds that requests under way have to finish when the console is asked to stop."""

UPLOAD_S: Final = 300.0
"""Seconds in which a whole request must be here: 32 MiB of a file take so long at 1 Mbit/s."""


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
        own_key=partial(own_key, settings),
        mappings=settings.console.mappings,
        work=work or work_here(context, settings),
        jobs=Jobs(context.clock),
        uploads=Uploads(context.clock),
        live=Live(context),
        schedule=schedule_entries(settings.schedule),
    )


def casing(
    context: AppContext, settings: Settings, sources: Mapping[str, Source]
) -> Callable[[CaseRequest], Awaitable[DisputeCase]]:
    """What gathers an order's case."""

    async def gather(asked: CaseRequest) -> DisputeCase:
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


async def _check_somebody_can_sign_in(context: AppContext, *, host: str) -> None:
    if not is_loopback(host) and not await somebody_can_sign_in(context):
        raise ConfigurationError(
            [
                "nobody can sign in to the console yet: `tallyhook operators invite NAME "
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
    """Serve until it is told to end; where there is a parent, until its socket is closed.

    Raises ConfigurationError for an address that others reach and nobody can sign in to, PortTaken
    where it cannot listen.
    """
    check_reachable(settings, host=host)
    async with open_context(settings, purpose="writing") as context:
        await _check_somebody_can_sign_in(context, host=host)
        bound = listener or _bound(host, port)
        console = console_of(
            context,
            settings,
            host=host,
            port=bound.getsockname()[1],
            work=work_elsewhere(settings),
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
            timeout_graceful_shutdown=SHUTDOWN_S,
        )
        server = SignallessServer(config)
        end = _end_on_demand(server, parent, console.live)
        beside = [
            asyncio.create_task(_end_when_replaced(context, end)),
            asyncio.create_task(sweep_connections(limits)),
        ]
        log.info("the console is open", host=host, port=bound.getsockname()[1])
        await server.serve(sockets=[bound])
        for task in beside:
            task.cancel()
        if context.database.poison is not None:
            raise UnreachableError(context.database.poison)


LOOK_S: Final = 2.0
"""How long a console may show a database in whose place another one was put, as by `restore`."""


async def _end_when_replaced(context: AppContext, end: Callable[[], None]) -> None:
    """Whoever only reads pages would else be shown what is no longer so."""
    while context.database.poison is None:
        await asyncio.sleep(LOOK_S)
        with suppress(StorePoisoned):
            context.database.writer.check_place()
    end()


def _end_on_demand(server: uvicorn.Server, parent: socket | None, live: Live) -> Callable[[], None]:
    """Returns what ends it."""
    loop, ending = asyncio.get_running_loop(), list[asyncio.Task[None]]()

    def end() -> None:
        server.should_exit = True
        ending.append(loop.create_task(live.close()))  # a loop itself keeps no task
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
    except SystemExit as failed:  # Uvicorn's way of saying that it could not bind
        raise PortTaken(host, port) from failed


# --- what its jobs do -----------------------------------------------------------------------------

AT_ONCE: Final = 2
"""Processes of a console's jobs: each reads with a core of its own and some 100 MiB."""

UNCHANGED: Final = (
    "the process that did it has ended before its time, and nothing was changed: begin again, and "
    "look whether memory was short"
)
TOO_LONG: Final = (
    f"it took more than {MOST_S // 60} minutes and was ended, and nothing was changed: send fewer "
    "and shorter rules"
)
BEGUN: Final = (
    "the process that did it has ended before its time. It may have been approved and begun: look "
    "at the proposal and at Personal data before you begin again, and whether memory was short"
)
"""An erasure keeps its approval before the first row goes."""


def work_here(context: AppContext, settings: Settings) -> Work:
    """Done in this process, on an open store."""

    async def do(use: Use, *words: Any) -> Any:
        return await use(context, settings, *words)

    return _work(do)


def work_elsewhere(settings: Settings) -> Work:
    """Done in processes of their own."""
    processes = Elsewhere(settings, at_once=AT_ONCE, purpose="writing")

    async def do(use: Use, *words: Any) -> Any:
        died = BEGUN if use is _approve else UNCHANGED
        most_s = MOST_S if use in _READ_RULES else None
        return await processes.do(use, *words, died=died, most_s=most_s, too_long=TOO_LONG)

    return _work(do)


def _work(do: Callable[..., Awaitable[Any]]) -> Work:
    return Work(
        reconcile=lambda *words: do(_reconcile, *words),
        preview=lambda *words: do(made_preview, *words),
        save_rules=lambda *words: do(_save_rules, *words),
        import_file=lambda *words: do(_import, *words),
        booked=lambda *words: do(_booked, *words),
        withdrawable=lambda *words: do(_withdrawable, *words),
        withdraw=lambda *words: do(_withdraw, *words),
        close=lambda *words: do(_close, *words),
        against=lambda *words: do(_against, *words),
        approve=lambda *words: do(_approve, *words),
        report=lambda *words: do(made_report, *words),
        check=lambda: do(_check),
    )


async def _reconcile(
    context: AppContext,
    settings: Settings,
    asked: reconcile_period.RunRequest,
    by: str,
    reason: str,
) -> int:
    done = await reconcile_period.reconcile_for(
        context, asked, by=by, reason=reason, progress=lambda _: None
    )
    return done.number


async def _save_rules(
    context: AppContext, settings: Settings, rules: str, by: str, reason: str
) -> Proposal | None:
    done = await match_rules.save_rules(context, rules, by=by, reason=reason)
    return done if isinstance(done, Proposal) else None


_READ_RULES: Final = (made_preview, _save_rules)
"""What reads rules that somebody sends: a TOML parser's time grows with the square."""


async def _import(
    context: AppContext,
    settings: Settings,
    kind: imports.ImportKind,
    request: imports.ImportRequest,
    source: str,
) -> imports.Imported:
    if kind == "book":
        return await imports.import_book(context, request, sources=settings.sources.keys())
    if kind == "bank":
        return await imports.import_bank(context, request)
    known = settings.sources.get(source)
    own_orders = known is not None and known.orders == "own"
    return await imports.import_statement(context, request, source=source, own_orders=own_orders)


async def _booked(
    context: AppContext,
    settings: Settings,
    stands: str | None,
    line: str | None,
    skip: int,
    limit: int,
) -> bank_match.BookedPage:
    return await bank_match.booked_page(context, stands=stands, line=line, skip=skip, limit=limit)


async def _withdrawable(
    context: AppContext, settings: Settings, number: int, kind: imports.ImportKind, by: str
) -> withdraw_import.Foreseen:
    return await withdraw_import.withdrawable(context, number, kind=kind, by=by)


async def _withdraw(
    context: AppContext,
    settings: Settings,
    number: int,
    kind: imports.ImportKind,
    by: str,
    reason: str,
    seen: str,
) -> Proposal | None:
    done = await withdraw_import.withdraw_import(
        context, number, kind=kind, by=by, reason=reason, seen_as=seen
    )
    return done if isinstance(done, Proposal) else None


async def _against(
    context: AppContext, settings: Settings, month: str, by: str
) -> tuple[Blocker, ...]:
    request = replace(_closing(settings, month, by), still_s=0)
    return await close_period.against_closing(context, request, progress=lambda _: None)


def _closing(settings: Settings, month: str, by: str) -> close_period.CloseRequest:
    return close_period.CloseRequest(
        period=month,
        by=by,
        as_of=None,
        margin_days=settings.closing_margin_days,
        sources=compile_sources(settings),
    )


async def _close(
    context: AppContext, settings: Settings, month: str, by: str, reason: str
) -> Proposal | None:
    request = replace(_closing(settings, month, by), reason=reason)
    done = await close_period.close_period(context, request, progress=lambda _: None)
    if isinstance(done, tuple):
        raise UsageError(" ".join(each.sentence for each in done))
    return done if isinstance(done, Proposal) else None


async def _approve(
    context: AppContext, settings: Settings, proposal: str, by: str, reason: str
) -> None:
    proposals = proposals_of(context, settings)
    await proposals.approve(proposal, by=by, reason=reason)


CHECKS_LIMIT_S: Final = 120.0
"""Seconds for all checks: some forty seconds for each service that does not answer, and its
source's trials; whoever has more of them runs the commands, which have no such limit."""


async def _check(context: AppContext, settings: Settings) -> Checked:
    try:
        async with asyncio.timeout(CHECKS_LIMIT_S):
            doctor = [check.document() for check in await examine()]
            found = await check_now(context, settings)
    except TimeoutError:
        raise UsageError(
            f"the checks took longer than {CHECKS_LIMIT_S:.0f} s, so something does not answer: "
            "run `tallyhook doctor` and `tallyhook golive` on the machine"
        ) from None
    await checklist(context, found)
    return Checked(doctor=doctor, checklist=found)
