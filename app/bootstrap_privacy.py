"""Wiring of restores and deep checks: the journal of erasures carried out again, and what the
stored bodies are read and folded with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from app.bootstrap_context import erasure_journal_path, known_phone_key, store_settings
from app.bootstrap_evidence import signer_of
from app.bootstrap_sources import compile_sources
from app.config.settings import Settings
from app.core.clock import SystemClock
from app.evidence.seal import anything_unsealed, seal_all
from app.orders.rebuild import Helpers
from app.privacy.check import Rebuilding
from app.privacy.erase_rules import ErasureRules
from app.privacy.replay_erasures import ErasureReplay, Replayed, Without, replay_after_restore
from app.providers.source import Source
from app.receiving.context import AppContext
from app.receiving.store import Store


def again(
    context: AppContext, settings: Settings, *, progress: Callable[[int], None]
) -> ErasureReplay:
    """Who erases again in this database. Raises ConfigurationError for a wrong source."""
    return ErasureReplay(
        context,
        sources=compile_sources(settings),
        rules=ErasureRules.of_days(settings.retention_minimum_days),
        progress=progress,
        seal=sealer(context, settings),
    )


def sealer(context: AppContext, settings: Settings) -> Callable[[], Awaitable[None]]:
    """What seals everything that waits for it."""

    async def seal() -> None:
        if await anything_unsealed(context):  # else the evidence key need not be there
            await seal_all(context, await signer_of(context, settings))

    return seal


async def erase_in_copy(
    settings: Settings, store: Store, *, without: Without | None, progress: Callable[[int], None]
) -> Replayed:
    """Carry the journal out in the copy of a backup, before it takes the database's place."""
    context = AppContext(
        store=store,
        policy=settings.policy(),
        clock=SystemClock(),
        phone_key=known_phone_key(settings),
        erasure_journal=erasure_journal_path(settings),
    )
    return await replay_after_restore(again(context, settings, progress=progress), without=without)


def check_again(settings: Settings, *, jobs: int) -> Rebuilding:
    """How to read and fold again in so many processes; with 1, in this one. Raises
    ConfigurationError with the mistakes of the sources."""
    _sources(settings)
    helpers = None if jobs == 1 else Helpers(jobs=jobs, store=store_settings(settings))
    return Rebuilding(sources=partial(_sources, settings), helpers=helpers)


def _sources(settings: Settings) -> dict[str, Source]:
    return compile_sources(settings, phone_digests=known_phone_key(settings))
