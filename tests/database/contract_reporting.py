"""Contract of every database for reports: changed outcomes, accepted breaks, sums that tie."""

from pathlib import Path
from typing import Any

import pytest

from app.core.errors import UsageError
from app.finance.break_acts import match_lines
from app.finance.coverage_store import BY_FILE, CoverageLine, add_coverage
from app.finance.import_store import Import, begin_import, publish_import
from app.finance.imports import ImportRequest, import_book
from app.finance.line_version_store import LINES, write_lines
from app.finance.period_store import changed_outcomes
from app.finance.reconcile_period import RunRequest, reconcile_period
from app.finance.report_period import report_journal, report_period
from app.finance.reports.render import render
from app.orders.order_facts import OrderFacts, tell_order
from app.receiving.inbox import Inbox
from reconcile.instants import DAY, MINUTE, SECOND, Instant, format_instant
from reconcile.matching.breaks import Break
from reconcile.money import Money
from reconcile.reporting.journal import Revenue, Transaction
from reconcile.reporting.report import Basis, Scope
from tests.database.builders import arrival, context, keep, quiet, said
from tests.database.contract_breaks import missing, run
from tests.database.contract_imports import book
from tests.database.contract_ledgers import folded, paid
from tests.finance.deciding import decide
from tests.reconcile.build import DUE, T, seconds

LATER = 40 * DAY // SECOND
"""Seconds after T: when everything has happened."""


def scope(basis: Basis = "captured", **changes: Any) -> Scope:
    """Return the ten days from T on, as known in the end."""
    given = {"start": T, "end": T + 10 * DAY, "as_of": seconds(LATER), "basis": basis}
    return Scope(**{**given, "environment": "sandbox", **changes})


def declined(order: str, at: int) -> Any:
    """Return an attempt that failed `at` seconds after T."""
    return said(f"no-{order}", "declined", order=order, payment=f"n-{order}", order_money=DUE,
                occurred_at=seconds(at))  # fmt: skip


CONTENT = LINES["statement"].content
NOTHING_ELSE = (None,) * (len(CONTENT) - CONTENT.index("payout") - 1)
"""Empty values of a line after its payout."""


async def settle(inbox: Inbox, *payments: str, at: int) -> None:
    """Import a statement of these payments, settled `at` seconds after T."""
    minor, fee = DUE.minor, 1_000
    rows = [
        (f"p:{each}", "payment", "shop", None, each, None, DUE.currency, minor, fee, minor - fee,
         seconds(at), "po_1", *NOTHING_ELSE)
        for each in sorted(payments)
    ]  # fmt: skip
    await imported(inbox, rows, number=1, at=at)


async def imported(inbox: Inbox, rows: list[Any], *, number: int, at: int) -> None:
    """Import and publish these rows of a statement, `at` seconds after T."""
    given = Import(number=number, kind="statement", file="s", sha256="0", who="x", started_at=T)
    async with inbox.database.writing() as connection:
        await begin_import(connection, given)
        await write_lines(connection, rows, kind="statement", number=number)
        await publish_import(connection, given, now=seconds(at))


def unsettled(minor: int) -> Break:
    """Return the break of a capture that no statement holds."""
    money = Money(minor=minor, currency="KES")
    return Break(
        cause="not_settled",
        order="A",
        payment="p",
        subject=None,
        money=money,
        since=T,
        cites=("e",),
        left=(money,),
    )


async def booked(inbox: Inbox, *, at: int, start: int, end: int) -> list[tuple[str, int, int]]:
    """Return (what, change of clearing, when) of the journal of a stretch, as of `at`."""
    found: list[Transaction] = []
    wanted = scope(start=start, end=end, as_of=seconds(at))
    await report_journal(context(inbox, at=LATER), wanted, write=found.append, progress=quiet)
    return [(each.what, each.postings[0].minor, each.at) for each in found]


async def across(inbox: Inbox, folder: Path, border: Instant) -> None:
    """Keep invoices and payments on both sides of an instant: joined by group, by hand, by another
    order's payment, and not at all."""
    day = DAY // SECOND
    last, first = (format_instant(at) for at in (border - MINUTE, border))
    third, whole = f"{DUE.minor // 300}.00", f"{DUE.minor // 100}.00"
    path = folder / "border.csv"
    path.write_text(
        "reference,amount,currency,status,placed_at,group\n"
        + "".join(f"I{n},{third},KES,paid,{last},G\n" for n in range(3))
        + f"HAND,{whole},KES,paid,{last},\nP,1.00,KES,unpaid,{last},\n"
        + f"Q,{whole},KES,paid,{first},\n"
    )
    days = (format_instant(T)[:10], format_instant(border)[:10])
    await import_book(context(inbox, at=2 * day), ImportRequest(path=path, days=days))
    for order in ("G", "X", "Q"):
        event = said(f"paid-{order}", "succeeded", order=order, payment=f"p-{order}",
                     money=DUE, order_money=DUE, occurred_at=border)  # fmt: skip
        await keep(inbox, arrival(event, at=day + 1))
    # The line names P, and a payment that is Q's.
    line = ("p:p-Q", "payment", "shop", "p", "p-Q", "P", DUE.currency, DUE.minor, 0, DUE.minor,
            border, "po", *NOTHING_ELSE)  # fmt: skip
    await imported(inbox, [line], number=2, at=day + 2)
    stated = CoverageLine(kind="statement", name="shop", since=T, until=border + MINUTE,
                          who=BY_FILE, at=T, of_import=2)  # fmt: skip
    async with inbox.database.writing() as connection:
        await add_coverage(connection, [stated])


class ReportingContract:
    """Reports. A subclass gives `url`."""

    @pytest.mark.alike
    async def test_an_outcome_that_changed_in_a_period_is_one_change(self, inbox: Inbox) -> None:
        """Only where it was final at the start."""
        back = said("r", "refunded", order="A", payment="p-A", movement="r", money=DUE)
        await keep(inbox, arrival(declined("A", 1), at=1), arrival(declined("B", 1), at=1))
        await folded(context(inbox, at=2))
        await keep(inbox, arrival(paid("A"), at=90), arrival(paid("C"), at=90))
        await folded(context(inbox, at=91))
        await keep(inbox, arrival(back, at=95))
        await folded(context(inbox, at=96))
        found = []
        async with inbox.database.reading() as connection:
            for start, end, as_of in ((50, 200, 500), (50, 93, 500), (50, 200, 93), (0, 200, 500)):
                found.append(
                    [
                        (each.order, each.before, each.after, each.at)
                        async for each in changed_outcomes(
                            connection, start=seconds(start), end=seconds(end), as_of=seconds(as_of)
                        )
                    ]
                )
        early = [("A", "failed", "succeeded", seconds(91))]
        assert found == [[("A", "failed", "refunded", seconds(96))], early, early, []]

    @pytest.mark.alike
    async def test_a_write_off_stays_in_its_period_at_its_money(self, inbox: Inbox) -> None:
        """What ends it is a transaction of its own."""
        some, more = unsettled(100), unsettled(120)
        await run(inbox, some, missing("B"), at=10)
        for at in (20, 30):
            now = context(inbox, at=at)
            await decide(now, some.identity, "accepted", reason="small", by=None)
        first = {"start": seconds(0), "end": seconds(40)}
        then = await booked(inbox, at=40, **first)
        assert then == [("written off: not_settled", -100, seconds(20))]
        await run(inbox, more, at=50)
        await decide(context(inbox, at=60), some.identity, "accepted", reason="so be it", by=None)
        await run(inbox, at=70)
        assert await booked(inbox, at=40, **first) == then == await booked(inbox, at=99, **first)
        assert await booked(inbox, at=99, start=seconds(40), end=seconds(99)) == [
            ("write-off taken back: not_settled", 100, seconds(50)),
            ("written off: not_settled", -120, seconds(60)),
            ("write-off taken back: not_settled", 120, seconds(70)),
        ]

    @pytest.mark.alike
    async def test_a_break_without_a_date_is_as_old_as_the_run_that_saw_it_first(
        self, inbox: Inbox, tmp_path: Path
    ) -> None:
        await book(inbox, tmp_path, "A,1.00,KES,paid,,", at=0)
        ages = []
        for day in (1, 3):
            at = day * DAY // SECOND
            report = await report_period(
                context(inbox, at=at), scope(as_of=seconds(at)), progress=quiet
            )
            ages += [(line.cause, line.age_days) for line in report.break_lines]
            await reconcile_period(context(inbox, at=at), RunRequest(), progress=quiet)
        assert ages == [("book_paid_not_received", 0), ("book_paid_not_received", 2)]

    @pytest.mark.alike
    async def test_lines_joined_across_the_end_of_a_period_are_in_one_report(
        self, inbox: Inbox, tmp_path: Path
    ) -> None:
        """By the earliest date in the book, as of then and as of now."""
        border = T + DAY
        await across(inbox, tmp_path, border)
        now = context(inbox, at=LATER)
        await reconcile_period(now, RunRequest(), progress=quiet)
        whole_time = scope(end=T + 20 * DAY)
        found = await report_period(now, whole_time, progress=quiet)
        (stray,) = found.break_lines
        assert (stray.cause, stray.order) == ("paid_not_in_book", "X")
        await match_lines(
            now,
            stray.identity,
            lines=[f"{LINES['book'].line_id(('hand', 'order'))}.1"],
            reason="the same",
            by=None,
        )
        reported = []
        for start, end in ((T, border), (border, border + 10 * DAY)):
            wanted = scope(start=start, end=end)
            report = await report_period(now, wanted, progress=quiet)
            rows = {(e.side, e.bucket): e.count for e in report.matching}
            reported.append((rows, [line.cause for line in report.break_lines]))
            assert report.ties_hold
        assert reported[0] == (
            {
                ("book", "by_group"): 3,
                ("book", "by_hand"): 1,
                ("book", "by_reference"): 1,
                ("book", "nothing_due"): 1,
                ("takings", "by_group"): 1,
                ("takings", "by_hand"): 1,
                ("takings", "by_reference"): 1,
                ("settlement", "awaiting_settlement"): 2,
                ("settlement", "by_payment"): 1,
                ("statement", "by_payment"): 1,
            },
            [],
        )
        assert reported[1] == ({}, [])

    @pytest.mark.alike
    async def test_a_report_heeds_an_acceptance_at_its_own_money_only(self, inbox: Inbox) -> None:
        second = said("again", "succeeded", order="A", payment="q", money=DUE, order_money=DUE)
        await keep(inbox, arrival(paid("A"), at=5), arrival(second, at=6))
        await reconcile_period(context(inbox, at=100), RunRequest(), progress=quiet)
        report = await report_period(
            context(inbox, at=200), scope(as_of=seconds(200)), progress=quiet
        )
        (line,) = report.break_lines
        await decide(context(inbox, at=250), line.identity, "accepted", reason="agreed", by=None)
        third = said("third", "succeeded", order="A", payment="r", money=DUE, order_money=DUE)
        await keep(inbox, arrival(third, at=260))
        report = await report_period(
            context(inbox, at=300), scope(as_of=seconds(300)), progress=quiet
        )
        assert [(each.identity, each.state) for each in report.break_lines] == [
            (line.identity, "open")
        ]

    @pytest.mark.alike
    async def test_a_report_as_of_an_instant_is_the_same_bytes_later(self, inbox: Inbox) -> None:
        await keep(inbox, *(arrival(paid(name), at=5) for name in ("A", "B")))
        await keep(inbox, arrival(declined("C", 3), at=6))
        await settle(inbox, "p-A", at=60)
        then = scope(as_of=seconds(3_600))
        report = await report_period(context(inbox, at=3_600), then, progress=quiet)
        money = {row.flow: row.sum for row in report.money}
        assert report.ties_hold
        assert (money["captured"], money["fees"]) == (2 * DUE.minor, 1_000)
        assert (money["settled"], money["not_settled"]) == (DUE.minor - 1_000, DUE.minor)
        assert {row.outcome: row.orders for row in report.outcomes} == {"succeeded": 2, "failed": 1}
        made = render(report, "json")
        back = said("r", "refunded", order="A", payment="p-A", movement="r", money=DUE)
        await keep(inbox, arrival(back, at=7_200), arrival(paid("C"), at=7_200))
        again = await report_period(context(inbox, at=9_000), then, progress=quiet)
        assert render(again, "json") == made
        now = await report_period(context(inbox, at=LATER), scope(), progress=quiet)
        assert {row.flow: row.sum for row in now.money}["captured"] == 3 * DUE.minor
        assert now.ties_hold

    @pytest.mark.alike
    async def test_breaks_of_a_report_show_acts_before_its_instant(self, inbox: Inbox) -> None:
        second = said("again", "succeeded", order="A", payment="q", money=DUE, order_money=DUE)
        await keep(inbox, arrival(paid("A"), at=5), arrival(second, at=6))
        await reconcile_period(context(inbox, at=100), RunRequest(), progress=quiet)
        seen = []
        for at in (200, 300):
            now = context(inbox, at=at)
            report = await report_period(now, scope(as_of=seconds(at)), progress=quiet)
            (line,) = report.break_lines
            assert (line.cause, line.order) == ("paid_twice", "A")
            assert line.sentence.startswith("Paid more than once")
            seen.append([line.state, *(row.state for row in report.breaks)])
            await decide(now, line.identity, "accepted", reason="agreed", by=None)
        assert seen == [["open", "open"], ["accepted", "accepted"]]

    @pytest.mark.alike
    async def test_a_journal_has_every_movement_and_line_once(self, inbox: Inbox) -> None:
        """Captures on the provider's date, settlements on the statement's."""
        await keep(inbox, *(arrival(paid(name), at=5) for name in ("A", "B")))
        await settle(inbox, "p-A", "p-unknown", at=60)
        written: list[Transaction] = []
        totals = await report_journal(
            context(inbox, at=LATER), scope(), write=written.append, progress=quiet
        )
        assert [(each.what, each.order) for each in written] == [
            ("settled payment", None),
            ("captured", "A"),
            ("settled payment", "A"),
            ("captured", "B"),
        ]
        assert totals.transactions == 4
        assert totals.sums["clearing", "KES"] == 0
        assert totals.sums["fees", "KES"] == 2_000

    @pytest.mark.alike
    async def test_deposits_become_sales_on_the_day_of_fulfilment(self, inbox: Inbox) -> None:
        await keep(inbox, *(arrival(paid(name), at=5) for name in ("A", "B")))
        facts = OrderFacts(order="A", money=DUE, fulfilled_at=seconds(30))
        await tell_order(context(inbox, at=40), facts)
        written: list[Transaction] = []
        await report_journal(
            context(inbox, at=LATER),
            scope(),
            write=written.append,
            revenue=Revenue(taxes={}),
            progress=quiet,
        )
        assert [
            (each.what, each.order, each.postings[1].role, each.at - T) for each in written
        ] == [
            ("captured", "A", "deposits", 0),
            ("fulfilled", "A", "sales", seconds(30) - T),
            ("captured", "B", "deposits", 0),
        ]

    @pytest.mark.alike
    async def test_an_impossible_period_is_refused(self, inbox: Inbox) -> None:
        for changes, said_so in (
            ({"end": T}, "--from must be before --to"),
            ({"as_of": seconds(LATER + 1)}, "--as-of is in the future"),
            ({"as_of": T - 1}, "had not begun"),
            ({"end": T + 4_000 * DAY}, "at most 120 months"),
        ):
            with pytest.raises(UsageError, match=said_so):
                await report_period(context(inbox, at=LATER), scope(**changes), progress=quiet)
