"""Wiring: what is made of an order's evidence, by commands, in the console and, in a process of its
own, by the API."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

from app.api.case_routes import TellsLetter
from app.api.evidence_routes import Builds
from app.bootstrap_elsewhere import Elsewhere
from app.bootstrap_evidence import evidence_providers, merchant_of, signer_of
from app.config.settings import Settings
from app.evidence.bundle import Built, BundleRequest, build_evidence
from app.evidence.dispute_case import CaseRequest
from app.evidence.dispute_letter import Letter, LetterForm, letter_of, take_letter
from app.receiving.context import AppContext
from reconcile.instants import Instant

AT_ONCE: Final = 1
"""Bundles, and letters, that the API makes at once: each reads all that came of an order."""

MOST_S: Final = 120.0
"""Seconds that one may take; one of an order with twenty deliveries takes two, its process's start
among them."""


async def built_bundle(context: AppContext, settings: Settings, asked: BundleRequest) -> Built:
    """An order's bundle. Raises as `build_evidence` does."""
    return await build_evidence(
        context,
        asked,
        providers=evidence_providers(settings),
        signer=await signer_of(context, settings),
    )


async def taken_letter(
    context: AppContext, settings: Settings, asked: CaseRequest, form: LetterForm | None
) -> tuple[Letter, bytes]:
    """An order's letter. Raises as `take_letter` does."""
    return await take_letter(
        context,
        asked,
        form,
        providers=evidence_providers(settings),
        signer=await signer_of(context, settings),
        merchant=merchant_of(settings),
    )


def building_bundles(settings: Settings) -> Builds:
    """What builds bundles in a process of its own: deliveries are acknowledged meanwhile."""
    processes = Elsewhere(settings, at_once=AT_ONCE, purpose="writing")

    async def build(order: str, file: Path, *, as_of: Instant | None, by: str) -> None:
        await processes.do(
            _build,
            BundleRequest(order=order, as_of=as_of, by=by),
            file,
            died="the process that built the bundle has ended before its time: ask again",
            most_s=MOST_S,
            too_long=f"the bundle was not built within {MOST_S:.0f} s: ask again",
        )

    return build


async def _build(context: AppContext, settings: Settings, asked: BundleRequest, file: Path) -> None:
    built = await built_bundle(context, settings, asked)
    await asyncio.to_thread(file.write_bytes, built.archive)


def telling_letters(settings: Settings) -> TellsLetter:
    """What tells the API what a letter says, likewise."""
    processes = Elsewhere(settings, at_once=AT_ONCE, purpose="reading")

    async def tell(asked: CaseRequest) -> dict[str, Any]:
        found: dict[str, Any] = await processes.do(
            _letter,
            asked,
            died="the process that wrote the letter has ended before its time: ask again",
            most_s=MOST_S,
            too_long=f"the letter was not written within {MOST_S:.0f} s: ask again",
        )
        return found

    return tell


async def _letter(context: AppContext, settings: Settings, asked: CaseRequest) -> dict[str, Any]:
    found = await letter_of(
        context, asked, providers=evidence_providers(settings), merchant=merchant_of(settings)
    )
    return found.document | {"checklist": found.case.document()}
