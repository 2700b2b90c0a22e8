"""Builds an order's evidence bundle, for who may have it, and writes down who did and why."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from app.errors import UsageError
from app.evidence.bundle import bundle_of
from app.operations.desk import Desk
from app.operations.gather_evidence import Providers, gather_dossier
from app.operations.people import note_deed, permitted
from app.operations.seal import Signer, seal_all
from reconcile.instants import Instant, format_instant

REASON_MAX: Final = 500
"""Characters of a reason: a sentence or two, which the audit trail shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked for. `reason` says why personal data go in; without it they stay out."""

    order: str
    as_of: Instant | None = None
    reason: str | None = None
    by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A bundle: its bytes, and what was put in."""

    archive: bytes
    order: str
    as_of: Instant
    deliveries: int
    unsealed: int
    full: bool

    @property
    def sha256(self) -> str:
        """Of the whole file, hex."""
        return hashlib.sha256(self.archive).hexdigest()


async def build_evidence(
    desk: Desk, request: Request, *, providers: Providers, signer: Signer
) -> Built:
    """The bundle. Personal data take the role that may unmask, and a reason.

    Raises UsageError for who may not and for an empty reason, NotFoundError for no such order.
    """
    full = request.reason is not None
    if full and not 0 < len((request.reason or "").strip()) <= REASON_MAX:
        raise UsageError(f"--reason says why personal data go in, in 1 to {REASON_MAX} characters")
    async with desk.store.reading() as connection:  # before anything is read for them
        await permitted(connection, by=request.by, action="evidence_built")
        if full:
            await permitted(connection, by=request.by, action="unmasked")
    await seal_all(desk, signer)  # what came a moment ago is to be proved too
    dossier = await gather_dossier(
        desk, request.order, as_of=request.as_of, full=full, providers=providers
    )
    built = Built(
        archive=bundle_of(dossier, signer.key),
        order=request.order,
        as_of=dossier.as_of,
        deliveries=len(dossier.told),
        unsealed=len(dossier.sealed.unsealed),
        full=full,
    )
    await _write_down(desk, request, built)
    return built


async def _write_down(desk: Desk, request: Request, built: Built) -> None:
    """Who built what and why, before anybody has it."""
    now = desk.clock.now()
    async with desk.store.writing() as connection:
        who = await permitted(connection, by=request.by, action="evidence_built")
        facts = {
            "sha256": built.sha256,
            "as_of": format_instant(built.as_of),
            "kind": "full" if built.full else "redacted",
        }
        subject, reason = request.order, (request.reason or "").strip()
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
