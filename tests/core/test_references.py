"""One rule for references: what an event may name can be asked for, recorded, paid and imported."""

import asyncio
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from app.checkout.request import CheckoutRequestError, check_request
from app.core.references import fault_of, is_reference
from app.finance.files.line_forms import read_references
from app.finance.files.tables import UnclearCell
from app.orders.find_orders import find_orders
from tests.api.driving import Driver, driving, of_order
from tests.checkout.service import asked
from tests.cli.test_commands import Run, run

__all__ = ["run"]

TAKEN = [
    "ORD-1", "x", "a" * 200, "é" * 200, "A/B", "..", "a b", "\u00e9", "注文-1",
    "🧾" * 100,
    "a\ufffdb", "\ufffd", "a\u00a0b", "a\u200bb", "\ufeffa", "a\u202eb", "\ue000", "a\u00adb",
    "%2F", "a?b#c", "a;b", "\"'", "a\\b", "\U0010ffff",
]  # fmt: skip
REFUSED = [
    "", " ", "\u00a0\u3000", "a" * 201, "a\u2028b", "a\u2029", "\u2028", "a\x00", "a\nb", "\tb",
    "\x1f", "a\n", "\x7f", "a\x85", "\x9fb",
]  # fmt: skip
NO_TEXT = ["\ud800", "a\udc80b"]
"""Halves of surrogate pairs, which have no bytes: no path and no book can hold one."""

TABLE = [*((each, True) for each in TAKEN), *((each, False) for each in REFUSED)]

PRICE = {"amount": "1500.00", "currency": "KES"}


def path_of(reference: str) -> str:
    """Return an order's path; dots are escaped."""
    return f"/orders/{quote(reference, safe='').replace('.', '%2E')}"


@pytest.fixture(scope="module", autouse=True)
def _there_is_a_table() -> None:
    assert len(TAKEN) > 20 < 3 * len(REFUSED)


async def events_taken(driver: Driver, reference: str, name: str) -> bool:
    """Return whether an event that names it is read."""
    return bool((await driver.send(of_order(reference, name))).json()["verdict"] == "stored")


@pytest.mark.slow
async def test_events_and_the_api_take_the_same(tmp_path: Path) -> None:
    """What an event may name, GET finds and PUT records; all else is refused."""
    async with driving(tmp_path, with_worker=False) as driver:
        for number, (reference, taken) in enumerate(TABLE):
            assert await events_taken(driver, reference, f"e{number}") is taken, repr(reference)
            if not reference:
                continue  # its path is that of the listing
            found = await driver.api("GET", path_of(reference))
            recorded = await driver.api("PUT", path_of(reference), json=PRICE)
            statuses = (found.status_code, recorded.status_code)
            assert statuses == ((200, 200) if taken else (422, 422)), repr(reference)
            if taken:
                assert recorded.json()["order"] == reference
                assert recorded.json()["outcome"] == "succeeded"
            else:
                assert found.json()["code"] == "reference_invalid"
        for number, half in enumerate(NO_TEXT):
            assert not await events_taken(driver, half, f"h{number}")
        known = driver.rows("SELECT DISTINCT order_key FROM events WHERE order_key IS NOT NULL")
        assert {row[0] for row in known} == set(TAKEN)


async def test_one_letter_written_in_two_ways_is_one_order(run: Run, tmp_path: Path) -> None:
    """An accent may be a character of its own (NFD) or not (NFC): nobody sees a difference."""
    one, other = "Caf\u00e9-1", "Cafe\u0301-1"
    async with driving(tmp_path, with_worker=False) as driver:
        assert await events_taken(driver, other, "e1")
        recorded = await driver.api("PUT", path_of(one), json=PRICE)
        assert (recorded.json()["order"], recorded.json()["outcome"]) == (one, "succeeded")
        found = [(await driver.api("GET", path_of(each))).json()["order"] for each in (one, other)]
        assert found == [one, one]
        sought = [await find_orders(driver.context, each, limit=2) for each in (one, other)]
        assert [[hit["order"] for hit in each.hits] for each in sought] == [[one], [one]]
        assert driver.rows("SELECT DISTINCT order_key FROM events") == [(one,)]
    assert check_request(replace(asked(), order=other), live=False).order == one
    assert read_references([other]) == [one]
    shown = await asyncio.to_thread(run, "orders", "show", "--format", "json", "--", other)
    assert shown.document["order"] == one


@pytest.mark.parametrize("path", ["%ff", "a%c3", "%ed%a0%80", "a%c0%afb"])
async def test_a_path_that_is_no_utf8_names_no_order(tmp_path: Path, path: str) -> None:
    """It is not taken for the order whose reference has U+FFFD in its place."""
    async with driving(tmp_path, with_worker=False) as driver:
        for name in ("\ufffd", "a\ufffd", "\ufffd\ufffd\ufffd", "a\ufffd\ufffdb"):
            assert await events_taken(driver, name, f"e-{len(name)}-{name[0] == 'a'}")
        for method, words in (("GET", {}), ("PUT", {"json": PRICE})):
            answer = await driver.api(method, f"/orders/{path}", **words)
            assert (answer.status_code, answer.json()["code"]) == (422, "reference_invalid")


@pytest.mark.parametrize(("reference", "taken"), [*TABLE, *((each, False) for each in NO_TEXT)])
def test_a_payment_and_an_order_book_take_the_same(reference: str, taken: bool) -> None:
    """Except for surrounding spaces and formulas, which a cell may not have."""
    assert is_reference(reference) is taken
    assert (fault_of(reference) is None) is taken
    request = replace(asked(), order=reference)
    if taken:
        assert check_request(request, live=False).order == reference
    else:
        with pytest.raises(CheckoutRequestError) as refused:
            check_request(request, live=False)
        assert [name for name, _ in refused.value.problems] == ["order"]
    cell = f"x{reference}x" if 0 < len(reference.strip()) < 199 else reference
    if taken:
        assert read_references([cell]) == [cell]
    else:
        with pytest.raises(UnclearCell):
            read_references([cell])


@pytest.mark.slow
def test_the_command_line_finds_each(run: Run, tmp_path: Path) -> None:
    async def fill() -> None:
        async with driving(tmp_path, with_worker=False) as driver:
            for number, reference in enumerate(TAKEN):
                assert await events_taken(driver, reference, f"e{number}")

    asyncio.run(fill())
    for reference in TAKEN:
        shown = run("orders", "show", "--format", "json", "--", reference)
        assert (shown.code, shown.document["order"]) == (0, reference), shown.err
    for reference in REFUSED:
        assert run("orders", "show", "--", reference).code == 5
