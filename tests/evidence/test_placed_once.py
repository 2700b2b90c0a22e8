"""An order was placed once, on the day that the shop stated, however often it told us its price."""

import re
from pathlib import Path
from typing import Any

import pytest

from app.access.tokens import issue_token
from app.evidence.bundle_letter import LetterFacts, bundle_letter
from app.evidence.tell_scenario import tell_scenario
from app.finance.read_lines import lines_naming
from reconcile.instants import DAY, HOUR, MINUTE, format_instant
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.policy import Policy
from reconcile.ledger.records import Tender
from reconcile.money import Money
from tests.api.driving import driving, event
from tests.evidence.conftest import Forge, build, changed, failed, seal_now
from tests.evidence.test_dispute_letter import write
from tests.evidence.test_scenario import played
from tests.evidence.world import LATER
from tests.reconcile.build import DUE, T, delivery, history, record, seconds
from tests.reconcile.build import event as said

CARD = Tender(kind="gift_card", money=Money(minor=50_000, currency="KES"))


def rows_of(one: History) -> list[tuple[str, str]]:
    """Return day and words of what the shop stated, in the letter of an evidence bundle."""
    facts = LetterFacts(
        history=one, revisions=(), arrivals=(), checkpoint="", sealed=0, unsealed=0, key="k"
    )
    page = bundle_letter(fold(one, policy=Policy(), as_of=seconds(10**6)), facts)
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))
    words = "(The order was placed|The shop stated the price|The shop canceled|The shop said)"
    return [
        (each[1], each[2]) for each in re.finditer(rf"(\d{{4}}-\d\d-\d\d)T[\d:]+Z? {words}", text)
    ]


@pytest.mark.parametrize(
    ("dates", "expected"),
    [
        ((None, None), ["2026-11-20 The shop stated the price"] * 2),
        (
            (-86_400, -86_400),
            ["2026-11-19 The order was placed", "2026-11-21 The shop stated the price"],
        ),
        (
            (None, -86_400),
            ["2026-11-20 The shop stated the price", "2026-11-19 The order was placed"],
        ),
    ],
    ids=["never stated", "stated twice", "stated later"],
)
def test_the_bundle_says_once_when_it_was_placed(
    dates: tuple[int | None, ...], expected: list[str]
) -> None:
    records = [
        record(
            f"rec_{n}", "order_placed", at or 0,
            recorded_at=seconds(n if at is None else n * 86_400),
            money=Money(minor=150_000 + n, currency="KES"), dated=at is not None,
        )
        for n, at in enumerate(dates)
    ]  # fmt: skip
    assert [" ".join(each) for each in rows_of(history(*records))] == expected


def test_the_bundle_shows_price_tenders_and_what_was_due() -> None:
    one = history(
        record("rec_1", "order_placed", 0, money=DUE, tenders=(CARD,)),
        delivery("d1", 1, said("e1", "succeeded", payment="p", money=DUE)),
    )
    facts = LetterFacts(
        history=one, revisions=(), arrivals=(), checkpoint="", sealed=0, unsealed=0, key="k"
    )
    page = bundle_letter(fold(one, policy=Policy(), as_of=seconds(9)), facts)
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))
    wanted = "Ordered KES 1,500.00 Paid by gift card KES 500.00 Due at payment services KES 1,000"
    assert wanted in text


@pytest.mark.parametrize("dated", [True, False], ids=["dated", "not dated"])
async def test_the_letter_to_a_bank_says_it_once_and_only_if_the_shop_stated_it(
    tmp_path: Path, dated: bool
) -> None:
    price: dict[str, Any] = {"amount": "1400.00", "currency": "KES"}
    placed = {"placed_at": format_instant(T - DAY)} if dated else {}
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        for n, more in enumerate((placed, {"amount": "1500.00"}, {"amount": "1500.00"} | placed)):
            driver.clock.put(T + n * MINUTE)
            await driver.api("PUT", "/orders/ORD-1042", json=price | more)
        await driver.send(event("e1", order={"reference": "ORD-1042"}))
        driver.clock.put(T + HOUR)
        found = (await write(driver, tmp_path)).document
    facts = [(each["at"]["at"], each["fact"]) for each in found["facts"]]
    stated = [each for each in facts if "placed" in each[1]]
    day = format_instant(T - DAY)
    assert stated == ([(day, "The customer placed the order of KES 1,500.00.")] if dated else [])
    assert ["Price of the order", "KES 1,500.00"] in found["money"]


STATED: tuple[dict[str, Any], ...] = (
    {"tenders": [{"kind": "gift_card", "amount": "500.00"}], "placed_at": format_instant(T - DAY)},
    {"fulfilled_at": format_instant(T), "canceled_at": format_instant(T)},
    {"fulfilled_at": None, "canceled_at": None},
    {"amount": "0", "free": True, "tenders": []},
)
"""Statements of the shop about one order, one after another."""


def _less(history: Any) -> None:
    history["records"][0]["tenders"][0]["amount"] = "400.00"


def _no_more(history: Any) -> None:
    del history["records"][0]["tenders"]


def _not_free(history: Any) -> None:
    (free,) = [each for each in history["records"] if each.get("free")]
    del free["free"]


async def test_all_that_the_shop_states_is_sealed_and_played_again(
    tmp_path: Path, forge: Forge
) -> None:
    """And none of it can be changed in a bundle without the key of the log."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        driver.token = await issue_token(driver.context, name="player")
        for n, facts in enumerate(STATED):
            driver.clock.put(T + n * MINUTE)
            price = {"amount": "1500.00", "currency": "KES"}
            answer = await driver.api("PUT", "/orders/ORD-1", json=price | facts)
            assert answer.status_code == 200, answer.text
        await seal_now(driver)
        driver.clock.put(LATER)
        archive = await build(driver)
        scenario = await tell_scenario(
            driver.context, "ORD-1", as_of=LATER, by=None, lines=lines_naming
        )
    assert failed(archive) == []
    for change in (_less, _no_more, _not_free):
        assert "inclusion" in failed(forge(archive, changed("history.json", change)))
    (tmp_path / "fresh").mkdir(0o700)
    assert await played(tmp_path / "fresh", scenario.document, start=T + 400 * DAY) == []
