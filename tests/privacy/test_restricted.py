"""Restriction of what an erasure keeps: nobody finds it or sees whose it is. Finance goes on as
before."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import get_args

import pytest

from app.access.bookmarks import bookmarks_of, pin_order
from app.access.operators import register_operator
from app.context.context import AppContext
from app.core.errors import UsageError
from app.core.masking import DOT
from app.evidence.verify import unpack
from app.finance.imports import ImportRequest, import_bank
from app.finance.report_period import report_in
from app.finance.trail import find_money
from app.orders.customers import reveal_body, unmask
from app.orders.delivery_log import list_deliveries, masked_parts, show_delivery
from app.orders.find_orders import RESTRICTED as NOT_SEARCHED
from app.orders.find_orders import find_orders, orders_beginning
from app.orders.read_orders import order_document
from app.orders.refold import refold_until_quiet
from app.orders.unallocated import read_unallocated
from app.privacy.erase_rules import SENTENCES, Why
from app.receiving.kept_request import kept_request
from app.receiving.restrictions import REASONS, Restriction
from reconcile.instants import DAY, Instant, format_instant, parse_instant
from reconcile.reporting.report import Scope
from tests.api.driving import Driver, of_order
from tests.evidence.conftest import build
from tests.privacy.test_erase import PHONE, paid, quiet
from tests.privacy.test_retained import bodies, erased, nameless, restricted, retaining, round_on
from tests.reconcile.build import T
from tests.rows import for_each

UNTIL = format_instant(Instant(T + 120 * DAY))
SINCE = format_instant(Instant(T + 10 * DAY))
RESTRICTED = (
    f"Its customer's data are restricted since {SINCE}, until {UNTIL}: its payment can be disputed "
    "(legal claims may rest on it: GDPR Art. 17(3)(e))."
)


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[Driver]:
    """Run a service with an order whose customer was erased, and whose payment can be disputed."""
    async with retaining(tmp_path) as driven:
        await driven.send(paid("ORD-1", "e1"))
        yield driven


def delivery_of(driver: Driver, event: str = "e1") -> str:
    """Return the delivery that brought an event."""
    return str(driver.rows(f"SELECT id FROM deliveries WHERE event_id = '{event}'")[0][0])


def test_every_reason_for_which_something_stays_has_its_words() -> None:
    assert REASONS.keys() == SENTENCES.keys() == {*get_args(Why)}


@for_each(
    ("why", "until", "words"),
    [
        ("in_the_reference", None, ", for good: its reference"),
        ("shared", None, ", until that ends: "),
        ("accounts", T, f", until {format_instant(T)}: books must be kept (books"),
    ],
)
def test_a_restriction_says_when_it_ends(why: str, until: Instant | None, words: str) -> None:
    told = Restriction(kind="order", thing="ORD-1", since=T, until=until, why=why)
    assert words in told.sentence


@pytest.mark.parametrize("words", [f"+{PHONE}", "Wanjiku Kamau", "pay-ORD-1", "e1", "1500.00"])
async def test_no_search_finds_what_is_restricted(driver: Driver, words: str) -> None:
    """By number, name, payment, event or amount; it was found before."""
    for day, found in ((9, 1), (10, 0)):
        if day == 10:
            await erased(driver, day=10)
        driver.clock.put(T + day * DAY)
        await refold_until_quiet(driver.context, limit=100, progress=quiet)
        hits = await find_orders(driver.context, words, limit=5)
        assert (len(hits.hits), "ORD-1" in str(hits.notes)) == (found, False)
        nothing = await find_orders(driver.context, "nobody", limit=5)
        assert (NOT_SEARCHED in nothing.notes) == (day == 10)


async def test_its_own_reference_says_why_it_is_not_found(driver: Driver) -> None:
    assert await orders_beginning(driver.context, "ORD", limit=5) == ["ORD-1"]
    await pin_order(driver.context, "ORD-1", operator="Sam")
    assert [each.label for each in await bookmarks_of(driver.context, "Sam")] == ["ORD-1"]
    await erased(driver, day=10)
    found = await find_orders(driver.context, "ORD-1", limit=5)
    assert (found.hits, found.notes) == ([], [f"ORD-1: {RESTRICTED}"])
    assert await orders_beginning(driver.context, "ORD", limit=5) == []
    assert await bookmarks_of(driver.context, "Sam") == []
    with pytest.raises(UsageError, match="restricted since"):
        await list_deliveries(driver.context, limit=5, order="ORD-1")


SEES: dict[str, Callable[[AppContext, str], Awaitable[object]]] = {
    "the number": lambda context, _: unmask(context, "ORD-1", reason="why", by="Ann"),
    "the body": lambda context, name: reveal_body(context, name, reason="why", by="Ann"),
    "the request": lambda context, name: kept_request(context, name, to="here", by="Ann"),
}


@pytest.mark.parametrize("what", SEES)
async def test_nobody_sees_whose_it_is(driver: Driver, what: str) -> None:
    name, sees = delivery_of(driver), SEES[what]
    assert await sees(driver.context, name)
    await erased(driver, day=10)
    with pytest.raises(UsageError, match="restricted since"):
        await sees(driver.context, name)


async def test_a_full_bundle_of_it_is_for_who_may_erase(driver: Driver) -> None:
    """It is evidence for a claim; anybody else who may take bundles gets a redacted one."""
    await erased(driver, day=10)
    driver.clock.put(Instant(T + 11 * DAY))
    await register_operator(driver.context, name="Ann", role="admin", by="Ann")
    await register_operator(driver.context, name="Sue", role="support", by="Ann")
    with pytest.raises(UsageError, match=r"restricted since .* Build a redacted bundle"):
        await build(driver, "ORD-1", reason="a dispute", by="Sue")
    assert PHONE.encode() not in await unpacked(driver, by="Sue")
    assert PHONE.encode() in await unpacked(driver, by="Ann", reason="a dispute")


async def unpacked(driver: Driver, **asked: str) -> bytes:
    """Return the content of a bundle's files."""
    return b"".join(unpack(await build(driver, "ORD-1", as_of=None, **asked)).values())


async def test_its_delivery_says_that_it_is_restricted_and_shows_no_header(driver: Driver) -> None:
    name = delivery_of(driver)
    phones, headers = await masked_parts(driver.context, await show_delivery(driver.context, name))
    assert (len(phones), bool(headers)) == (1, True)
    await erased(driver, day=10)
    entry = await show_delivery(driver.context, name)
    assert (entry.problem, entry.headers) == (RESTRICTED, "")
    assert await masked_parts(driver.context, entry) == ([], [])


async def test_an_order_says_since_when_until_when_and_why(driver: Driver) -> None:
    """Its money stands as before; of the provider's words for a failure only codes are shown."""
    failed = of_order("ORD-1", "e0", "declined")
    failed["data"]["payment"] |= {"reference": "pay_0", "reason": "Ann Otieno has no funds"}
    await driver.send(failed)
    before = await order_document(driver.context, "ORD-1")
    assert ("restricted" in before, "Ann Otieno" in str(before)) == (False, True)
    await erased(driver, day=10)
    after = await order_document(driver.context, "ORD-1")
    assert after["restricted"] == {
        "since": SINCE, "until": UNTIL, "why": "disputable", "sentence": RESTRICTED,
    }  # fmt: skip
    assert ("Ann Otieno" in str(after), DOT in str(after)) == (False, True)
    assert after["totals"] == before["totals"]


async def test_the_finance_report_stays_as_it_was_from_the_first_day_to_the_last(
    driver: Driver,
) -> None:
    async def report() -> bytes:
        scope = Scope(
            start=parse_instant("2026-11-01T00:00:00Z"), end=parse_instant("2026-12-01T00:00:00Z"),
            as_of=Instant(T + 5 * DAY), zone="UTC", basis="captured", environment="sandbox",
        )  # fmt: skip
        return await report_in(driver.context, scope, "json")

    driver.clock.put(T + 9 * DAY)
    await refold_until_quiet(driver.context, limit=100, progress=quiet)
    before = await report()
    assert b"1500.00" in before
    await erased(driver, day=10)
    assert await report() == before
    await round_on(driver, day=120)
    assert (bodies(driver), await report()) == (0, before)


async def test_a_payer_of_no_order_is_hidden_and_the_money_is_not(driver: Driver) -> None:
    await nameless(driver)
    for day, found, phone in ((9, 1, "+254 ••• ••• •44"), (10, 0, None)):
        if day == 10:
            await erased(driver, day=10)
        driver.clock.put(T + day * DAY)
        hits = await find_orders(driver.context, f"+{PHONE}", limit=5)
        assert (len(hits.unallocated), "pay_x" in str(hits.notes)) == (0, False) or found
        payment = await read_unallocated(driver.context, "pay_x")
        assert (payment.phone, payment.waits) == (phone, True)


async def test_a_line_of_a_bank_is_kept_for_the_books_unseen_and_emptied_after_them(
    driver: Driver,
) -> None:
    bank = driver.path.parent / "bank.csv"
    bank.write_text(
        "booked_at,amount,currency,counterparty,text\n"
        f"2026-11-21,1500,KES,Wanjiku {PHONE},for the lamp\n"
        "2026-11-21,7,KES,PROVIDER,for the lamp too\n"
    )
    assert (await import_bank(driver.context, ImportRequest(path=bank, account="main"))).new == 2
    assert len((await find_money(driver.context, "the lamp")).rows) == 2
    await erased(driver, day=10)
    assert [why for _, why, _ in restricted(driver)] == ["accounts", "disputable"]
    assert len((await find_money(driver.context, "the lamp")).rows) == 1
    texts = "SELECT counterparty, told FROM bank_lines WHERE minor = 150000"
    assert PHONE in str(driver.rows(texts))
    await round_on(driver, day=364)
    assert PHONE in str(driver.rows(texts))
    await round_on(driver, day=400)
    assert driver.rows(texts) == [(DOT, DOT)]
    assert restricted(driver) == []
