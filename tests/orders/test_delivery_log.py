"""The delivery log: what it lists, and how many arrivals came when, taken and refused apart."""

import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.core.masking import Masking
from app.orders import delivery_log
from app.orders.delivery_log import (
    arrivals_by_minute,
    head_of_log,
    last_came,
    list_deliveries,
    shown_header,
)
from reconcile.instants import MINUTE, Instant
from tests.api.driving import KEY, Driver, driving, event, secret, signed
from tests.reconcile.build import T
from tests.rows import for_each, row

OTHER = b"another key for tests, not a secret"


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[Driver]:
    """Run two sources, one that was accepted and then refused, the other the reverse, and an
    unknown name."""
    more: dict[str, Any] = {"SOURCES__OTHER__SECRETS": secret(OTHER)}
    async with driving(tmp_path, with_worker=False, **more) as driven:
        for minute, source, key in (
            (0, "shop", KEY),
            (1, "shop", None),
            (1, "shop", None),
            (2, "other", None),
            (3, "other", OTHER),
            (4, "nobody", None),
        ):
            driven.clock.put(Instant(T + minute * MINUTE))
            body, at = json.dumps(event(f"e{minute}")).encode(), driven.clock.now()
            headers = [] if key is None else signed(body, at=at, key=key)
            await driven.send(body, headers, source=source)
        yield driven


async def test_when_something_of_a_source_came_last(driver: Driver) -> None:
    """Taken and refused apart; of all names that no source has together."""
    found = [await last_came(driver.context, name) for name in ("shop", "other", "", "new")]
    minutes = [tuple(None if at is None else (at - T) // MINUTE for at in pair) for pair in found]
    assert minutes == [(0, 1), (3, 2), (None, 4), (None, None)]


async def test_how_many_came_in_each_minute_of_the_last_hour(driver: Driver) -> None:
    """The present minute is the last; one of an hour ago is no more among them."""
    driver.clock.put(Instant(T + 60 * MINUTE))
    found = await arrivals_by_minute(driver.context)
    assert (len(found), found[-1][0]) == (60, T + 60 * MINUTE)
    counted = {(at - T) // MINUTE: (taken, refused) for at, taken, refused in found}
    assert {minute: both for minute, both in counted.items() if any(both)} == {
        1: (0, 2), 2: (0, 1), 3: (1, 0), 4: (0, 1),
    }  # fmt: skip


LISTED: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["nobody", "other", "other", "shop", "shop", "shop"]),
    ({"limit": 2}, ["nobody", "other"]),
    ({"source": "shop"}, ["shop", "shop", "shop"]),
    ({"source": "shop", "refused": False}, ["shop"]),
    ({"verdict": "stored"}, ["other", "shop"]),
    ({"verdict": "stored", "refused": False, "source": "other"}, ["other"]),
    ({"verdict": "signature_missing"}, ["other", "shop", "shop"]),
    ({"verdict": "signature_missing", "refused": False}, []),
    ({"verdict": "unreadable"}, []),
]


async def test_what_is_listed_newest_first(driver: Driver) -> None:
    """Of all, of one source or verdict, without those that were refused."""
    for words, listed in LISTED:
        with row(str(words)):
            found = (await list_deliveries(driver.context, **{"limit": 10, **words})).entries
            assert [each.source for each in found] == listed
            dates = [each.received_at for each in found]
            assert dates == sorted(dates, reverse=True)


async def test_the_log_is_read_on_from_where_it_was_left(driver: Driver) -> None:
    """By the id of the last entry, which is not given again; its head is the newest of all."""
    whole = (await list_deliveries(driver.context, limit=10)).entries
    assert await head_of_log(driver.context) == whole[0].delivery_id
    before = whole[2].delivery_id
    rest = await list_deliveries(driver.context, limit=10, before=before)
    assert (rest.entries, rest.older) == (whole[3:], None)
    first = await list_deliveries(driver.context, limit=3)
    assert (first.entries, first.older) == (whole[:3], before)


async def test_a_search_by_what_events_say_ends_where_it_says_and_goes_on_from_there(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No index has an event's kind: a page looks at so many deliveries and no more."""
    monkeypatch.setattr(delivery_log, "STRETCH", 1)
    monkeypatch.setattr(delivery_log, "STRETCHES", 2)
    for number in range(5):
        driver.clock.put(Instant(T + (10 + number) * MINUTE))
        claim = "declined" if number == 0 else "pending"
        body, at = json.dumps(event(f"k{number}", claim)).encode(), driver.clock.now()
        await driver.send(body, signed(body, at=at, event_id=f"k{number}"))
    pages, before = [], None
    while True:
        page = await list_deliveries(
            driver.context, kind="payment.declined", limit=2, before=before
        )
        pages.append([each.event_id for each in page.entries])
        assert page.searched == (None if page.older is None else 2)
        if page.older is None:
            break
        before = page.older
    assert pages == [[], [], ["k0"], []]


async def test_an_entry_says_what_came(driver: Driver) -> None:
    """Of one that was taken and of one that was refused: each column at its place."""
    body = json.dumps(event("e5")).encode()
    await driver.send(body, signed(body, at=driver.clock.now(), event_id="e5"))
    await driver.send(body, [])
    page = await list_deliveries(driver.context, source="shop", limit=2)
    refused, taken = page.entries
    if refused.verdict == "stored":  # both came in one millisecond
        refused, taken = taken, refused
    for entry in (refused, taken):
        assert entry.delivery_id.startswith("dlv_")
        assert (entry.received_at, entry.source) == (driver.clock.now(), "shop")
        assert (entry.size, entry.digest) == (len(body), hashlib.sha256(body).hexdigest())
        assert entry.pruned_at is None
    assert (taken.verdict, taken.event_id, taken.problem) == ("stored", "e5", None)
    assert "webhook-signature" in taken.headers
    assert (refused.verdict, refused.event_id) == ("signature_missing", None)
    assert refused.problem


@for_each(
    ("name", "value", "shown"),
    [
        ("x-payer", "+254 711 223 344", "+254 ••• ••• •44"),
        ("x-payer", "wanjiku@example.org", "w•••"),
        ("webhook-timestamp", "1763632800123", "1763632800123"),
        (":url", "/w/shop?to=%2B254%20711%20223344&n=1", "/w/shop?to=+254 ••• ••• •44&n=1"),
        (
            ":url",
            "/w/shop?q=%2B254-711-223-344&Token=x",
            "/w/shop?q=+254 ••• ••• •44&Token=(hidden)",
        ),
        (":url", "/w/shop?email=w%40example.org&a=b%20c&d", "/w/shop?email=w•••&a=b%20c&d"),
        (":url", "/w/shop", "/w/shop"),
    ],
)
def test_of_a_header_is_shown_what_is_nobody_s(name: str, value: str, shown: str) -> None:
    """Of what was refused no body says whose numbers they are: they are masked at sight, also
    behind the escapes of an address."""
    assert shown_header(name, value, Masking()) == shown


async def test_an_empty_log_has_no_head(tmp_path: Path) -> None:
    async with driving(tmp_path, with_worker=False) as driven:
        assert await head_of_log(driven.context) == ""
