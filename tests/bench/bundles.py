"""How long it takes to build the bundle of an order with 20 deliveries, and to verify it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

from app.bootstrap_evidence import evidence_providers, signer_of
from app.config.load import load_settings
from app.core.logs import configure_logging
from app.evidence.bundle import Built, BundleRequest, build_evidence
from app.evidence.verify_evidence import verify_evidence
from tests.api.driving import driving, environ
from tests.bench.report import Figure
from tests.evidence.world import LATER, live_through

DELIVERIES = 20
TIMES = 7
"""Bundles built; the median counts. The first also seals what is new, as the first of a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundled:
    """Seconds of each build and of each verification, and the bundles of the first and last."""

    building: list[float]
    verifying: list[float]
    first: Built
    last: Built


async def _bundled(folder: Path) -> Bundled:
    settings = load_settings(environ(folder))
    request = BundleRequest(order="ORD-1", as_of=LATER, reason="the bench")
    building, verifying, built = [], [], list[Built]()
    async with driving(folder, with_worker=False, looking=True) as driver:
        await live_through(driver)
        signer = await signer_of(driver.context, settings)
        for _ in range(TIMES):
            began = perf_counter()
            providers = evidence_providers(settings)
            built.append(
                await build_evidence(driver.context, request, providers=providers, signer=signer)
            )
            building.append(perf_counter() - began)
            began = perf_counter()
            assert verify_evidence(built[-1].archive).valid
            verifying.append(perf_counter() - began)
    return Bundled(building=building, verifying=verifying, first=built[0], last=built[-1])


def bundle_figures(folder: Path) -> list[Figure]:
    """The two figures; the process's start, which a command adds, is not in them."""
    configure_logging(format="json", level="warning")
    found = asyncio.run(_bundled(folder))
    checks = {
        f"it has {DELIVERIES} deliveries": found.last.deliveries == DELIVERIES,
        "every build gives the same bytes": found.first.archive == found.last.archive,
        "all of it is sealed": found.last.unsealed == 0,
    }
    details = {"bytes": len(found.last.archive), "slowest": round(max(found.building), 4)}
    return [
        Figure(
            name="bundle of an order with 20 deliveries",
            value=round(median(found.building), 4),
            unit="s",
            bar=1.0,
            sense="at most",
            checks=checks,
            details=details,
        ),
        Figure(
            name="verifying that bundle",
            value=round(median(found.verifying), 4),
            unit="s",
            checks=checks,
            details={"slowest": round(max(found.verifying), 4)},
        ),
    ]
