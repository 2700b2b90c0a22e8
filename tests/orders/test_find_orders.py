"""An order is found by whatever a customer knows of it, and how it was found is shown."""

import json
from asyncio import to_thread
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.access.operator_store import audit_entries
from app.config.load import load_settings
from app.context.configured import compile_sources
from app.core.errors import UsageError
from app.finance.imports import ImportRequest, import_book, import_statement
from app.finance.reconcile_period import RunRequest, reconcile_period
from app.orders.customers import unmask
from app.orders.find_orders import NATIONAL, FoundOrders, find_orders
from app.orders.sought import understood
from app.providers.source import Source
from reconcile.instants import DAY, HOUR
from tests.api.driving import Driver, driving, environ, event, of_order, signed
from tests.contexts import with_settings, with_sources
from tests.copied import copy_of
from tests.reconcile.build import T
from tests.rows import for_each
from tests.waiting import soon

PHONE = "254711223344"


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, Source]:
    """Return the configured sources, as a command has them."""
    return compile_sources(load_settings(environ(tmp_path)))


async def _fill(folder: Path) -> None:
    async with driving(folder, with_worker=False) as driven:
        await driven.send(event("evt_1", customer={"phone": PHONE}))
        await driven.send(of_order("ORD-2", "evt_2", "pending"))
        driven.clock.put(T + DAY)
        await driven.send(of_order("ORD-20", "evt_3"))
        await driven.send(event("evt_4", order=None, session=None, payment={"reference": "pay_9"}))


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[Driver]:
    """Run a service with ORD-1 and its customer, ORD-2 and ORD-20 of others, and an event that
    names no order."""
    copy_of(_fill, tmp_path)
    async with driving(tmp_path, with_worker=False, at=T + DAY) as driven:
        yield driven


async def find(driver: Driver, text: str, sources: Any = None, *, limit: int = 20) -> FoundOrders:
    """Search with the service's own context."""
    given = driver.service.context
    return await find_orders(with_sources(given, sources or {}), text, limit=limit)


FOUND = {
    "ORD-1": [("ORD-1", "this is its reference")],
    "pay_1": [("ORD-1", "this is a payment of it, at shop")],
    "cs_1": [("ORD-1", "this is a session of it, at shop")],
    "evt_2": [("ORD-2", "this is the id of its event")],
    "ORD-2": [("ORD-2", "this is its reference"), ("ORD-20", "its reference begins with this")],
    "ord-1": [("ORD-1", "this is its reference, written ORD-1")],
    "PAY_1": [("ORD-1", "this is a payment of it, at shop, written pay_1")],
    "ord-2": [
        ("ORD-2", "this is its reference, written ORD-2"),
        ("ORD-20", "its reference begins with this text, written ORD-2"),
    ],
    "+254 711 223 344": [("ORD-1", "its customer's phone is +254 ••• ••• •44")],
    "254711223344": [("ORD-1", "its customer's phone is +254 ••• ••• •44")],
    "00254-711-223344": [("ORD-1", "its customer's phone is +254 ••• ••• •44")],
    "+254711223345": [],
    "1500.00 2026-11-21": [("ORD-20", "its event evt_3 states KES 1,500.00, and was received at ")],
    "2026-11-21 KES 1,500": [
        ("ORD-20", "its event evt_3 states KES 1,500.00, and was received at ")
    ],
    "21/11/2026 1500": [("ORD-20", "its event evt_3 states KES 1,500.00, and was received at ")],
    "Ksh 1,500 21.11.2026": [
        ("ORD-20", "its event evt_3 states KES 1,500.00, and was received at ")
    ],
    "21/11/2026": [("ORD-20", "its event evt_3 was received at ")],
    "2026-11-21": [("ORD-20", "its event evt_3 was received at ")],
    "KES 1500.01": [],
    "USD 1500.00": [],
}


@pytest.mark.parametrize(("reference", "text"), [("#1042", "1042"), ("1042", "#1042")])
async def test_the_sign_before_a_number_need_not_be_said(
    driver: Driver, reference: str, text: str
) -> None:
    """Shopify calls an order #1042, and a caller 1042."""
    await driver.send(of_order(reference, "evt_5"))
    hits = (await find(driver, text)).hits
    assert [(hit["order"], hit["found"]) for hit in hits] == [
        (reference, f"this is its reference, written {reference}")
    ]


async def test_a_sign_alone_is_no_beginning_of_all(driver: Driver) -> None:
    assert (await find(driver, "#")).hits == []


@for_each("text", FOUND)
async def test_each_way_to_an_order(driver: Driver, text: str) -> None:
    found = await find(driver, text)
    shown = [(hit["order"], hit["found"]) for hit in found.hits]
    assert [order for order, _ in shown] == [order for order, _ in FOUND[text]]
    for (_, how), (_, begins) in zip(shown, FOUND[text], strict=True):
        assert how.startswith(begins)
    assert all(hit["explanation"] for hit in found.hits)


@for_each("text", ["1500.00", "1500", "KES 1,500.00", "1500.00 kes"])
async def test_an_amount_finds_every_order_that_states_it(driver: Driver, text: str) -> None:
    assert [hit["order"] for hit in (await find(driver, text)).hits] == ["ORD-20", "ORD-2", "ORD-1"]


async def test_what_the_shop_alone_has_asked_for_is_found_too(driver: Driver) -> None:
    body = {"amount": "77.00", "currency": "KES"}
    assert (await driver.api("PUT", "/orders/ORD-7", json=body)).is_success
    (hit,) = (await find(driver, "77.00")).hits
    assert (hit["order"], hit["found"]) == ("ORD-7", "the shop stated its price as KES 77.00")


async def test_more_than_was_asked_for_is_reported(driver: Driver) -> None:
    found = await find(driver, "ORD-", limit=2)
    assert ([hit["order"] for hit in found.hits], found.more) == (["ORD-1", "ORD-2"], True)
    assert not (await find(driver, "ORD-", limit=3)).more


async def test_an_event_without_an_order_is_shown(driver: Driver) -> None:
    found = await find(driver, "evt_4")
    assert found.hits == []
    (payment,) = found.unallocated
    assert (payment["id"], payment["why"]["code"]) == ("shop:pay_9", "names_no_order")


async def test_the_phone_of_a_hit_is_masked(driver: Driver, sources: dict[str, Source]) -> None:
    found = await find(driver, "ORD-1", sources)
    assert found.hits[0]["phone"] == "+254 ••• ••• •44"
    assert PHONE not in str(found)


async def test_an_orphan_is_found_by_phone_once_it_has_an_order(driver: Driver) -> None:
    nameless: dict[str, Any] = {
        "payment": {"reference": "pay_8"},
        "customer": {"phone": "254799000111"},
    }
    await driver.send(event("evt_8", order=None, session=None, **nameless))
    found = await find(driver, "254799000111")
    assert not found.hits
    assert found.notes[0].startswith(
        "We have the payment pay_8 of shop, KES 1,500.00, received at "
    )
    named: dict[str, Any] = {"order": {"reference": "ORD-8"}, "payment": {"reference": "pay_8"}}
    await driver.send(event("evt_9", session=None, **named))
    found = await find(driver, "254799000111")
    assert ([hit["order"] for hit in found.hits], found.notes) == (["ORD-8"], [])


async def test_numbers_noted_with_another_key_are_reported(driver: Driver) -> None:
    async with driver.context.database.writing() as connection:
        await connection.exec_driver_sql("INSERT INTO phones VALUES (x'00', 'order', 'O', 1)")
    (note,) = (await find(driver, "254711223344")).notes
    assert "reindex" in note


async def test_the_database_alone_does_not_give_the_number_away(driver: Driver) -> None:
    (row,) = driver.rows("SELECT digest, kind, thing FROM phones")
    assert (len(row[0]), *row[1:]) == (16, "order", "ORD-1")


@for_each("text", ["", "   ", "a\nb", "x" * 257])
def test_what_can_mean_nothing_is_reported_with_the_grammar(text: str) -> None:
    with pytest.raises(UsageError, match="a day"):
        understood(text)


def test_what_is_pasted_is_understood_without_what_nobody_sees() -> None:
    """Telephones copy numbers between marks of a direction, pages blanks that do not break."""
    marked = understood("\u202a+254\u00a0711\u00a0223\u00a0344\u202c")
    assert (marked.phones, marked.names) == (("254711223344",), ("+254 711 223 344",))
    assert understood("\u200fORD-1\u200b").names == ("ORD-1",)
    assert (understood("KES\u202f1500.00").amounts or {})[2] == 150000


async def test_a_number_that_lacks_its_country_is_reported(driver: Driver) -> None:
    assert (await find(driver, "0711 223 344")).notes == [NATIONAL]
    assert (await find(driver, "+254 711 223 344")).notes == []
    assert (await find(driver, "0.50")).notes == []


async def test_a_number_that_is_none_of_the_country_that_is_set_is_not_said_to_lack_one(
    driver: Driver,
) -> None:
    context = with_settings(driver.service.context, phone_country="254")
    (note,) = (await find_orders(context, "0711 223 344 556 677 889", limit=20)).notes
    assert note.endswith(
        "it does not begin with +254, the country codes of the sources and settings."
    )


async def test_a_national_number_is_of_the_country_that_is_set(driver: Driver) -> None:
    context = with_settings(driver.service.context, phone_country="254")
    found = await find_orders(with_sources(context, {}), "0711 223 344", limit=5)
    assert ([hit["order"] for hit in found.hits], found.notes) == (["ORD-1"], [])


async def test_what_was_refused_is_shown_where_nothing_else_is(driver: Driver) -> None:
    """Only to who may see such, and never beside an order that was found."""
    body = json.dumps(of_order("ORD-77", "evt_9")).encode()
    await driver.send(body, signed(body, at=driver.clock.now(), key=b"a key of somebody else"))
    await soon(lambda: bool(driver.rows("SELECT 1 FROM rejections")))
    (note,) = (await find(driver, "ORD-77")).notes
    assert note.startswith("Nothing was received about it, but 1 refused delivery may be about it")
    context = driver.service.context
    silent = await find_orders(context, "ORD-77", limit=5, refused=False)
    assert silent.notes == []
    await driver.send(of_order("ORD-77", "evt_10"))
    assert (await find(driver, "ORD-77")).notes == []


def test_a_national_number_needs_a_country() -> None:
    assert understood("0711 223 344").phones == ()
    assert understood("0711 223 344", countries=["254", "255"]).phones == (
        "254711223344",
        "255711223344",
    )


def test_a_text_that_may_mean_several_things_is_taken_for_all_of_them() -> None:
    sought = understood("25471122.00")
    assert sought.names == ("25471122.00",)
    assert sought.amounts == {2: 2547112200, 3: 25471122000, 4: 254711220000, 0: 25471122}
    assert not understood("2026-11-20 nonsense").days
    assert not understood("2026-13-45").days


BOOK = "reference,amount,currency,status\nORD_20,1500.00,KES,paid\nORD-77,12.50,KES,paid\n"
SETTLED = "payment_reference,order_reference,gross,currency\npay_77,ORD-77,12.50,KES\n"


async def test_what_books_or_statements_alone_know_shows(driver: Driver, tmp_path: Path) -> None:
    """A payment whose webhook never came, and a reference in another spelling."""
    book, settled = tmp_path / "book.csv", tmp_path / "settled.csv"
    await to_thread(book.write_text, BOOK)
    await to_thread(settled.write_text, SETTLED)
    await import_book(driver.context, ImportRequest(path=book))
    await import_statement(driver.context, ImportRequest(path=settled), source="shop")
    await reconcile_period(driver.context, RunRequest(), progress=lambda done: None)
    for text in ("ord 20", "ORD_20"):
        (hit,) = (await find(driver, text)).hits
        assert (hit["order"], hit["found"]) == ("ORD-20", "this is its reference, written ORD-20")
    found = await find(driver, "ORD-77")
    assert found.hits == []
    assert found.notes[0] == "The order book has ORD-77, KES 12.50, paid, but no event names it."
    assert found.notes[1].startswith(
        "A statement from shop has the payment pay_77 of ORD-77, KES 12.50, but no order here"
    )
    assert (await find(driver, "pay_77")).notes == found.notes[1:]


@for_each(
    ("text", "minor"), [("49,90", 4990), ("eur 1.234,50", 123450), ("1,234", 123400), ("7,5", 750)]
)
def test_an_amount_may_have_its_decimals_after_a_comma(text: str, minor: int) -> None:
    """As customers write it; three digits after a comma are thousands."""
    assert (understood(text).amounts or {})[2] == minor


@for_each(
    ("text", "minor", "currencies"),
    [
        ("KES1500", 150000, ("KES",)),
        ("1500KES", 150000, ("KES",)),
        ("kes 1,500.00", 150000, ("KES",)),
        ("1,500.00", 150000, ()),
        ("1500.00 Ksh", 150000, ("KES",)),
        ("Ksh 1,500", 150000, ("KES",)),
        ("Ksh. 1,500/=", 150000, ("KES",)),
        ("KSh1,500/-", 150000, ("KES",)),
        ("1 500", 150000, ()),
        ("1 500,00 €", 150000, ("EUR",)),
        ("€1.500,00", 150000, ("EUR",)),
        ("CHF 1'500.50", 150050, ("CHF",)),
        ("1\u202f500,00\u00a0€", 150000, ("EUR",)),
        ("₦1,500", 150000, ("NGN",)),
        ("₹1,50,000", 15000000, ("INR",)),
        ("$1,500 USD", 150000, ("USD",)),
        ("R1500", 150000, ("ZAR",)),
        ("zł 12,50", 1250, ("PLN",)),
    ],
)
def test_an_amount_is_understood_as_people_write_it(
    text: str, minor: int, currencies: tuple[str, ...]
) -> None:
    sought = understood(text)
    assert ((sought.amounts or {}).get(2), sought.currencies) == (minor, currencies)
    assert sought.names, "it may be a reference all the same"


def test_a_sign_of_several_currencies_is_each_of_them() -> None:
    assert {"USD", "CAD", "AUD"} <= set(understood("$20").currencies)
    assert understood("$20").sentences()[1] == (
        "an amount in USD, CAD, AUD or another of that sign"
    )
    assert understood("¥1500").amounts == {0: 1500, 2: 150000}


@for_each(
    "text",
    ["ORD1500", "ORD-1500", "PO 1500", "USD 1500 KES", "1,5,0", "1.500.00", "254 711 223 344",
     "711 223 344", "12.50.3", "pay 1500 now"],
)  # fmt: skip
def test_what_is_no_amount_is_not_taken_for_one(text: str) -> None:
    assert understood(text).amounts is None


@for_each(
    ("text", "days"),
    [
        ("28/11/2026", ["2026-11-28"]),
        ("11/28/2026", ["2026-11-28"]),
        ("28.11.2026", ["2026-11-28"]),
        ("28-11-2026", ["2026-11-28"]),
        ("2026/11/28", ["2026-11-28"]),
        ("28/11/2026 1500", ["2026-11-28"]),
        ("KES1500 28/11/2026", ["2026-11-28"]),
        ("1,500.00, 28/11/2026", ["2026-11-28"]),
        ("5/11/2026, 1,500.00", ["2026-11-05", "2026-05-11"]),
        ("05/05/2026", ["2026-05-05"]),
        ("31/02/2026", []),
    ],
)
def test_a_day_is_understood_as_people_write_it(text: str, days: list[str]) -> None:
    """Where the day and the month may be either, both days are looked at, and told."""
    sought = understood(text)
    assert list(sought.days) == days
    assert (", ".join(days[:1]) or "order's") in "; ".join(sought.sentences())


async def test_a_day_is_one_of_the_merchants_zone(driver: Driver) -> None:
    """The customer's clock shows it, not that of UTC."""
    at = driver.clock.now()
    driver.clock.put(at + 15 * HOUR)  # 22:16 UTC, the next day there
    await driver.send(of_order("ORD-9", "evt_9"))
    given = with_settings(driver.service.context, timezone="Africa/Nairobi")
    found = await find_orders(given, "2026-11-22", limit=5)
    assert [hit["order"] for hit in found.hits] == ["ORD-9"]
    assert "on 2026-11-22 (Africa/Nairobi)" in found.looked_for[-1]
    found = await find_orders(given, "2026-11-21", limit=5)
    assert [hit["order"] for hit in found.hits] == ["ORD-20"]


async def test_a_number_is_shown_to_who_says_why_and_that_is_kept(
    driver: Driver, sources: dict[str, Source]
) -> None:
    shown = await unmask(
        with_sources(driver.context, sources), "ORD-1", reason="called back", by="Ann"
    )
    assert shown == [PHONE]
    async with driver.context.database.reading() as connection:
        (entry,) = await audit_entries(connection, limit=10)
    assert (entry.who, entry.action, entry.subject, entry.reason) == (
        "Ann",
        "unmasked",
        "ORD-1",
        "called back",
    )


@pytest.mark.parametrize("reason", ["", "because +254 711-223-344 called"])
async def test_without_a_reason_fit_to_be_kept_no_number_is_shown(
    driver: Driver, sources: dict[str, Source], reason: str
) -> None:
    with pytest.raises(UsageError, match="--reason"):
        await unmask(with_sources(driver.context, sources), "ORD-1", reason=reason, by=None)
    assert driver.rows("SELECT count(*) FROM audit") == [(0,)]
