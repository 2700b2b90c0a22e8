"""An order book names what orders were paid by: records of the shop, each of one order."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.context.context import AppContext
from app.finance.imports import Imported, ImportRequest, import_book
from app.orders.refold import refold_until_quiet
from app.receiving.inbox import inbox_of
from reconcile.money import Money
from tests.database.builders import arrival, keep, opened, rows, said
from tests.database.builders import context as context_of

HEADING = "reference,amount,currency,source,payment_reference,session_reference\n"
PRICE = Money(minor=1_500, currency="KES")


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[AppContext]:
    async with opened(f"sqlite+aiosqlite:///{tmp_path}/t.db") as inbox:
        yield context_of(inbox, at=60)


async def imported(context: AppContext, folder: Path, content: str, **more: Any) -> Imported:
    """Import a book of these rows."""
    path = folder / "book.csv"
    path.write_text(HEADING + content)
    return await import_book(context, ImportRequest(path=path, **more), sources={"shop", "mpesa"})


async def records(context: AppContext) -> list[tuple[Any, ...]]:
    """Return the stored references."""
    sql = "SELECT order_key, kind, source, session, payment, author FROM records ORDER BY 1, 5"
    return await rows(context, sql)


async def test_a_book_leads_events_to_their_orders(context: AppContext, tmp_path: Path) -> None:
    await keep(inbox_of(context), arrival(said("n", "succeeded", payment="p", money=PRICE)))
    content = "A,15.00,KES,Shop,p,\nB,15.00,KES,mpesa,,ws_1\nC,15.00,KES,,,\n"
    done = await imported(context, tmp_path, content)
    assert (done.new, done.problems) == (3, [])
    named = [
        ("A", "reference_named", "shop", None, "p", f"import:{done.number}"),
        ("B", "reference_named", "mpesa", "ws_1", None, f"import:{done.number}"),
    ]
    assert await records(context) == named
    await refold_until_quiet(context, limit=9, progress=lambda count: None)
    assert ("A", "succeeded") in await rows(context, "SELECT order_key, outcome FROM ledgers")
    again = await imported(context, tmp_path, content)
    assert (again.unchanged, await records(context)) == (3, named)


@pytest.mark.parametrize("dry_run", [True, False])
async def test_a_reference_of_another_order_is_a_problem_of_its_row(
    context: AppContext, tmp_path: Path, dry_run: bool
) -> None:
    await keep(inbox_of(context), arrival(said("n", order="X", payment="p")))
    content = "A,1,KES,shop,p,\nD,1,KES,mpesa,p,\n"
    done = await imported(context, tmp_path, content, dry_run=dry_run)
    assert [problem.row for problem in done.problems] == [2]
    assert "belongs to order X" in done.problems[0].sentence
    assert (done.number, await records(context)) == (None, [])
    if not dry_run:
        good = await imported(context, tmp_path, content, accept_good=True)
        assert (good.new, good.rejected) == (1, 1)
        assert [row[0] for row in await records(context)] == ["D"]


async def test_a_reference_that_rows_share_is_nobodys_and_their_orders_are_taken(
    context: AppContext, tmp_path: Path
) -> None:
    content = "B,1,KES,shop,q,\nC,1,KES,shop,q,\nD,1,KES,mpesa,q,\nE,1,KES,mpesa,,s\n"
    done = await imported(context, tmp_path, content)
    assert (done.new, done.problems) == (4, [])
    assert any(
        note.startswith("2 rows, the first being 2, 3, name a payment") for note in done.notes
    )
    assert [row[0] for row in await records(context)] == ["D", "E"]


@pytest.mark.parametrize(
    ("row", "word"),
    [
        ("A,1,KES,,p,", "is missing, but"),
        ("A,1,KES,elsewhere,p,", "is not a source; the sources"),
        ("A,1,KES,shop,=p,", "formula"),
    ],
)
async def test_what_names_nothing_is_a_problem(
    context: AppContext, tmp_path: Path, row: str, word: str
) -> None:
    done = await imported(context, tmp_path, row + "\n")
    assert [word in problem.sentence for problem in done.problems] == [True]
    assert await records(context) == []


async def test_only_orders_are_paid_by_something(context: AppContext, tmp_path: Path) -> None:
    path = tmp_path / "book.csv"
    path.write_text("reference,kind,amount,currency,source,payment_reference\n"
                    "A,invoice,1,KES,shop,p\n")  # fmt: skip
    done = await import_book(context, ImportRequest(path=path))
    assert "only order lines" in done.problems[0].sentence
