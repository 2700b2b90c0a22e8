"""Wiring: the evidence key's file, the tasks that seal and have checkpoints cosigned, and the
sources that evidence describes."""

from __future__ import annotations

from pathlib import Path

import httpx2

from app.bootstrap_sources import accounts, compile_sources
from app.config.database_place import sqlite_file
from app.config.settings import Settings
from app.context.context import AppContext
from app.core.errors import ConfigurationError
from app.core.periodic import PeriodicTask, rest_when_idle
from app.evidence.dispute_case import Merchant
from app.evidence.gather_evidence import Providers
from app.evidence.keys import PublicKey, load_key
from app.evidence.seal import CheckpointSigner, Sealer, open_signer, seal_orders_if_due
from app.evidence.witnesses import REST_S as LOOK_S
from app.evidence.witnesses import Cosigning, Witness, Witnesses
from app.finance.read_lines import lines_naming
from app.providers.profile import profile_text
from reconcile.instants import SECOND
from reconcile.transparency.cosignatures import read_cosigner


def key_path(settings: Settings) -> Path:
    """Where the evidence key lies: as set, else beside the database, else in `var`."""
    if settings.evidence.key_file is not None:
        return settings.evidence.key_file
    database = sqlite_file(settings.database_url)
    if database is None:
        return Path("var/tallyhook.evidence.key")
    return database.with_name(f"{database.stem}.evidence.key")


async def signer_of(context: AppContext, settings: Settings) -> CheckpointSigner:
    """Who signs for the database's log; makes the key at the first start."""
    return await open_signer(context, key_path(settings))


def own_key(settings: Settings) -> PublicKey | None:
    """The public half of the key that is here; None where none is, or none that may be read."""
    try:
        key = load_key(key_path(settings))
    except ConfigurationError:
        return None
    return None if key is None else key.public


def sealing(context: AppContext, signer: CheckpointSigner) -> PeriodicTask:
    """The background task that seals, and once a day makes the tree of all orders."""
    sealer = Sealer(context, signer)

    async def work() -> int:
        if context.signals.folded_elsewhere:  # whoever folds seals, too
            return 0
        return await sealer.seal_some() or int(await seal_orders_if_due(context))

    return PeriodicTask(work, component="sealing", rest=sealer.rest_s)


def merchant_of(settings: Settings) -> Merchant:
    """Who answers a dispute."""
    return Merchant(
        name=settings.merchant,
        address=settings.merchant_address,
        contact=settings.merchant_contact,
    )


def witnesses_of(settings: Settings) -> Witnesses | None:
    """Who cosigns checkpoints; None where nobody does."""
    evidence = settings.evidence
    pairs = [each.split(" ") for each in evidence.witnesses]
    if not pairs:
        return None
    return Witnesses(
        each=tuple(Witness(key=read_cosigner(key), url=url) for key, url in pairs),
        quorum=evidence.witness_quorum or len(pairs) // 2 + 1,
        every=evidence.witness_every_s * SECOND,
        alarm_after=evidence.witness_alarm_s * SECOND,
    )


def cosigning(
    context: AppContext, witnesses: Witnesses, client: httpx2.AsyncClient
) -> PeriodicTask:
    """The background task that has checkpoints cosigned."""
    return PeriodicTask(
        Cosigning(context, witnesses, client).ask_due,
        component="cosigning",
        rest=rest_when_idle(LOOK_S),
    )


def evidence_providers(settings: Settings) -> Providers:
    """Every configured source. Raises ConfigurationError."""
    return Providers(
        accounts=accounts(settings),
        sources=compile_sources(settings),
        texts={name: profile_text(given.profile) for name, given in settings.sources.items()},
        lines=lines_naming,
        witnesses=witnesses_of(settings),
    )
