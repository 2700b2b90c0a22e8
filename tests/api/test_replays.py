"""A genuine delivery that is captured and sent again never has a second effect, at any time."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from app.evidence.seal import open_signer, seal_all
from app.orders.read_orders import order_document
from app.orders.refold import refold_until_quiet
from app.privacy.backup import back_up, restore
from app.privacy.prune import Retention, prune_settled
from app.privacy.replay_erasures import Replayed
from app.receiving.inbox import Inbox
from reconcile.instants import DAY, NO_TIME, SECOND, TICK, Instant
from tests.api.driving import Driver, driving, environ, signed
from tests.contexts import settings_of
from tests.privacy.test_erase import erased, paid, quiet
from tests.reconcile.build import T

BODY = json.dumps(paid("ORD-1", "e1")).encode()
CAPTURED = signed(BODY)
"""Headers signed at T. Every replay sends exactly these bytes."""

OPEN: dict[str, Any] = dict.fromkeys(
    ("REJECTIONS_PER_MINUTE", "REJECTIONS_PER_MINUTE_PER_ADDRESS"), "1000000"
)


async def replayed(driver: Driver, at: Instant) -> str:
    """Send the captured request at an instant; return its verdict."""
    driver.clock.put(at)
    answer = await driver.send(BODY, CAPTURED)
    assert answer.status_code in (200, 401)
    return str(answer.json().get("verdict", "refused"))


async def effects(driver: Driver) -> tuple[Any, ...]:
    """Return the events, the published ledgers, and the money received and returned."""
    await refold_until_quiet(driver.context, limit=100, progress=quiet)
    counts = [driver.rows(f"SELECT count(*) FROM {name}")[0][0] for name in ("events", "revisions")]
    ledger = await order_document(driver.context, "ORD-1", as_of=T + 90 * DAY)
    return (*counts, ledger["outcome"], json.dumps(ledger["totals"]))


EDGES = [
    (-301, "refused", "timestamp_too_new"), (-300, "duplicate", None), (-299, "duplicate", None),
    (0, "duplicate", None), (299, "duplicate", None), (300, "duplicate", None),
    (301, "refused", "timestamp_too_old"), (30 * DAY // SECOND, "refused", "timestamp_too_old"),
]  # fmt: skip
"""Seconds after signing, the expected verdict, and the stored reason."""


async def replay_at_every_edge(driver: Driver) -> None:
    """Check each edge's verdict, and that no effect changes."""
    before = await effects(driver)
    for seconds, verdict, reason in EDGES:
        assert await replayed(driver, T + seconds * SECOND) == verdict, seconds
        if reason is not None:
            last = "SELECT verdict FROM rejections ORDER BY rowid DESC LIMIT 1"
            assert driver.rows(last) == [(reason,)]
    assert await effects(driver) == before


async def sent_anew(driver: Driver, at: Instant) -> str:
    """Send the same body, signed at the time of its arrival. Return its verdict."""
    driver.clock.put(at)
    answer = await driver.send(BODY)
    return str(answer.json()["verdict"])


async def test_the_first_time_it_has_its_effect(tmp_path: Path) -> None:
    """Without an effect, the tests below would show nothing."""
    async with driving(tmp_path, with_worker=False) as driver:
        assert await replayed(driver, T + 300 * SECOND) == "stored"
        assert (await effects(driver))[:3] == (1, 1, "succeeded")
        await replay_at_every_edge(driver)
        assert await sent_anew(driver, T + 30 * DAY) == "duplicate"
        assert (await effects(driver))[:3] == (1, 1, "succeeded")


SPELLINGS = [
    "0{}", "00{}", "+{}", " {}", "{} ", "\t{}", "{}.0", "{}.9", "{}e0", "{}000", "{}000000",
    "0x{:x}", "{:_}", "{:,}", "-{}", "{}\x00", "{},{}", "{}Z", "({})", "'{}'",
]  # fmt: skip


async def test_a_timestamp_written_otherwise_than_signed_is_refused(tmp_path: Path) -> None:
    async with driving(tmp_path, with_worker=False) as driver:
        assert await replayed(driver, T) == "stored"
        before = await effects(driver)
        for spelling in SPELLINGS:
            stamp = spelling.format(T // SECOND, T // SECOND).encode()
            headers = [
                (name, stamp if name == b"webhook-timestamp" else value) for name, value in CAPTURED
            ]
            assert (await driver.send(BODY, headers)).status_code == 401, spelling
        assert await effects(driver) == before


async def pruned(driver: Driver) -> None:
    """Delete the delivery's body, as retention does after a month."""
    driver.clock.put(T + 40 * DAY)
    await effects(driver)
    signer = await open_signer(driver.context)
    await seal_all(driver.context, signer)
    month = Retention(quiet=30 * DAY, sources=frozenset({"shop"}))
    assert (await prune_settled(driver.context, month, progress=quiet)).deliveries > 0
    assert driver.rows("SELECT count(*) FROM deliveries WHERE body IS NOT NULL") == [(0,)]


async def wiped(driver: Driver) -> None:
    """Erase the delivery's customer."""
    driver.clock.put(T + 40 * DAY)
    await effects(driver)
    assert (await erased(driver)).kept == []
    assert driver.rows("SELECT count(*) FROM deliveries WHERE body IS NOT NULL") == [(0,)]


@pytest.mark.parametrize("lose", [pruned, wiped])
async def test_after_its_body_is_gone(tmp_path: Path, lose: Any) -> None:
    """Pruned or erased, it stays a duplicate; a clock that is set back does not make it new."""
    async with driving(tmp_path, with_worker=False) as driver:
        driver.context = driver.service.context
        assert await replayed(driver, T) == "stored"
        await lose(driver)
        await replay_at_every_edge(driver)
        assert await sent_anew(driver, T + 60 * DAY) == "duplicate"
        assert (await effects(driver))[:3] == (1, 1, "succeeded")


async def nobody(inbox: Inbox) -> Replayed:
    """Return that nobody was erased since the backup."""
    return Replayed()


@pytest.mark.parametrize("before", [True, False])
async def test_after_a_restore(tmp_path: Path, before: bool) -> None:
    """From a backup with it, it is a duplicate. From one without it, it is accepted once and then a
    duplicate."""
    url, file = environ(tmp_path)["TALLYHOOK_DATABASE_URL"], tmp_path / "one.backup"
    words: dict[str, Any] = {"progress": lambda done, total: None}
    async with driving(tmp_path, with_worker=False) as driver:
        if before:
            await back_up(settings_of(url), file, replace=False, **words)
        assert await replayed(driver, T) == "stored"
        await effects(driver)
        if not before:
            await back_up(settings_of(url), file, replace=False, **words)
        clock = driver.clock
    await restore(
        settings_of(url),
        file,
        replace=True,
        clock=clock,
        erase_again=nobody,
        **words,
        accepts="a test",
    )
    async with driving(tmp_path, with_worker=False) as driver:
        # What the inbox still held when the backup was put back has been read from there again.
        assert await replayed(driver, T) in (("stored", "duplicate") if before else ("duplicate",))
        await replay_at_every_edge(driver)
        # What the backup has is held for the accepted gap, which one more revision says.
        assert (await effects(driver))[:3] == (1, 1 if before else 2, "succeeded")


@pytest.mark.soak
@pytest.mark.timeout(1_800)
async def test_ten_thousand_replays(tmp_path: Path) -> None:
    """They come at random instants, as captured or signed anew; the body is deleted half way. A
    later fold may publish that nobody shipped the order; event and money stay."""
    rng, total = Random(1), {"duplicate": 0, "refused": 0}
    async with driving(tmp_path, with_worker=False, **OPEN) as driver:
        driver.context = driver.service.context
        assert await replayed(driver, T) == "stored"
        before = await effects(driver)
        for number in range(10_000):
            if number == 5_000:
                await wiped(driver)
            at = T + rng.randrange(-400, 401) * SECOND + rng.choice((NO_TIME, NO_TIME, TICK, -TICK))
            send = replayed if rng.random() < 0.8 else sent_anew
            total[await send(driver, at)] += 1
        after = await effects(driver)
        assert (after[0], *after[2:]) == (before[0], *before[2:])
    assert min(total.values()) > 500
    print(f"replays: {total}, and one effect")
