"""Contract of every database for ledger lines: cached and folded ones are equal."""

from typing import Any

import pytest

from app.finance import reconcile_rows
from app.finance.ledger_line_store import KeyRange, flat_ledger_lines
from app.finance.reconcile_rows import (
    ledger_lines_now,
    ledger_lines_then,
    overlay_of,
    refresh_ledger_lines,
)
from app.orders.history_store import scan
from app.orders.rebuild import refold_all
from app.orders.refold import fold_or_log
from app.receiving.inbox import Inbox
from reconcile.ledger.fold import fold
from reconcile.ledger.policy import Policy
from reconcile.matching.ledger_lines import ledger_line_of
from reconcile.matching.rows import TakingRow, ledger_line_row
from reconcile.money import Money
from tests.database.builders import (
    arrival,
    change,
    checked,
    context,
    keep,
    quiet,
    rows,
    said,
)
from tests.database.contract_ledgers import WINDOW_S, paid
from tests.reconcile.build import DUE, seconds


async def folded(inbox: Inbox, *, at: int) -> list[TakingRow]:
    """Fold every history `at` seconds after T, without a cache."""
    found = []
    async with inbox.database.reading() as connection:
        async for part in scan(connection):
            for history in part:
                ledger = fold(history, policy=Policy(), as_of=seconds(at))
                if (one := ledger_line_of(ledger)) is not None:
                    found.append(ledger_line_row(one))
    return sorted(found, key=lambda row: row[:2])


async def cached(inbox: Inbox, *, at: int, within: Any = None) -> list[TakingRow]:
    """Read ledger lines as a run does now."""
    found, now = [], seconds(at)
    async with inbox.database.reading() as connection:
        overlay = await overlay_of(context(inbox, at=at), connection, now=now)
        ranged = {} if within is None else {"within": within}
        async for part in ledger_lines_now(connection, overlay, as_of=now, **ranged):
            found += [TakingRow(*row) for row in part]
    return found


async def then(inbox: Inbox, *, at: int) -> list[TakingRow]:
    """Read ledger lines as a run as of the past does."""
    found = []
    async with ledger_lines_then(
        context(inbox, at=99_999), as_of=seconds(at), progress=quiet
    ) as scratch:
        async for part in flat_ledger_lines(scratch, as_of=seconds(at)):
            found += [TakingRow(*row) for row in part]
    return found


async def several(inbox: Inbox) -> None:
    """Keep orders of every shape, whose keys sort otherwise than their references."""
    yen = Money(minor=7, currency="JPY")
    refund = said("r", "refunded", order="b-1", payment="p-b-1", movement="re", money=DUE)
    await keep(
        inbox,
        arrival(paid("b-1"), at=1),
        arrival(paid("A 2"), at=2),
        arrival(said("d", "declined", order="B-3", payment="p3", order_money=DUE), at=3),
        arrival(said("w", order="c4", payment="p4", order_money=DUE), at=4),
        arrival(refund, at=5),
        arrival(said("x", "succeeded", order="É5", payment="p|5", money=yen)),
    )


class LedgerLinesContract:
    """The cache of ledger lines. A subclass gives `url`."""

    @pytest.mark.alike
    async def test_cached_ledger_lines_equal_folded_ones(self, inbox: Inbox) -> None:
        """Before the cache is filled, afterwards, and when it is behind. Each row comes once, in
        key order."""
        await several(inbox)
        assert await cached(inbox, at=9) == await folded(inbox, at=9)
        assert await refresh_ledger_lines(context(inbox, at=9), progress=quiet) == 5
        assert await refresh_ledger_lines(context(inbox, at=9), progress=quiet) == 0
        stored = await cached(inbox, at=9)
        assert stored == await folded(inbox, at=9)
        assert [row.order for row in stored] == ["A 2", "b-1", "B-3", "c4", "É5"]
        await keep(inbox, arrival(paid("B-3"), at=10), arrival(paid("a0"), at=11))
        newer = await cached(inbox, at=12)
        assert newer == await folded(inbox, at=12)
        assert len(newer) == 6
        assert newer != stored

    async def test_a_deadline_that_passes_makes_a_ledger_line_stale(self, inbox: Inbox) -> None:
        await keep(inbox, arrival(said("w", order="A", payment="p", order_money=DUE)))
        await refresh_ledger_lines(context(inbox), progress=quiet)
        async with inbox.database.reading() as connection:
            early = await overlay_of(context(inbox), connection, now=seconds(WINDOW_S - 1))
            late = await overlay_of(context(inbox), connection, now=seconds(WINDOW_S))
        assert (early.orders, late.orders) == (frozenset[str](), frozenset({"A"}))
        assert await refresh_ledger_lines(context(inbox, at=WINDOW_S), progress=quiet) == 1
        assert "timed_out" in (await rows(inbox, "SELECT told FROM takings"))[0][0]

    @pytest.mark.alike
    async def test_orders_that_share_evidence_are_folded_together(self, inbox: Inbox) -> None:
        """A payment that two orders claim pays neither."""
        await keep(inbox, arrival(paid("A"), at=1))
        await refresh_ledger_lines(context(inbox, at=2), progress=quiet)
        await keep(
            inbox, arrival(said("e", "succeeded", order="B", payment="p-A", money=DUE), at=3)
        )
        assert await cached(inbox, at=4) == await folded(inbox, at=4)
        await refresh_ledger_lines(context(inbox, at=4), progress=quiet)
        assert await cached(inbox, at=4) == await folded(inbox, at=4)
        assert [row.whole is None for row in await cached(inbox, at=4)] == [False, False]

    @pytest.mark.alike
    async def test_an_event_without_an_order_reaches_all_of_its_payment(self, inbox: Inbox) -> None:
        """It is kept under one order, and makes the others' lines stale, too."""
        both = [said(f"e-{order}", order=order, payment="p", order_money=DUE) for order in "AB"]
        await keep(inbox, arrival(both[0], at=1))
        await keep(inbox, arrival(both[1], at=1))
        await refresh_ledger_lines(context(inbox, at=2), progress=quiet)
        before = await cached(inbox, at=3)
        await keep(inbox, arrival(said("n", "succeeded", payment="p", money=DUE), at=3))
        after = await cached(inbox, at=3)
        assert after == await folded(inbox, at=3)
        assert [old != new for old, new in zip(before, after, strict=True)] == [True, True]

    @pytest.mark.alike
    async def test_ledger_lines_of_the_past_rest_on_what_was_known(self, inbox: Inbox) -> None:
        await several(inbox)
        assert [row.order for row in await then(inbox, at=2)] == ["A 2", "b-1", "É5"]
        for at in (0, 2, 4, 9, WINDOW_S + 9):
            assert await then(inbox, at=at) == await folded(inbox, at=at)

    @pytest.mark.alike
    async def test_ranges_of_keys_together_are_everything(self, inbox: Inbox) -> None:
        await several(inbox)
        await refresh_ledger_lines(context(inbox, at=9), progress=quiet)
        await keep(inbox, arrival(paid("B-3"), at=10), arrival(paid("a0"), at=11))
        low = await cached(inbox, at=12, within=KeyRange(beyond="b3"))
        high = await cached(inbox, at=12, within=KeyRange(first="b3"))
        assert low + high == await cached(inbox, at=12)
        assert len(low) == 3

    @pytest.mark.alike
    async def test_a_rebuild_drops_the_cache(self, inbox: Inbox) -> None:
        await several(inbox)
        await refresh_ledger_lines(context(inbox, at=9), progress=quiet)
        await refold_all(context(inbox, at=9), progress=quiet)
        assert await rows(inbox, "SELECT order_key FROM takings") == []

    @pytest.mark.alike
    async def test_an_order_that_cannot_be_folded_stops_no_other(
        self, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await several(inbox)

        def broken(history: Any, **asked: Any) -> Any:
            return None if history.order == "c4" else fold_or_log(history, **asked)

        monkeypatch.setattr(reconcile_rows, "fold_or_log", broken)
        await refresh_ledger_lines(context(inbox, at=9), progress=quiet)
        assert len(await cached(inbox, at=9)) == 4
        monkeypatch.setattr(reconcile_rows, "fold_or_log", fold_or_log)
        assert len(await cached(inbox, at=9)) == 5

    @pytest.mark.alike
    async def test_the_check_finds_a_wrong_ledger_line_and_no_stale_one(self, inbox: Inbox) -> None:
        await several(inbox)
        at = context(inbox, at=9)
        await refold_all(at, progress=quiet)
        await refresh_ledger_lines(at, progress=quiet)
        await change(inbox, "UPDATE takings SET minor=minor+1 WHERE order_key='A 2'")
        report = await checked(at)
        found = [each for each in report.problems if "the ledger line of" in each]
        assert found == ["the ledger line of A 2 differs from its history: minor"]
        await keep(inbox, arrival(paid("A 2"), at=9))
        await refold_all(at, progress=quiet)
        report = await checked(at)
        assert not [each for each in report.problems if "the ledger line of" in each]
