"""`tallyhook unallocated`: a payment without an order is listed, shown, placed, and found again."""

import asyncio
import csv
import io
from pathlib import Path

import pytest

from tests.api.driving import driving, event
from tests.cli.test_commands import Run, run

__all__ = ["run"]


async def sent(folder: Path) -> None:
    """Receive a payment into the till, and an order."""
    async with driving(folder, with_worker=False) as driver:
        till = {"reference": "R1", "amount": 3250}
        await driver.send(event("e1", order=None, session=None, payment=till))
        await driver.send(event("e2", "pending"))


@pytest.fixture
def people(run: Run, tmp_path: Path) -> dict[str, tuple[str, str]]:
    """Return the options by which Ann and Ben of finance prove who they are."""
    asyncio.run(sent(tmp_path))
    run("operators", "add", "Boss", "--role", "admin")
    options = {}
    for name in ("Ann", "Ben"):
        run("operators", "add", name, "--role", "finance", "--by", "Boss")
        asked = ("operators", "token", name, "--until", "30d", "--by", "Boss", "--format", "json")
        file = tmp_path / f"{name}.token"
        file.write_text(run(*asked).document["token"])
        file.chmod(0o600)
        options[name] = ("--token-file", str(file))
    return options


def test_a_payment_is_listed_in_every_form(run: Run, tmp_path: Path) -> None:
    asyncio.run(sent(tmp_path))
    [found] = run("unallocated", "list", "--format", "json").document
    assert (found["id"], found["held"]["amount"]) == ("shop:R1", "3250.00")
    table = run("unallocated", "list", "--format", "csv").out
    [row] = csv.DictReader(io.StringIO(table))
    assert row["why"] == "It names no order, and nobody has said which one it is for."
    assert "shop:R1" in run("unallocated", "list").out
    assert run("unallocated", "list", "--source", "other", "--format", "json").document == []
    shown = run("unallocated", "show", "R1", "--format", "json").document
    assert (shown["state"], shown["suggestions"]) == ("open", [])
    assert run("unallocated", "show", "R1").out.startswith(row["why"])
    assert run("unallocated", "show", "nothing").code == 5


def test_an_order_that_only_another_shop_names_is_not_found(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def send() -> None:
        only = {"SOURCES__SHOP__ONLY": '{"data.shop": ["north"]}'}
        async with driving(tmp_path, with_worker=False, **only) as driver:  # type: ignore[arg-type]
            await driver.send(event("e1", shop="south"))

    asyncio.run(send())
    monkeypatch.setenv("TALLYHOOK_SOURCES__SHOP__ONLY", '{"data.shop": ["north"]}')
    for words in (("orders", "show", "ORD-1"), ("prove", "ORD-1")):
        answer = run(*words)
        said = "belongs to another shop or seller on the same account" in " ".join(
            answer.err.split()
        )
        assert (answer.code, said) == (5, True), answer


def test_two_people_assign_withdraw_and_dismiss(
    run: Run, people: dict[str, tuple[str, str]]
) -> None:
    """No limit is set, so each decision takes two."""
    why = ("--reason", "she rang")
    for words, state in (
        (("assign", "R1", "--order", "ORD-1"), "assigned"),
        (("withdraw", "R1"), "open"),
        (("dismiss", "R1", "--as", "other_business", "--to", "Income:Rent"), "dismissed"),
    ):
        refused = run("unallocated", *words, *why, "--by", "Ann")
        assert (refused.code, "a second operator must approve" in refused.err) == (2, True)
        proposed = run(*people["Ann"], "unallocated", *words, *why)
        assert (proposed.code, "Proposed as prp_" in proposed.err) == (0, True), proposed
        [waiting] = run("proposals", "list", "--format", "json").document
        run(*people["Ben"], "proposals", "approve", waiting["id"], *why)
        assert run("unallocated", "show", "R1", "--format", "json").document["state"] == state
    assert run("unallocated", "list", "--format", "json").document == []
    [dismissed] = run("unallocated", "list", "--all", "--format", "json").document
    assert (dismissed["dismissed"]["as"], dismissed["dismissed"]["to"]) == (
        "other_business",
        "Income:Rent",
    )
