"""The generated month is what it says it is, whichever way it comes into a database."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from app.config.settings import Settings
from app.receiving.inbox import open_inbox
from reconcile.ledger.fold import fold
from reconcile.ledger.policy import Policy
from tests.api.driving import driving
from tests.bench.stored import opened
from tests.database.builders import histories
from tests.finance.__main__ import main
from tests.finance.loading import into_store, through_the_door
from tests.finance.month import CLOSED_AT, CURRENCIES, Month
from tests.finance.plots import BROKEN, CYCLE, ORDINARY, WENT_BACK
from tests.reconcile.build import ORDER_CAUSES
from tests.rows import for_each

SMALL = Month(orders=60)

STORED = {
    "deliveries": "received_at, source, verdict, event_id, digest, size, body, problem",
    "events": "order_key, source, event_id, digest, received_at, kind, claim, occurred_at, "
    "order_ref, session, payment, movement, amount, currency, order_amount, order_currency, reason",
    "records": "recorded_at, kind, order_key, at, amount, currency",
    "links": "reference, kind, source, order_key",
    "contested": "order_key, other",
}
"""Columns that are equal in both ways: all but the ids that we give, and the headers."""


def stored(path: Path) -> dict[str, list[Any]]:
    """Return the rows of a database, sorted."""
    with opened(path) as database:
        return {
            table: sorted(database.execute(f"SELECT {columns} FROM {table}"), key=repr)
            for table, columns in STORED.items()
        }


async def test_every_order_ends_as_its_plot_says(tmp_path: Path) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path}/t.db"
    await into_store(url, SMALL)
    stories = {story.order: story for story in SMALL.stories() if story.outcome is not None}
    async with open_inbox(Settings(database_url=url), purpose="reading") as inbox:
        found = await histories(inbox, stories)
    for order, story in stories.items():
        ledger = fold(found[order], policy=Policy(), as_of=CLOSED_AT)
        money = [(each.captured, each.refunded, each.lost) for each in ledger.balances]
        assert (ledger.outcome, money or [(0, 0, 0)]) == (
            story.outcome,
            [(story.captured, story.returned, story.lost)],
        ), story.plot


@pytest.mark.costly
async def test_both_ways_into_a_database_store_the_same_rows(tmp_path: Path) -> None:
    (tmp_path / "door").mkdir()
    async with driving(tmp_path / "door", with_worker=False) as driver:
        await through_the_door(driver, SMALL)
    await into_store(f"sqlite+aiosqlite:///{tmp_path}/loaded.db", SMALL)
    loaded = stored(tmp_path / "loaded.db")
    assert len(loaded["deliveries"]) == SMALL.truth().deliveries
    assert loaded == stored(tmp_path / "door" / "t.db")


def test_every_cause_comes_in_every_currency() -> None:
    assert len(CYCLE) % len(CURRENCIES) != 0
    month = Month(orders=len(CYCLE) * len(CURRENCIES))
    plots = Counter((story.plot, story.currency) for story in month.stories())
    odd = [plot.__name__ for plot in (*ORDINARY, *BROKEN, *WENT_BACK)]
    assert {plots[plot, currency] for plot in odd for currency in CURRENCIES} == {1}
    causes = {gap.cause for gap in month.truth().gaps.values()}
    assert causes == ORDER_CAUSES, "add a plot to BROKEN of tests/finance/plots"


def test_a_month_is_the_same_however_often_it_is_made() -> None:
    assert list(SMALL.stories()) == list(SMALL.stories())
    other = Month(orders=SMALL.orders, seed=2)
    assert list(SMALL.stories()) != list(other.stories())


@for_each("write", [Month.write_book, Month.write_statement])
def test_the_files_hold_a_row_for_each_of_the_truth(tmp_path: Path, write: Any) -> None:
    lines = write(SMALL, tmp_path / "f.csv").read_text().splitlines()
    truth = SMALL.truth()
    rows = truth.book_rows if write is Month.write_book else truth.statement_rows
    assert len(lines) == rows + 1


@pytest.mark.parametrize(
    "words", [["--help"], [], ["month", "many"], ["month", "0"], ["month", "--latest"]]
)
def test_words_that_ask_for_no_month_make_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(words)
    assert list(tmp_path.iterdir()) == []


def test_a_month_is_not_filled_twice_nor_added_to_before_it_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "month")
    with pytest.raises(SystemExit):
        main([folder, "--late"])
    main([folder, "3"])
    with pytest.raises(SystemExit):
        main([folder, "3"])
    assert capsys.readouterr().err.count("is to hold a month, and there is") == 2
