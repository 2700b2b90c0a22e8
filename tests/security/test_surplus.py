"""A stranger's own money on the order: more than the price never stops the goods, and less or other
money never moves them."""

from pathlib import Path
from typing import Any

import pytest

from reconcile.instants import SECOND, format_instant
from reconcile.ledger import doubt
from tests.api.driving import driving
from tests.reconcile.build import T
from tests.security.playing import OPEN, Act, Construction, Play, Table, Target, events

pytestmark = pytest.mark.slow


def theirs(*claims: tuple[str, Any]) -> Act:
    """Send events of one payment of the stranger: claims with amounts, in KES or as given."""

    def one(number: int, claim: str, amount: Any) -> Any:
        def make(target: Target) -> Any:
            paid = amount if isinstance(amount, dict) else {"amount": amount, "currency": "KES"}
            more: dict[str, Any] = {"payment": paid}
            if claim in RETURNS:
                more["refund"] = {"reference": f"r-{number}", **paid}
            return target.stranger(
                f"{number}", claim, occurred_at=format_instant(T + number * SECOND), **more
            )

        return make

    return events(*(one(number, *each) for number, each in enumerate(claims)))


RETURNS = {"refunded", "disputed", "dispute_lost", "dispute_won", "refund_pending", "refund_failed"}


async def own_id_twice(target: Target) -> None:
    """Send the stranger's payment under one event id, with two bodies."""
    for amount in (10, 20):
        paid = target.stranger("same", payment={"amount": amount, "currency": "KES"})
        assert await target.send(paid) == 200


def second(target: Target, name: str, amount: Any) -> dict[str, Any]:
    """Return another payment of the stranger."""
    paid = {"reference": f"{name}-{target.order}", "amount": amount, "currency": "KES"}
    return target.stranger(name, payment=paid)


def usd(amount: Any) -> dict[str, Any]:
    return {"amount": amount, "currency": "USD"}


SURPLUS: Table = {
    "one minor unit more": theirs(("succeeded", 0.01)),
    "one minor unit less than the price": Construction(theirs(("succeeded", 1499.99)), pays=True),
    "a hundred times the price": theirs(("succeeded", 150000)),
    "a hundred times the price and one minor unit, in one payment": Construction(
        theirs(("succeeded", 150000.01)), unpaid=False
    ),  # so much money is the price, and more
    "a hundred times the price, and one minor unit by another payment": events(
        lambda t: t.stranger("a", payment={"amount": 150000, "currency": "KES"}),
        lambda t: second(t, "b", 0.01),
    ),
    "the price's number in another currency": theirs(("succeeded", usd(1500))),
    "a hundred times it in another currency": theirs(("succeeded", usd(150000))),
    "in a currency without decimals": theirs(("succeeded", {"amount": 150000, "currency": "JPY"})),
    "two amounts of one payment": theirs(("succeeded", 10), ("succeeded", 2000)),
    "two currencies of one payment": theirs(("succeeded", 1500), ("succeeded", usd(1500))),
    "a payment without an amount": theirs(("succeeded", {"currency": "KES", "amount": None})),
    "it is refunded": theirs(("succeeded", 1500), ("refunded", 1500)),
    "its refund and its dispute": theirs(("succeeded", 10), ("refunded", 10), ("disputed", 10)),
    "its dispute for a hundred times": theirs(("succeeded", 10), ("disputed", 1000)),
    "its dispute is open": theirs(("succeeded", 1500), ("disputed", 1500)),
    "its dispute is lost": theirs(("succeeded", 1500), ("disputed", 1500), ("dispute_lost", 1500)),
    "it goes back in another currency": theirs(("succeeded", 1500), ("refunded", usd(15))),
    "it is disputed in another currency": theirs(("succeeded", 1500), ("disputed", usd(15))),
    "its refund is under way": theirs(("succeeded", 1500), ("refund_pending", 1500)),
    "it is reversed": theirs(("succeeded", 1500), ("reversed", 1500)),
    "an unread kind of it": theirs(("succeeded", 10), ("mystery", 10)),
    "an unread kind of it that speaks of a chargeback": theirs(
        ("succeeded", 10), ("chargeback_opened", 10)
    ),
    "it is canceled after it came": theirs(("succeeded", 1500), ("canceled", 1500)),
    "it is declined after it came": theirs(("succeeded", 10), ("declined", 10)),
    "it is canceled, and never came": theirs(("canceled", 1500)),
    "it is declined, and never came": theirs(("declined", 1500)),
    "it is merely reserved": theirs(("authorized", 1500)),
    "it is pending for ever": theirs(("pending", 1500)),
    "it expired": theirs(("expired", 1500)),
    "one id of it with two bodies": own_id_twice,
    "a thousand shillings in ten payments": events(
        *((lambda t, n=n: second(t, f"{n}", 100)) for n in range(10))
    ),
}


async def test_a_strangers_money_neither_moves_nor_stops_the_goods(tmp_path: Path) -> None:
    async with driving(tmp_path, with_worker=False, **OPEN) as driver:
        assert await Play(driver, "SUR").breaks(SURPLUS) == []


async def test_without_the_doubt_of_a_payment_they_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doubt, "is_off_by_factor", lambda amount, price: False)
    async with driving(tmp_path, with_worker=False, **OPEN) as driver:
        broken = await Play(driver, "SUR").breaks(dict([*SURPLUS.items()][:3]))
    assert [each.partition(":")[0] for each in broken] == ["a hundred times the price"]
