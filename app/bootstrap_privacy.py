"""Wiring of erasures, and of what else may need a second person: the journal of erasures carried
out again after a restore, what a deep check reads and folds the stored bodies with, and proposals.

A new kind of proposal is one line of `proposals_of`; what it is stands in the room that owns the
act.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial

from app.access.proposals import ProposalKind, Proposals
from app.bootstrap_context import erasure_journal_path, known_phone_key
from app.bootstrap_evidence import signer_of
from app.bootstrap_sources import compile_sources
from app.config.settings import Settings
from app.context.context import AppContext
from app.core.clock import SystemClock
from app.evidence.seal import anything_unsealed, seal_all
from app.finance.break_acts import acceptance_kind
from app.finance.close_period import closing_kind
from app.finance.match_rules import rules_kind
from app.finance.withdraw_import import withdrawal_kind
from app.orders.rebuild import Helpers
from app.orders.set_aside import HOLDING
from app.orders.unmask_many import unmasking_kind
from app.privacy.check import Rebuilding
from app.privacy.erase import erasure_kind
from app.privacy.erase_rules import ErasureRules
from app.privacy.replay_erasures import ErasureReplay, Replayed, Without, replay_after_restore
from app.providers.source import Source
from app.receiving.inbox import Inbox, inbox_of
from app.receiving.reader import Reader, ReaderContext


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
        read=brought_reader(context, settings),
        country=settings.phone_country,
    )


def brought_reader(context: AppContext, settings: Settings) -> Callable[[], Awaitable[None]]:
    """What reads the deliveries that a backup brought unread, before anybody serves it."""

    async def read() -> None:
        environment = context.database.environment
        assert environment is not None, "an open store has one"
        reading = ReaderContext(
            context, inbox_of(context), _sources(settings), environment, HOLDING
        )
        await Reader(reading).read_brought()

    return read


def sealer(context: AppContext, settings: Settings) -> Callable[[], Awaitable[None]]:
    """What seals everything that waits for it."""

    async def seal() -> None:
        if await anything_unsealed(context):  # else the evidence key need not be there
            await seal_all(context, await signer_of(context, settings))

    return seal


async def erase_in_copy(
    settings: Settings, inbox: Inbox, *, without: Without | None, progress: Callable[[int], None]
) -> Replayed:
    """Carry the journal out in the copy of a backup, before it takes the database's place."""
    context = replace(
        inbox.context(clock=SystemClock()),
        phone_key=known_phone_key(settings),
        erasure_journal=erasure_journal_path(settings),
    )
    return await replay_after_restore(again(context, settings, progress=progress), without=without)


def check_again(settings: Settings, *, jobs: int) -> Rebuilding:
    """How to read and fold again in so many processes; with 1, in this one. Raises
    ConfigurationError with the mistakes of the sources."""
    _sources(settings)
    helpers = None if jobs == 1 else Helpers(jobs=jobs, settings=settings)
    return Rebuilding(sources=partial(_sources, settings), helpers=helpers)


def _sources(settings: Settings) -> dict[str, Source]:
    return compile_sources(settings, phone_digests=known_phone_key(settings))


# --- proposals ------------------------------------------------------------------------------------


def proposals_of(
    context: AppContext, settings: Settings, *, sources: Mapping[str, Source] | None = None
) -> Proposals:
    """The proposals of a database, with every kind that there is.

    sources  as `compile_sources` gives them; None: they are compiled here. Raises
             ConfigurationError for a wrong one
    """
    found = compile_sources(settings) if sources is None else sources
    return Proposals(
        context,
        (
            acceptance_kind(context),
            rules_kind(context),
            closing_kind(context, sources=found),
            erasing_kind(context, settings, sources=found),
            withdrawal_kind(context),
            unmasking_kind(context),
        ),
    )


def erasing_kind(
    context: AppContext, settings: Settings, *, sources: Mapping[str, Source]
) -> ProposalKind:
    """Of erasures, which the command proposes, too."""
    return erasure_kind(
        context,
        sources=sources,
        rules=ErasureRules.of_days(settings.retention_minimum_days),
        seal=sealer(context, settings),
        country=settings.phone_country,
    )
