"""Six hundred SQL injection payloads change nothing.

Wherever a text is searched for, each is searched for literally, and no statement's own text
contains it.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from sqlalchemy import event as sql_event
from sqlalchemy.engine import Engine

from app.access.operators import trail
from app.core.errors import NotFoundError, UsageError
from app.finance.break_acts import living_breaks, one_break
from app.finance.read_lines import list_book, list_statement
from app.orders.delivery_log import list_deliveries, show_delivery
from app.orders.find_orders import find_orders
from app.orders.read_orders import list_orders
from app.orders.refold import refold_until_quiet
from tests.api.driving import Driver, driving, event, of_order
from tests.cli.test_commands import Run
from tests.cli.test_commands import run as run  # the fixture
from tests.privacy.test_erase import quiet

BEFORE = ("", "'", '"', "')", "';", "\\'", "`", "1", "ORD-1'", "%'")
INSIDE = (
    "OR 1=1", "OR 'x'='x'", "UNION SELECT name FROM sqlite_master", "; DROP TABLE ledgers",
    "; UPDATE ledgers SET outcome='succeeded'", "AND (SELECT count(*) FROM events)>0",
    "|| (SELECT digest FROM tokens)", "ORDER BY 99", ") OR (1=1", "AND pg_sleep(9)",
    "OR randomblob(9)", "OR order_key LIKE '%'", "%", "_", ":after", "? OR ?", "$1", "{} {0}",
    "%(limit)s", "ESCAPE '\\'",
)  # fmt: skip
AFTER = ("", "--", "/*")
PAYLOADS = [" ".join(parts).strip() for parts in product(BEFORE, INSIDE, AFTER)]
NAMED = PAYLOADS[7::80]
"""Payloads that are references of orders, too."""

CLOSED = ("outcome", "finding")
NUMBERS = ("limit", "after", "wait")


@contextmanager
def statements() -> Iterator[list[str]]:
    """Record the text of every statement that runs, without its values."""
    found: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *more: Any) -> None:
        found.append(statement)

    sql_event.listen(Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        sql_event.remove(Engine, "before_cursor_execute", note)


def contents(driver: Driver) -> str:
    """Return a digest of all rows of all tables, except the audit trail and its counter.

    Those change because a search for what may be a person's number or name is recorded.
    """
    tables = driver.rows("SELECT name FROM sqlite_master WHERE type='table'")
    names = [name for (name,) in tables if name not in ("audit", "counters")]
    rows = [(name, sorted(map(repr, driver.rows(f"SELECT * FROM {name}")))) for name in names]
    return hashlib.sha256(repr(sorted(rows)).encode()).hexdigest()


@asynccontextmanager
async def filled(folder: Path) -> AsyncIterator[tuple[Driver, list[str]]]:
    """Run a service with plain references and those of the payloads."""
    async with driving(folder, with_worker=False, raising=True) as driver:
        await driver.send(event("e1"))
        for number, name in enumerate(NAMED):
            sent = await driver.send(of_order(name, f"n{number}"))
            assert sent.json()["verdict"] == "stored"
        await driver.api("GET", "/orders")
        await refold_until_quiet(driver.context, limit=100, progress=quiet)
        yield driver, sorted(["ORD-1", *NAMED])


async def by_the_api(driver: Driver, names: list[str], payload: str) -> None:
    """Send each text as every parameter and as the path."""
    listed = await driver.api("GET", "/orders", params={"after": payload})
    assert [each["order"] for each in listed.json()["orders"]] == [n for n in names if n > payload]
    shown = await driver.api("GET", f"/orders/{quote(payload, safe='')}")
    assert shown.status_code == (200 if payload in names else 404)
    assert shown.json().get("order", payload) == payload


async def by_closed_parameters(driver: Driver, names: list[str], payload: str) -> None:
    """Send it where a word of a closed list, a number or an instant is expected."""
    asked = [("/orders", name) for name in (*CLOSED, "limit")]
    asked += [("/outcomes", name) for name in NUMBERS] + [("/orders/ORD-1", "as_of")]
    for path, name in asked:
        refused = await driver.api("GET", path, params={name: payload})
        assert (refused.status_code, refused.json()["code"]) == (422, "parameter_invalid")


async def by_the_operations(driver: Driver, names: list[str], payload: str) -> None:
    """Pass it to the functions that commands call."""
    context = driver.context
    spellings = [payload] if any(n.startswith(payload) for n in names) else []
    spellings = spellings or [payload.upper(), payload.lower()]
    found = await find_orders(context, payload, limit=1_000)
    assert {hit["order"] for hit in found.hits} == {
        name for name in names if any(name.startswith(each) for each in spellings)
    }
    for narrowed in ("subject", "who", "action"):
        words: dict[str, Any] = {narrowed: payload}
        assert await trail(context, limit=10, **words) == []
    assert await list_book(context, reference=payload, as_of=None, limit=10) == []
    assert await list_statement(context, reference=payload, as_of=None, limit=10) == []
    for name, given in (("outcome", payload), ("finding", payload.replace("%", "") or "-")):
        words = {name: given}
        assert await list_orders(context, after="", limit=10, **words) == []
    for narrowed in ("verdict", "source", "kind"):
        asked: dict[str, Any] = {narrowed: payload}
        assert (await list_deliveries(context, limit=10, **asked)).entries == []
    assert [each async for each in living_breaks(context, causes=[payload])] == []
    for one in (show_delivery, one_break):
        with pytest.raises((NotFoundError, UsageError)):
            await one(context, payload)


Way = Callable[[Driver, list[str], str], Awaitable[None]]
WAYS: tuple[tuple[Way, int], ...] = (
    (by_the_api, 40), (by_closed_parameters, 160), (by_the_operations, 120)
)  # fmt: skip
"""Ways to send a text, each with its sampling step when time is short."""


@pytest.mark.slow
@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.soak)])
async def test_a_text_is_a_text(whole: bool, tmp_path: Path) -> None:
    async with filled(tmp_path) as (driver, names):
        before = contents(driver)
        with statements() as said:
            for way, share in WAYS:
                for place, payload in enumerate(PAYLOADS):
                    if whole or place % share == 0 or payload in NAMED:
                        await way(driver, names, payload)
        assert contents(driver) == before
    long = {payload for payload in PAYLOADS if len(payload) > 8}
    words = set(said)
    print(f"{len(PAYLOADS)} texts in {len(said)} statements of {len(words)} kinds")
    assert len(said) > 300
    assert [(text, each) for text in long for each in words if text in each] == []


COMMANDS: tuple[tuple[str, ...], ...] = (
    ("orders", "list", "--after"), ("orders", "list", "--outcome"), ("orders", "list", "--finding"),
    ("orders", "find"), ("orders", "show"), ("orders", "show", "ORD-1", "--as-of"),
    ("deliveries", "list", "--verdict"), ("deliveries", "show"), ("deliveries", "diagnose"),
    ("deliveries", "reverify", "--source"), ("audit", "list", "--subject"),
    ("audit", "list", "--who"), ("audit", "list", "--action"), ("breaks", "list", "--assignee"),
    ("breaks", "list", "--cause"), ("breaks", "show"), ("records", "list", "--reference"),
    ("statement", "list", "--reference"), ("notifications", "list", "--state"), ("prove",),
)  # fmt: skip
"""Commands whose next argument is the text."""


@pytest.mark.slow
@pytest.mark.parametrize("texts", [1, pytest.param(50, marks=pytest.mark.soak)])
def test_a_text_of_a_command_is_a_text(texts: int, run: Run, tmp_path: Path) -> None:
    """The command ends as for any unknown name; tables, rows and columns stay."""

    async def fill() -> Driver:
        async with filled(tmp_path) as (driver, _):
            return driver

    driver = asyncio.run(fill())
    before = contents(driver)
    for place, words in enumerate(COMMANDS):
        for number in range(texts):
            payload = PAYLOADS[(place * 37 + number * 19) % len(PAYLOADS)]
            ended = run(*words, f"x{payload}")
            assert ended.code in (0, 2, 3, 5), (words, payload, ended)
            assert not any(name in ended.out for name in ("ORD-1", *NAMED)), (words, payload)
    assert contents(driver) == before
