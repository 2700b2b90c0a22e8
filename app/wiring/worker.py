"""Run the processes that read, fold, seal and notify."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

import httpx2

from app.config.settings import Settings
from app.context.configured import askers, compile_sources, keep_profiles
from app.context.context import AppContext
from app.core.child_processes import Parent, leave_signals_to_parent
from app.core.errors import StorePoisoned, UnreachableError, UsageError
from app.core.http import outgoing_client
from app.core.logs import log
from app.core.periodic import IDLE_S, PeriodicTask, TaskGroup, rest_when_idle
from app.core.process import ending_signals
from app.core.schedule import schedule_entries
from app.database.database import Database
from app.database.engine import is_sqlite
from app.database.takeover import AGAIN_S, LOOK_S
from app.evidence.seal import CheckpointSigner, Sealer, open_signer, seal_orders_if_due
from app.evidence.witnesses import REST_S as WITNESSES_REST_S
from app.evidence.witnesses import Cosigning, witnesses_of
from app.monitoring.notice_ways import notice_ways_of
from app.orders.folding_process import Quiet
from app.orders.notify_shop import Notifier, notify_due, shop_of
from app.orders.set_aside import HOLDING
from app.orders.worker import FoldWorker
from app.privacy.fit_journal import take_up_begun
from app.privacy.pending_erasures import PendingErasures
from app.privacy.prune import Pruner, retention_of
from app.providers.provider_client import LIMIT_S, ProviderClient
from app.receiving.confirm import Confirmer, confirming
from app.receiving.inbox import inbox_of
from app.receiving.reader import Reader, ReaderContext
from app.wiring.opening import open_context

NOTICES_REST_S = 5.0

Part = Reader | FoldWorker | TaskGroup | PeriodicTask

Parts = Sequence[tuple[str, Part]]


def reading_parts(
    context: AppContext, askers: Mapping[str, ProviderClient]
) -> list[tuple[str, Part]]:
    """Build the parts that read the inbox and ask providers.

    Without `askers`, the second part is missing.
    """
    assert context.settings.environment is not None
    reads = ReaderContext(
        context, inbox_of(context), context.sources, context.settings.environment, HOLDING
    )
    parts: list[tuple[str, Part]] = [("the reader of the inbox", Reader(reads))]
    if askers:
        confirmer = Confirmer(context=context, sources=context.sources, askers=askers)
        parts.append(("the task that confirms payments with providers", confirming(confirmer)))
    return parts


def working_parts(
    context: AppContext,
    *,
    client: httpx2.AsyncClient | None,
    askers: Mapping[str, ProviderClient],
    signer: CheckpointSigner | None,
) -> list[tuple[str, Part]]:
    """Return all parts that process accepted deliveries.

    client  HTTP client for the shop; None if another process notifies
    signer  signer of the log; None if another process seals
    """
    settings = context.settings
    parts = reading_parts(context, askers)
    parts.append(("the fold worker", FoldWorker(context)))
    shop = shop_of(settings)
    if shop is not None and client is not None:
        notifier = Notifier(context=context, shop=shop, client=client)
        task = PeriodicTask(
            partial(notify_due, notifier), component="notifications", rest=rest_when_idle(IDLE_S)
        )
        parts.append(("the task that notifies the shop", task))
    retention = retention_of(settings, context.sources)
    if retention is not None:
        parts.append(("the pruner", Pruner(context, retention)))
    pending = PendingErasures(context)
    erasing = PeriodicTask(
        pending.work,
        component="erasures that are pending",
        rest=pending.rest_s,
        begin=partial(take_up_begun, context),
    )
    parts.append(("the task that carries out pending erasures", erasing))
    if signer is not None:
        parts.append(("the task that seals the evidence", sealing(context, signer)))
    witnesses = witnesses_of(settings)
    if witnesses is not None and client is not None:
        task = PeriodicTask(
            Cosigning(context, witnesses, client).ask_due,
            component="cosigning",
            rest=rest_when_idle(WITNESSES_REST_S),
        )
        parts.append(("the task that has checkpoints cosigned", task))
    # Parts that few services have are imported only where they are used.
    if ways := notice_ways_of(settings, client):
        from app.monitoring.work_notices import WorkNotices
        from app.wiring.work import proposals_of

        notices = WorkNotices(context, ways, proposals_of(context))
        task = PeriodicTask(
            notices.send_due, component="work notices", rest=rest_when_idle(NOTICES_REST_S)
        )
        parts.append(("the task that notifies operators", task))
    if entries := schedule_entries(settings.schedule):
        from app.finance.schedule_process import Scheduler

        parts.append(("the schedule", Scheduler(context, entries)))
    if settings.import_folder is not None:
        from app.finance.import_folder import LOOK_S as FOLDER_REST_S
        from app.finance.import_folder import ImportFolder
        from app.wiring.work import ElsewhereOf

        take = ElsewhereOf(settings)(
            purpose="writing", at_once=1, died="importing a file ended unexpectedly; see the log"
        )
        folder = ImportFolder(context, settings.import_folder, take)
        looking = PeriodicTask(
            folder.look, component="the import folder", rest=lambda done: FOLDER_REST_S
        )
        parts.append(("the task that watches the import folder", looking))
    return parts


def sealing(context: AppContext, signer: CheckpointSigner) -> PeriodicTask:
    """Build the task that seals new rows."""
    sealer = Sealer(context, signer)

    async def work() -> int:
        if context.signals.folded_elsewhere:  # the process that folds also seals
            return 0
        return await sealer.seal_some() or int(await seal_orders_if_due(context))

    return PeriodicTask(work, component="sealing", rest=sealer.rest_s)


def watching_server(context: AppContext) -> list[tuple[str, Part]]:
    """Build the task that watches PostgreSQL, if any."""
    if (watch := context.database.watch) is None:
        return []

    def rest(moved: int) -> float:
        return 0.0 if moved else AGAIN_S if watch.moved else LOOK_S

    task = PeriodicTask(context.database.watch_server, component="the server", rest=rest)
    watch.on_moved = task.wake
    return [("the task that watches the database server", task)]


async def work(settings: Settings, *, parent: Parent | None = None) -> None:
    """Run the worker until a signal, or until the parent process ends.

    Raises UsageError on SQLite without a parent.
    """
    if parent is None and is_sqlite(settings.database_url):
        raise UsageError("on SQLite `tallyhook serve` starts the worker itself")
    try:
        await _work(settings, parent=parent)
    except StorePoisoned:  # at its start: a restart would meet the same disk
        if parent is not None:
            parent.fail()
        raise
    if parent is None:
        log.info("stopped")


async def _work(settings: Settings, *, parent: Parent | None) -> None:
    keep_profiles(settings)
    compile_sources(settings)  # a wrong setting leaves no file behind
    async with (
        outgoing_client(timeout_s=LIMIT_S) as client,
        open_context(settings, purpose="working") as context,
    ):
        parts = working_parts(
            context,
            client=client,
            askers=askers(settings, client),
            signer=await open_signer(context),
        )
        parts += watching_server(context)
        await _until_asked(context, [part for _, part in parts], parent=parent)


async def _until_asked(
    context: AppContext, parts: Sequence[Part], *, parent: Parent | None
) -> None:
    reader, others = parts[0], parts[1:]
    assert isinstance(reader, Reader)
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(part.run()) for part in parts]

    def stop(drain: bool = False) -> None:
        reader.stop(drain=drain)
        tasks[0].add_done_callback(lambda task: [each.stop() for each in others])

    hearing = None
    if parent is None:
        for number in ending_signals():
            loop.add_signal_handler(number, stop)
        log.info("working", environment=context.database.environment)
    else:
        leave_signals_to_parent()
        signals = context.signals
        news = (signals.accepted, signals.evidence_arrived)

        def leave(leaves: bool) -> None:
            signals.folded_elsewhere = leaves

        hearing = loop.create_task(
            parent.hear(
                read=signals.read, news=news, stop=stop, leave=leave, alarming=signals.alarming
            )
        )

    def failed(reason: str) -> None:
        if parent is not None:
            parent.fail()
        stop()

    context.database.on_poison = failed
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    stop()
    await _ended(context.database, tasks, hearing)


async def _ended(
    database: Database, tasks: Sequence[asyncio.Task[None]], hearing: asyncio.Task[None] | None
) -> None:
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    if hearing is not None:
        await cancelled(hearing)
    failed = [each for each in ended if isinstance(each, BaseException)]
    poisoned = [str(each) for each in failed if isinstance(each, StorePoisoned)]
    for each in failed:
        if not isinstance(each, StorePoisoned):
            log.error("a part of the worker failed", exc_info=each)
    if database.poison is not None or poisoned:
        raise UnreachableError(database.poison or poisoned[0])
    if failed:
        raise UnreachableError("a part of the worker failed; see the log") from failed[0]


async def cancelled(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def fold_beside(settings: Settings, *, parent: Parent) -> None:
    """Fold and seal while another process reads the inbox."""
    try:
        async with open_context(settings, purpose="folding") as context:
            folding = FoldWorker(context, beside=True)
            sealer = sealing(context, await open_signer(context))
            await _until_quiet(context, folding, sealer, parent=parent)
    except StorePoisoned:
        parent.fail()
        raise


async def _until_quiet(
    context: AppContext, folding: FoldWorker, sealer: PeriodicTask, *, parent: Parent
) -> None:
    parts = folding, sealer
    loop, quiet = asyncio.get_running_loop(), Quiet()

    def stop(drain: bool = False) -> None:
        for part in parts:
            part.stop()

    def failed(reason: str) -> None:
        parent.fail()
        stop()

    context.database.on_poison = failed
    leave_signals_to_parent()
    tasks = [loop.create_task(part.run()) for part in parts]
    signals = context.signals
    news = (signals.evidence_arrived,)
    hearing = loop.create_task(parent.hear(read=signals.folded, news=news, stop=stop))
    while not any(task.done() for task in tasks):
        await asyncio.wait(tasks, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
        if quiet.look():
            sealer.stop()  # folding ends later, since nobody else folds while this process runs
    stop()
    await _ended(context.database, tasks, hearing)
