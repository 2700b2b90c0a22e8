"""Deceptive refunds, disputes, reversals and amounts: none gives goods for money that went back or
never came."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconcile.instants import HOUR, SECOND, format_instant
from reconcile.ledger import movements
from reconcile.ledger.correlate import Heard
from tests.api.driving import driving
from tests.reconcile.build import T
from tests.security.playing import OPEN, Act, Construction, Play, Target, events

pytestmark = pytest.mark.slow

Make = Callable[[Target], dict[str, Any]]


def own(claim: str, number: int, amount: Any = 1500, *, at: int | None = 0, **more: Any) -> Make:
    """Make an event of the order's own payment, `at` seconds after the others; None: undated.

    The amount of a refund or dispute is its own, and `of` its reference.
    """
    of = more.pop("of", f"m-{number}")

    def make(target: Target) -> dict[str, Any]:
        stated = {"amount": amount, "currency": "KES"}
        parts = {"refund": {"reference": of, **stated}} if claim in BACK else {"payment": stated}
        moment = None if at is None else format_instant(T + at * SECOND)
        stated = {name: part for name, part in (parts | more).items() if part is not None}
        return target.event(f"b{number}", claim, occurred_at=moment, **stated)

    return make


BACK = {
    "refunded",
    "refund_pending",
    "refund_failed",
    "disputed",
    "dispute_won",
    "dispute_lost",
    "reversed",
}


def other(claim: str, number: int, amount: Any, **more: Any) -> Make:
    """Make the same event of a stranger's payment on the order."""

    def make(target: Target) -> dict[str, Any]:
        made = own(claim, number, amount, at=more.get("at", 0), of=more.get("of", f"m-{number}"))
        document = made(target)
        paid = {"reference": f"theirs-{target.order}"}
        if claim not in BACK:
            paid |= {"amount": amount, "currency": "KES"}
        document["data"] |= {"payment": paid}
        return document

    return make


def back(*made: Make) -> Construction:
    """Pay the order, take the money back, and go on: nothing makes it fulfillable again. The
    genuine payment's own event cannot come twice."""
    return Construction(events(*made), paid=False, pays=False)


PAID = own("succeeded", 1)
REFUNDED = own("refunded", 2, at=1, of="r1")
DISPUTED, LOST = own("disputed", 2, at=1, of="d1"), own("dispute_lost", 3, at=2, of="d1")

GONE_BACK = {
    "a refund failed that nobody knows": back(
        PAID, REFUNDED, own("refund_failed", 3, at=3, of="r9")
    ),
    "another payment's refund_failed names the refund": back(
        PAID, REFUNDED, other("succeeded", 4, 10), other("refund_failed", 5, 1500, at=3, of="r1")
    ),
    "a refund_failed without a reference": back(
        PAID, REFUNDED, own("refund_failed", 3, at=3, refund=None)
    ),
    "a refund_failed of a huge amount, of another reference": back(
        PAID, REFUNDED, own("refund_failed", 3, 10**12, at=3, of="r2")
    ),
    "a dispute lost, and won in another dispute": back(
        PAID, DISPUTED, LOST, own("dispute_won", 4, at=9, of="d2")
    ),
    "lost whole, won in part": back(PAID, DISPUTED, LOST, own("dispute_won", 4, 40, at=9, of="d1")),
    "lost, and an undated win": back(PAID, DISPUTED, LOST, own("dispute_won", 4, at=None, of="d1")),
    "lost, and a win dated earlier": back(
        PAID, DISPUTED, LOST, own("dispute_won", 4, at=-9, of="d1")
    ),
    "lost, and a win dated with it": back(
        PAID, DISPUTED, LOST, own("dispute_won", 4, at=2, of="d1")
    ),
    "lost, and another payment's win names the dispute": back(
        PAID,
        DISPUTED,
        LOST,
        other("succeeded", 5, 10),
        other("dispute_won", 6, 1500, at=9, of="d1"),
    ),
    "refunded, and a win of a dispute that never was": back(
        PAID, REFUNDED, own("dispute_won", 4, at=9, of="d9")
    ),
    "reversed, and paid again under the same payment": back(
        PAID, own("reversed", 2, at=1), own("succeeded", 3, at=0)
    ),
    "refunded, and the price is paid again by a repeated event of the same payment": back(
        PAID, REFUNDED, own("succeeded", 3, at=2)
    ),
    "refunded in two halves": back(
        PAID, own("refunded", 2, 750, at=1, of="r1"), own("refunded", 3, 750, at=1, of="r2")
    ),
    "refunded, as a sum beside a smaller sum that comes later": back(
        PAID,
        own("refunded", 2, 1500, at=1, refunded_total=1500),
        own("refunded", 3, 1, at=5, refunded_total=1),
    ),
    "refunded, and a negative refund": back(
        PAID, REFUNDED, own("refunded", 3, -1500, at=2, of="r2")
    ),
    "refunded, and a refund of zero": back(PAID, REFUNDED, own("refunded", 3, 0, at=2, of="r1")),
    "canceled after it came": back(PAID, own("canceled", 2, at=5)),
    "an unread word for money going back": back(PAID, own("chargebackOpened", 2, at=5)),
}


def never(*made: Make) -> Construction:
    """Speak of money going back on an order that nobody has paid."""
    return Construction(events(*made), paid=False)


def sum_below_zero(target: Target) -> dict[str, Any]:
    document = other("refunded", 3, 1, at=1)(target)
    document["data"]["refunded_total"] = -1490
    return document


NEVER_CAME = {
    "a dispute won, and no payment": never(own("dispute_won", 2, of="d1")),
    "a refund failed, and no payment": never(own("refund_failed", 2, of="r1")),
    "a reversal, and no payment": never(own("reversed", 2, at=-9)),
    "a little paid, lost, and won a hundred times": never(
        other("succeeded", 2, 10),
        other("disputed", 3, 10, at=1, of="d"),
        other("dispute_lost", 4, 10, at=2, of="d"),
        other("dispute_won", 5, 150000, at=3, of="d"),
    ),
    "a little paid, refunded, and a huge refund failed": never(
        other("succeeded", 2, 10),
        other("refunded", 3, 10, at=1, of="r"),
        other("refund_failed", 4, 150000, at=2, of="r"),
    ),
    "a little paid, and a negative refund of it": never(
        other("succeeded", 2, 10), other("refunded", 3, -1490, at=1)
    ),
    "a little paid, and a negative sum of refunds": never(
        other("succeeded", 2, 10), sum_below_zero
    ),
    "a win in another order's name": never(
        other("succeeded", 2, 10), other("dispute_won", 3, 1490, at=1)
    ),
}


def amount(value: Any, **more: Any) -> Act:
    """Pay an invalid amount as a stranger."""
    return events(lambda t: t.stranger("a", payment={"amount": value, **more}))


def raw(old: str, new: str) -> Act:
    """Pay ten as a stranger, with the bytes changed before they are signed."""

    def make(target: Target) -> bytes:
        text = json.dumps(target.stranger("raw", payment={"amount": 10}))
        assert old in text
        return text.replace(old, new).encode()

    return events(make)


AMOUNTS = {
    "a negative amount": amount(-1500),
    "the greatest number of 64 bits": amount(2**63 - 1),
    "the greatest amount in minor units": amount(2**63 // 100 + 1),
    "beyond 64 bits": amount(10**30),
    "a fraction of a minor unit": amount(1500.001),
    "a text with a comma": amount("1,500.00"),
    "a text with a currency": amount("1500 KES"),
    "a text in hexadecimal": amount("0x5dc"),
    "a text in digits of another script": amount("\u0661\u0665\u0660\u0660"),
    "an empty text": amount(""),
    "true": amount(True),
    "a list": amount([1500]),
    "an object": amount({"value": 1500}),
    "null": amount(None),
    "no currency that exists": amount(1500, currency="KSH"),
    "a currency in small letters with a blank": amount(1500, currency="kes "),
    "a currency that is a number": amount(1500, currency=404),
    "an amount twice, small first": raw('"amount": 10', '"amount": 10, "amount": 1500'),
    "an amount twice, small last": raw('"amount": 10', '"amount": 1500, "amount": 10'),
    "an amount twice, once escaped": raw('"amount": 10', '"amount": 10, "\\u0061mount": 1500'),
    "a payment twice": raw(
        '"payment": {', '"payment": {"amount": 1500, "currency": "KES"}, "payment": {'
    ),
    "not a number": raw('"amount": 10', '"amount": NaN'),
    "infinity": raw('"amount": 10', '"amount": Infinity'),
    "an exponent without end": raw('"amount": 10', '"amount": 1e999999999'),
    "a number with a zero before it": raw('"amount": 10', '"amount": 01500'),
    "a comment in it": raw('"amount": 10', '"amount": 1500 /* ten */'),
    "a second document behind it": raw("}}}", '}}} {"type": "payment.succeeded"}'),
}


async def pay_by_two(target: Target) -> None:
    """Pay the order under another reference than the constructions use."""
    paid = target.event("whole", payment={"reference": f"whole-{target.order}"}, session=None)
    assert await target.send(paid) == 200


def said(claim: str, **more: Any) -> Construction:
    """Say something of a paid order's payment."""
    return Construction(events(lambda t: t.event(claim, claim, **more)), unpaid=False)


EARLIER = {"occurred_at": format_instant(T - HOUR)}
UNKNOWN = {"refund": {"reference": "m9", "amount": 1500, "currency": "KES"}}
DATED_EARLIER = {
    "its reversal, dated before it came": said("reversed", **EARLIER),
    "its decline, dated before it came": said("declined", **EARLIER),
    "its cancellation, dated before it came": said("canceled", **EARLIER),
    "a failure of a refund that was never made": said("refund_failed", **UNKNOWN),
    "a dispute won that was never opened": said("dispute_won", **UNKNOWN),
}


async def test_no_goods_for_money_that_went_back_or_never_came(tmp_path: Path) -> None:
    async with driving(tmp_path, with_worker=False, **OPEN) as driver:
        play = Play(driver, "BAK", paid=pay_by_two)
        assert await play.breaks(GONE_BACK | NEVER_CAME) == []


async def test_no_goods_for_an_amount_that_is_none(tmp_path: Path) -> None:
    async with driving(tmp_path, with_worker=False, **OPEN) as driver:
        assert await Play(driver, "AMT").breaks({**AMOUNTS, **DATED_EARLIER}) == []


async def test_the_constructions_arrive(tmp_path: Path) -> None:
    """The payment that begins each order's story pays it, and so does a stranger's valid amount."""
    async with driving(tmp_path, with_worker=False, **OPEN) as driver:
        broken = await Play(driver, "ONE").breaks({"paid": back(PAID), "an amount": amount(1500)})
    assert [each.partition(" (")[0] for each in broken] == [
        "paid: an unpaid order is fulfillable",
        "an amount: an unpaid order is fulfillable",
    ]


async def test_where_a_win_always_has_the_last_word_they_break(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost order is fulfillable by a win dated before the loss, or with it."""
    judge = movements._dispute

    def won_if_ever(heard: list[Heard]) -> movements.Dispute:
        won = any(each.event.claim == "dispute_won" for each in heard)
        return replace(judge(heard), word="won") if won else judge(heard)

    monkeypatch.setattr(movements, "_dispute", won_if_ever)
    chosen = {says: each for says, each in GONE_BACK.items() if "and a win dated" in says}
    async with driving(tmp_path, with_worker=False, **OPEN) as driver:
        broken = await Play(driver, "BAK").breaks(chosen)
    assert [each.partition(":")[0] for each in broken] == [*chosen]
