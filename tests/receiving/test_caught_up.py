"""Acts that rest on all accepted deliveries: they wait until all are read, or are refused. The
inbox may hold a refund, or bytes of a person being erased."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.context.context import AppContext
from app.context.unread import EVERYTHING, Backlog
from app.core.clock import CLOCKS_DIFFER
from app.core.errors import NotAllRead, StoreUnavailable
from app.evidence.bundle import BundleRequest, build_evidence
from app.evidence.dispute_case import CaseRequest
from app.evidence.letter_forms import take_letter
from app.finance.read_lines import lines_naming
from app.privacy.erase import ErasureRequest, erase
from app.receiving import caught_up, reader
from app.receiving.caught_up import Patience, behind_s, must_have_read
from app.receiving.reader import ReaderContext, read_some
from app.receiving.reverify import Reverified, reverify
from reconcile.instants import HOUR, MILLISECOND, TICK, Instant
from tests.api.driving import Driver, driving, event, reader_of
from tests.api.test_checkouts import shop, start
from tests.checkout.service import opened
from tests.reconcile.build import T

PHONE = "254711223344"


async def nothing(reading: ReaderContext, **_: Any) -> int:
    """Read nothing."""
    return 0


@pytest.fixture
def standing_still(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Let the reader read nothing; who waits for it waits a moment only."""
    monkeypatch.setattr(reader, "read_some", nothing)
    monkeypatch.setattr(caught_up, "READ_WITHIN_S", 0.05)
    return monkeypatch


async def read(driver: Driver) -> None:
    """Read what is there."""
    while await read_some(reader_of(driver.service)._reading):
        pass


async def erasing(driver: Driver) -> object:
    """Erase as the command does."""
    return await erase(
        driver.service.context,
        ErasureRequest(phone=PHONE, reason="asked by letter", by=None),
        dry_run=False,
        progress=lambda count: None,
    )


async def bundling(driver: Driver) -> object:
    """Build a bundle as the command does."""
    return await build_evidence(driver.context, BundleRequest(order="ORD-1"), lines=lines_naming)


async def writing_a_letter(driver: Driver) -> object:
    """Write a letter as the command does."""
    return await take_letter(
        driver.context, CaseRequest(order="ORD-1", by=None), "html", lines=lines_naming
    )


@pytest.mark.parametrize("act", [erasing, bundling, writing_a_letter])
async def test_what_cannot_be_taken_back_is_not_done_over_what_is_unread(
    tmp_path: Path,
    standing_still: pytest.MonkeyPatch,
    act: Callable[[Driver], Awaitable[object]],
) -> None:
    """It is refused where nobody reads, and goes on once all has been read."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        await driver.send(event("e1", customer={"phone": PHONE}))
        await read(driver)
        await driver.send(event("e2", "disputed", customer={"phone": PHONE}))
        with pytest.raises(StoreUnavailable, match="accepted deliveries have been unread"):
            await act(driver)
        standing_still.setattr(caught_up, "READ_WITHIN_S", 60.0)
        acting = asyncio.ensure_future(act(driver))
        await asyncio.sleep(0.1)
        assert not acting.done()
        await read(driver)
        await acting


async def test_a_new_payment_is_not_begun_over_what_is_unread(
    tmp_path: Path, standing_still: pytest.MonkeyPatch
) -> None:
    """The customer may have paid. The first session of another order is opened."""
    async with shop(tmp_path, opened("cs_1"), opened("cs_2")) as (driver, pay):
        assert (await start(driver)).status_code == 201
        declined = event("e1", "declined", session={"reference": "cs_1"})
        await driver.send(declined)
        await read(driver)
        await driver.send(event("e2", session={"reference": "cs_1"}))
        refused = await start(driver, new_payment=True)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        assert (await start(driver, reference="ORD-2")).status_code == 201
        await read(driver)
        paid = await start(driver, new_payment=True)
        assert (paid.status_code, paid.json()["status"]) == (200, "paid")
    assert len(pay.keys) == 2


async def test_what_was_refused_a_moment_ago_is_judged_again_too(
    tmp_path: Path, standing_still: pytest.MonkeyPatch
) -> None:
    """It comes by way of the inbox."""
    async with driving(tmp_path, with_worker=False) as driver:
        driver.clock.put(driver.clock.now() + HOUR)
        assert (await driver.send(event("e1"), [])).status_code == 401
        standing_still.setattr(caught_up, "READ_WITHIN_S", 60.0)

        async def judging() -> Reverified:
            return await reverify(driver.context, only=None, progress=lambda count: None)

        judged = asyncio.ensure_future(judging())
        await asyncio.sleep(0.1)
        assert not judged.done()
        await read(driver)
        assert (await judged).judged == 1


# --- the age of what is unread --------------------------------------------------------------------


def looking(*backlogs: Backlog, shared: bool = False) -> tuple[AppContext, list[Backlog]]:
    """Return a context at T whose inbox shows these backlogs one after the other, the last one for
    ever. Also return the list of those that were not shown yet."""
    left = list(backlogs)

    async def backlog(**_: Any) -> Backlog:
        return left.pop(0) if len(left) > 1 else left[0]

    async def backlog_and_end() -> tuple[Backlog, object]:
        return await backlog(), EVERYTHING

    inbox = SimpleNamespace(backlog=backlog, backlog_and_end=backlog_and_end)
    context = SimpleNamespace(
        clock=SimpleNamespace(now=lambda: T),
        inbox=inbox,
        signals=SimpleNamespace(read=asyncio.Event()),
        database=SimpleNamespace(shared=shared),
    )
    return cast(AppContext, context), left


def ago(milliseconds: int) -> Instant:
    return Instant(T - milliseconds * MILLISECOND)


AHEAD = Instant(T + CLOCKS_DIFFER + TICK)


@pytest.mark.parametrize(
    ("patience", "found", "seconds"),
    [
        ("none", Backlog(), 0),
        ("none", Backlog(oldest=ago(1_999)), 0),
        ("none", Backlog(oldest=ago(2_000)), 2),
        ("none", Backlog(oldest=ago(3_999)), 3),
        ("short", Backlog(oldest=ago(199)), 0),
        ("short", Backlog(oldest=ago(200)), 1),
        ("short", Backlog(oldest=ago(2_000)), 2),
        ("long", Backlog(oldest=ago(60_000)), 0),
        ("none", Backlog(oldest=AHEAD, newest=AHEAD), 2),
        ("none", Backlog(oldest=ago(5_000), newest=AHEAD), 5),
        ("none", Backlog(oldest=T, newest=Instant(AHEAD - TICK)), 0),
        ("none", Backlog(copied_up_to=ago(9_999)), 0),
        ("none", Backlog(copied_up_to=ago(10_000)), 10),
        ("none", Backlog(copied_up_to=ago(12_000), oldest=ago(3_000)), 12),
        ("none", Backlog(copied_up_to=ago(12_000), oldest=ago(15_000)), 15),
    ],
)
async def test_a_question_waits_for_young_deliveries_and_tells_the_age_of_old_ones(
    patience: Patience, found: Backlog, seconds: int
) -> None:
    """The next look finds that everything has been read."""
    context, _ = looking(found, Backlog())
    assert await behind_s(context, patience=patience) == seconds


async def test_later_arrivals_than_the_instant_of_the_question_do_not_count() -> None:
    context, _ = looking(Backlog(oldest=ago(5_000)))
    assert await behind_s(context, as_of=ago(5_001), patience="none") == 0
    assert await behind_s(context, as_of=ago(5_000), patience="none") == 5


async def test_a_standby_waits_for_its_copy_and_refuses_if_the_copy_stays_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old, new = Backlog(copied_up_to=ago(3_000)), Backlog(copied_up_to=T)
    for as_of, waits in ((None, True), (ago(2_999), True), (ago(3_000), False)):
        context, left = looking(old, new, new, new, shared=True)
        await must_have_read(context, as_of=as_of)
        assert len(left) == (1 if waits else 2)
    monkeypatch.setattr(caught_up, "COPY_LATE", TICK)
    for found, said in (
        (old, "for 3 s, or this standby lags"),
        (Backlog(copied_up_to=ago(500)), "for 1 s, or this standby lags"),
        (Backlog(), None),
    ):
        context, _ = looking(found, shared=True)
        if said is None:
            await must_have_read(context)
            continue
        with pytest.raises(NotAllRead, match=said):
            await must_have_read(context)
