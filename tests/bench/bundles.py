"""Seconds to build and verify the bundle of an order with 20 deliveries, and to write a letter."""

import asyncio
from pathlib import Path
from statistics import median
from time import perf_counter

from app.core.logs import configure_logging
from app.evidence.bundle import Built, BundleRequest, build_evidence
from app.evidence.dispute_case import CaseRequest
from app.evidence.letter_forms import take_letter
from app.evidence.verify_evidence import verify_evidence
from app.finance.read_lines import lines_naming
from tests.api.driving import driving
from tests.bench.report import Figure
from tests.bench.sizes import BARS, Sizes
from tests.evidence.world import LATER, live_through

DELIVERIES = 20
TIMES = 7
"""Bundles that are built; the median counts. The first also seals new leaves."""


async def _bundled(folder: Path) -> tuple[list[float], list[float], list[float], list[Built]]:
    """Return the seconds of each build, verification and letter, and the bundles."""
    request = BundleRequest(order="ORD-1", as_of=LATER, reason="the bench")
    building, verifying, writing, built = [], [], [], list[Built]()
    async with driving(folder, with_worker=False, looking=True) as driver:
        await live_through(driver)
        for _ in range(TIMES):
            began = perf_counter()
            built.append(await build_evidence(driver.context, request, lines=lines_naming))
            building.append(perf_counter() - began)
            began = perf_counter()
            assert verify_evidence(built[-1].archive, now=LATER).valid
            verifying.append(perf_counter() - began)
            began = perf_counter()
            letter = CaseRequest(order="ORD-1")
            assert (await take_letter(driver.context, letter, "pdf", lines=lines_naming))[1]
            writing.append(perf_counter() - began)
    return building, verifying, writing, built


def bundle_figures(folder: Path, _: Sizes) -> list[Figure]:
    """Measure all three, without the start of a process."""
    configure_logging(format="json", level="warning")
    building, verifying, writing, built = asyncio.run(_bundled(folder))
    checks = {
        f"it has {DELIVERIES} deliveries": built[-1].deliveries == DELIVERIES,
        "every build gives the same bytes": built[0].archive == built[-1].archive,
        "all of it is sealed": built[-1].unsealed == 0,
    }
    return [
        Figure(
            name="bundle of an order with 20 deliveries",
            value=round(median(building), 4),
            unit="s",
            bar=BARS["bundle"],
            checks=checks,
            details={"bytes": len(built[-1].archive), "slowest": round(max(building), 4)},
        ),
        Figure(
            name="verifying that bundle",
            value=round(median(verifying), 4),
            unit="s",
            checks=checks,
            details={"slowest": round(max(verifying), 4)},
        ),
        Figure(
            name="letter about a dispute of that order, PDF",
            value=round(median(writing), 4),
            unit="s",
            details={"slowest": round(max(writing), 4)},
        ),
    ]
