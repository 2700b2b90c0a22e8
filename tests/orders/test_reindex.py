"""Reading everything again: no change without a corrected profile, and all of it with one."""

import re
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import ConfigurationError
from app.orders.order_facts import OrderFacts, tell_order
from app.orders.refold import refold_until_quiet
from app.orders.reindex import Reindexed, reindex
from app.privacy.check import check_database
from app.providers.profile import SHIPPED, load_profile
from app.providers.source import Source
from reconcile.instants import MILLISECOND, MINUTE, TICK, Instant
from reconcile.money import Money
from tests.api.driving import SECRET, Driver, driving, event, of_order
from tests.contexts import with_sources
from tests.database.builders import dump, quiet

INDEX = ("deliveries", "events", "links", "contested", "records", "revisions")


def source(folder: Path, **changes: str) -> Source:
    """Make a source whose profile is the shipped one with some lines changed."""
    text = (SHIPPED / "checkout.toml").read_text(encoding="utf-8")
    for key, value in changes.items():
        text = re.sub(rf"(?m)^{key} = .*$", f"{key} = {value}", text)
    path = folder / "changed.toml"
    path.write_text(text, encoding="utf-8")
    return Source(name="shop", profile=load_profile(str(path)), secrets=[SECRET])


def receive_with(driver: Driver, profile: Source) -> None:
    """Let the door read with another profile."""
    sources: Any = driver.service.webhooks.receiver.sources
    sources["shop"] = profile


async def fill(driver: Driver) -> None:
    """Store deliveries of every verdict, nameless ones among them, and a record."""
    nameless = event("e1", "pending", order=None)
    bodies: list[Any] = [nameless, event("e2"), event("e2"), event("e2", "declined"), b"{}", b"{}"]
    bodies += [
        of_order("O-2", "e3"),
        of_order("O-2", "e3"),
        event("e4", order={"reference": "O-3"}),
    ]
    for body in bodies:
        driver.clock.put(driver.clock.now() + MILLISECOND)
        assert (await driver.send(body)).status_code == 200
    facts = OrderFacts(order="O-4", money=Money(minor=1, currency="KES"))
    await tell_order(driver.context, facts)


async def test_an_unchanged_profile_changes_nothing(tmp_path: Path) -> None:
    """Reindexing with the same profile leaves every row of the index as it was."""
    async with driving(tmp_path, with_worker=False) as driver:
        await fill(driver)
        inbox = driver.service.inbox
        before = await dump(inbox, *INDEX, leave_out=["row"])
        counted: list[int] = []
        done = await reindex(
            with_sources(driver.context, {"shop": source(tmp_path)}), progress=counted.append
        )
        assert done == Reindexed(read=7, events=5, unreadable=2)
        assert sum(counted) == 7
        assert await dump(inbox, *INDEX, leave_out=["row"]) == before
        assert len(before["contested"]) == 2


async def test_every_order_is_folded_again(tmp_path: Path) -> None:
    """One that no delivery names, too, and one that none names any more; and a fold that had
    begun before does not count."""
    marks = "SELECT order_key, due_at, generation FROM order_due ORDER BY order_key"
    async with driving(tmp_path, with_worker=False) as driver:
        await fill(driver)
        await refold_until_quiet(driver.context, limit=100, progress=quiet)
        before = {order: generation for order, _, generation in driver.rows(marks)}
        driver.clock.put(Instant(driver.clock.now() + MINUTE))
        nowhere = source(tmp_path, order='"json:data.nothing"')
        await reindex(with_sources(driver.context, {"shop": nowhere}), progress=quiet)
        now = driver.clock.now()
        after = driver.rows(marks)
        assert {"O-2", "O-4"} <= {order for order, _, _ in after}
        assert all(
            due_at == now and generation > before.get(order, 0)
            for order, due_at, generation in after
        ), (before, after)


async def test_within_one_millisecond_the_first_stays_the_first(tmp_path: Path) -> None:
    """Deliveries of one millisecond keep their verdicts, though ids do not show their order."""
    async with driving(tmp_path, with_worker=False) as driver:
        for number in range(12):
            for claim in ("pending", "succeeded", "declined"):
                driver.clock.put(driver.clock.now() + TICK)
                await driver.send(of_order(f"O-{number}", f"e{number}", claim))
        before = await dump(driver.service.inbox, *INDEX, leave_out=["row"])
        await reindex(with_sources(driver.context, {"shop": source(tmp_path)}), progress=quiet)
        assert await dump(driver.service.inbox, *INDEX, leave_out=["row"]) == before


WRONG = {
    "the id stands elsewhere": {"id": '"json:data.nothing"'},
    "the amount stands elsewhere": {"payment": '"json:data.payment"'},
}


@pytest.mark.parametrize("name", WRONG)
async def test_a_corrected_profile_reads_the_unreadable(tmp_path: Path, name: str) -> None:
    """What a wrong profile could not read is read by the corrected one, redeliveries counted."""
    async with driving(tmp_path, with_worker=False) as driver:
        receive_with(driver, source(tmp_path, **WRONG[name]))
        for _ in range(3):
            assert (await driver.send(event("e1"))).json()["verdict"] == "unreadable"
        assert (await driver.api("GET", "/orders/ORD-1")).status_code == 404
        await reindex(with_sources(driver.context, {"shop": source(tmp_path)}), progress=quiet)
        ledger = (await driver.api("GET", "/orders/ORD-1")).json()
        assert ledger["outcome"] == "succeeded"
        assert [line["deliveries"] for line in ledger["timeline"]] == [3]
        assert driver.rows("SELECT verdict FROM deliveries ORDER BY verdict") == [
            ("duplicate",),
            ("duplicate",),
            ("stored",),
        ]
        receive_with(driver, source(tmp_path))
        assert (await driver.send(event("e1"))).json()["verdict"] == "duplicate"


async def test_a_wrong_profile_and_back(tmp_path: Path) -> None:
    """Reindexing with a wrong profile and then with the right one loses nothing."""
    async with driving(tmp_path, with_worker=False) as driver:
        await fill(driver)
        before = await dump(driver.service.inbox, *INDEX, leave_out=["row"])
        for place in ("json:data.nothing", "json:type"):
            wrong = source(tmp_path, id=f'"{place}"')
            await reindex(with_sources(driver.context, {"shop": wrong}), progress=quiet)
            assert await dump(driver.service.inbox, *INDEX, leave_out=["row"]) != before
        await reindex(with_sources(driver.context, {"shop": source(tmp_path)}), progress=quiet)
        assert await dump(driver.service.inbox, *INDEX, leave_out=["row"]) == before


async def test_a_missing_source_changes_nothing(tmp_path: Path) -> None:
    """Without the source of a stored delivery nothing is changed, and the variable is named."""
    async with driving(tmp_path, with_worker=False) as driver:
        await fill(driver)
        before = await dump(driver.service.inbox, *INDEX, "order_due")
        with pytest.raises(ConfigurationError, match="TALLYHOOK_SOURCES__SHOP__PROFILE"):
            await reindex(with_sources(driver.context, {}), progress=quiet)
        assert await dump(driver.service.inbox, *INDEX, "order_due") == before


async def test_an_event_of_the_other_environment_does_not_count(tmp_path: Path) -> None:
    """Let in under a profile that did not find what it says of it, it is found and left out."""
    text = (SHIPPED / "checkout.toml").read_text(encoding="utf-8")
    blind = tmp_path / "blind.toml"
    blind.write_text(text.replace('"json:environment"', '"json:nothing"'), encoding="utf-8")
    async with driving(tmp_path, with_worker=False) as driver:
        right = driver.service.sources["shop"]
        profile = load_profile(str(blind))
        receive_with(driver, Source(name="shop", profile=profile, secrets=[SECRET]))
        await driver.send(event("e1", environment="live"))
        await driver.send(of_order("O-2", "e2"))
        report = await check_database(
            with_sources(driver.context, {"shop": right}), deep=1, progress=quiet
        )
        assert any("differs from its body" in problem for problem in report.problems)
        done = await reindex(with_sources(driver.context, {"shop": right}), progress=quiet)
        assert done == Reindexed(read=2, events=1, unreadable=1)
        assert (await driver.api("GET", "/orders/ORD-1")).status_code == 404
        kept = driver.rows("SELECT verdict, problem FROM deliveries ORDER BY id")
        assert ("unreadable", "it is from live, but this database is for sandbox") in kept
        report = await check_database(
            with_sources(driver.context, {"shop": right}), deep=1, progress=quiet
        )
        assert not report.problems
