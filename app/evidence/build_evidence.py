"""Builds an order's evidence bundle, for who may have it, and writes down who did and why."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from typing import Final

from app.access.operators import note_deed, permitted
from app.evidence.bundle import bundle_of
from app.evidence.dossier import Dossier
from app.evidence.gather_evidence import Providers, gather_dossier
from app.evidence.seal import Signer, seal_all
from app.orders.customers import checked_reason
from app.orders.holds import hold_if_due
from app.receiving.caught_up import must_have_read
from app.receiving.context import AppContext
from app.receiving.due_store import marks_of
from reconcile.instants import Instant, format_instant

SEAL_TRIES: Final = 10
SEAL_PAUSE_S: Final = 0.1
"""How often, and how far apart, it is looked whether all is sealed: a batch takes less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked for. `reason` says why personal data go in; without it they stay out."""

    order: str
    as_of: Instant | None = None
    reason: str | None = None
    by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A bundle: its bytes, and what was put in. `due`: the order is still to be folded, so that
    what its systems are told next is not in it."""

    archive: bytes
    order: str
    as_of: Instant
    deliveries: int
    unsealed: int
    full: bool
    due: bool

    @property
    def sha256(self) -> str:
        """Of the whole file, hex."""
        return hashlib.sha256(self.archive).hexdigest()


async def build_evidence(
    context: AppContext, request: Request, *, providers: Providers, signer: Signer
) -> Built:
    """The bundle. Personal data take the role that may unmask, and a reason.

    Raises UsageError for who may not and for an empty reason, NotFoundError for no such order.
    """
    full = request.reason is not None
    if full:
        checked_reason(request.reason or "", [])
    async with context.store.reading() as connection:  # before anything is read for them
        await permitted(connection, by=request.by, action="evidence_built")
        if full:
            await permitted(connection, by=request.by, action="unmasked")
    await must_have_read(context)
    await hold_if_due(context, [request.order])  # what is read in it must have been recorded
    dossier = await _sealed_dossier(context, request, providers=providers, signer=signer)
    reason = checked_reason(request.reason, sorted(dossier.phones)) if request.reason else ""
    built = Built(
        archive=bundle_of(dossier, signer.key),
        order=request.order,
        as_of=dossier.as_of,
        deliveries=len(dossier.told),
        unsealed=len(dossier.sealed.unsealed),
        full=full,
        due=await _is_due(context, request.order),
    )
    await _write_down(context, request, built, reason=reason)
    return built


async def _sealed_dossier(
    context: AppContext, request: Request, *, providers: Providers, signer: Signer
) -> Dossier:
    """With proofs of what came a moment ago, too; another sealer may be in the middle of it."""
    for _ in range(SEAL_TRIES):
        await seal_all(context, signer)
        dossier = await gather_dossier(
            context,
            request.order,
            as_of=request.as_of,
            full=request.reason is not None,
            providers=providers,
        )
        if not dossier.sealed.unsealed:
            break
        await asyncio.sleep(SEAL_PAUSE_S)
    return dossier


async def _is_due(context: AppContext, order: str) -> bool:
    now = context.clock.now()
    async with context.store.reading() as connection:
        marks = await marks_of(connection, [order])
    return any(mark.due_at is not None and mark.due_at <= now for mark in marks)


async def _write_down(context: AppContext, request: Request, built: Built, *, reason: str) -> None:
    """Who built what and why, before anybody has it."""
    async with context.store.writing() as connection:
        now = context.clock.now()
        who = await permitted(connection, by=request.by, action="evidence_built")
        facts = {
            "sha256": built.sha256,
            "as_of": format_instant(built.as_of),
            "kind": "full" if built.full else "redacted",
        }
        subject = request.order
        await note_deed(
            connection,
            who,
            action="evidence_built",
            subject=subject,
            at=now,
            reason=reason,
            facts=facts,
        )
        if built.full:
            who = await permitted(connection, by=request.by, action="unmasked")
            await note_deed(
                connection, who, action="unmasked", subject=subject, at=now, reason=reason
            )
