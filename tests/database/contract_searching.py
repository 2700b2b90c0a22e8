"""Every database must find an order by whatever people have of it."""

from asyncio import to_thread
from pathlib import Path
from typing import Any

import pytest

from app.access.operators import Role, register_operator
from app.core.ids import first_id
from app.core.phone_key import PhoneKey
from app.finance.imports import ImportRequest, import_book, import_statement
from app.orders import search_store
from app.orders.find_orders import PERSON_SEARCHES, FoundOrders, find_orders
from app.orders.record_store import add_records
from app.receiving.inbox import Inbox
from reconcile.instants import DAY, SECOND
from reconcile.ledger.records import Record
from reconcile.money import Money
from tests.contexts import with_given, with_settings
from tests.database.builders import arrival, commit, context, keep, plan_of, rows, said
from tests.reconcile.build import seconds

KEY = PhoneKey(b"k" * 32)
PRICE = Money(minor=325_000, currency="KES")
CUSTOMER = ("254712345678", "email:jane@example.com", "name:doe jane", "card:4242", "id:ch_1")
LATE = 2 * DAY // SECOND

BOOK = (
    "reference,amount,currency,status,placed_at\n"
    "INV-9,80.00,KES,unpaid,2026-11-21\nORD-7,3250.00,KES,paid,2026-11-25\n"
)
SETTLED = (
    "payment_reference,order_reference,gross,currency,payout,settled_at\n"
    "p1,SHOP-DK-2004,3250.00,KES,po_1,2026-11-22\n"
)
SMS = (
    "{receipt} Confirmed. Ksh3,250.00 sent to THE SHOP for account {account} on 20/11/26 at 1:15 "
    "PM. New M-PESA balance is Ksh80.00. Transaction cost, Ksh0.00."
)

FOUND: dict[str, tuple[list[str], str]] = {
    "2004": (["SHOP-DK-2004"], "its reference ends with this"),
    "DK 2004": (["SHOP-DK-2004"], "its reference ends with this"),
    "dk2004": (["SHOP-DK-2004"], "its reference ends with this"),
    "shop dk 2004": (["SHOP-DK-2004"], "this is its reference, written SHOP-DK-2004"),
    "re_1": (["SHOP-DK-2004"], "this is a refund of it, at shop"),
    "dp_1": (["SHOP-DK-2004"], "this is a dispute of it, at shop"),
    "cap_1": (["SHOP-DK-2004"], "this is a capture of it, at shop"),
    "ch_1": (["SHOP-DK-2004"], "an event of it names this id"),
    "po_1": (["SHOP-DK-2004"], "it was settled in the payout po_1"),
    "Jane@Example.com": (["SHOP-DK-2004"], "its customer has this email address"),
    "Doe, Jane": (["SHOP-DK-2004"], "its customer has this name"),
    "4242": (["SHOP-DK-2004"], "it was paid by a card that ends in 4242"),
    "**** 4242": (["SHOP-DK-2004"], "it was paid by a card that ends in 4242"),
    "712345678": (["SHOP-DK-2004"], "its customer's phone is +254 ••• ••• •78"),
    "0712 345 678": (["SHOP-DK-2004"], "its customer's phone is +254 ••• ••• •78"),
    "p5": (["ORD-5"], "an unconfirmed message from shop names this payment"),
    "KES 3250 2026-11-20": (["SHOP-DK-2004"], "its event e1 states KES 3,250.00"),
    "KES 3250 2026-11-22": (["SHOP-DK-2004"], "its event e1 states KES 3,250.00"),
    "KES 80 2026-11-23": (["ORD-7"], "the shop stated its price as KES 80.00"),
    "KES 3250 2026-11-25": (["ORD-7"], "the order book has it on that day with KES 3,250.00"),
    SMS.format(receipt="SJK4H7TR2P", account="DK2004"): (
        ["SHOP-DK-2004"],
        "its reference ends with this",
    ),
    SMS.format(receipt="SJK4H7TR2P", account="x1"): (["SHOP-DK-2004"], "its event e1 states"),
}
"""Search words that people have, the orders found, and how the first was found."""

NOTED: dict[str, str] = {
    "SJK4H7TR2Q": "We have the payment SJK4H7TR2Q of shop, KES 3,250.00, received at "
    "2026-11-20T10:00:00Z (succeeded), but it is linked to no order. It names no order",
    "+254700000009": "We have the payment SJK4H7TR2Q of shop",
    SMS.format(receipt="SJK4H7TR2Q", account="-"): "We have the payment SJK4H7TR2Q of shop",
    "ws_CO_1": "A message from shop names ws_CO_1, KES 3,250.00, received at ",
    "KES 80 2026-11-21": "The order book has INV-9, KES 80.00, unpaid, but no event names it.",
}
"""Search words that are on no order, and the sentence about each."""


PERSONS: dict[str, str] = {
    "+254712345678": "a phone number",
    "jane@example.com": "an email address",
    "jane doe": "a name",
}

NAMED: dict[str, Any] = {"name": "x", "limit": 5}
INDEXED: dict[str, tuple[str, dict[str, Any]]] = {
    "ix_order_due_backwards": (
        search_store.ENDING,
        {"tail": "4002", "last": "4002\U0010ffff", "limit": 5},
    ),
    "ix_events_movement": (search_store.WITH, NAMED),
    "ix_events_capture": (search_store.WITH, NAMED),
    "ix_events_unconfirmed": (search_store.WITH, NAMED),
    "ix_events_of_other_shops": (search_store.OF_OTHER_SHOPS, NAMED),
    "ix_statement_lines_payout": (search_store.PAID_OUT, NAMED),
}
"""Queries of a search on large tables, by the index that answers each."""

ALIKE = {"ix_events_of_other_shops": "_other_shops"}
"""Indexes with equal conditions, by a part of their names: of empty ones any costs the same."""


async def a_world(inbox: Inbox, folder: Path) -> None:
    """Store evidence of three orders, and of two payments without any."""
    paid = said("e1", "succeeded", order="SHOP-DK-2004", payment="p1", money=PRICE, capture="cap_1")
    late = first_id("dlv_", seconds(LATE)) + "1"
    back: dict[str, Any] = {"payment": "p1", "money": Money(minor=100, currency="KES")}
    unplaced = said("e4", "succeeded", payment="SJK4H7TR2Q", money=PRICE)
    push: dict[str, Any] = {"standing": "unconfirmed", "money": PRICE}
    await keep(inbox, arrival(paid, at=LATE, delivery_id=late, customer=_digests(*CUSTOMER)))
    await keep(
        inbox,
        arrival(said("e2", "refunded", movement="re_1", **back)),
        arrival(said("e3", "disputed", movement="dp_1", **back)),
        arrival(unplaced, customer=_digests("254700000009")),
        arrival(said("e5", order="ORD-5", payment="p5", standing="unconfirmed")),
        arrival(said("e6", session="ws_CO_1", **push)),
    )
    placed = seconds(3 * DAY // SECOND)
    asked = Money(minor=8_000, currency="KES")
    await commit(
        inbox,
        add_records,
        [
            Record(
                record_id="rec_1",
                recorded_at=placed + 5 * DAY,
                kind="order_placed",
                order="ORD-7",
                at=placed,
                money=asked,
            )
        ],
    )
    await keep(inbox, arrival(said("e7", order="ORD-7", payment="p7")))
    book, settled = folder / "book.csv", folder / "settled.csv"
    await to_thread(book.write_text, BOOK)
    await to_thread(settled.write_text, SETTLED)
    await import_book(context(inbox), ImportRequest(path=book))
    await import_statement(context(inbox), ImportRequest(path=settled), source="shop")


def _digests(*identifiers: str) -> tuple[bytes, ...]:
    return tuple(map(KEY.digest, identifiers))


async def find(inbox: Inbox, text: str, *, by: str | None = None, at: int = LATE) -> FoundOrders:
    given = with_given(with_settings(context(inbox, at=at), phone_country="254"), phone_key=KEY)
    return await find_orders(given, text, limit=5, by=by)


class SearchContract:
    """Ways to an order. A subclass gives `url`."""

    async def test_whatever_people_have_finds_the_order(self, inbox: Inbox, tmp_path: Path) -> None:
        """No reconciliation has run."""
        await a_world(inbox, tmp_path)
        for text, (orders, how) in FOUND.items():
            found = await find(inbox, text)
            assert [hit["order"] for hit in found.hits] == orders, (text, found)
            assert found.hits[0]["found"].startswith(how), (text, found.hits[0]["found"])
        for text, sentence in NOTED.items():
            found = await find(inbox, text)
            assert any(note.startswith(sentence) for note in found.notes), (text, found)

    @pytest.mark.alike
    async def test_a_search_for_a_person_takes_a_role_and_is_noted_and_limited(
        self, inbox: Inbox, tmp_path: Path
    ) -> None:
        await a_world(inbox, tmp_path)
        people: tuple[tuple[str, Role], ...] = (
            ("Ann", "admin"), ("Sue", "support"), ("Vic", "viewer"),
        )  # fmt: skip
        for name, role in people:
            await register_operator(context(inbox), name=name, role=role, by="Ann")
        for text, what in PERSONS.items():
            refused = await find(inbox, text, by="Vic")
            assert refused.hits == []
            assert refused.notes[0].startswith(
                f"Only references and amounts were searched, not {what}"
            )
            assert [hit["order"] for hit in (await find(inbox, text, by="Sue")).hits] == [
                "SHOP-DK-2004"
            ]
        assert (await find(inbox, "2004", by="Vic")).hits != []
        noted = "SELECT who, subject FROM audit WHERE action = 'person_sought' ORDER BY number"
        assert await rows(inbox, noted) == [("Sue", what) for what in PERSONS.values()]
        for _ in range(PERSON_SEARCHES - len(PERSONS)):
            await find(inbox, "jane@example.com", by="Sue")
        limited = await find(inbox, "jane@example.com", by="Sue")
        assert limited.hits == []
        assert "60 persons within the last hour" in limited.notes[0]
        assert (await find(inbox, "jane@example.com", by="Sue", at=LATE + 3_601)).hits != []
        assert (await find(inbox, "jane@example.com", by="Ann")).hits != []

    @pytest.mark.parametrize("index", INDEXED)
    async def test_a_search_goes_by_index(self, inbox: Inbox, index: str) -> None:
        sql, values = INDEXED[index]
        assert ALIKE.get(index, index) in await plan_of(inbox, sql, values)
