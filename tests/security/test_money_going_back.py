"""Refunds, disputes, reversals and amounts that are not what they seem: none gives goods for money
that went back or never came."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reconcile.instants import HOUR, SECOND, format_instant
from reconcile.ledger import movements
from tests.api.driving import driving
from tests.reconcile.build import T
from tests.security.playing import OPEN, Construction, Play, Target, events

pytestmark = pytest.mark.slow

Make = Callable[[Target], dict[str, Any]]


def own(claim: str, number: int, amount: Any = 1500, *, at: int | None = 0, **more: Any) -> Make:
    """An event of the order's own payment, dated so many seconds after the others; None: undated.

    Of a refund or a dispute the amount is its own, and `of` its reference."""
    of = more.pop("of", f"m-{number}")

    def make(target: Target) -> dict[str, Any]:
        stated = {"amount": amount, "currency": "KES"}
        parts = {"refund": {"reference": of, **stated}} if claim in BACK else {"payment": stated}
        moment = None if at is None else format_instant(T + at * SECOND)
        told = parts | more
        told = {name: part for name, part in told.items() if part is not None}
        return target.event(f"b{number}", claim, occurred_at=moment, **told)

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
    """The same of a stranger's payment on the order."""

    def make(target: Target) -> dict[str, Any]:
        made = own(claim, number, amount, at=more.get("at", 0), of=more.get("of", f"m-{number}"))
        document = made(target)
        paid = {"reference": f"theirs-{target.order}"}
        if claim not in BACK:
            paid |= {"amount": amount, "currency": "KES"}
        document["data"] |= {"payment": paid}
        return document

    return make


def back(says: str, *made: Make) -> Construction:
    """Played on an order that was paid and whose money then went back: no longer fulfillable, and
    nothing that follows makes it so. The genuine payment's own event cannot come twice."""
    return Construction(says, events(*made), paid=False, pays=False)


PAID = own("succeeded", 1)
REFUNDED = own("refunded", 2, at=1, of="r1")
DISPUTED, LOST = own("disputed", 2, at=1, of="d1"), own("dispute_lost", 3, at=2, of="d1")

GONE_BACK = [
    back(
        "a refund failed that nobody knows", PAID, REFUNDED, own("refund_failed", 3, at=3, of="r9")
    ),
    back(
        "another payment's refund_failed names the refund",
        PAID,
        REFUNDED,
        other("succeeded", 4, 10),
        other("refund_failed", 5, 1500, at=3, of="r1"),
    ),
    back(
        "a refund_failed without a reference",
        PAID,
        REFUNDED,
        own("refund_failed", 3, at=3, refund=None),
    ),
    back(
        "a refund_failed of a huge amount, of another reference",
        PAID,
        REFUNDED,
        own("refund_failed", 3, 10**12, at=3, of="r2"),
    ),
    back(
        "a dispute lost, and won in another dispute",
        PAID,
        DISPUTED,
        LOST,
        own("dispute_won", 4, at=9, of="d2"),
    ),
    back("lost whole, won in part", PAID, DISPUTED, LOST, own("dispute_won", 4, 40, at=9, of="d1")),
    back("lost, and an undated win", PAID, DISPUTED, LOST, own("dispute_won", 4, at=None, of="d1")),
    back(
        "lost, and a win dated earlier", PAID, DISPUTED, LOST, own("dispute_won", 4, at=-9, of="d1")
    ),
    back(
        "lost, and a win dated with it", PAID, DISPUTED, LOST, own("dispute_won", 4, at=2, of="d1")
    ),
    back(
        "lost, and another payment's win names the dispute",
        PAID,
        DISPUTED,
        LOST,
        other("succeeded", 5, 10),
        other("dispute_won", 6, 1500, at=9, of="d1"),
    ),
    back(
        "refunded, and a win of a dispute that never was",
        PAID,
        REFUNDED,
        own("dispute_won", 4, at=9, of="d9"),
    ),
    back(
        "reversed, and paid again under the same payment",
        PAID,
        own("reversed", 2, at=1),
        own("succeeded", 3, at=0),
    ),
    back(
        "refunded, and the price is paid again by a repeated event of the same payment",
        PAID,
        REFUNDED,
        own("succeeded", 3, at=2),
    ),
    back(
        "refunded in two halves",
        PAID,
        own("refunded", 2, 750, at=1, of="r1"),
        own("refunded", 3, 750, at=1, of="r2"),
    ),
    back(
        "refunded, as a sum beside a smaller sum that comes later",
        PAID,
        own("refunded", 2, 1500, at=1, refunded_total=1500),
        own("refunded", 3, 1, at=5, refunded_total=1),
    ),
    back(
        "refunded, and a negative refund", PAID, REFUNDED, own("refunded", 3, -1500, at=2, of="r2")
    ),
    back("refunded, and a refund of zero", PAID, REFUNDED, own("refunded", 3, 0, at=2, of="r1")),
    back("canceled after it came", PAID, own("canceled", 2, at=5)),
    back("an unread word for money going back", PAID, own("chargebackOpened", 2, at=5)),
]
"""Each begins with the genuine payment."""


def never(says: str, *made: Make, **more: Any) -> Construction:
    """Played on an order that nobody has paid; what is said of it makes nobody's payment."""
    return Construction(says, events(*made), paid=False, **more)


def sum_below_zero(target: Target) -> dict[str, Any]:
    """A stranger's refund that states a negative sum."""
    document = other("refunded", 3, 1, at=1)(target)
    document["data"]["refunded_total"] = -1490
    return document


NEVER_CAME = [
    never("a dispute won, and no payment", own("dispute_won", 2, of="d1")),
    never("a refund failed, and no payment", own("refund_failed", 2, of="r1")),
    never("a reversal, and no payment", own("reversed", 2, at=-9)),
    never(
        "a little paid, lost, and won a hundred times",
        other("succeeded", 2, 10),
        other("disputed", 3, 10, at=1, of="d"),
        other("dispute_lost", 4, 10, at=2, of="d"),
        other("dispute_won", 5, 150000, at=3, of="d"),
    ),
    never(
        "a little paid, refunded, and a huge refund failed",
        other("succeeded", 2, 10),
        other("refunded", 3, 10, at=1, of="r"),
        other("refund_failed", 4, 150000, at=2, of="r"),
    ),
    never(
        "a little paid, and a negative refund of it",
        other("succeeded", 2, 10),
        other("refunded", 3, -1490, at=1),
    ),
    never(
        "a little paid, and a negative sum of refunds",
        other("succeeded", 2, 10),
        sum_below_zero,
    ),
    never(
        "a win in another order's name",
        other("succeeded", 2, 10),
        other("dispute_won", 3, 1490, at=1),
    ),
]


def amount(says: str, value: Any, **more: Any) -> Construction:
    """A stranger's payment of an amount that is none, or not this one."""
    return Construction(says, events(lambda t: t.stranger("a", payment={"amount": value, **more})))


def raw(says: str, old: str, new: str) -> Construction:
    """The bytes of a stranger's payment of ten, changed before they are signed."""

    def make(target: Target) -> bytes:
        text = json.dumps(target.stranger("raw", payment={"amount": 10}))
        assert old in text
        return text.replace(old, new).encode()

    return Construction(says, events(make))


AMOUNTS = [
    amount("a negative amount", -1500),
    amount("the greatest number of 64 bits", 2**63 - 1),
    amount("the greatest amount in minor units", 2**63 // 100 + 1),
    amount("beyond 64 bits", 10**30),
    amount("a fraction of a minor unit", 1500.001),
    amount("a text with a comma", "1,500.00"),
    amount("a text with a currency", "1500 KES"),
    amount("a text in hexadecimal", "0x5dc"),
    amount("a text in digits of another script", "\u0661\u0665\u0660\u0660"),
    amount("an empty text", ""),
    amount("true", True),
    amount("a list", [1500]),
    amount("an object", {"value": 1500}),
    amount("null", None),
    amount("no currency that exists", 1500, currency="KSH"),
    amount("a currency in small letters with a blank", 1500, currency="kes "),
    amount("a currency that is a number", 1500, currency=404),
    raw("an amount twice, small first", '"amount": 10', '"amount": 10, "amount": 1500'),
    raw("an amount twice, small last", '"amount": 10', '"amount": 1500, "amount": 10'),
    raw("an amount twice, once escaped", '"amount": 10', '"amount": 10, "\\u0061mount": 1500'),
    raw(
        "a payment twice",
        '"payment": {',
        '"payment": {"amount": 1500, "currency": "KES"}, "payment": {',
    ),
    raw("not a number", '"amount": 10', '"amount": NaN'),
    raw("infinity", '"amount": 10', '"amount": Infinity'),
    raw("an exponent without end", '"amount": 10', '"amount": 1e999999999'),
    raw("a number with a zero before it", '"amount": 10', '"amount": 01500'),
    raw("a comment in it", '"amount": 10', '"amount": 1500 /* ten */'),
    raw("a second document behind it", "}}}", '}}} {"type": "payment.succeeded"}'),
]


async def pay_by_two(target: Target) -> None:
    """The order's own payment under another reference than that of the constructions."""
    paid = target.event("whole", payment={"reference": f"whole-{target.order}"}, session=None)
    assert await target.send(paid) == 200


DATED_EARLIER = [
    Construction(
        "its reversal, dated before it came",
        events(lambda t: t.event("r", "reversed", occurred_at=format_instant(T - HOUR))),
        unpaid=False,
    ),
    Construction(
        "its decline, dated before it came",
        events(lambda t: t.event("d", "declined", occurred_at=format_instant(T - HOUR))),
        unpaid=False,
    ),
    Construction(
        "its cancellation, dated before it came",
        events(lambda t: t.event("c", "canceled", occurred_at=format_instant(T - HOUR))),
        unpaid=False,
    ),
    Construction(
        "a failure of a refund that was never made",
        events(
            lambda t: t.event(
                "f", "refund_failed", refund={"reference": "r9", "amount": 1500, "currency": "KES"}
            )
        ),
        unpaid=False,
    ),
    Construction(
        "a dispute won that was never opened",
        events(
            lambda t: t.event(
                "w", "dispute_won", refund={"reference": "d9", "amount": 1500, "currency": "KES"}
            )
        ),
        unpaid=False,
    ),
]


async def test_no_goods_for_money_that_went_back_or_never_came(tmp_path: Path) -> None:
    """Whatever is said of the refund, the dispute or the reversal afterwards."""
    async with driving(tmp_path, with_worker=False, **OPEN) as driver:
        play = Play(driver, "BAK", paid=pay_by_two)
        assert await play.breaks([*GONE_BACK, *NEVER_CAME]) == []


async def test_no_goods_for_an_amount_that_is_none(tmp_path: Path) -> None:
    """Written as another type, twice, beyond all bounds or below zero."""
    async with driving(tmp_path, with_worker=False, **OPEN) as driver:
        assert await Play(driver, "AMT").breaks([*AMOUNTS, *DATED_EARLIER]) == []


async def test_the_constructions_arrive(tmp_path: Path) -> None:
    """The payment with which each order's story begins pays it, and so does a stranger's amount
    that is one."""
    async with driving(tmp_path, with_worker=False, **OPEN) as driver:
        own_alone = Construction("paid", events(PAID), paid=False, pays=False)
        broken = await Play(driver, "ONE").breaks([own_alone, amount("an amount", 1500)])
    assert [each.partition(" (")[0] for each in broken] == [
        "paid: an unpaid order is fulfillable",
        "an amount: an unpaid order is fulfillable",
    ]


async def test_where_a_win_always_has_the_last_word_they_break(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An order that was lost is fulfillable by a win that came before the loss, or with it."""
    words = ["disputed", "dispute_lost", "dispute_won"]
    monkeypatch.setattr(movements, "_latest", lambda heard: words.index(heard.event.claim))
    chosen = [each for each in GONE_BACK if each.says.startswith("lost, and a win dated")]
    async with driving(tmp_path, with_worker=False, **OPEN) as driver:
        broken = await Play(driver, "BAK").breaks(chosen)
    assert [each.partition(":")[0] for each in broken] == [each.says for each in chosen]
