"""Rows of ledger lines and of books: what a flat row says, and what the lines of a reference say
together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconcile.instants import DAY, HOUR, Instant
from reconcile.ledger.vocabulary import FINDING_CODES
from reconcile.matching.books import BookKind, BookStatus
from reconcile.matching.ledger_lines import Doubted, LedgerLine
from reconcile.matching.rows import (
    WEIGHTY,
    BookRow,
    LedgerLineRow,
    claims,
    ledger_line_row,
    lines_of,
    name_of,
    subject_of,
)
from tests.reconcile.books_cases import AT, case
from tests.reconcile.books_truth import SOURCE, kes

PAID = case().pays().takings[0]
UNPAID = case().untouched().takings[0]


def test_a_plain_order_is_flat() -> None:
    """Its capture, with the date that the provider gave it."""
    assert ledger_line_row(PAID) == LedgerLineRow(
        "ord1", "ORD-1", 1_500, "KES", SOURCE, "pay_ORD-1", "evt_pay_ORD-1_paid", AT + HOUR, AT
    )


@pytest.mark.parametrize(("expected", "currency"), [(kes(1_500), "KES"), (None, "")])
def test_an_order_that_nobody_paid_is_flat(expected: Any, currency: str) -> None:
    """In the currency of its price, where it has one."""
    row = ledger_line_row(replace(UNPAID, expected=expected))
    assert row == LedgerLineRow("ord1", "ORD-1", 0, currency, "", "", "", AT, AT)


def test_an_order_that_is_not_plain_has_its_line_beside_it() -> None:
    """And nothing of it is flat but its key, its reference, its price's currency and its date."""
    odd = replace(PAID, owed=(kes(1),))
    assert ledger_line_row(odd) == LedgerLineRow("ord1", "ORD-1", 0, "KES", "", "", "", AT, AT, odd)


TAKEN = PAID.taken[0]


@pytest.mark.parametrize(("line", "plain"), [
    (PAID, True),
    (UNPAID, True),
    (replace(UNPAID, outcome="unresolved"), False),
    (replace(UNPAID, outcome="succeeded"), True),
    (replace(PAID, outcome="partially_refunded"), False),
    (replace(PAID, owed=(kes(1),)), False),
    (replace(UNPAID, owed=(kes(1),)), False),
    (replace(PAID, doubted=(Doubted(source=SOURCE, payment="p"),)), False),
    (replace(PAID, taken=(TAKEN, TAKEN)), False),
    (replace(PAID, taken=(replace(TAKEN, kind="refunded"),)), False),
    (replace(PAID, taken=(replace(TAKEN, minor=1),)), True),
    (replace(PAID, taken=(replace(TAKEN, minor=0),)), False),
    (replace(PAID, taken=(replace(TAKEN, minor=-1),)), False),
    (replace(PAID, taken=(replace(TAKEN, cites=("a", "b")),)), False),
    (replace(PAID, taken=(replace(TAKEN, cites=()),)), False),
])  # fmt: skip
def test_which_order_is_plain(line: LedgerLine, plain: bool) -> None:
    """One capture that rests on one event, or no money; and nothing odd."""
    assert (ledger_line_row(line).whole is None) == plain


@pytest.mark.parametrize("code", FINDING_CODES)
def test_a_finding_that_bears_on_a_match_is_not_plain(code: Any) -> None:
    """With money or without."""
    for line in (PAID, UNPAID):
        row = ledger_line_row(replace(line, findings=(code,)))
        assert (row.whole is not None) == (code in WEIGHTY)


@pytest.mark.parametrize(("told", "subject", "name"), [
    ("bok_1.2", "bok_1", "bok_1"),
    ("stm_1.2.3", "stm_1", "stm_1"),
    ("bnk_1", "bnk_1", "bnk_1"),
    ("ORD-1.2", "ORD-1", "ORD-1.2"),
])  # fmt: skip
def test_what_a_line_is_called_from_one_version_to_the_next(
    told: str, subject: str, name: str
) -> None:
    """All before the dot; of an order's reference the dot is a part."""
    assert (subject_of(told), name_of(told)) == (subject, name)


def row(
    line_id: str = "b1",
    minor: int = 5,
    status: BookStatus | None = "paid",
    *,
    kind: BookKind = "order",
    refunded: int | None = None,
    placed_at: Instant | None = AT,
    refunded_at: Instant | None = None,
    key: str = "a",
) -> BookRow:
    """A line of a book."""
    return BookRow(
        key, line_id, key, kind, minor, "KES", placed_at, status, None, refunded, refunded_at
    )


@pytest.mark.parametrize(("line", "claimed"), [
    (row(), True),
    (row(status="refunded"), True),
    (row(status="unpaid"), False),
    (row(status="canceled"), False),
    (row(status="canceled", refunded=5), False),
    (row(status=None), False),
    (row(status=None, refunded=0), False),
    (row(status=None, refunded=1), True),
    (row(status=None, kind="entry"), True),
    (row(status="unpaid", kind="entry"), False),
])  # fmt: skip
def test_which_line_says_that_money_moved(line: BookRow, claimed: bool) -> None:
    """By its status; without one, an entry, or a line of which some was refunded."""
    assert claims(line) == claimed
    assert lines_of([line]).claims == claimed


@pytest.mark.parametrize(("statuses", "said", "counted"), [
    (("paid", "paid"), "paid", 2),
    (("refunded", "refunded"), "refunded", 2),
    (("refunded", "paid"), "paid", 2),
    (("paid", "unpaid", None, "canceled"), "paid", 1),
    (("unpaid", "refunded"), "refunded", 1),
    (("unpaid", None), "nothing", 2),
    (("canceled", None), "nothing", 1),
    (("canceled", "unpaid"), "unpaid", 1),
    (("unpaid", "unpaid"), "unpaid", 2),
    (("canceled", "canceled"), "canceled", 2),
    ((None,), "nothing", 1),
])  # fmt: skip
def test_what_the_lines_of_a_reference_say_together(
    statuses: tuple[BookStatus | None, ...], said: str, counted: int
) -> None:
    """What claims nothing stands aside where something is claimed; what is canceled where
    something is not."""
    lines = lines_of([row(f"b{n}", status=status) for n, status in enumerate(statuses)])
    assert (lines.said, len(lines.rows), len(lines.rest)) == (
        said,
        counted,
        len(statuses) - counted,
    )


@pytest.mark.parametrize(("rows", "charge", "credit", "retold"), [
    ([row("b1", 5), row("b2", 3)], 8, 0, False),
    ([row("b1", 5), row("b2", -3)], 5, 3, False),
    ([row("b1", 5), row("b2", 0)], 5, 0, False),
    ([row("b1", 5), row("b2", 1)], 6, 0, False),
    # A line that says refunded tells what became of the paid one's charge, if that is as much.
    ([row("b1", 5), row("b2", 5, "refunded")], 5, 5, True),
    ([row("b1", 5), row("b2", 6, "refunded")], 11, 6, False),
    ([row("b1", 5), row("b2", 6, "refunded", refunded=5)], 5, 5, True),
    ([row("b1", 5), row("b2", 2, "refunded"), row("b3", 3, "refunded")], 5, 5, True),
    ([row("b1", 5), row("b2", 2, "refunded"), row("b3", 4, "refunded")], 11, 6, False),
    ([row("b1", 1), row("b2", 1, "refunded")], 1, 1, True),
    ([row("b1", 5), row("b2", 5, "refunded", key="b")], 10, 5, False),  # of another reference
    ([row("b1", 5, "refunded")], 5, 5, False),
    ([row("b1", 5, "refunded"), row("b2", 5, "refunded")], 10, 10, False),
    # What is negative went back itself, and is no charge.
    ([row("b1", 5), row("b2", -5, "refunded")], 5, 5, False),
    ([row("b1", 5), row("b2", -1), row("b3", 6, "refunded")], 11, 7, False),
])  # fmt: skip
def test_what_the_lines_of_a_reference_charge_and_credit(
    rows: list[BookRow], charge: int, credit: int, retold: bool
) -> None:
    """In whatever order they come."""
    for told in (rows, rows[::-1]):
        lines = lines_of(told)
        assert (lines.charge, lines.credit, lines.retold) == (charge, credit, retold)
    apart = lines_of(rows, apart=True)
    assert apart.charge == sum(each.minor for each in rows if each.minor > 0)
    assert (apart.credit, apart.retold) == (credit, False)


LATER = Instant(AT + DAY)


@pytest.mark.parametrize(("rows", "placed_at", "refunded_at"), [
    ([row()], AT, None),
    ([row("b1"), row("b2", placed_at=LATER)], LATER, None),
    ([row("b1", placed_at=LATER), row("b2", placed_at=None)], LATER, None),
    ([row(placed_at=None)], None, None),
    ([row(refunded=1)], AT, AT),
    ([row(refunded=1, refunded_at=LATER)], AT, LATER),
    ([row(refunded=0, refunded_at=LATER)], AT, None),
    ([row(minor=-1, placed_at=LATER)], LATER, LATER),
    ([row("b1", refunded=1, refunded_at=LATER), row("b2", refunded=1)], AT, LATER),
    ([row("b1", refunded=1, placed_at=None)], None, None),
])  # fmt: skip
def test_the_latest_dates_of_a_reference_count(
    rows: list[BookRow], placed_at: Instant | None, refunded_at: Instant | None
) -> None:
    """Of what went back its own, else that of its line."""
    lines = lines_of(rows)
    assert (lines.placed_at, lines.refunded_at) == (placed_at, refunded_at)


def test_a_reference_is_named_by_its_first_line() -> None:
    """By the ids, whichever came first."""
    lines = lines_of([row("b2.1", 3), row("b1.7", 5)._replace(reference="A", group="G")])
    assert (lines.reference, lines.subject, lines.ids) == ("A", "b1", ("b1.7", "b2.1"))
    assert (lines.groups, lines.currencies) == ({"G"}, {"KES"})
    assert lines.money == kes(8)
    assert lines_of([row(minor=-3)]).money == kes(3)
