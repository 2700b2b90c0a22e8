"""Commands around an upgrade: what it would do, what it holds, and how that is released."""

import csv
import io
import json
from pathlib import Path

import pytest

from app.evidence.verify import unpack
from tests.api.driving import driving, event, of_order
from tests.cli.test_commands import Run, run
from tests.copied import copy_of
from tests.database.contract_holds import rules_of_before
from tests.rows import for_each
from tests.waiting import soon

__all__ = ["run"]


async def _by_an_earlier_version(folder: Path) -> None:
    with rules_of_before():
        async with driving(folder, looking=True) as driver:
            await driver.send(event("e1"))
            await driver.send(of_order("O-2", "e2"))
            await driver.send(of_order("O-3", "e3", "declined"))
            await soon(lambda: len(driver.rows("SELECT seq FROM revisions")) == 3)


@pytest.fixture
def upgraded(run: Run, tmp_path: Path) -> Run:
    """Run this version's commands on a database of an earlier one: two paid orders that it called
    unresolved, and one that failed."""
    copy_of(_by_an_earlier_version, tmp_path)
    return run


def test_a_dry_run_in_every_form(upgraded: Run) -> None:
    """The same in a table, as JSON and as CSV; the database is not touched."""
    ended = upgraded("db", "upgrade", "--dry-run", "--format", "json")
    assert ended.code == 0
    assert (ended.document["migrations"], ended.document["orders"]) == ([], 3)
    assert ended.document["outcomes"] == [
        {"before": "unresolved", "after": "succeeded, held", "orders": 2}
    ]
    held = [each["order"] for each in ended.document["held"]]
    assert held == ["O-2", "ORD-1"]
    lines = list(
        csv.DictReader(io.StringIO(upgraded("db", "upgrade", "--dry-run", "--format", "csv").out))
    )
    assert [each["name"] for each in lines if each["what"] == "held"] == held
    table = upgraded("db", "upgrade", "--dry-run")
    assert all(order in table.out for order in held)
    assert table.err == (
        "Nothing was changed. Due: 0 migrations. Of 3 orders 2 would be published differently, and "
        "2 would be held until `tallyhook orders release`.\n"
    )
    rows = [
        json.loads(line)
        for line in upgraded("db", "upgrade", "--dry-run", "--format", "jsonl").out.splitlines()
    ]
    assert len(rows) == 3


def test_what_is_held_is_listed_reported_and_released(upgraded: Run) -> None:
    """From the rebuild to the release of one and of all that are left."""
    assert upgraded("refold", "--all").code == 0
    listed = upgraded("orders", "list", "--finding", "held_back", "--format", "json").document
    assert [(each["order"], each["fulfillable"]) for each in listed] == [
        ("O-2", False),
        ("ORD-1", False),
    ]
    shown = upgraded("orders", "show", "ORD-1").out
    assert "released" in shown
    (advice,) = [e for e in upgraded("doctor", "--format", "json").document if e["what"] == "held"]
    assert advice["state"] == "weak"
    assert advice["sentence"].startswith("2 orders are held")
    assert "orders release" in advice["do"]
    ended = upgraded("orders", "release", "ORD-1", "--reason", "shipped in May", "--by", "Ann")
    assert (ended.code, ended.err.partition(".")[0]) == (0, "1 order released")
    ended = upgraded("orders", "release", "--all")
    assert (ended.code, ended.err.partition(".")[0]) == (0, "1 order released")
    assert upgraded("refold").code == 0
    assert upgraded("orders", "list", "--finding", "held_back", "--format", "json").document == []
    assert upgraded("orders", "show", "ORD-1", "--format", "json").document["fulfillable"]
    trail = upgraded("audit", "list", "--format", "json").document
    assert [(each["who"], each["action"], each["reason"]) for each in trail][:1] == [
        ("Ann", "orders_released", "shipped in May")
    ]
    assert (
        upgraded("orders", "release", "--all").err
        == "No order is held for the reason rules_changed.\n"
    )
    assert upgraded("db", "check").code == 0


@for_each(
    ("words", "code", "message"),
    [
        ((), 2, "give either the orders to release or --all, not both"),
        (("ORD-1", "--all"), 2, "give either the orders to release or --all, not both"),
        (
            ("ORD-1", "--held-for", "fun"),
            2,
            "--held-for must be one of: rules_changed, poisoned_del",
        ),
        (("ORD-1", "--reason", "ask +254 711 223 344"), 2, "remove the phone number"),
        (("O-3",), 5, "O-3 is not held (rules_changed), so nothing was released"),
        (("ORD-1", "O-3", "O-9"), 5, "O-3, O-9 are not held (rules_changed)"),
    ],
)
def test_what_cannot_be_released_is_said_in_a_sentence(
    upgraded: Run, words: tuple[str, ...], code: int, message: str
) -> None:
    """And nothing is."""
    ended = upgraded("orders", "release", *words)
    assert (ended.code, message in ended.err, ended.out) == (code, True, ""), ended.err
    assert len(ended.err.splitlines()) == 1
    assert upgraded("audit", "list", "--format", "json").document == []


def test_evidence_before_the_worker_came_says_that_it_is_held(
    upgraded: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hold is recorded and sealed first, so the bundle is whole and says what the feed will."""
    monkeypatch.chdir(tmp_path)
    assert upgraded("evidence", "build", "ORD-1", "-o", "a.zip").code == 0
    assert upgraded("evidence", "verify", "a.zip").code == 0
    files = unpack((tmp_path / "a.zip").read_bytes())
    ledger = json.loads(files["ledger.json"])
    assert not ledger["fulfillable"]
    (finding,) = [each for each in ledger["findings"] if each["code"] == "held_back"]
    assert finding["cites"][0] in files["history.json"].decode()
    assert upgraded("refold", "--all").code == 0
    shown = upgraded("orders", "show", "ORD-1", "--format", "json").document
    assert [e["cites"] for e in shown["findings"] if e["code"] == "held_back"] == [finding["cites"]]
