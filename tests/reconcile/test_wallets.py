"""Balances at a provider: what leads from one to the next, and what has no counterpart."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, permutations
from typing import Any

import pytest

from reconcile.instants import DAY, EARLIEST, HOUR, TICK, Instant, parse_instant
from reconcile.matching.bank import BankLeg
from reconcile.matching.books import BankLine, Payout, StatementKind, StatementLine
from reconcile.matching.breaks import Break, Step, break_sentence, next_step
from reconcile.matching.control import control_in, control_text
from reconcile.matching.period import Period
from reconcile.matching.rules import Coverage, Covered, MatchRules, Span
from reconcile.matching.wallets import WalletRow, Wallets, WalletSums, due_after
from reconcile.money import Money
from reconcile.reporting.inputs import BankView, OrderSeen
from reconcile.reporting.journal import Posting, transactions, written_off
from tests.rows import for_each

AT = parse_instant("2026-10-05T09:00:00Z")
END = AT + 60 * DAY

UTILITY, WORKING = "Utility Account", "Working Account"


def row(
    kind: StatementKind,
    net: int,
    balance: int | None = None,
    *,
    at: Instant = AT,
    wallet: str = UTILITY,
    reference: str = "R",
    line: str = "stm_1.1",
) -> WalletRow:
    return WalletRow("till", wallet, "KES", at, line, kind, reference, net, balance)


COVERED = Coverage(
    statements=(Covered(name="till", spans=(Span(since=AT - DAY, until=AT + 40 * DAY),)),)
)


def checked(rows: Sequence[WalletRow], period: Period | None = None) -> Wallets:
    ordered = sorted(rows, key=lambda each: each[:4])
    return Wallets(ordered, period=period, as_of=END, coverage=COVERED)


def kes(minor: int) -> Money:
    return Money(minor=minor, currency="KES")


def told(wallets: Wallets) -> list[str]:
    return [break_sentence(each) for each in wallets.decisions()]


MONTH = (
    row("payment", 1_500, 11_500, line="stm_1.1"),
    row("fee", -15, 11_485, line="stm_2.1"),
    row("payment", 400, 11_885, at=AT + HOUR, line="stm_3.1"),
    row("withdrawal", -10_000, 1_885, at=AT + 2 * HOUR, line="stm_4.1"),
)
"""A payment and its charge at one instant, another payment, and a withdrawal; 100.00 before."""


def test_a_balance_follows_from_the_movements_in_whatever_order_those_of_one_instant_come() -> None:
    for order in permutations(MONTH):
        wallets = checked(order)
        (sums,) = wallets.sums
        assert (sums.opening, sums.closing, sums.stated) == (10_000, 1_885, 1_885)
        assert (sums.settled, sums.withdrawn) == (1_885, -10_000)
        assert [(each.at, each.minor) for each in wallets.openings] == [(AT, 10_000)]
        assert told(wallets) == []
        assert wallets.control(END).holds


@for_each("missing", [0, 1, 2])
def test_a_row_that_the_file_lacks_breaks_the_balance_and_its_tie(missing: int) -> None:
    rows = [each for place, each in enumerate(MONTH) if place != missing]
    first = row("payment", 10_000, 10_000, at=AT - HOUR, line="stm_0.1")
    wallets = checked([first, *rows])
    (found,) = wallets.decisions()
    assert (found.cause, found.money.minor) == ("wallet_balance_differs", abs(MONTH[missing].net))
    steps = [
        Step(at=END, kind=kind, money=found.money, by="ann", left=found.left)
        for kind in ("opened", "accepted")
    ]
    (gone,) = written_off(found, steps, start=EARLIEST, end=END + DAY)
    assert (gone.source, gone.postings[0]) == (
        "till",
        Posting(role="wallet", minor=MONTH[missing].net, sub_account=UTILITY),
    )
    control = wallets.control(END)
    (tie,) = [each for each in control.ties() if each.name.startswith("till Utility Account")]
    assert tie.right - tie.left == MONTH[missing].net
    assert [each.of_wallet for each in control.ties() if not each.holds] == [True]
    assert not control.holds
    assert control_in(control_text(control)) == control


@for_each(("file", "between"), [(2, True), (1, False)])
def test_a_file_opens_with_the_balance_with_which_the_one_before_closed(
    file: int, between: bool
) -> None:
    """Else the break names both files: one between them may be missing."""
    following = [
        row("payment", 100, 1_985, at=AT + 3 * HOUR, line="stm_5.2"),
        row("payment", 50, 2_055, at=AT + 4 * HOUR, line=f"stm_6.{file}"),
    ]
    assert told(checked([*MONTH, following[0]])) == []
    first = following[0]._replace(line_id="stm_5.1")
    (found,) = checked([*MONTH, first, following[1]]).decisions()
    words = " The lines before come from import 1, and this one from import 2."
    assert break_sentence(found).endswith(words) == between
    assert next_step(found).startswith("Import the statement of the days between") == between
    assert found.money.minor == 20


def test_what_came_and_went_at_once_leaves_the_balance_as_it_was() -> None:
    there = row("payment", 50, 150, line="stm_1.1")
    back = row("refund", -50, 100, line="stm_2.1")
    before = row("payment", 100, 100, at=AT - HOUR, line="stm_0.1")
    assert told(checked([before, there, back])) == []


def test_a_period_begins_with_what_the_one_before_ended_with() -> None:
    since = Period(since=AT + HOUR, until=END)
    (sums,) = checked(MONTH, since).sums
    assert (sums.opening, sums.closing) == (11_485, 1_885)
    (later,) = checked(MONTH, Period(since=AT + DAY, until=END)).sums
    assert (later.opening, later.closing, later.settled) == (1_885, 1_885, 0)


def test_a_balance_that_no_statement_states_is_the_sum_of_its_movements() -> None:
    rows = [each._replace(balance=None) for each in MONTH]
    wallets = checked(rows, Period(since=AT + HOUR, until=END))
    (sums,) = wallets.sums
    assert (sums.opening, sums.closing, sums.stated) == (1_485, -8_115, None)
    assert wallets.control(END).wallets == ()


GOES = row("transfer", -700, 300, line="stm_a.1")
COMES = row("transfer", 700, 700, wallet=WORKING, line="stm_b.1")
OTHER = row("payment", 1, wallet=WORKING, at=AT + HOUR, line="stm_o.1")
LATE = GOES._replace(at=AT + 50 * DAY)


@for_each(
    ("rows", "expected"),
    [
        ([GOES, COMES], []),
        ([GOES, COMES._replace(reference="other", at=AT + DAY)], []),
        ([GOES, COMES._replace(reference="x", at=AT + DAY + TICK)], ["KES -7.00", "KES 7.00"]),
        ([GOES, COMES._replace(net=701)], ["KES -7.00", "KES 7.01"]),
        ([GOES], []),  # the other balance's statement is not there
        (
            [GOES, OTHER],
            [
                "KES -7.00 moved between your own balances at 2026-10-05T09:00:00Z, according to "
                "the statement of till Utility Account, but no statement of another balance "
                "shows it."
            ],
        ),
        ([GOES, COMES._replace(reference="x", at=AT + 2 * DAY)], ["KES -7.00", "KES 7.00"]),
        ([LATE, OTHER], []),
    ],
)
def test_a_transfer_has_two_sides(rows: list[WalletRow], expected: list[str]) -> None:
    found = told(checked(rows))
    assert len(found) == len(expected)
    assert all(one.startswith(start) for one, start in zip(found, expected, strict=True))


@for_each(("at", "missed"), [
    (-DAY - TICK, []), (-DAY, ["stm_a"]), (40 * DAY - TICK, ["stm_a"]), (40 * DAY, []),
])  # fmt: skip
def test_a_side_of_a_transfer_is_missed_where_the_statement_covers_it(
    at: int, missed: list[str]
) -> None:
    found = checked([GOES._replace(at=Instant(AT + at)), OTHER]).decisions()
    assert [each.subject for each in found] == missed


def test_transfers_that_name_nothing_pair_only_within_a_day() -> None:
    """Two that are weeks apart and add up to zero are not one transfer."""
    unnamed = [each._replace(reference=None) for each in (GOES, COMES)]
    assert told(checked(unnamed)) == []
    apart = [unnamed[0], unnamed[1]._replace(at=AT + 20 * DAY, balance=None)]
    found = [each.cause for each in checked(apart).decisions()]
    assert found == ["transfer_one_sided", "transfer_one_sided"]


def withdrawn(*days: int) -> list[WalletRow]:
    """Return withdrawals of 5.00 on these days, of a wallet that takes 6.00 before each."""
    return [
        each
        for number, day in enumerate(days)
        for each in (
            row("payment", 600, at=AT + day * DAY - HOUR, line=f"stm_p{number}.1"),
            row("withdrawal", -500, at=AT + day * DAY, line=f"stm_w{number}.1"),
        )
    ]


@for_each(
    ("days", "waiting", "late"),
    [
        ((0, 7, 14, 21, 28), 100, [36]),
        ((0, 7, 15, 21, 28), 100, [37]),  # the longest before took 8 days
        ((0, 7, 14, 21), 100, []),  # too few
        ((0, 1, 2, 3, 10), 100, []),  # no rhythm
        ((0, 7, 14, 21, 28), -200, []),  # less is there than was ever withdrawn
        ((0, 7, 14, 21, 33), 100, []),  # due beyond what the statement covers
    ],
)
def test_a_payout_is_late_where_money_is_there_for_longer_than_ever(
    days: tuple[int, ...], waiting: int, late: list[int]
) -> None:
    last = row("payment", waiting, at=AT + 34 * DAY, line="stm_z.1")
    wallets = checked([*withdrawn(*days), last])
    found = list(wallets.decisions())
    assert all("since 2026-11-02T09:00:00Z" in each for each in told(wallets))
    assert [(each.cause, each.since) for each in found] == [
        ("payout_late", AT + day * DAY) for day in late
    ]


@for_each(("intervals", "due"), [
    ((1, 3, 4, 8), 9), ((1, 3, 4, 9), None), ((8, 4, 3, 1), 9), ((4, 4, 4), None),
])  # fmt: skip
def test_the_next_payout_is_due_a_day_after_the_longest_interval_of_a_rhythm(
    intervals: tuple[int, ...], due: int | None
) -> None:
    """An interval of over twice the usual one means that there is no rhythm."""
    days = list(accumulate(intervals, initial=0))
    expected = None if due is None else AT + (days[-1] + due) * DAY
    assert due_after([AT + day * DAY for day in days]) == expected


@for_each(("waiting", "as_of", "since", "until", "late"), [
    (0, 36 * DAY, 28 * DAY, 36 * DAY, True),
    (-1, 36 * DAY, 28 * DAY, 36 * DAY, False),
    (0, 36 * DAY - TICK, 28 * DAY, 36 * DAY, False),
    (0, 36 * DAY, 28 * DAY + TICK, 36 * DAY, False),
    (0, 36 * DAY, 28 * DAY, 36 * DAY - TICK, False),
])  # fmt: skip
def test_a_payout_is_late_from_the_moment_when_it_is_due(
    waiting: int, as_of: int, since: int, until: int, late: bool
) -> None:
    """The least that was ever withdrawn has to be there, and a statement has to cover the wait."""
    span = Span(since=Instant(AT + since), until=Instant(AT + until))
    last = row("payment", waiting, at=AT + 28 * DAY, line="stm_z.1")
    wallets = Wallets(
        [*withdrawn(0, 7, 14, 21, 28), last],
        period=None,
        as_of=Instant(AT + as_of),
        coverage=Coverage(statements=(Covered(name="till", spans=(span,)),)),
    )
    told = Break(
        cause="payout_late",
        subject="stm_w4",
        money=kes(500),
        since=AT + 36 * DAY,
        cites=("stm_w4.1",),
        facts=(
            ("wallet", f"till {UTILITY}"),
            ("waiting", kes(500)),
            ("last_at", AT + 28 * DAY),
            ("due_at", AT + 36 * DAY),
        ),
    )
    assert list(wallets.decisions()) == ([told] if late else [])


def test_a_movement_at_the_end_of_a_period_belongs_to_the_next_period() -> None:
    (sums,) = checked(MONTH, Period(until=AT + HOUR)).sums
    assert (sums.opening, sums.closing, sums.stated) == (10_000, 11_485, 11_485)


def test_transfers_and_holds_are_paired_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconcile.matching.wallets.MOST", 2)
    assert told(checked([GOES, COMES])) == []
    with pytest.raises(ValueError, match="more than 2 transfers and holds"):
        checked([GOES, COMES, HOLD])


HOLD = row("hold", -500, line="stm_h.1", reference="rsv_1")


@for_each(
    ("free", "named", "left", "excess"),
    [(500, "rsv_1", 0, []), (200, "x", 300, []), (600, "rsv_1", -100, [100])],
)
def test_a_release_needs_its_hold(free: int, named: str, left: int, excess: list[int]) -> None:
    released = row("release", free, at=AT + DAY, line="stm_r.1", reference=named)
    wallets = checked([HOLD, released])
    held = wallets.sums[-1]
    assert (held.wallet, held.closing) == ("Held", left)
    assert held.since == (AT if left > 0 else None)
    assert [each.money.minor for each in wallets.decisions()] == excess
    assert {each.cause for each in wallets.decisions()} <= {"release_without_hold"}


@for_each(("rows", "expected"), [
    # Of two rows of one instant the balance differs after the first by its id.
    (
        [row("payment", 100, 100, line="stm_0.1"),
         row("payment", 50, 170, at=AT + HOUR, line="stm_b.2"),
         row("payment", 10, 180, at=AT + HOUR, line="stm_a.1")],
        {"cause": "wallet_balance_differs", "subject": "stm_a", "money": kes(20),
         "since": AT + HOUR, "cites": ("stm_a.1",), "left": (kes(-20),),
         "facts": (("wallet", f"till {UTILITY}"), ("moved_at", AT + HOUR), ("due", kes(160)),
                   ("stated", kes(180)), ("difference", kes(20)), ("source", "till"),
                   ("sub_account", UTILITY))},
    ),
    (
        [GOES, OTHER],
        {"cause": "transfer_one_sided", "subject": "stm_a", "money": kes(700), "since": AT,
         "cites": ("stm_a.1",),
         "facts": (("wallet", f"till {UTILITY}"), ("moved_at", AT), ("moved", kes(-700)))},
    ),
    (
        [HOLD, row("release", 600, at=AT + DAY, line="stm_r.1")],
        {"cause": "release_without_hold", "subject": "stm_r", "money": kes(100),
         "since": AT + DAY, "cites": ("stm_r.1",),
         "facts": (("wallet", f"till {UTILITY}"), ("moved_at", AT + DAY), ("released", kes(600)))},
    ),
])  # fmt: skip
def test_a_break_of_a_wallet_names_its_line_and_both_amounts(
    rows: list[WalletRow], expected: dict[str, Any]
) -> None:
    assert list(checked(rows).decisions()) == [Break(**expected)]


def test_holds_are_released_by_their_name_and_else_the_oldest_first() -> None:
    """Of three holds one is released by its name, and the oldest one in part."""
    second = row("hold", -300, at=AT + DAY, line="stm_i.1", reference="rsv_2")
    third = row("hold", -200, at=AT + 2 * DAY, line="stm_j.1", reference="rsv_3")
    rows = [
        HOLD, second, third,
        row("release", 300, at=AT + 3 * DAY, line="stm_r.1", reference="rsv_2"),
        row("release", 100, at=AT + 3 * DAY, line="stm_s.1", reference=""),
        row("release", 400, at=AT + 4 * DAY, line="stm_t.1", reference=""),
    ]  # fmt: skip
    wallets = checked(rows, Period(since=AT + DAY))
    assert list(wallets.decisions()) == []
    assert wallets.sums[-1] == WalletSums(
        source="till", wallet="Held", currency="KES", opening=500, held=-300, since=AT + 2 * DAY
    )


@for_each(("named", "since"), [("rsv_2", AT), ("rsv_1", AT + DAY), ("", AT + DAY)])
def test_a_release_names_its_hold_and_else_releases_the_oldest(named: str, since: Instant) -> None:
    later = HOLD._replace(at=AT + DAY, line_id="stm_i.1", reference="rsv_2")
    released = row("release", 500, at=AT + 2 * DAY, line="stm_r.1", reference=named)
    assert checked([HOLD, later, released]).sums[-1].since == since


def test_of_one_instant_a_hold_comes_before_its_release() -> None:
    wallets = checked([HOLD._replace(net=-1), row("release", 1, line="stm_a.1")])
    assert list(wallets.decisions()) == []
    assert (wallets.sums[-1].closing, wallets.sums[-1].since) == (0, None)


def test_a_hold_of_nothing_holds_nothing() -> None:
    assert checked([HOLD._replace(net=0)]).sums[-1].since is None


def posted(*lines: StatementLine, bank: BankView | None = None) -> list[str]:
    """Return the postings of each line: account and minor units."""
    withdrawn = frozenset((e.source, e.payout, e.currency) for e in lines if e.kind == "withdrawal")
    return [
        ", ".join(
            f"{posting.role}{'/' + posting.sub_account if posting.sub_account else ''} "
            f"{posting.minor}"
            for posting in transaction.postings
        )
        for one in lines
        for transaction in transactions(
            OrderSeen(taking=None, lines=(one,)),
            start=EARLIEST,
            end=END,
            bank=bank,
            withdrawn=withdrawn,
        )
    ]


def line(
    kind: StatementKind, net: int, *, fee: int = 0, payout: str | None = None
) -> StatementLine:
    return StatementLine(
        line_id="stm_1.1",
        payment="p",
        order=None,
        kind=kind,
        currency="KES",
        gross=0 if kind == "fee" else net + fee,
        fee=-net if kind == "fee" else fee,
        net=net,
        settled_at=AT,
        payout=payout,
        source="till",
        wallet=UTILITY,
    )


@for_each(
    ("moved", "expected"),
    [
        (line("payment", 97, fee=3), "wallet/Utility Account 97, fees 3, clearing -100"),
        (line("fee", -15), "wallet/Utility Account -15, fees 15"),
        (line("withdrawal", -50, payout="W"), "wallet/Utility Account -50, in_transit 50"),
        (line("withdrawal_failed", 50, payout="W"), "wallet/Utility Account 50, in_transit -50"),
        (line("deposit", 50, payout="D"), "wallet/Utility Account 50, in_transit -50"),
        (line("transfer", -7), "wallet/Utility Account -7, transfers 7"),
        (line("conversion", -7), "wallet/Utility Account -7, exchange 7"),
        (line("hold", -7), "wallet/Utility Account -7, wallet/Held 7"),
        (line("release", 7), "wallet/Utility Account 7, wallet/Held -7"),
        (line("disbursement", -7), "wallet/Utility Account -7, other_business 7"),
        (line("returned", 7), "wallet/Utility Account 7, clearing -7"),
        (line("payment", 97, fee=3, payout="po"), "bank 97, fees 3, clearing -100"),
        (line("hold", -7, payout="po"), "bank -7, wallet/Held 7"),
    ],
)
def test_a_line_of_a_wallet_is_posted_to_it(moved: StatementLine, expected: str) -> None:
    assert posted(moved) == [expected]


def test_a_line_that_names_a_payout_stays_in_the_wallet_until_that_payout_leaves_it() -> None:
    part, leaves = line("payment", 97, fee=3, payout="po"), line("withdrawal", -97, payout="po")
    assert posted(part, leaves) == [
        "wallet/Utility Account 97, fees 3, clearing -100",
        "wallet/Utility Account -97, in_transit 97",
    ]


SENT = Payout(
    payout_id="pyt_1",
    source="till",
    reference="TKW1105",
    currency="KES",
    minor=500,
    paid_at=AT,
    withdrawn=True,
    sent=500,
)


def booked(minor: int, at: Instant) -> BankLine:
    return BankLine(
        line_id=f"bnk_{minor}.1", account="a", currency="KES", minor=minor, booked_at=at
    )


def bank_leg(*payouts: Payout, lines: Sequence[BankLine]) -> BankLeg:
    return BankLeg(
        payouts=payouts,
        lines=[*lines, booked(1, AT + 30 * DAY)],
        rules=MatchRules(),
        as_of=END,
        coverage=Coverage(bank=(Covered(name="a", spans=(Span(since=AT - DAY, until=END),)),)),
    )


THERE, BACK = booked(500, AT), booked(-500, AT + DAY)


@pytest.mark.parametrize(
    ("minor", "lines", "bucket"),
    [
        (500, [], "payout_not_in_bank"),
        (500, [THERE], "by_date_window"),
        (0, [], "nothing_due"),
        (0, [THERE, BACK], "by_group"),
    ],
    ids=["missing", "there", "failed", "failed at the bank"],
)
def test_a_withdrawal_waits_for_its_bank_line_and_a_failed_one_for_none(
    minor: int, lines: list[BankLine], bucket: str
) -> None:
    leg = bank_leg(replace(SENT, minor=minor), lines=lines)
    found = {each.bucket for each in leg.links}
    assert found | {each.bucket for each in leg.alone if each.payout} == {bucket}


def test_one_line_takes_back_one_payout() -> None:
    once, again = replace(SENT, minor=0), replace(SENT, payout_id="pyt_2", minor=0)
    leg = bank_leg(once, again, lines=[THERE, replace(THERE, line_id="bnk_600.1"), BACK])
    assert [(link.payouts, link.lines) for link in leg.links] == [((once,), (THERE, BACK))]
    assert [each.payout for each in leg.alone if each.payout] == [again]


def test_a_failed_payout_stands_with_the_one_that_sent_its_money_again() -> None:
    again = replace(SENT, payout_id="pyt_2", reference="TKW1107", paid_at=AT + 3 * DAY)
    other = replace(again, payout_id="pyt_3", reference="TKW1108", minor=400, sent=400)
    lines = [booked(minor, AT + 4 * DAY) for minor in (500, 400)]
    leg = bank_leg(replace(SENT, minor=0), again, other, lines=lines)
    assert [[each.payout_id for each in link.payouts] for link in leg.links] == [
        ["pyt_1", "pyt_2"],
        ["pyt_3"],
    ]
    assert leg.control().holds
    assert not [each for each in leg.decisions() if isinstance(each, Break)]
