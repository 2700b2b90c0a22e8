"""Payouts against bank lines: each bound to its last moment, minor unit, character and word."""

from __future__ import annotations

import pytest

from reconcile.instants import DAY, TICK
from reconcile.matching.bank import BankLine, Payout
from reconcile.matching.rules import MatchRules, Tolerance
from tests.reconcile.test_bank import PO, T, booked, breaks, leg, paid, stands

DAYS_90 = 90 * DAY
TICKS: dict[str, tuple[tuple[Payout | BankLine, ...], str, str]] = {
    "a day before the payout": (
        (PO, booked("a", 50_000, booked_at=T + 9 * DAY)), "bnk_a.1", "by_date_window"),
    "more than a day before it": (
        (PO, booked("a", 50_000, booked_at=T + 9 * DAY - TICK)), "bnk_a.1", "bank_line_unknown"),
    "the last moment of the margin": (
        (PO, booked("a", 50_000, booked_at=T + 15 * DAY)), "bnk_a.1", "by_date_window"),
    "after the margin": (
        (PO, booked("a", 50_000, booked_at=T + 15 * DAY + TICK)), "bnk_a.1", "bank_line_unknown"),
    "named at the end of 90 days": (
        (PO, booked("a", 50_000, booked_at=T + 10 * DAY + DAYS_90, text="PO-100200")),
        "bnk_a.1", "by_reference"),
    "named after 90 days": (
        (PO, booked("a", 50_000, booked_at=T + 10 * DAY + DAYS_90 + TICK, text="PO-100200")),
        "pyt_PO-100200", "payout_not_in_bank"),
    "named 90 days before": (
        (PO, booked("a", 50_000, booked_at=T + 10 * DAY - DAYS_90, text="PO-100200")),
        "bnk_a.1", "by_reference"),
    "paid out at the bank's first moment": ((paid("PO-1", 5),), "pyt_PO-1", "payout_not_in_bank"),
    "paid out before it": ((paid("PO-1", 5, paid_at=T - TICK),), "pyt_PO-1", "not_covered"),
    "due at the bank's last moment": ((paid("PO-1", 5, 54),), "pyt_PO-1", "payout_not_in_bank"),
    "due after it": (
        (paid("PO-1", 5, paid_at=T + 54 * DAY + TICK),), "pyt_PO-1", "awaiting_bank"),
    "due now": (
        (paid("PO-1", 5, 55), booked("more", -1, 70)), "pyt_PO-1", "payout_not_in_bank"),
    "due in a moment": (
        (paid("PO-1", 5, paid_at=T + 55 * DAY + TICK), booked("more", -1, 70)),
        "pyt_PO-1", "awaiting_bank"),
    "booked at the first payout": ((booked("a", 5),), "bnk_a.1", "bank_line_unknown"),
    "booked before it": ((booked("a", 5, booked_at=T - TICK),), "bnk_a.1", "not_covered"),
    "booked at the last payout": ((booked("a", 5, 50),), "bnk_a.1", "bank_line_unknown"),
    "booked after it": (
        (booked("a", 5, booked_at=T + 50 * DAY + TICK),), "bnk_a.1", "awaiting_statement"),
    "a line of nothing": ((booked("a", 0, 20),), "bnk_a.1", "other_business"),
}  # fmt: skip
"""A bound and the moment beyond it: who is looked at, and where that stands."""


@pytest.mark.parametrize("name", TICKS)
def test_each_bound_is_met_to_the_moment(name: str) -> None:
    """Dates of payouts and of the bank, and how far both reach."""
    both, who, expected = TICKS[name]
    assert stands(leg(*both))[who] == expected


@pytest.mark.parametrize(("minor", "bucket"), [
    (49_899, "payout_amount_differs"), (49_900, "by_tolerance"), (50_000, "by_reference"),
    (50_100, "by_tolerance"), (50_101, "payout_amount_differs"),
])  # fmt: skip
def test_a_tolerance_is_met_to_the_minor_unit(minor: int, bucket: str) -> None:
    """In both directions; what differs is left to be settled, whole."""
    rules = MatchRules(tolerances=(Tolerance(currency="KES", minor=100),))
    found = leg(PO, booked("a", minor, 12, text="PO-100200"), rules=rules)
    assert set(stands(found).values()) == {bucket}
    missing = [each.minor for told in breaks(found) for each in told.left or ()]
    assert missing == ([50_000 - minor] if bucket == "payout_amount_differs" else [])


@pytest.mark.parametrize("currency", ["USD", "KES"])
@pytest.mark.parametrize("apart", [-1, 1])
def test_a_currency_without_a_tolerance_has_none_in_the_bank(currency: str, apart: int) -> None:
    """Where the rules have one of another, or none at all."""
    some = (Tolerance(currency="JPY", minor=100),)
    for rules in (MatchRules(), MatchRules(tolerances=some)):
        payout = paid("PO-100200", 50_000, 10, currency)
        found = leg(payout, booked("a", 50_000 + apart, 12, currency, text="PO-100200"),
                    rules=rules)  # fmt: skip
        assert set(stands(found).values()) == {"payout_amount_differs"}


@pytest.mark.parametrize(("reference", "text", "named"), [
    ("PAY1", "RENT PAY1", True),
    ("PY1", "RENT PY1", False),
    ("123456", "RENT 123456", True),
    ("12345", "RENT 12345", False),
    ("123-456", "RENT 123-456", True),
    ("ONE TWO THREE", "OF ONE TWO THREE ALL", True),
    ("ONE TWO THREE FOUR", "OF ONE TWO THREE FOUR", False),
    ("ONE TWO THREE FOUR", "ONE TWO THREE FOUR", True),  # the text whole
    ("PAYOUT: SHOP, NOV (2)", "PAYOUT: SHOP, NOV (2)", True),
    ("PO-77", "x " * 199 + "PO-77 y", True),
    ("PO-77", "x " * 200 + "PO-77 y", False),
])  # fmt: skip
def test_what_names_a_payout(reference: str, text: str, named: bool) -> None:
    """In a text or as the bank's own reference: how short, and of how many words."""
    payout = paid("named", 50_000, 10, reference=reference)
    for told in ({"text": text}, {"reference": text}, {"reference": "none", "text": text}):
        found = leg(payout, booked("a", 50_000, 40, **told))
        assert stands(found)["pyt_named"] == ("by_reference" if named else "payout_not_in_bank")
