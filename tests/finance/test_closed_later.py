"""Late evidence of a closed month: adjusting entries, and how a change of the month shows."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.context.context import AppContext
from app.core.clock import SetClock
from app.finance import report_period as report_period_module
from app.finance.break_acts import SeenBreak, breaks_of_run
from app.finance.close_period import months, scope_of
from app.finance.closed_periods import CLOSING_BASIS, MATCHING_FORM, closed_report, on_the_books
from app.finance.imports import ImportRequest, import_book
from app.finance.match_rules import save_rules
from app.finance.reconcile_period import RunRequest, reconcile_period
from app.finance.report_period import report_journal, report_period
from app.finance.reports.journal import journal_page
from app.finance.reports.journal_forms import JOURNAL_FORMATS
from app.finance.withdraw_import import Withdrawn, withdraw_import
from app.orders import refold
from app.receiving.inbox import Inbox
from reconcile.instants import DAY, MINUTE, TICK, Instant, parse_instant
from reconcile.ledger.policy import FORM
from reconcile.periods import Calendar, month_named
from reconcile.reporting.closing import Closing, Figure, added, figures
from reconcile.reporting.journal import Transaction
from reconcile.reporting.report import Scope
from tests.api.described import SCHEMAS, faults
from tests.contexts import with_settings
from tests.copied import copy_of
from tests.database.builders import opened, quiet, rows, tamper
from tests.database.contract_holds import of_before, rules_of_before, started
from tests.finance.closing import (
    DECEMBER,
    JANUARY,
    LATE,
    QUIET,
    close,
    closing_of,
    fresh_figures,
    printed_journal,
    put,
    three_closings,
    verified,
    wrong,
)
from tests.finance.loading import keep_arrivals, settled_month_in
from tests.finance.month import CLOSED_AT, Month
from tests.finance.plots import never_notified, pays

pytestmark = pytest.mark.usefixtures("text_alone")


async def test_closed_figures_and_adjustments_are_what_a_fresh_report_says(tmp_path: Path) -> None:
    await three_closings(f"sqlite+aiosqlite:///{tmp_path}/t.db")


async def journal(context: AppContext, first: str, last: str) -> list[Transaction]:
    """Return the journal of some months, as it is known now."""
    start, end = month_named(first).start, month_named(last).end
    scope = replace(
        scope_of(context, month_named(first), context.clock.now()), start=start, end=end
    )
    found: list[Transaction] = []
    await report_journal(context, scope, write=found.append)
    return found


def balances(some: Iterable[Transaction]) -> Counter[tuple[str, str]]:
    sums = Counter[tuple[str, str]]()
    for each in some:
        for posting in each.postings:
            sums[posting.role, each.currency] += posting.minor
    return Counter({key: minor for key, minor in sums.items() if minor})


async def test_a_closed_journal_is_frozen_and_later_evidence_is_posted_in_the_open_month(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frozen months, adjustments and open months are the journal made from scratch, also once the
    month of the adjustments is closed."""
    copy_of(settled_month_in, tmp_path, QUIET)
    async with opened(f"sqlite+aiosqlite:///{tmp_path}/t.db") as inbox:
        context = inbox.context(clock=SetClock(CLOSED_AT))
        before = await journal(context, "2026-10", "2026-10")
        closing = await close(context)
        forms = [f"journal.{form}" for form in JOURNAL_FORMATS]
        assert {each.format for each in closing.prints} == {"csv", "json", "transactions", *forms}
        kept = {form: await printed_journal(context, "2026-10", form) for form in JOURNAL_FORMATS}
        await keep_arrivals(inbox, LATE.late(CLOSED_AT + DAY))
        put(context, DECEMBER)
        assert await journal(context, "2026-10", "2026-10") == before
        open_month = await journal(context, "2026-11", "2026-11")
        adjusting = [each for each in open_month if each.adjusts is not None]
        assert adjusting
        assert {each.at for each in adjusting} == {month_named("2026-11").start}
        assert {each.adjusts.period for each in adjusting if each.adjusts} == {"2026-10"}
        november = scope_of(context, month_named("2026-11"), context.clock.now())
        page = await journal_page(
            context, november, account="Assets:Clearing:Provider", currency=None, most=1_000
        )
        assert {each["original_date"] for each in page["postings"]} == {
            each.adjusts.original_date for each in adjusting if each.adjusts
        }
        with monkeypatch.context() as without:
            without.setattr(report_period_module, "closings_at", no_closings)
            fresh = await journal(context, "2026-10", "2026-12")
        assert balances([*before, *open_month]) == balances(fresh)
        assert balances(await journal(context, "2026-10", "2026-12")) == balances(fresh)
        await close(context, "2026-11")
        put(context, JANUARY)
        assert [each for each in await journal(context, "2026-12", "2026-12") if each.adjusts] == []
        assert balances(await journal(context, "2026-10", "2026-12")) == balances(fresh)
        assert faults(SCHEMAS["Journal"], json.loads(kept["json"])) == []
        for form, content in kept.items():
            assert await printed_journal(context, "2026-10", form) == content
            change = f"DELETE FROM closing_prints WHERE format = 'journal.{form}'"
            await tamper(context, "closing_prints", change)
            assert await printed_journal(context, "2026-10", form) == content
        assert [step for step, _ in await wrong(context)] == ["prints", "prints"]


async def test_above_the_limit_a_change_of_a_closed_month_is_a_break_until_it_is_posted(
    context: AppContext,
) -> None:
    inbox = context.inbox
    assert isinstance(inbox, Inbox)
    await close(context)
    put(context, CLOSED_AT + DAY)
    await keep_arrivals(inbox, LATE.late(CLOSED_AT + MINUTE))

    async def changed() -> list[SeenBreak]:
        ran = await reconcile_period(context, RunRequest())
        seen = [each async for some in breaks_of_run(context, ran.number) for each in some]
        return [each for each in seen if each.seen.cause == "closed_month_changed"]

    assert await changed() == []
    limits = [f"{code} = {minor}" for code, minor in (("KES", 1), ("JPY", 1), ("KWD", 1))]
    await save_rules(context, "\n".join(["[adjustment_limit]", *limits]), by=None)
    (found,) = await changed()
    assert dict(found.seen.facts)["period"] == "2026-10"
    put(context, DECEMBER)
    await close(context, "2026-11")
    put(context, DECEMBER + DAY)
    assert await changed() == []


async def no_closings(*_: Any) -> list[Closing]:
    return []


@pytest.mark.parametrize(
    ("zones", "borders"),
    [
        # zones of October and November; where October begins, November, and December
        pytest.param(
            (None, "Africa/Nairobi"), ("10-01T00", "11-01T00", "11-30T21"), marks=pytest.mark.costly
        ),
        (("Africa/Nairobi", "America/New_York"), ("09-30T21", "10-31T21", "12-01T05")),
        (("America/New_York", "America/New_York"), ("10-01T04", "11-01T04", "12-01T05")),
        pytest.param(
            ("Africa/Nairobi", None), ("09-30T21", "10-31T21", "12-01T00"), marks=pytest.mark.costly
        ),
    ],
)
async def test_months_are_closed_in_the_merchants_zone_and_a_change_leaves_no_gap(
    context: AppContext, zones: tuple[str | None, str | None], borders: tuple[str, str, str]
) -> None:
    ends = [parse_instant(f"2026-{each}:00:00Z") for each in borders]
    first, second = [with_settings(context, timezone=zone or "") for zone in zones]
    october = await close(first)
    assert (october.month.start, october.month.end) == (ends[0], ends[1])
    put(context, DECEMBER)
    closed, left = await months(second)
    assert [each.period for each in closed] == ["2026-10"]
    assert (left[0].name, left[0].start, left[0].end) == ("2026-11", ends[1], ends[2])
    november = await close(second, "2026-11")
    assert (november.month.start, november.month.end) == (ends[1], ends[2])
    assert [each.month.zone for each in (october, november)] == [zone or "UTC" for zone in zones]
    assert await wrong(second) == []
    assert (await closing_of(first, "2026-10")).month == october.month
    whole = Scope(
        start=Calendar(second.calendar_zone).day("2026-10-01")[0],
        end=Calendar(second.calendar_zone).day("2026-11-30")[1],
        as_of=DECEMBER,
        basis=CLOSING_BASIS,
        environment="sandbox",
    )
    aligned = await on_the_books(second, whole)
    assert (aligned.start, aligned.end) == (ends[0], ends[2])
    both = figures(await report_period(second, aligned, progress=quiet))
    assert captured(both) == captured([*october.figures, *november.figures]) > 0


def captured(figures: Iterable[Figure]) -> int:
    """Count the captures that these figures state."""
    return sum(each.count for each in figures if (each.table, each.line) == ("money", "captured"))


async def test_an_import_taken_back_leaves_closed_months_and_is_an_adjustment(
    context: AppContext, tmp_path: Path
) -> None:
    path = tmp_path / "book.csv"
    path.write_text(
        "reference,amount,currency,status,placed_at\n"
        "STRANGE-1,5.00,KES,paid,2026-10-12T10:00:00Z\n"
        "STRANGE-2,7.00,KES,paid,2026-11-03T10:00:00Z\n"
    )
    number = (await import_book(context, ImportRequest(path=path))).number
    assert number is not None
    put(context, CLOSED_AT + MINUTE)
    october = await close(context)
    missed = ("breaks", "KES", "book_paid_not_received", "")
    assert {each.name: each.sum for each in october.figures}[missed] == 500
    put(context, CLOSED_AT + 2 * MINUTE)
    done = await withdraw_import(
        context, number, kind="book", by=None, reason="another shop's book"
    )
    assert isinstance(done, Withdrawn)
    assert (done.lines, done.closed, done.restored) == (2, 1, 0)
    assert done.notes[0].startswith("1 line is in closed months: these months stay unchanged")
    assert await wrong(context) == []
    put(context, DECEMBER)
    november = await close(context, "2026-11")
    (adjusted,) = november.adjusted
    assert adjusted.period == "2026-10"
    assert {each.name: each.sum for each in adjusted.figures}[missed] == -500
    assert missed not in {each.name for each in november.figures}
    assert await wrong(context) == []


async def test_a_report_of_any_other_time_has_no_adjustments(tmp_path: Path) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path}/t.db"
    month = Month(orders=6, plots=(pays, never_notified))
    copy_of(settled_month_in, tmp_path, month)
    async with opened(url) as inbox:
        context = inbox.context(clock=SetClock(CLOSED_AT))
        await keep_arrivals(inbox, month.late(CLOSED_AT - 5 * DAY)[:1])
        await close(context)
        await keep_arrivals(inbox, month.late(CLOSED_AT + DAY)[1:])
        put(context, DECEMBER)

        async def adjusted(period: str, as_of: Instant) -> bool:
            scope = scope_of(context, month_named(period), as_of)
            return bool((await report_period(context, scope, progress=quiet)).adjustments)

        assert await adjusted("2026-11", DECEMBER)
        assert not await adjusted("2026-11", CLOSED_AT - 6 * DAY)
        assert not await adjusted("2026-11", CLOSED_AT + DAY - TICK)
        assert not await adjusted("2026-10", DECEMBER)
        assert not await adjusted("2026-12", DECEMBER)


@pytest.mark.costly
async def test_what_new_rules_make_of_a_closed_month_is_an_adjustment(tmp_path: Path) -> None:
    """October was closed by rules that called what is paid charged back."""
    url = f"sqlite+aiosqlite:///{tmp_path}/t.db"
    copy_of(settled_month_in, tmp_path, QUIET)
    async with opened(url) as inbox:
        context = inbox.context(clock=SetClock(CLOSED_AT))
        with rules_of_before("charged_back"):
            await started(context)
            october = await close(context)
            assert await wrong(context) == []
        put(context, CLOSED_AT + MINUTE)
        await started(context)
        held = await rows(inbox, "SELECT count(*) FROM records WHERE kind = 'held'")
        assert held[0][0] > 0
        assert await closed_report(context, "2026-10", "json")
        assert await wrong(context) == []
        (sentence,) = [each.sentence for each in await verified(context) if each.step == "figures"]
        assert sentence.startswith(
            f"the month was closed by the rules v1+{MATCHING_FORM} of an earlier version. By the "
            f"current rules (v{FORM}+{MATCHING_FORM})"
        )
        put(context, DECEMBER)
        november = await close(context, "2026-11")
        (adjusted,) = november.adjusted
        assert adjusted.period == "2026-10"
        whole = added([*october.figures, *adjusted.figures])
        assert sorted(whole, key=repr) == await fresh_figures(context, DECEMBER)
        assert await wrong(context) == []
        put(context, JANUARY)
        assert (await close(context, "2026-12")).adjusted == ()


async def test_other_figures_by_the_same_rules_are_a_fault(
    context: AppContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    await close(context)
    monkeypatch.setattr(refold, "fold", of_before)
    assert [step for step, _ in await wrong(context)] == ["figures"]
