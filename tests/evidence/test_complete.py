"""Completeness of a bundle, by the tree of all orders of its day.

The forger has the shop's genuine key. A rewritten log is found by a checkpoint outside the shop.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from app.evidence.keys import EvidenceKey
from app.evidence.seal import open_signer, seal_all, seal_orders
from app.evidence.verify import report_lines, unpack
from app.evidence.verify_evidence import KeptCheckpoint, VerifiedBundle, verify_evidence
from app.orders.refold import refold_until_quiet
from reconcile.instants import DAY, HOUR, SECOND
from tests.api.driving import driving, event
from tests.evidence.conftest import build, changed, forged_with, refolded, seal_now
from tests.evidence.world import LATER
from tests.rows import for_each

Members = dict[str, bytes]


@dataclass(frozen=True)
class World:
    """Bundles of an order with a tree of the day before, and the key that signed them. `quiet`:
    nothing has come since the tree. `earlier`: of an hour before that tree."""

    full: bytes
    redacted: bytes
    quiet: bytes
    earlier: bytes
    key: EvidenceKey


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("complete")

    async def made() -> World:
        async with driving(folder, with_worker=False, looking=True) as driver:
            signer = await open_signer(driver.context)
            for name, order in (("o1", "ORD-2"), ("e1", "ORD-1"), ("e2", "ORD-1")):
                await driver.send(event(name, "pending", order={"reference": order}))
            await refold_until_quiet(driver.context, limit=10, progress=lambda count: None)
            await seal_all(driver.context, signer)
            assert await seal_orders(driver.context)
            quiet = await build(driver, as_of=None)
            driver.clock.put(LATER + DAY)
            assert await seal_orders(driver.context)
            driver.clock.put(LATER + DAY + HOUR)
            await driver.send(event("e3", "succeeded", order={"reference": "ORD-1"}))
            full = await build(driver, as_of=None, reason="dispute 12")
            redacted = await build(driver, as_of=None)
            earlier = await build(driver, as_of=LATER + DAY - HOUR)
            return World(full, redacted, quiet, earlier, signer.key)

    return asyncio.run(made())


def first_line_left_open(found: VerifiedBundle) -> str:
    return report_lines(list(found.steps), found.not_proven)[2]


def steps(found: VerifiedBundle) -> dict[str, Any]:
    return {each.name: (each.passed, each.sentence) for each in found.steps}


def test_a_bundle_says_until_when_nothing_is_missing(world: World) -> None:
    """And what that rests on; a checkpoint that was kept takes the condition away."""
    for archive in (world.full, world.redacted):
        found = verify_evidence(archive, trusted=world.key.public)
        assert found.valid
        passed, said = steps(found)["completeness"]
        assert passed
        assert "including all that the tree of all orders of 2026-" in said
        line = first_line_left_open(found)
        said = "- that nothing about the order was left out since 2026-12-31T10:00:00Z"
        assert line.startswith(said)
        assert "only if a checkpoint whose size is at least 9 left the shop before" in line
    note = unpack(world.full)["checkpoint.txt"].decode()
    found = verify_evidence(world.full, kept=KeptCheckpoint(note=note), trusted=world.key.public)
    assert first_line_left_open(found).endswith("left out since 2026-12-31T10:00:00Z")


def _gone(*subjects: Callable[[Members], str]) -> Callable[[Members], None]:
    """Deliveries and what the shop was sent, out of the bundle with their leaves."""

    def change(members: Members) -> None:
        names = {each(members) for each in subjects}
        for name in [each for each in members if each.split(".")[0][9:] in names]:
            del members[name]
        for file, kept in (
            ("history.json", lambda found: found["deliveries"]),
            ("log.json", lambda found: found["leaves"]),
        ):

            def take(found: Any, kept: Callable[[Any], list[Any]] = kept) -> None:
                kept(found)[:] = [
                    each for each in kept(found)
                    if each.get("delivery_id", each.get("id")) not in names
                ]  # fmt: skip

            changed(file, take)(members)
        changed("log.json", lambda log: [log["parts"].pop(each, None) for each in names])(members)
        changed(
            "revisions.json",
            lambda revisions: revisions.__setitem__(
                slice(None), [each for each in revisions if f"revision:{each['seq']}" not in names]
            ),
        )(members)

    return change


def _delivery(number: int) -> Callable[[Members], str]:
    def named(members: Members) -> str:
        found = json.loads(members["history.json"])["deliveries"][number]["delivery_id"]
        assert isinstance(found, str)
        return found

    return named


def _last_revision(members: Members) -> str:
    return f"revision:{json.loads(members['revisions.json'])[-1]['seq']}"


def test_what_the_tree_counts_cannot_be_left_out(world: World) -> None:
    """Not even the last of it, with all that came later; nor can the tree be made to count less."""

    def count_less(members: Members) -> None:
        _gone(_last_revision)(members)
        changed("log.json", lambda log: log["tree"].update(leaves=log["tree"]["leaves"] - 1))(
            members
        )

    for change in (_gone(_last_revision), _gone(_last_revision, _delivery(-1)), count_less):
        found = verify_evidence(forged_with(world.key, world.quiet, change))
        assert "completeness" in [each.name for each in found.steps if each.passed is False]


def test_what_came_after_the_tree_is_reported_as_not_proven(world: World) -> None:
    for archive in (world.full, world.redacted):
        forged = forged_with(world.key, archive, _gone(_delivery(-1)))
        found = steps(verify_evidence(forged))
        assert found["completeness"][0]
        line = first_line_left_open(verify_evidence(forged))
        assert "nothing about the order was left out since" in line


@for_each(
    ("what", "change"),
    [
        ("another path", lambda tree: tree["path"][0].__setitem__(1, "00" * 32)),
        ("another way", lambda tree: tree["path"].append([255, "00" * 32])),
        ("another last one", lambda tree: tree.update(last=tree["last"] - 1)),
        ("another leaf", lambda tree: tree.update(leaf="revision:1")),
    ],
)
def test_a_tree_that_was_made_up(
    world: World, what: str, change: Callable[[dict[str, Any]], None]
) -> None:
    forged = forged_with(
        world.key, world.full, changed("log.json", lambda log: change(log["tree"]))
    )
    failed = [each.name for each in verify_evidence(forged).steps if each.passed is False]
    assert failed == ["completeness"], what


def test_the_tree_of_the_bundles_day_cannot_be_left_out(world: World) -> None:
    """With it the tail could go: what was paid twice would be paid in full."""
    forged = forged_with(
        world.key, world.full, changed("log.json", lambda log: log.update(tree=None))
    )
    assert steps(verify_evidence(forged))["completeness"] == (
        False,
        "The tree of all orders lacks this order, although the order is older than the bundle's "
        "day.",
    )


def test_on_its_first_day_an_order_may_be_in_no_tree(world: World) -> None:
    forged = forged_with(
        world.key, world.quiet, changed("log.json", lambda log: log.update(tree=None))
    )
    assert steps(verify_evidence(forged))["completeness"][0]
    line = first_line_left_open(verify_evidence(forged))
    assert line.endswith(": no tree of all orders counts its entries yet")


def test_a_bundle_of_an_earlier_instant_says_until_then_that_nothing_is_missing(
    world: World,
) -> None:
    """A tree that was made later counts what came by the bundle's instant, and more."""
    found = verify_evidence(world.earlier)
    assert found.valid, found.steps
    assert (
        "the tree of all orders of 2026-12-31T09:00:00Z counts" in steps(found)["completeness"][1]
    )
    assert "since 2026-12-31T09:00:00Z" in first_line_left_open(found)


def test_the_time_is_that_of_the_snapshot(world: World) -> None:
    """What came an hour later is not said to be counted."""
    log = json.loads(unpack(world.full)["log.json"])
    (leaf,) = (each for each in log["leaves"] if each["id"] == log["tree"]["leaf"])
    assert json.loads(leaf["leaf"])["at"] == LATER + DAY


@pytest.mark.parametrize(
    ("counted", "with_tree"), [("leaves - 2", False), ("leaves - 2, last = 2", True)]
)
async def test_entries_that_repeat_a_number_fill_no_gap(
    tmp_path: Path, counted: str, with_tree: bool
) -> None:
    """The shop appends two entries with the numbers of a refund and its revision, and leaves out
    the two that were there. Behind the last entry their `after` shows it; behind the one before the
    refund, as if it had not been, the day's tree."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        await driver.send(event("e1", "pending"))
        await seal_now(driver)
        await driver.send(event("e2", "succeeded"))
        await seal_all(driver.context, await open_signer(driver.context))
        driver.clock.put(driver.clock.now() + SECOND)
        await driver.send(event("e3", "refunded", refund={"reference": "re_1", "amount": 1500}))
        await seal_now(driver)
        if with_tree:
            assert await seal_orders(driver.context)
        async with driver.context.database.writing() as connection:
            await connection.execute(text(f"UPDATE order_keys SET leaves = {counted}"))
        driver.clock.put(driver.clock.now() + SECOND)
        for name in ("e4", "e5"):
            await driver.send(event(name, "pending"))
        await seal_all(driver.context, await open_signer(driver.context))
        archive = await build(driver, as_of=None, reason="dispute 12")
        key = (await open_signer(driver.context)).key
    genuine = {json.loads(each["leaf"]).get("nth") for each in _entries(archive)}
    assert genuine == {1, 2, 3, 4, 5}

    def change(members: Members) -> None:
        _gone(_delivery(2), _last_revision)(members)
        refolded(members)

    found = steps(verify_evidence(forged_with(key, archive, change)))
    assert [name for name, (passed, _) in found.items() if passed is False] == ["completeness"]


def _entries(archive: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(unpack(archive)["log.json"])["leaves"]
    return [each for each in found if '"nth":' in each["leaf"]]
