"""One request, several events: each is kept, judged and kept apart by itself."""

import asyncio
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

from app.config.load import load_settings
from app.context.configured import compile_sources
from app.orders.refold import refold_until_quiet
from app.orders.reindex import Reindexed, reindex
from app.orders.retention_store import prune
from app.providers.source import Source
from reconcile.instants import DAY
from tests.api.driving import Driver, driving, environ
from tests.contexts import with_sources
from tests.reconcile.build import T

PROFILE = """
[signature]
mac = "hmac-sha256"
where = "header:webhook-signature"
signed = "{body}"
[event]
items = "events[*]"
id = "json:id"
kind = "json:action"
order = "json:order"
payment = "json:payment"
[amounts]
unit = "minor"
payment = "json:amount"
payment_currency = "json:currency"
[claims]
paid = "succeeded"
failed = "declined"
"""
KEY = "kP3vX9qLm2TzRw8YsBn5Jd7Hf4Gc6Ea1"
KEYS = {"shop": KEY, "till": "uV2nC8rWq5XyMb1KzTd9Gs3Lh7Fj4Pe6"}


def item(number: int, action: str = "paid", **more: Any) -> dict[str, Any]:
    """Build one event of order O-number."""
    named = {"id": f"EV{number}", "action": action, "order": f"O-{number}", "payment": f"P{number}"}
    return {**named, "amount": 500, "currency": "EUR", **more}


def service(folder: Path, profile: str = PROFILE, **more: Any) -> Any:
    """Run a service with one source that sends batches."""
    path = folder / "batches.toml"
    path.write_text(profile)
    return driving(folder, SOURCES__SHOP__PROFILE=str(path), SOURCES__SHOP__SECRETS=KEY, **more)


async def again(driver: Driver, folder: Path, **more: str) -> Reindexed:
    """Rebuild the index, with the profile as the file has it now."""
    return await reindex(
        with_sources(driver.context, now(folder, **more)), progress=lambda count: None
    )


def now(folder: Path, **more: str) -> dict[str, Source]:
    """Return the sources, with the profile as the file has it now."""
    path = str(folder / "batches.toml")
    more = {"SOURCES__SHOP__PROFILE": path, "SOURCES__SHOP__SECRETS": KEY, **more}
    return compile_sources(load_settings(environ(folder, **more)))


async def send(driver: Driver, *items: Any, source: str = "shop") -> dict[str, Any]:
    """Deliver a batch; the answer."""
    body = json.dumps({"events": items}).encode()
    mac = hmac.new(KEYS[source].encode(), body, hashlib.sha256).hexdigest().encode()
    answer = await driver.send(body, [(b"webhook-signature", mac)], source=source)
    assert answer.status_code == 200
    return dict(answer.json())


async def outcomes(driver: Driver, *orders: str) -> list[str]:
    """List the outcomes of these orders."""
    await refold_until_quiet(driver.context, limit=100, progress=lambda count: None)
    return [(await driver.api("GET", f"/orders/{order}")).json()["outcome"] for order in orders]


async def test_each_event_of_a_batch_is_an_event(tmp_path: Path) -> None:
    """Three orders from one request; the whole body is kept once beside the parts."""
    async with service(tmp_path) as driver:
        answer = await send(driver, item(1), item(2, "failed"), item(3))
        assert answer["verdict"] == "stored"
        assert await outcomes(driver, "O-1", "O-2", "O-3") == ["succeeded", "failed", "succeeded"]
        assert driver.rows("SELECT count(*) FROM envelopes") == [(1,)]
        names = [row[0] for row in driver.rows("SELECT id FROM deliveries ORDER BY id")]
        assert names[0] == answer["delivery"]
        assert names[1:] == [f"{names[0]}-1", f"{names[0]}-2"]


async def test_an_event_in_another_batch_is_the_same_event(tmp_path: Path) -> None:
    """A redelivery beside new events is a duplicate by itself, and counts once."""
    async with service(tmp_path) as driver:
        await send(driver, item(1), item(2))
        assert (await send(driver, item(2), item(3)))["verdict"] == "stored"
        verdicts = driver.rows(
            "SELECT event_id, verdict FROM deliveries ORDER BY event_id, verdict"
        )
        assert verdicts == [
            ("EV1", "stored"), ("EV2", "duplicate"), ("EV2", "stored"), ("EV3", "stored"),
        ]  # fmt: skip
        assert (await send(driver, item(1), item(3)))["verdict"] == "duplicate"


async def test_one_that_cannot_be_read_takes_no_other_with_it(tmp_path: Path) -> None:
    """It is kept as unreadable, with its own bytes; the others count."""
    async with service(tmp_path) as driver:
        answer = await send(driver, item(1), item(2, amount="12,5"), item(3))
        assert answer["verdict"] == "unreadable"
        assert await outcomes(driver, "O-1", "O-3") == ["succeeded", "succeeded"]
        ((body, problem),) = driver.rows(
            "SELECT body, problem FROM deliveries WHERE verdict='unreadable'"
        )
        assert json.loads(body) == item(2, amount="12,5")
        assert problem.startswith("event 2 of 3: ")


async def test_another_body_of_one_event_is_reported(tmp_path: Path) -> None:
    """Of the verdicts of one request the most telling is answered."""
    async with service(tmp_path) as driver:
        await send(driver, item(1))
        answer = await send(driver, item(1, amount=900), item(2))
        assert answer["verdict"] == "duplicate_with_different_body"


async def test_a_body_that_was_pruned_is_kept_again_for_what_is_new(tmp_path: Path) -> None:
    """Another source sends the very bytes whose parts were deleted: they can be read again. What
    was deleted stays so where nothing of it is new."""
    path = tmp_path / "batches.toml"
    more = {"SOURCES__TILL__PROFILE": str(path), "SOURCES__TILL__SECRETS": KEYS["till"]}
    async with service(tmp_path, **more) as driver:
        await send(driver, item(1), item(2))
        ids = [row[0] for row in driver.rows("SELECT id FROM deliveries")]
        async with driver.context.database.writing() as connection:
            await prune(connection, ids, now=T + 90 * DAY)
        assert driver.rows("SELECT body FROM envelopes") == [(None,)]
        assert (await send(driver, item(1), item(2)))["verdict"] == "duplicate"
        assert driver.rows("SELECT body FROM envelopes") == [(None,)]
        assert (await send(driver, item(1), item(2), source="till"))["verdict"] == "stored"
        done = await again(driver, tmp_path, **more)
        assert (done.events, done.unreadable) == (4, 0)


async def test_a_body_that_was_deleted_is_not_kept_again_for_what_cannot_be_read(
    tmp_path: Path,
) -> None:
    """A part that could be read when it came, and no longer can: it is new however often it comes,
    and the whole body holds what another customer had erased."""
    batch = item(1), item(2, amount="12,50")
    async with service(tmp_path, PROFILE.replace('unit = "minor"', 'unit = "major"')) as driver:
        await send(driver, *batch)
        ids = [row[0] for row in driver.rows("SELECT id FROM deliveries")]
        async with driver.context.database.writing() as connection:
            await prune(connection, ids, now=T + 90 * DAY)
        (tmp_path / "batches.toml").write_text(PROFILE)
        driver.service.webhooks.receiver.sources["shop"] = now(tmp_path)["shop"]
        assert (await send(driver, *batch))["verdict"] == "unreadable"
        assert driver.rows("SELECT body FROM envelopes") == [(None,)]
        assert (await send(driver, item(2, amount="12,50"), item(3)))["verdict"] == "unreadable"
        assert driver.rows("SELECT count(*), count(body) FROM envelopes") == [(2, 1)]


async def test_the_whole_body_goes_with_the_last_of_its_events(tmp_path: Path) -> None:
    """As long as one of them is kept, it can be read again."""
    async with service(tmp_path) as driver:
        await send(driver, item(1), item(2))
        first, last = [row[0] for row in driver.rows("SELECT id FROM deliveries ORDER BY id")]
        for name, left in ((first, 1), (last, 0)):
            async with driver.context.database.writing() as connection:
                await prune(connection, [name], now=T + 90 * DAY)
            assert driver.rows("SELECT count(body) FROM envelopes") == [(left,)]
            assert (await again(driver, tmp_path)).events == 2


async def test_a_profile_that_finds_several_where_one_was_kept_says_so(tmp_path: Path) -> None:
    """The first does not stand for all."""
    async with service(tmp_path, PROFILE.replace('items = "events[*]"\n', "")) as driver:
        assert (await send(driver, item(1), item(2)))["verdict"] == "unreadable"
        (tmp_path / "batches.toml").write_text(PROFILE)
        done = await again(driver, tmp_path)
        assert (done.events, done.unreadable) == (0, 1)


async def test_a_batch_that_is_larger_than_the_queue_is_stored(tmp_path: Path) -> None:
    """However few deliveries may wait, and however few are written at once."""
    async with service(tmp_path, INBOX_QUEUE="2", INBOX_BATCH="2") as driver:
        assert (await send(driver, *map(item, range(9))))["verdict"] == "stored"
        assert driver.rows("SELECT count(*) FROM events") == [(9,)]


async def test_a_batch_can_be_read_again(tmp_path: Path) -> None:
    """A rebuilt index holds each event of a batch as before."""
    async with service(tmp_path) as driver:
        await send(driver, item(1), item(2, amount=[]), item(3))
        columns = "event_id, order_key, digest, amount"
        before = driver.rows(f"SELECT {columns} FROM events ORDER BY event_id")
        done = await again(driver, tmp_path)
        assert (done.read, done.events, done.unreadable) == (3, 2, 1)
        assert driver.rows(f"SELECT {columns} FROM events ORDER BY event_id") == before
        await asyncio.sleep(0)
