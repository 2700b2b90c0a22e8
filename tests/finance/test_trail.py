"""The trail of money leads from an order to the bank, and back."""

from typing import Any

import pytest

from app.core.errors import NotFoundError
from app.finance.imports import ImportRequest, import_book
from app.finance.trail import trail_document
from tests.finance.test_bank import BANK, Shop
from tests.finance.test_bank import empty as empty

STATEMENT = """payment_reference,order_reference,gross,fee,currency,settled_at,payout,type
pay_1,ORD-1,1000.00,30.00,KES,2026-01-05,PO-100200,payment
pay_2,ORD-2,500.00,15.00,KES,2026-01-05,PO-100200,payment
pay_3,ORD-3,200.00,6.00,KES,2026-01-06,PO-100201,payment
"""
BOOK = """reference,amount,currency,status,placed_at,method
ORD-1,1000.00,KES,paid,2026-01-04,stripe
#10740,50.00,KES,paid,2026-01-09,Bank Transfer
"""


@pytest.fixture
async def shop(empty: Shop) -> Shop:
    path = empty.folder / "book.csv"
    path.write_text(BOOK)
    await import_book(empty.context, ImportRequest(path=path))
    await empty.statement(STATEMENT)
    await empty.bank(BANK + "main,2026-01-12,50.00,KES,B6,,Jane Doe,Bestellung #10740\n")
    return empty.at(600)


def parts(found: dict[str, Any]) -> tuple[list[str], list[str], list[str], list[str]]:
    """Return its orders, the payments of its statement lines, payouts, and entries of the bank."""
    return (
        sorted(found["orders"]),
        sorted([each["payment"] for each in found["statement"]]),
        [each["reference"] for each in found["payouts"]],
        [each["text"] for each in found["bank"]],
    )


async def test_an_order_leads_to_its_line_its_payout_and_the_bank(shop: Shop) -> None:
    for name in ("ORD-1", "ord 1", "pay_1"):
        found = await trail_document(shop.context, name)
        assert parts(found) == (["ORD-1"], ["pay_1"], ["PO-100200"], ["PAYOUT PO-100200"])
    assert [each["method"] for each in found["book"]] == []
    found = await trail_document(shop.context, "ORD-1")
    assert [each["method"] for each in found["book"]] == ["stripe"]


async def test_each_step_leads_back_to_the_orders(shop: Shop) -> None:
    """By its id or reference: a payout has all orders of its lines, a line its own."""
    found = await trail_document(shop.context, "ORD-1")
    (line,), (payout,), (booked,) = (found[name] for name in ("statement", "payouts", "bank"))
    both = (["ORD-1", "ORD-2"], ["pay_1", "pay_2"], ["PO-100200"], ["PAYOUT PO-100200"])
    for name in ("PO-100200", payout["payout"], booked["line"]):
        assert parts(await trail_document(shop.context, name)) == both
    assert parts(await trail_document(shop.context, line["line"])) == parts(found)


async def test_a_transfer_leads_to_its_order_and_back(shop: Shop) -> None:
    found = await trail_document(shop.context, "#10740")
    none: list[str] = []
    expected = (["#10740"], none, none, ["Bestellung #10740"])
    assert parts(found) == expected
    assert parts(await trail_document(shop.context, found["bank"][0]["line"])) == expected


@pytest.mark.parametrize("name", ["ORD-9", "bnk_0", "stm_0.1", "pyt_0"])
async def test_what_nothing_is_named_has_no_trail(shop: Shop, name: str) -> None:
    with pytest.raises(NotFoundError):
        await trail_document(shop.context, name)
