"""State of a break: a fold of what runs saw and people did."""

import re
from typing import Any, get_args

from reconcile.instants import EARLIEST, Instant
from reconcile.matching import breaks
from reconcile.matching.causes import CAUSES, BreakCause
from reconcile.matching.decide import Match
from reconcile.money import Money
from tests.rows import for_each


def step(kind: Any, minor: int = 100, **fields: Any) -> breaks.Step:
    by_person = kind in ("assigned", "commented", "accepted", "matched", "unmatched", "settled")
    content = {"by": "ann", "reason": "because"} if by_person else {"run": 7}
    return breaks.Step(
        at=EARLIEST, kind=kind, money=Money(minor=minor, currency="KES"), **{**content, **fields}
    )


OPENED = step("opened", run=1)
ACCEPTED = step("accepted")
MATCHED = step("matched", value="stm_1")
CLOSED = step("closed", cites=("evt_1", "bok_1.2"))


def stood(*steps: breaks.Step) -> tuple[str, str | None, str | None]:
    """Return (state, assignee, settling)."""
    found: breaks.Life = breaks.life(steps)
    return (found.state, found.assignee, found.settling)


@for_each(
    ("steps", "stands"),
    [
        ([], ("open", None, None)),
        ([OPENED], ("open", None, None)),
        ([OPENED, step("commented")], ("open", None, None)),
        ([OPENED, step("assigned", value="bob")], ("assigned", "bob", None)),
        (
            [OPENED, step("assigned", value="bob"), step("assigned", value="")],
            ("open", None, None),
        ),
        ([OPENED, ACCEPTED], ("accepted", None, None)),
        ([OPENED, ACCEPTED, step("changed")], ("accepted", None, None)),
        ([OPENED, ACCEPTED, step("changed", 101)], ("open", None, None)),
        ([OPENED, step("changed", 101), step("accepted", 101)], ("accepted", None, None)),
        ([OPENED, step("changed", 101), ACCEPTED], ("open", None, None)),
        ([OPENED, step("changed", 101), step("settled", value="credit")], ("open", None, None)),
        (
            [OPENED, step("assigned", value="bob"), ACCEPTED, step("changed", 101)],
            ("assigned", "bob", None),
        ),
        ([OPENED, CLOSED], ("closed", None, None)),
        ([OPENED, ACCEPTED, CLOSED, step("reopened")], ("open", None, None)),
        ([OPENED, MATCHED], ("closed", None, None)),
        ([OPENED, MATCHED, step("unmatched", value="stm_2")], ("closed", None, None)),
        ([OPENED, MATCHED, step("unmatched", value="stm_1")], ("open", None, None)),
        ([OPENED, MATCHED, CLOSED], ("closed", None, None)),
        ([OPENED, MATCHED, CLOSED, step("unmatched", value="stm_1")], ("closed", None, None)),
        ([OPENED, MATCHED, step("reopened")], ("open", None, None)),
        ([OPENED, ACCEPTED, MATCHED, step("changed")], ("accepted", None, None)),
        ([OPENED, CLOSED, step("unmatched", value="stm_1")], ("closed", None, None)),
        ([OPENED, step("settled", value="refund")], ("open", None, "refund")),
        ([OPENED, step("settled", value="credit")], ("accepted", None, "credit")),
        ([OPENED, step("settled", value="accept"), step("changed", 9)], ("open", None, None)),
        (
            [OPENED, step("settled", value="accept"), step("settled", value="refund")],
            ("open", None, "refund"),
        ),
        ([OPENED, ACCEPTED, step("settled", value="refund")], ("open", None, "refund")),
    ],
)
def test_a_break_stands_where_its_steps_led(
    steps: list[breaks.Step], stands: tuple[str, str | None, str | None]
) -> None:
    assert stood(*steps) == stands


@for_each(("steps", "matched"), [
    ([OPENED, MATCHED, step("matched", value="stm_2")], ("stm_1", "stm_2")),
    ([OPENED, MATCHED, step("unmatched", value="stm_1")], ()),
    ([OPENED, MATCHED, CLOSED], ()),
    ([OPENED, MATCHED, step("reopened")], ()),
])  # fmt: skip
def test_matched_lines_stand_until_a_run_has_seen_them(
    steps: list[breaks.Step], matched: tuple[str, ...]
) -> None:
    assert breaks.life(steps).matched == matched


def test_a_closed_break_says_which_evidence_closed_it() -> None:
    closed = breaks.life([OPENED, CLOSED])
    assert closed.closed_by == ("evt_1", "bok_1.2")
    assert "evt_1, bok_1.2" in closed.because
    assert "no new evidence" in breaks.life([OPENED, step("closed")]).because
    again = breaks.life([OPENED, CLOSED, step("reopened", run=9)])
    assert (again.closed_by, "run 9" in again.because.lower()) == ((), True)


def test_an_accepted_break_whose_money_changed_says_both_amounts() -> None:
    changed = breaks.life([OPENED, step("accepted", second="bob"), step("changed", 150_000)])
    assert "KES 1.00" in changed.because
    assert "KES 1,500.00" in changed.because
    assert "ann and bob" in breaks.life([OPENED, step("accepted", second="bob")]).because


def test_what_was_decided_while_a_run_saw_other_money_is_to_be_decided_again() -> None:
    overtaken = breaks.life([OPENED, step("changed", 150_000), step("accepted")])
    assert overtaken.state == "open"
    assert "KES 1.00" in overtaken.because
    assert "KES 1,500.00" in overtaken.because


def money(minor: int) -> Money:
    return Money(minor=minor, currency="KES")


def test_every_cause_has_its_record_in_order() -> None:
    assert tuple(CAUSES) == get_args(BreakCause), "see reconcile/matching/causes.py"


@for_each(
    ("cause", "facts", "left", "lost"),
    [
        # cause, facts, what it leaves to be settled, what of 500 may be lost
        ("book_paid_not_received", (), 0, 500),
        ("not_settled", (), 500, 500),
        ("unresolved", (), 0, 500),
        ("payment_in_doubt", (), 0, 500),
        ("currency_differs", (), 0, 500),
        ("refund_not_in_book", (), 0, 500),
        ("dispute_won_not_returned", (), 500, 500),
        ("failed_refund_not_returned", (), 500, 500),
        # What is held, and only a file has still to say so.
        ("paid_not_in_book", (), 0, 0),
        ("book_unpaid_but_received", (), 0, 0),
        ("ambiguous", (), 500, 0),
        # A mistake of unit is a mistake of a file.
        ("off_by_minor_unit", (), 0, 0),
        # What is or may be the customer's.
        ("paid_twice", (), 0, 0),
        ("overpaid", (), 0, 0),
        ("late_money", (), 0, 0),
        ("refund_not_received", (), 0, 0),
        ("refund_not_settled", (), -500, 0),
        # Of two amounts, what is missing.
        ("amount_differs", (("captured", 1_000), ("booked", 1_500), ("against", "book")), 0, 500),
        ("amount_differs", (("captured", 1_500), ("booked", 1_000), ("against", "book")), 0, 0),
        ("amount_differs", (("captured", 900), ("settled", 400), ("against", "statement")), 0, 500),
        ("amount_differs", (("captured", 400), ("settled", 900), ("against", "statement")), 0, 0),
        (
            "amount_differs",
            (("captured", 900), ("settled", 200), ("settled", 200), ("against", "statement")),
            0,
            500,
        ),
        ("fee_unexpected", (("fee", 600), ("expected_fee", 100)), 0, 500),
        ("fee_unexpected", (("fee", 100), ("expected_fee", 600)), 0, 0),
        # Equal amounts lose nothing.
        ("amount_differs", (("captured", 500), ("booked", 500), ("against", "book")), 0, 0),
        ("amount_differs", (("captured", 500), ("settled", 500), ("against", "statement")), 0, 0),
        ("amount_differs", (("captured", 9), ("settled", 500), ("expected", 500)), 0, 0),
        ("fee_unexpected", (("fee", 500), ("expected_fee", 500)), 0, 0),
        ("fee_unexpected", (("fee", 500),), 0, 500),
        ("fee_unexpected", (("expected_fee", 500),), 0, 500),
        # What a gift card paid and what the bank booked were paid, too.
        (
            "amount_differs",
            (("captured", 900), ("tendered", 100), ("booked", 1_001), ("against", "book")),
            0,
            500,
        ),
        (
            "amount_differs",
            (("captured", 900), ("tendered", 100), ("booked", 1_000), ("against", "book")),
            0,
            0,
        ),
        ("amount_differs", (("in_bank", 900), ("booked", 901), ("against", "book")), 0, 500),
        ("amount_differs", (("in_bank", 900), ("booked", 900), ("against", "book")), 0, 0),
        ("amount_differs", (("settled", 900), ("booked", 901), ("against", "book")), 0, 500),
        ("amount_differs", (("settled", 900), ("booked", 900), ("against", "book")), 0, 0),
        ("refund_amount_differs", (("returned", 100), ("settled", 600)), 500, 500),
        ("refund_amount_differs", (("returned", 600), ("settled", 100)), -500, 0),
        # Money that no webhook stated: what came is there, what was taken is gone.
        ("settled_never_notified", (("settled", 500), ("kind", "payment")), -500, 0),
        ("settled_never_notified", (("settled", 500), ("kind", "refund")), 500, 500),
        ("settled_never_notified", (("settled", 500), ("kind", "refund")), 1, 500),
        ("settled_never_notified", (("settled", 500), ("won", True)), -500, 0),
        # In another currency, whose sums compare with nothing but what the rate expects.
        (
            "amount_differs",
            (("captured", 9), ("settled", 400), ("against", "statement"), ("expected", 900)),
            500,
            500,
        ),
        (
            "amount_differs",
            (("captured", 9_999), ("settled", 900), ("against", "statement"), ("expected", 400)),
            -500,
            0,
        ),
        # What was paid out and is not in the bank; what came there is there.
        ("payout_not_in_bank", (("paid_out", 500),), 500, 500),
        ("payout_amount_differs", (("paid_out", 900), ("in_bank", 400)), 500, 500),
        ("payout_amount_differs", (("paid_out", 400), ("in_bank", 900)), -500, 0),
        ("bank_line_unknown", (("in_bank", 500),), -500, 0),
        ("bank_line_unknown", (("in_bank", -500),), 500, 500),
    ],
)
def test_money_at_risk_is_what_may_be_lost(
    cause: BreakCause, facts: tuple[tuple[str, int | str | bool], ...], left: int, lost: int
) -> None:
    found = breaks.Break(
        cause=cause,
        order="A",
        payment=None,
        subject=None,
        money=money(500),
        since=Instant(1),
        cites=("evt_1",),
        facts=tuple(
            (name, money(value) if isinstance(value, int) and value is not True else value)
            for name, value in facts
        ),
        left=(money(left),) if left else (),
    )
    assert breaks.at_risk(found) == lost


def kes(*minors: int) -> tuple[Money, ...]:
    return tuple(money(minor) for minor in minors)


@for_each(("before", "after", "state"), [
    (kes(5), kes(5), "accepted"),
    (kes(5), kes(6), "open"),
    (kes(5), (), "open"),
    ((), kes(5), "open"),
    ((), (), "accepted"),
])  # fmt: skip
def test_who_accepted_a_break_is_asked_again_where_it_leaves_another_sum(
    before: tuple[Money, ...], after: tuple[Money, ...], state: str
) -> None:
    seen = breaks.life([step("opened", left=before), ACCEPTED, step("changed", left=after)])
    assert seen.state == state
    assert ("another amount" in seen.because) == (state == "open")
    again = [step("opened", left=before), step("changed", left=after), ACCEPTED]
    assert breaks.life(again).state == "accepted"


@for_each(("steps", "because"), [
    ([], "No run has found this break yet."),
    ([OPENED], "Run 1 was the first to find this break."),
    ([OPENED, step("changed", 101)], "Run 1 was the first to find this break."),
    ([OPENED, step("assigned", value="bob")], "Run 1 was the first to find this break."),
    ([OPENED, CLOSED], "Run 7 no longer found this break; this later evidence closed it: evt_1, "
        "bok_1.2."),
    ([OPENED, CLOSED, step("reopened")], "Run 7 found this break again after it had been closed."),
    ([OPENED, ACCEPTED], "ann accepted KES 1.00: because"),
    ([OPENED, step("accepted", second="bob")], "ann and bob accepted KES 1.00: because"),
    ([OPENED, step("settled", value="credit")], "ann decided to credit KES 1.00: because"),
    ([OPENED, MATCHED], "ann matched it with stm_1: because"),
    ([OPENED, MATCHED, step("reopened")],
     "It was matched with stm_1, but run 7 still found it: the match does not explain the break."),
    ([OPENED, step("unmatched", value="stm_1")], "ann undid its match with stm_1: because"),
    ([OPENED, ACCEPTED, step("changed", 101)],
     "It was accepted at KES 1.00, but run 7 found KES 1.01."),
    ([OPENED, ACCEPTED, step("changed")], "ann accepted KES 1.00: because"),
    ([OPENED, step("changed", 101), ACCEPTED],
     "ann accepted KES 1.00, but a run has found KES 1.01."),
])  # fmt: skip
def test_why_a_break_stands_so_is_what_was_done_last(
    steps: list[breaks.Step], because: str
) -> None:
    assert breaks.life(steps).because == because


def accepted(minor: int = 100, left: tuple[Money, ...] = ()) -> breaks.Accepted:
    return breaks.Accepted(money=money(minor), left=left)


LEFT = step("opened", left=kes(5))


@for_each(("steps", "changed"), [
    ([OPENED], []),
    ([OPENED, ACCEPTED], [(1, None, accepted())]),
    ([LEFT, ACCEPTED], [(1, None, accepted(left=kes(5)))]),
    ([LEFT, ACCEPTED, step("commented"), step("changed", left=kes(5))],
     [(1, None, accepted(left=kes(5)))]),
    ([LEFT, ACCEPTED, step("changed", left=kes(6)), ACCEPTED],
     [(1, None, accepted(left=kes(5))), (2, accepted(left=kes(5)), None),
      (3, None, accepted(left=kes(6)))]),
    ([OPENED, ACCEPTED, step("changed", left=kes(5))],
     [(1, None, accepted()), (2, accepted(), None)]),
    ([LEFT, ACCEPTED, CLOSED, step("reopened", left=kes(5))],
     [(1, None, accepted(left=kes(5))), (2, accepted(left=kes(5)), None)]),
    ([OPENED, step("settled", value="credit"), step("settled", value="refund")],
     [(1, None, accepted()), (2, accepted(), None)]),
    ([OPENED, step("settled", value="refund")], []),
    ([OPENED, CLOSED, ACCEPTED], []),
])  # fmt: skip
def test_what_was_accepted_over_time(
    steps: list[breaks.Step],
    changed: list[tuple[int, breaks.Accepted | None, breaks.Accepted | None]],
) -> None:
    found = list(breaks.acceptances(steps))
    assert found == [(steps[place], before, after) for place, before, after in changed]


def test_a_break_has_a_name_of_twenty_hex_digits() -> None:
    one = breaks.Break(cause="ambiguous", order="A", money=money(5), since=Instant(1), cites=())
    other = breaks.Break(cause="ambiguous", order="A", money=money(6), since=Instant(2), cites=())
    assert re.fullmatch("brk_[0-9a-f]{20}", one.identity)
    assert other.identity == one.identity
    match = Match(kind="by_hand", lines=("a", "b"), money=money(5))
    assert re.fullmatch("mat_[0-9a-f]{20}", match.identity)
    assert Match(kind="by_hand", lines=("a", "b"), money=money(6)).identity == match.identity


def test_a_break_is_read_as_it_was_written() -> None:
    near = breaks.Candidate(line="l", reference="r", money=money(3), apart="amount", days=4)
    found = breaks.Break(
        cause="ambiguous",
        order="A",
        payment=None,
        subject=None,
        money=money(5),
        since=Instant(1),
        cites=("e",),
        candidates=(near,),
        left=kes(7),
    )
    assert breaks.break_in(breaks.break_text(found)) == found
