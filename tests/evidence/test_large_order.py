"""An order with thousands of events, most of them redelivered: its bundle, its rows and its page.

The gate has a twenty-fifth of it: 200 events and 2,000 redeliveries.
"""

import asyncio
import json
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app.access.operators import register_operator
from app.cli import main
from app.console.orders_pages import EVENTS
from app.core.errors import UsageError
from app.evidence import verify, verify_entries
from app.evidence.dispute_case import CaseRequest
from app.evidence.dispute_letter import LetterTextDocument, letter_of
from app.evidence.verify_evidence import verify_evidence
from app.evidence.verify_forms import read_json
from app.finance.read_lines import lines_naming
from app.orders.read_orders import (
    LedgerDocument,
    OrderRowDocument,
    list_orders,
    listed_documents,
    order_document,
)
from reconcile.instants import DAY
from reconcile.ledger.grouping import ONE_BY_ONE
from tests.api.driving import driving, environ
from tests.console.conftest import console_over
from tests.evidence.conftest import build
from tests.evidence.large_order import ORDER, put_large_order
from tests.reconcile.build import T

LATE = T + 400 * DAY
ROW_BYTES = 1_500
"""Bytes of an order's row in a list, as JSON: a kilobyte, its names, and what staff must do."""


@dataclass
class LargeOrder:
    """One large order: its bundle, its document and its row in a list."""

    events: int
    redeliveries: int
    folder: Path
    archive: bytes
    letter: LetterTextDocument
    document: LedgerDocument
    row: OrderRowDocument
    seconds: dict[str, float]


async def made(folder: Path, *, events: int, redeliveries: int) -> LargeOrder:
    took = dict[str, float]()
    async with driving(folder, with_worker=False) as driver:
        await put_large_order(driver, events=events, redeliveries=redeliveries)
        began = time.process_time()
        document = await order_document(driver.context, ORDER)
        took["document"] = time.process_time() - began
        rows = await list_orders(driver.context, after="", limit=9, outcome=None, finding=None)
        (row,) = await listed_documents(driver.context, rows)
        driver.clock.put(LATE)
        began = time.process_time()
        archive = await build(driver, ORDER, as_of=None, reason="dispute 12")
        took["bundle"] = time.process_time() - began
        began = time.process_time()
        letter = await letter_of(driver.context, CaseRequest(order=ORDER), lines=lines_naming)
        took["letter"] = time.process_time() - began
    return LargeOrder(events, redeliveries, folder, archive, letter.document, document, row, took)


@pytest.fixture(
    scope="module",
    params=[25, pytest.param(1, marks=pytest.mark.soak)],
    ids=["a twenty-fifth", "5,000 events and 50,000 redeliveries"],
)
def large(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LargeOrder:
    size, folder = request.param, tmp_path_factory.mktemp("large")
    return asyncio.run(made(folder, events=5_000 // size, redeliveries=50_000 // size))


def test_its_bundle_shows_each_event_whole_and_proves_each_redelivery(large: LargeOrder) -> None:
    began = time.process_time()
    found = verify_evidence(large.archive)
    took = time.process_time() - began
    assert found.valid, [each for each in found.steps if each.passed is False]
    members = verify.unpack(large.archive)
    heard = json.loads(members["history.json"])["deliveries"]
    assert len(heard) == large.events == sum(name.endswith(".body") for name in members)
    again = [name for each in heard for name, _ in each["again"]]
    leaves = {each["id"] for each in json.loads(members["log.json"])["leaves"]}
    assert len(again) == large.redeliveries == len(set(again) & leaves)
    print(
        f"{len(leaves):,} leaves, {len(large.archive):,} bytes: built in "
        f"{large.seconds['bundle']:.1f} s, verified in {took:.1f} s, "
        f"{1e6 * took / len(leaves):.0f} µs a leaf; document {large.seconds['document']:.1f} s, "
        f"letter {large.seconds['letter']:.1f} s"
    )


def test_each_leaf_is_parsed_once(large: LargeOrder, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that verifying takes time by the number of leaves, and no multiple of it."""
    names = list[str]()

    def counting(data: bytes, name: str) -> Any:
        names.append(name)
        return read_json(data, name)

    monkeypatch.setattr(verify_entries, "read_json", counting)
    bundle, _ = verify.check_steps(large.archive, verify.CHECKS, LATE)
    assert bundle is not None
    verify.unproven(bundle)
    assert len(names) == len(set(names)) > large.events + large.redeliveries


def test_a_letter_to_a_bank_has_its_newest_facts(large: LargeOrder) -> None:
    assert large.letter["facts_left_out"] > large.events // 4
    assert len(json.dumps(large.letter)) < 20_000


def test_its_letter_is_as_short_as_any(large: LargeOrder) -> None:
    members = verify.unpack(large.archive)
    letter = members["report.html"].decode()
    total = f"{large.events + large.redeliveries:,} requests of the payment service arrived"
    assert total in letter
    assert f"{large.redeliveries:,} of them repeated earlier requests" in letter
    assert len(letter) < 20_000
    assert len(members["explanation.txt"]) < 5_000


def test_its_document_has_one_finding_for_each_thing_found(large: LargeOrder) -> None:
    codes = [each["code"] for each in large.document["findings"]]
    assert max(Counter(codes).values()) <= ONE_BY_ONE
    (again,) = (e for e in large.document["findings"] if e["code"] == "redelivered")
    assert again["facts"] == {"alike": large.events, "deliveries": 11}
    assert len(again["cites"]) == large.events
    assert len(large.document["explanation"]) < 20
    assert max(map(len, large.document["explanation"])) < 600


def test_its_row_in_a_list_is_as_small_as_any(large: LargeOrder) -> None:
    assert len(json.dumps(large.row)) < ROW_BYTES


def test_the_command_shows_the_newest_of_it(
    large: LargeOrder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in environ(large.folder).items():
        monkeypatch.setenv(name, value)
    assert main.run(["orders", "show", ORDER]) == 0
    shown = capsys.readouterr().out
    assert f"{large.events - 50:,} earlier rows are not shown: --format json lists all." in shown
    assert len(shown) < 60_000


async def test_its_page_has_the_newest_events_and_leads_to_all(large: LargeOrder) -> None:
    async with console_over(large.folder) as console:
        console.driver.clock.put(LATE)
        with suppress(UsageError):  # the fixture's folder is shared
            await register_operator(console.context, name="a admin", role="admin", by=None)
        async with console.signed_in("admin") as client:
            page = (await client.get(f"/orders/{ORDER}")).text
            older = (await client.get(f"/orders/{ORDER}?before=101")).text
    assert len(page) < 250_000
    assert page.count('id="event-') == older.count('id="event-') == EVENTS
    first = large.events - EVENTS + 1
    assert f'id="event-{first}"' in page
    assert f"Events {first:,} to {large.events:,} of {large.events:,}." in page
    assert f'href="/orders/{ORDER}?before={first}"' in page
    assert 'id="event-1"' in older
    assert 'href="?before=2#event-1"' in page
    assert f"<small>and {large.events - 8:,} more</small>" in page
    earlier = large.events + large.redeliveries - EVENTS
    assert f'{earlier:,} earlier: <a href="/deliveries?order={ORDER}">' in page
