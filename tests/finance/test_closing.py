"""Closing a month: the conditions, the people, and what is kept."""

import asyncio
import base64
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from app.access.operator_store import audit_entries
from app.access.operators import Proven, asking_by_token, register_operator, trail
from app.access.proposal import Proposal
from app.access.proposals import Proposals
from app.context.context import AppContext
from app.core.clock import SetClock
from app.core.errors import NotAllRead, NotFoundError, UsageError
from app.database.gaps import Gap, add_gap
from app.evidence.prove_sealed import prove_sealed
from app.evidence.seal import Sealer
from app.finance import close_period as print_report
from app.finance.close_period import (
    against_closing,
    close_period,
    closing_kind,
    figures_digest,
    months,
    reopen_period,
    reopening_kind,
    scope_of,
)
from app.finance.closed_periods import closed_report, list_closed
from app.finance.coverage import Declaration, declare_coverage, withdraw_coverage
from app.finance.match_rules import save_rules
from app.finance.reconcile_period import RunRequest, reconcile_period
from app.finance.report_period import check_scope, report_period
from app.finance.reports import text_forms
from app.orders.retention_store import prune
from app.privacy.trail_store import prove_trail
from app.receiving import caught_up, confirm
from app.receiving.inbox import Inbox
from reconcile.instants import DAY, HOUR, MINUTE, TICK, Instant, format_instant, parse_instant
from reconcile.ledger.events import UNCONFIRMED
from reconcile.ledger.policy import Policy
from reconcile.periods import month_named
from reconcile.reporting.closing import Closing
from reconcile.reporting.report import Scope
from reconcile.reporting.tables import report_of
from tests.api.driving import driving, signed
from tests.contexts import with_settings, with_sources
from tests.copied import copy_of
from tests.database.builders import SIGNER, arrival, keep, opened, quiet, rows, said, submit, tamper
from tests.finance.closing import (
    DECEMBER,
    LATE,
    QUIET,
    asked,
    close,
    closing_of,
    printed_journal,
    put,
    verified,
    wrong,
)
from tests.finance.loading import READER, into_store, keep_arrivals
from tests.finance.month import CLOSED_AT
from tests.rows import for_each
from tests.searching import every

pytestmark = pytest.mark.usefixtures("text_alone")


async def codes(context: AppContext, **words: Any) -> list[str]:
    """Return what blocks closing October."""
    done = await close_period(context, asked(**words), progress=quiet)
    assert isinstance(done, tuple)
    return [each.code for each in done]


# --- when, in which order, by whom ---------------------------------------------------------------


async def test_a_month_is_not_closed_over_unread_deliveries(
    context: AppContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came after the instant whose knowledge is closed does not matter."""
    monkeypatch.setattr(caught_up, "READ_WITHIN_S", 0.0)
    inbox = context.inbox
    assert isinstance(inbox, Inbox)
    came = Instant(CLOSED_AT - MINUTE)
    await submit(inbox, arrival(None, received_at=came))
    assert await codes(context) == ["unread"]
    assert await codes(context, margin_days=30) == ["too_early", "unread"]
    with pytest.raises(NotAllRead):
        await report_period(
            context, scope_of(context, month_named("2026-10"), came), progress=quiet
        )
    with pytest.raises(NotAllRead):
        await reconcile_period(context, RunRequest())
    await close(context, as_of=Instant(came - TICK))


async def test_a_month_is_not_closed_over_payments_whose_provider_could_not_be_asked(
    context: AppContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is asked of what was known at an earlier instant: what was not answered by then stays
    so, and is no way around the question."""
    monkeypatch.setattr(confirm, "PATIENCE_S", 0.0)
    inbox = context.inbox
    assert isinstance(inbox, Inbox)
    for name, at in (("e1", month_named("2026-10").end - 1), ("e2", CLOSED_AT - 1)):
        event = said(name, "pending", standing=UNCONFIRMED, order=name, payment=f"pay_{name}")
        await keep(inbox, arrival(event, received_at=Instant(at)))
    blocked = await close_period(context, asked(), progress=quiet)
    assert isinstance(blocked, tuple)
    assert [each.code for each in blocked] == ["unasked"]
    assert blocked[0].sentence.endswith("just now: 1 (shop:pay_e1).")
    past = await close_period(context, asked(as_of=CLOSED_AT), progress=quiet)
    assert isinstance(past, tuple)
    assert [each.code for each in past] == ["unasked"]
    assert past[0].do.startswith("Close without --as-of, so that providers are asked first.")


async def test_a_month_is_not_closed_before_its_margin_is_over(context: AppContext) -> None:
    early = month_named("2026-10").end + 10 * DAY - 1
    assert await codes(context, as_of=early) == ["too_early"]
    assert await codes(context, margin_days=12) == ["too_early"]
    assert await codes(context, as_of=parse_instant("2026-10-15T00:00:00Z")) == ["too_early"]
    assert await list_closed(context) == []
    assert (await close(context, as_of=early + 1)).as_of == early + 1


def test_months_of_a_period_are_counted_in_its_zone() -> None:
    start, end = (parse_instant(f"{year}-12-31T21:00:00Z") for year in (2015, 2025))
    scope = Scope(
        start=start, end=end, as_of=end, basis="captured", environment="", zone="Africa/Nairobi"
    )
    check_scope(scope, now=end)
    with pytest.raises(UsageError, match="at most 120 months"):
        check_scope(replace(scope, end=Instant(end + 1)), now=Instant(end + 1))


async def test_a_reason_is_checked_before_the_report_is_made(
    context: AppContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(print_report, "_looked", None)
    with pytest.raises(UsageError, match="printable characters"):
        await close(context, reason="a\tb")
    await save_rules(context, "close_alone = false\n", by=None)
    with pytest.raises(UsageError, match=r"needs two people .* --reason"):
        await close(context, reason=" ")


@pytest.fixture
async def two(context: AppContext) -> Proposals:
    """Register Ann and Ben, who may close a month only together."""
    await register_operator(context, name="Root", role="admin", by=None)
    for name in ("Ann", "Ben"):
        await register_operator(context, name=name, role="finance", by="Root")
    await save_rules(context, "close_alone = false\n", by="Root")
    put(context, CLOSED_AT + MINUTE)
    return Proposals(context, (closing_kind(context, still_s=0.0), reopening_kind(context)))


async def test_a_proposed_closing_is_approved_with_the_second_token(
    context: AppContext, two: Proposals
) -> None:
    """The act is the proposer's, though the token is the other person's."""
    with asking_by_token(Proven("Ann")):
        made = await close_period(context, asked(reason="it is complete"), progress=quiet)
    assert isinstance(made, Proposal)
    with asking_by_token(Proven("Ben")):
        await two.approve(made.id, by=None, reason="I looked")
    (closed,) = await list_closed(context)
    assert (closed.period, closed.by, closed.second) == ("2026-10", "Ann", "Ben")
    assert await prove(context) == []
    await tamper(context, "closings", "UPDATE closings SET second = 'Root'")
    assert await prove(context) == ["the closing of 2026-10 differs from the trail"]


async def propose_closing(context: AppContext, **words: Any) -> Proposal:
    made = await close_period(
        context, asked(by=Proven("Ann"), reason="it is complete", **words), progress=quiet
    )
    assert isinstance(made, Proposal)
    return made


async def test_a_proposal_shows_the_report_and_closes_it_as_it_was_known_then(
    context: AppContext, two: Proposals
) -> None:
    """A payment that comes before the approval is an adjustment of the next month."""
    made = await propose_closing(context)
    assert made.given["as_of"] == format_instant(context.clock.now())
    assert "Totals by currency" in made.given["report"]
    orders = [row[0] for row in await rows(context, "SELECT DISTINCT order_ref FROM events")]
    assert orders
    assert not [each for each in orders if each in made.given["report"]]
    inbox = context.inbox
    assert isinstance(inbox, Inbox)
    put(context, CLOSED_AT + 9 * MINUTE)
    await keep_arrivals(inbox, LATE.late(CLOSED_AT + 5 * MINUTE))
    await two.approve(made.id, by=Proven("Ben"), reason="I looked")
    closing = await closing_of(context, "2026-10")
    assert format_instant(closing.as_of) == made.given["as_of"]
    assert figures_digest(report_of(dict(closing.report))) == made.given["digest"]
    assert (closing.proposed_at, closing.approved_by) == (made.at, "Ben")
    put(context, DECEMBER)
    late = await close_again(context, two, "2026-11")
    assert [each.period for each in late.adjusted] == ["2026-10"]
    assert await wrong(context) == []


async def test_both_people_and_times_stand_in_every_form(
    context: AppContext, two: Proposals
) -> None:
    made = await propose_closing(context)
    put(context, CLOSED_AT + DAY)
    await two.approve(made.id, by=Proven("Ben"), reason="I looked")
    document = json.loads(await closed_report(context, "2026-10", "json"))
    assert (document["closed_by"], document["approved_by"]) == ("Ann", "Ben")
    times = (format_instant(made.at), format_instant(CLOSED_AT + DAY))
    assert (document["proposed_at"], document["closed_at"]) == times
    table = (await closed_report(context, "2026-10", "csv")).decode()
    assert all(each in table for each in ("Ann", "Ben", *times))
    day, next_day = (each[:10] for each in times)
    words = f"Closed by Ann, proposed {day}"
    for form in ("table", "html"):
        text = (await closed_report(context, "2026-10", form)).decode()
        assert words in text
        assert f"and Ben, approved {next_day}" in text.replace("\n", " ")


async def test_what_blocks_at_the_approval_blocks_and_other_figures_are_refused(
    context: AppContext, two: Proposals
) -> None:
    made = await propose_closing(context)
    put(context, CLOSED_AT + 2 * MINUTE)
    patient = replace(context, policy=Policy(payment_window=60 * DAY))
    other = Proposals(patient, (closing_kind(patient, still_s=0.0),))
    with pytest.raises(UsageError, match=r"cannot be closed now\. Orders that are still pending"):
        await other.approve(made.id, by=Proven("Ben"), reason="I looked")
    hasty = replace(context, policy=Policy(payment_window=MINUTE))
    other = Proposals(hasty, (closing_kind(hasty, still_s=0.0),))
    with pytest.raises(UsageError, match="the exceptions changed: reject this proposal"):
        await other.approve(made.id, by=Proven("Ben"), reason="I looked")
    assert await list_closed(context) == []


async def test_coverage_withdrawn_before_the_approval_blocks_it(
    context: AppContext, two: Proposals
) -> None:
    october = Declaration(
        kind="statement",
        name="shop",
        first="2026-10-01",
        last="2026-10-31",
        reason="it says so",
        by=Proven("Ann"),
    )
    stated = await declare_coverage(context, october)
    put(context, context.clock.now() + MINUTE)
    made = await propose_closing(context)
    put(context, made.at + MINUTE)
    await withdraw_coverage(context, stated.number, reason="it does not", by=Proven("Ann"))
    put(context, made.at + 2 * MINUTE)
    with pytest.raises(UsageError, match="coverage was withdrawn after Ann proposed this"):
        await two.approve(made.id, by=Proven("Ben"), reason="I looked")
    assert await list_closed(context) == []


async def without_files(folder: Path) -> None:
    """Fill a folder's database with a quiet month of which no file was imported."""
    await into_store(f"sqlite+aiosqlite:///{folder}/t.db", QUIET)


async def test_a_month_without_files_is_closed_only_by_two_with_a_reason_that_is_printed(
    tmp_path: Path,
) -> None:
    """Whatever `close_alone` says; and its headline says that nothing was compared."""
    copy_of(without_files, tmp_path)
    async with opened(f"sqlite+aiosqlite:///{tmp_path}/t.db") as inbox:
        context = inbox.context(clock=SetClock(CLOSED_AT))
        for name in ("Root", "Ann", "Ben"):
            await register_operator(
                context, name=name, role="admin", by=None if name == "Root" else "Root"
            )
        put(context, CLOSED_AT + MINUTE)
        by_ann = {"by": Proven("Ann"), "reason": "it is complete"}
        (against,) = await against_closing(context, asked(**by_ann), progress=quiet)
        assert against.line == "coverage:shop"
        given = {"coverage:shop": "the portal is gone"}
        with pytest.raises(UsageError, match=r"two people .an exception needs two people"):
            await close_period(context, asked(exceptions=given), progress=quiet)
        with pytest.raises(UsageError, match=r"no condition named pending .* coverage:shop"):
            await close_period(
                context, asked(**by_ann, exceptions=given | {"pending": "so"}), progress=quiet
            )
        made = await close_period(context, asked(**by_ann, exceptions=given), progress=quiet)
        assert isinstance(made, Proposal)
        assert "portal" in made.given["report"]
        assert await list_closed(context) == []
        put(context, CLOSED_AT + 9 * MINUTE)
        two = Proposals(context, (closing_kind(context, still_s=0.0),))
        await two.approve(made.id, by=Proven("Ben"), reason="I looked")
        document = json.loads(await closed_report(context, "2026-10", "json"))
        printed = (await closed_report(context, "2026-10", "table")).decode()
        assert await wrong(context) == []
    assert document["exceptions"] == [
        {"line": "coverage:shop", "sentence": against.sentence, "why": "the portal is gone"}
    ]
    flat = " ".join(printed.split())
    assert "portal" in flat
    nothing = r"shop has no statement of the period: its \d+ payments were not compared\."
    assert re.search(nothing, flat)
    assert "No bank file is imported, so payouts were not compared." in flat
    assert "every order and every amount" not in flat


async def test_an_exception_that_was_approved_is_printed_though_nobody_is_asked_again(
    context: AppContext, two: Proposals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The approver reads of it in the proposal, and nobody else would ever know."""
    monkeypatch.setattr(confirm, "PATIENCE_S", 0.0)
    inbox = context.inbox
    assert isinstance(inbox, Inbox)
    event = said("e1", "pending", standing=UNCONFIRMED, order="e1", payment="pay_e1")
    await keep(inbox, arrival(event, received_at=Instant(month_named("2026-10").end - 1)))
    made = await propose_closing(context, exceptions={"unasked": "the provider is down"})
    assert "the provider is down" in " ".join(made.given["report"].split())
    put(context, made.at + MINUTE)
    await two.approve(made.id, by=Proven("Ben"), reason="I looked")
    document = json.loads(await closed_report(context, "2026-10", "json"))
    assert [each["why"] for each in document["exceptions"]] == ["the provider is down"]


async def test_an_exception_covers_what_the_approver_was_shown_and_no_more(
    context: AppContext, two: Proposals, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = AsyncMock(return_value=2)
    monkeypatch.setattr(print_report, "count_genuine", counted)
    made = await propose_closing(context, exceptions={"rejected": "they are tests"})
    counted.return_value = 3
    put(context, made.at + MINUTE)
    with pytest.raises(
        UsageError, match="reject this proposal, and have the closing proposed again"
    ):
        await two.approve(made.id, by=Proven("Ben"), reason="I looked")
    counted.return_value = 2
    await two.approve(made.id, by=Proven("Ben"), reason="I looked")


async def test_nobody_makes_an_exception_of_what_is_unread(
    context: AppContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caught_up, "READ_WITHIN_S", 0.0)
    inbox = context.inbox
    assert isinstance(inbox, Inbox)
    await submit(inbox, arrival(None, received_at=Instant(CLOSED_AT - MINUTE)))
    given = {"unread": "they are of another shop", "too_early": "so"}
    words = {"reason": "so", "exceptions": given}
    assert await codes(context, **words) == ["unread"]
    assert await codes(context, **words, margin_days=30) == ["too_early", "unread"]


async def close_again(context: AppContext, two: Proposals, period: str) -> Closing:
    """Close a month by two people, one a minute after the other."""
    made = await propose_closing(context, period=period)
    put(context, made.at + MINUTE)
    await two.approve(made.id, by=Proven("Ben"), reason="I looked")
    return await closing_of(context, period)


async def test_the_last_closed_month_is_reopened_by_two_and_closed_again(
    context: AppContext, two: Proposals
) -> None:
    """What was printed stays; the next version has what came since; the chain names all of it."""
    await close_again(context, two, "2026-10")
    put(context, DECEMBER)
    first = await close_again(context, two, "2026-11")
    kept = {form: await printed_journal(context, "2026-11", form) for form in ("csv", "json")}
    with pytest.raises(UsageError, match="only the last closed month, 2026-11, can be reopened"):
        await reopen_period(context, "2026-10", by=Proven("Ann"), reason="a bank file is missing")
    asked_for = await reopen_period(context, "2026-11", by=Proven("Ann"), reason="so")
    assert [each.reopened_at for each in await list_closed(context)] == [None, None]
    put(context, DECEMBER + 2 * MINUTE)
    await two.approve(asked_for.id, by=Proven("Ben"), reason="I looked")
    with pytest.raises(NotFoundError, match="2026-11 is not closed"):
        await closing_of(context, "2026-11")
    _, left = await months(context)
    assert left[0].name == "2026-11"
    inbox = context.inbox
    assert isinstance(inbox, Inbox)
    put(context, DECEMBER + DAY)
    await keep_arrivals(inbox, LATE.late(DECEMBER + 3 * MINUTE))
    with pytest.raises(UsageError, match="before the last closing or reopening"):
        await propose_closing(context, period="2026-11", as_of=DECEMBER)
    second = await close_again(context, two, "2026-11")
    made = await list_closed(context)
    assert [(each.period, each.version) for each in made] == [
        ("2026-10", 1), ("2026-11", 1), ("2026-11", 2),
    ]  # fmt: skip
    assert second.before == made[1].reopening
    assert (second.version, second.known_after) == (2, first.known_after)
    assert [each.period for each in second.adjusted] == ["2026-10"]
    for form, content in kept.items():
        assert await printed_journal(context, "2026-11", form, version=1) == content
        assert await printed_journal(context, "2026-11", form) != content
    page = json.loads(await closed_report(context, "2026-11", "json"))
    assert page["version"] == 2
    assert await wrong(context) == []
    assert await prove(context) == []
    change = "UPDATE reopenings SET document = replace(document, 'Ben', 'Ann')"
    await tamper(context, "reopenings", change)
    assert [step for step, _ in await wrong(context)] == ["chain"]
    assert await prove(context) == ["the reopening of 2026-11 differs from the trail"]


async def prove(context: AppContext) -> list[str]:
    async with context.database.reading() as connection:
        return await prove_trail(connection, quiet)


async def test_the_first_month_that_was_reopened_is_the_next_to_close(
    context: AppContext, two: Proposals
) -> None:
    await close_again(context, two, "2026-10")
    put(context, DECEMBER)
    made = await reopen_period(context, "2026-10", by=Proven("Ann"), reason="so")
    await two.approve(made.id, by=Proven("Ben"), reason="I looked")
    put(context, DECEMBER + MINUTE)
    with pytest.raises(UsageError, match="close 2026-10 first"):
        await propose_closing(context, period="2026-11")
    assert [each.name for each in (await months(context))[1]] == ["2026-10", "2026-11", "2026-12"]
    with pytest.raises(UsageError, match="no month is closed"):
        await reopen_period(context, "2026-10", by=Proven("Ann"), reason="so")


async def test_a_reason_is_kept_and_names_no_phone(context: AppContext) -> None:
    with pytest.raises(UsageError, match="remove the phone number"):
        await close(context, reason="as +254712345678 said")
    assert await list_closed(context) == []
    await close(context, reason="October is complete")
    (entry,) = await trail(context, action="period_closed", limit=9)
    assert entry.reason == "October is complete"


async def test_months_are_closed_once_in_order_and_without_gaps(context: AppContext) -> None:
    first = await close(context)
    for period in ("2026-09", "2026-10"):
        with pytest.raises(UsageError, match="the next one to close is 2026-11"):
            await close(context, period)
    with pytest.raises(UsageError, match="close 2026-11 first"):
        await close(context, "2026-12")
    put(context, DECEMBER)
    second = await close(context, "2026-11")
    assert second.before == first.digest
    assert second.known_after == first.as_of
    assert [each.period for each in await list_closed(context)] == ["2026-10", "2026-11"]
    assert await wrong(context) == []


async def test_of_two_who_close_at_once_one_hears_that_it_is_closed(context: AppContext) -> None:
    done = await asyncio.gather(
        *(close_period(context, asked(by=name), progress=quiet) for name in ("Ann", "Ben")),
        return_exceptions=True,
    )
    assert sorted(type(each).__name__ for each in done) == ["Closing", "UsageError"]
    assert len(await list_closed(context)) == 1


@for_each("period", ["October", "2026-13", ""])
async def test_what_is_no_month_is_refused(context: AppContext, period: str) -> None:
    with pytest.raises(UsageError, match="a period is a month, such as 2026-10"):
        await close(context, period)


async def test_nothing_is_known_of_the_future(context: AppContext) -> None:
    with pytest.raises(UsageError, match="is in the future"):
        await close(context, as_of=CLOSED_AT + 1)


async def test_who_closes_is_of_finance_and_stands_in_the_trail(context: AppContext) -> None:
    await register_operator(context, name="Root", role="admin", by=None)
    await register_operator(context, name="Vic", role="viewer", by="Root")
    await register_operator(context, name="Fin", role="finance", by="Root")
    put(context, CLOSED_AT + MINUTE)
    with pytest.raises(UsageError, match="Vic has the role viewer"):
        await close(context, by="Vic")
    closing = await close(context, by="Fin")
    assert (closing.by, closing.role) == ("Fin", "finance")
    async with context.database.reading() as connection:
        (entry,) = await audit_entries(connection, limit=9, subject="2026-10")
    assert (entry.who, entry.action) == ("Fin", "period_closed")
    assert entry.facts["digest"] == closing.digest


# --- what blocks ---------------------------------------------------------------------------------


async def test_an_order_whose_deadline_is_ahead_blocks(context: AppContext) -> None:
    patient = replace(context, policy=Policy(payment_window=60 * DAY))
    assert await codes(patient) == ["pending"]


@pytest.mark.parametrize(
    ("at", "blocked"),
    [("2026-10-31T23:59:00Z", ["not_kept"]), ("2026-09-30T23:00:00Z", [])],
)
async def test_a_month_is_not_closed_over_its_requests_that_were_more_than_is_kept(
    context: AppContext, at: str, blocked: list[str]
) -> None:
    """Nobody signs them, so genuine callbacks may be among them."""
    hour = parse_instant(at) // HOUR
    await tamper(
        context,
        "refusals",
        f"INSERT INTO refusals VALUES ({hour}, 'shop', 'not_kept', 7, 0, 0)",
    )
    found = await against_closing(with_sources(context, {"shop": READER}), asked())
    assert [each.code for each in found] == blocked
    if blocked:
        assert "because there were too many: 7." in found[0].sentence
        assert found[0].do.startswith("Import the statements of its sources")


@pytest.mark.parametrize(
    ("at", "blocked"),
    [
        ("2026-10-31T23:59:59Z", True),
        ("2026-11-01T00:00:00Z", False),
        ("2026-09-30T09:00:00Z", False),
    ],
)
async def test_a_month_is_not_closed_over_an_accepted_gap_but_by_two_people(
    context: AppContext, two: Proposals, at: str, blocked: bool
) -> None:
    instant = parse_instant(at)
    gap = Gap(
        id="gap_1",
        kind="inbox",
        since=instant,
        until=instant,
        deliveries=3,
        detail="The inbox is gone.",
        accepted_at=CLOSED_AT,
        accepted_by="Ann",
        reason="the disk was replaced",
    )
    await context.database.writer.commit(add_gap, gap)
    found = await against_closing(context, asked(by=Proven("Ann")))
    assert [each.line for each in found] == (["gap:gap_1"] if blocked else [])
    if blocked:
        assert "Deliveries that are lost: 3." in found[0].sentence
        made = await propose_closing(context, exceptions={"gap:gap_1": "it was looked up"})
        put(context, made.at + MINUTE)
        await two.approve(made.id, by=Proven("Ben"), reason="I looked")
        document = json.loads(await closed_report(context, "2026-10", "json"))
        assert "may be lost" in str(document["notes"])
        assert document["exceptions"][0]["line"] == "gap:gap_1"


async def test_a_rejected_delivery_that_proves_genuine_blocks(tmp_path: Path) -> None:
    """What no secret of ours proves does not block: strangers could keep every month open."""
    arrived = next(QUIET.stories()).arrivals[0]
    wrong_secret = "whsec_" + base64.b64encode(b"another key than the provider's").decode()
    async with driving(tmp_path, with_worker=False, SOURCES__SHOP__SECRETS=wrong_secret) as driver:
        driver.clock.put(arrived.at)
        refused = await driver.send(arrived.body, signed(arrived.body, at=arrived.at))
        assert refused.status_code == 401
        driver.clock.put(CLOSED_AT)
        assert await codes(with_sources(driver.context, {"shop": READER})) == ["rejected"]
        await close(driver.context)


# --- what is kept --------------------------------------------------------------------------------


async def test_a_closed_report_is_printed_again_as_it_was(
    context: AppContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    await close(context)
    before = await closed_report(context, "2026-10", "json")
    monkeypatch.setattr(text_forms, "json", lambda report: b"otherwise")
    assert await closed_report(context, "2026-10", "json") == before
    found = {each.step: each for each in await verified(context)}
    assert found["prints"].passed
    assert found["prints"].sentence.endswith(
        "this version of Tallyhook would print json differently"
    )


async def test_every_print_names_the_merchant_and_who_closed_when(context: AppContext) -> None:
    named = with_settings(context, merchant="Salt & Sons")
    closing = await close(named)
    for each in (named, with_settings(context, merchant="Others Ltd")):
        document = json.loads(await closed_report(each, "2026-10", "json"))
        assert document["merchant"] == "Salt & Sons"
        assert document["closed_by"] == closing.by
        assert document["closed_at"] == format_instant(closing.closed_at)
    page = (await closed_report(named, "2026-10", "html")).decode()
    assert f"Closed by {closing.by}, {format_instant(closing.closed_at)[:10]}" in page
    assert "Salt &amp; Sons" in page
    assert "this version of Tallyhook prints the same" in next(
        each.sentence for each in await verified(named) if each.step == "prints"
    )


async def test_a_format_that_was_not_printed_is_printed_from_what_was_kept(
    context: AppContext,
) -> None:
    await close(context)
    before = await closed_report(context, "2026-10", "csv")
    await tamper(context, "closing_prints", "DELETE FROM closing_prints WHERE format = 'csv'")
    assert await closed_report(context, "2026-10", "csv") == before


async def test_a_month_that_is_not_closed_is_not_found(context: AppContext) -> None:
    for ask in (closed_report(context, "2026-10", "json"), verified(context, "2026-10")):
        with pytest.raises(NotFoundError, match="2026-10 is not closed"):
            await ask


async def test_pruned_bodies_change_nothing(context: AppContext) -> None:
    await close(context)
    ids = [row[0] for row in await rows(context, "SELECT id FROM deliveries")]
    async with context.database.writing() as connection:
        await prune(connection, ids, now=CLOSED_AT)
    assert await wrong(context) == []


@pytest.mark.parametrize(
    ("table", "change", "step", "said"),
    [
        ("closings", "UPDATE closings SET document = replace(document, 'succ', 'fail')",
         "chain", "its digest differs"),
        ("closings", "UPDATE closings SET document = '{'", "chain", "its digest differs"),
        ("closing_prints", "UPDATE closing_prints SET content = (SELECT content FROM "
         "closing_prints AS other WHERE other.format = 'json') WHERE format = 'csv'",
         "prints", "the stored csv"),
        ("deliveries", "DELETE FROM deliveries WHERE verdict = 'duplicate'",
         "history", "deliveries of 2026-10-01: "),
        ("events", "UPDATE events SET amount = amount + 100 WHERE claim = 'succeeded'",
         "history", "events of 2026-10-01: "),
        ("events", "UPDATE events SET amount = amount + 100 WHERE claim = 'succeeded'",
         "figures", "compared with the closed figures"),
        ("events", "UPDATE events SET amount = amount + 100 WHERE claim = 'succeeded'",
         "journal", "the transactions from the evidence differ from the closed transactions"),
    ][:: every(2)],
)  # fmt: skip
async def test_whatever_is_changed_behind_a_closing_is_named(
    context: AppContext, table: str, change: str, step: str, said: str
) -> None:
    await close(context)
    assert await wrong(context) == []
    await tamper(context, table, change)
    assert [said in sentence for each, sentence in await wrong(context) if each == step] == [True]


async def test_a_closing_that_is_exchanged_breaks_the_chain(context: AppContext) -> None:
    await close(context)
    put(context, DECEMBER)
    await close(context, "2026-11")
    await tamper(context, "closings", "UPDATE closings SET digest = 'x' WHERE period = '2026-10'")
    assert [step for step, _ in await wrong(context)] == ["chain", "chain"]


async def test_a_closing_is_verified_by_the_policy_of_then(context: AppContext) -> None:
    await close(context)
    assert await wrong(replace(context, policy=Policy(payment_window=60 * DAY))) == []


async def test_a_closing_names_a_checkpoint_of_the_sealed_log(context: AppContext) -> None:
    sealer = Sealer(context, SIGNER)
    while await sealer.seal_some():
        pass
    closing = await close(context)
    assert closing.checkpoint is not None
    while await sealer.seal_some():
        pass
    (*_, (number,)) = await rows(context, "SELECT number FROM audit ORDER BY number")
    entry = (await prove_sealed(context, f"deed:{number}"))["opened"]
    assert closing.digest in entry["facts"]["value"].values()
    assert await wrong(context) == []
    change = f"DELETE FROM log_checkpoints WHERE size = {closing.checkpoint['size']}"
    await tamper(context, "log_checkpoints", change)
    assert [step for step, _ in await wrong(context)] == ["chain"]
