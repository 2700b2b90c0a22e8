"""Where a break stands is a fold of what runs saw and people did."""

from __future__ import annotations

from typing import Any

import pytest

from reconcile.instants import EARLIEST
from reconcile.matching.breaks import Life, Step, life
from reconcile.money import Money


def step(kind: Any, minor: int = 100, **fields: Any) -> Step:
    """One step; its instant does not matter here."""
    by_person = kind in ("assigned", "commented", "accepted", "matched", "unmatched", "settled")
    content = {"by": "ann", "reason": "because"} if by_person else {"run": 7}
    return Step(
        at=EARLIEST, kind=kind, money=Money(minor=minor, currency="KES"), **{**content, **fields}
    )


OPENED = step("opened", run=1)
ACCEPTED = step("accepted")
CLOSED = step("closed", cites=("evt_1", "bok_1.2"))


def stood(*steps: Step) -> tuple[str, str | None, str | None]:
    """(state, assignee, settling)"""
    found: Life = life(steps)
    return (found.state, found.assignee, found.settling)


@pytest.mark.parametrize(
    ("steps", "stands"),
    [
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
        ([OPENED, step("matched", value="stm_1")], ("open", None, None)),
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
    steps: list[Step], stands: tuple[str, str | None, str | None]
) -> None:
    """The last word on each question counts, and new money asks it again."""
    assert stood(*steps) == stands


def test_a_closed_break_says_which_evidence_closed_it() -> None:
    """In its sentence and by its ids; seen again, it says so."""
    closed = life([OPENED, CLOSED])
    assert closed.closed_by == ("evt_1", "bok_1.2")
    assert "evt_1, bok_1.2" in closed.because
    assert "nothing was said" in life([OPENED, step("closed")]).because
    again = life([OPENED, CLOSED, step("reopened", run=9)])
    assert (again.closed_by, "run 9" in again.because.lower()) == ((), True)


def test_an_accepted_break_whose_money_changed_says_both_amounts() -> None:
    """So that whoever accepted it sees what is different."""
    changed = life([OPENED, step("accepted", second="bob"), step("changed", 150_000)])
    assert "KES 1.00" in changed.because
    assert "KES 1,500.00" in changed.because
    assert "ann and bob" in life([OPENED, step("accepted", second="bob")]).because


def test_what_was_decided_while_a_run_saw_other_money_is_to_be_decided_again() -> None:
    """A run is dated when it began: who accepted during it had seen what the one before told."""
    overtaken = life([OPENED, step("changed", 150_000), step("accepted")])
    assert overtaken.state == "open"
    assert "KES 1.00" in overtaken.because
    assert "KES 1,500.00" in overtaken.because
