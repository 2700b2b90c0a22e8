"""Contract of every database for suspense: what finance sees of payments that no order has."""

import pytest

from app.finance.reconcile_period import RunRequest, reconcile_period
from app.finance.report_period import report_journal, report_period
from app.receiving.inbox import Inbox
from reconcile.instants import SECOND
from reconcile.reporting.journal import Transaction
from reconcile.reporting.report import PeriodReport
from tests.database.builders import arrival, context, keep, quiet, said
from tests.database.contract_placing import ANN, BOB, approve, assign, dismiss, prepared, withdraw
from tests.database.contract_reporting import LATER, scope, settle
from tests.finance.deciding import decide
from tests.reconcile.build import DUE, T, seconds

ASSIGNED = {"received": 1, "assigned": 1}


async def reported(inbox: Inbox, *, as_of: int = LATER) -> tuple[PeriodReport, dict[str, int]]:
    """Return the report, and its lines of suspense in units of the payment."""
    report = await report_period(context(inbox, at=LATER), scope(as_of=seconds(as_of)))
    assert report.ties_hold, [tie for tie in report.ties if not tie.holds]
    rows = {row.line: row.sum // DUE.minor for row in report.suspense if row.sum}
    return report, {line: units for line, units in rows.items() if "days" not in line}


async def journal(inbox: Inbox, *, as_of: int = LATER) -> tuple[list[str], dict[str, int]]:
    """Return what is posted, and the balance of each account in units of the payment."""
    written: list[Transaction] = []
    totals = await report_journal(
        context(inbox, at=LATER), scope(as_of=seconds(as_of)), write=written.append, progress=quiet
    )
    sums = [*totals.sums.items(), *totals.named.items()]
    balances = {name: round(minor / DUE.minor) for (name, _), minor in sums}
    return [each.what for each in written], {
        name: units for name, units in balances.items() if units
    }


class SuspenseContract:
    """Money in suspense. A subclass gives `url`."""

    @pytest.mark.alike
    async def test_captured_without_an_order_it_is_held_until_it_is_assigned(
        self, inbox: Inbox
    ) -> None:
        """The capture's posting stays; the assignment moves the money on its own day."""
        at = await prepared(inbox, "A", "B")
        await settle(inbox, "R1", at=60)
        ran = await reconcile_period(context(inbox, at=LATER), RunRequest(), progress=quiet)
        assert (ran.breaks, ran.ties) == (1, True)
        report, held = await reported(inbox)
        assert [each.cause for each in report.break_lines] == ["payment_unallocated"]
        assert "assign" in report.break_lines[0].next_step
        assert held == {"received": 1, "closing": 1}
        name = report.break_lines[0].identity
        later = context(inbox, at=LATER)
        assert await decide(later, name, "accepted", reason="let it be", by=BOB), "it takes two"
        assert await journal(inbox) == (
            ["settled payment", "captured without an order"],
            {"bank": 1, "unallocated": -1},
        )
        assert await assign(at, "A", by=BOB) is None
        report, held = await reported(inbox)
        assert (held, [each.cause for each in report.break_lines]) == (ASSIGNED, [])
        assert await journal(inbox) == (
            ["settled payment", "captured without an order", "assigned to an order"],
            {"bank": 1, "receivable": -1},
        )
        assert (await reported(inbox, as_of=5))[1] == {"received": 1, "closing": 1}
        assert (await journal(inbox, as_of=5))[1] == {"clearing": 1, "unallocated": -1}

    @pytest.mark.alike
    async def test_withdrawn_it_is_held_again(self, inbox: Inbox) -> None:
        at = await prepared(inbox, "A", "B")
        assert await assign(at, "A", by=BOB) is None
        if (proposal := await withdraw(at, by=BOB)) is not None:
            await approve(at, proposal, by=ANN)
        assert (await reported(inbox))[1] == {"received": 1, "closing": 1}
        assert (await journal(inbox))[1] == {"clearing": 1, "unallocated": -1}

    @pytest.mark.alike
    async def test_other_business_goes_to_its_account_and_a_refund_reopens_it(
        self, inbox: Inbox
    ) -> None:
        at = await prepared(inbox, "A", "B")
        proposal = await dismiss(at, "other_business", by=BOB, to="Income:Rent")
        await approve(at, proposal, by=ANN)
        assert (await reported(inbox))[1] == {"received": 1, "other_business": 1}
        assert (await journal(inbox))[1] == {"clearing": 1, "Income:Rent": -1}
        back = said("back", "refunded", payment="R1", movement="r", money=DUE,
                    occurred_at=T + 20 * SECOND)  # fmt: skip
        await keep(inbox, arrival(back, at=20))
        assert (await reported(inbox))[1] == {"received": 1, "refunded": 1}
        whats, balances = await journal(inbox)
        assert balances == {}
        assert whats[-2:] == ["other business reopened", "refunded without an order"]

    @pytest.mark.alike
    async def test_lines_of_another_shop_on_the_account_are_no_money_of_ours(
        self, inbox: Inbox
    ) -> None:
        """Also where a payment carries the number of an order that both shops have."""
        await prepared(inbox, "A", "B")
        theirs = said("theirs", "succeeded", order="A", payment="R9", money=DUE, shop="other")
        await keep(inbox, arrival(theirs, at=20))
        await settle(inbox, "R9", at=60)
        ran = await reconcile_period(context(inbox, at=LATER), RunRequest(), progress=quiet)
        assert ran.ties
        report, held = await reported(inbox)
        assert "payment_unknown" not in [each.cause for each in report.break_lines]
        assert held == {"received": 1, "closing": 1}
        (line,) = [row for row in report.matching if row.bucket == "other_shop"]
        assert (line.side, line.sum) == ("statement", DUE.minor)
        balances = (await journal(inbox))[1]
        assert balances == {"bank": 1, "other_shops": -1, "clearing": 1, "unallocated": -1}
