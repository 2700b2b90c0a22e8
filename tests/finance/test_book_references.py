"""An order book names what orders were paid by: records of the shop, each of one order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.finance.import_kinds import Imported
from app.finance.imports import Request, import_book
from app.orders.refold import refold_until_quiet
from app.receiving.context import Desk
from reconcile.money import Money
from tests.database.builders import arrival, keep, opened, rows, said
from tests.database.builders import desk as desk_of

HEADING = "reference,amount,currency,source,payment_reference,session_reference\n"
PRICE = Money(minor=1_500, currency="KES")


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with opened(f"sqlite+aiosqlite:///{tmp_path}/t.db") as store:
        yield desk_of(store, at=60)


async def imported(desk: Desk, folder: Path, content: str, **more: Any) -> Imported:
    """Import a book of these rows."""
    path = folder / "book.csv"
    path.write_text(HEADING + content)
    return await import_book(desk, Request(path=path, **more), sources={"shop", "mpesa"})


async def records(desk: Desk) -> list[tuple[Any, ...]]:
    """What was written of references."""
    sql = "SELECT order_key, kind, source, session, payment, author FROM records ORDER BY 1, 5"
    return await rows(desk.store, sql)


async def test_a_book_leads_events_to_their_orders(desk: Desk, tmp_path: Path) -> None:
    """An event that names only its payment is the order's once the book says so; the same file
    again writes nothing, and no price was told."""
    await keep(desk.store, arrival(said("n", "succeeded", payment="p", money=PRICE)))
    content = "A,15.00,KES,Shop,p,\nB,15.00,KES,mpesa,,ws_1\nC,15.00,KES,,,\n"
    done = await imported(desk, tmp_path, content)
    assert (done.new, done.problems) == (3, [])
    named = [
        ("A", "reference_named", "shop", None, "p", f"import:{done.number}"),
        ("B", "reference_named", "mpesa", "ws_1", None, f"import:{done.number}"),
    ]
    assert await records(desk) == named
    await refold_until_quiet(desk, limit=9, progress=lambda count: None)
    assert ("A", "succeeded") in await rows(desk.store, "SELECT order_key, outcome FROM ledgers")
    again = await imported(desk, tmp_path, content)
    assert (again.unchanged, await records(desk)) == (3, named)


@pytest.mark.parametrize("dry_run", [True, False])
async def test_a_reference_of_another_order_is_a_problem_of_its_row(
    desk: Desk, tmp_path: Path, dry_run: bool
) -> None:
    """Whether another order has it by now, or another row names it; nothing is taken."""
    await keep(desk.store, arrival(said("n", order="X", payment="p")))
    content = "A,1,KES,shop,p,\nB,1,KES,shop,q,\nC,1,KES,shop,q,\nD,1,KES,mpesa,q,\n"
    done = await imported(desk, tmp_path, content, dry_run=dry_run)
    assert [problem.row for problem in done.problems] == [2, 3, 4]
    assert "belongs to order X" in done.problems[0].sentence
    assert (done.number, await records(desk)) == (None, [])
    if not dry_run:
        good = await imported(desk, tmp_path, content, accept_good=True)
        assert (good.new, good.rejected) == (1, 3)
        assert [row[0] for row in await records(desk)] == ["D"]


@pytest.mark.parametrize(
    ("row", "word"),
    [
        ("A,1,KES,,p,", "missing beside"),
        ("A,1,KES,elsewhere,p,", "none of the sources"),
        ("A,1,KES,shop,=p,", "formula"),
    ],
)
async def test_what_names_nothing_is_a_problem(
    desk: Desk, tmp_path: Path, row: str, word: str
) -> None:
    done = await imported(desk, tmp_path, row + "\n")
    assert [word in problem.sentence for problem in done.problems] == [True]
    assert await records(desk) == []


async def test_only_orders_are_paid_by_something(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "book.csv"
    path.write_text("reference,kind,amount,currency,source,payment_reference\n"
                    "A,invoice,1,KES,shop,p\n")  # fmt: skip
    done = await import_book(desk, Request(path=path))
    assert "only order lines" in done.problems[0].sentence
