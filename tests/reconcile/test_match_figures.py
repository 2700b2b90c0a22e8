"""The figures that a matching goes by where nobody says otherwise, and its bounds, as literal
numbers: whoever changes one changes what is promised, and does so on purpose."""

from dataclasses import asdict
from typing import Any, Final

from reconcile.instants import DAY, Instant
from reconcile.matching import (
    bank,
    candidates,
    exchange,
    fallback,
    funds,
    group,
    outside,
    rules,
    tally,
    texts,
)
from reconcile.matching.books import Methods, Payout
from reconcile.matching.control import Control, ControlLine, Read
from reconcile.matching.rules import ExpectedFee, ExpectedRate, MatchRules
from tests.rows import for_each

FIGURES: Final[list[tuple[Any, str, Any]]] = [
    (texts, "SHORTEST", 4),
    (texts, "SHORTEST_DIGITS", 6),
    (texts, "WORDS_OF_ONE", 3),
    (texts, "MOST_WORDS", 200),
    (bank, "NAMED_WITHIN", 90 * DAY),
    (bank, "EARLY", DAY),
    (bank, "NAMES_REPORTED", 3),
    (candidates, "NEIGHBOURS", 4),
    (candidates, "MOST", 3),
    (candidates, "SEPARATORS", 1),
    (candidates, "FAR", 6),
    (candidates, "WEEK", 7),
    (exchange, "MICROS", 1_000_000),
    (fallback, "MOST_FITS", 3),
    (funds, "MOST_LEFT", 30_000),
    (group, "NOT_SEARCHED", (("searched", False),)),
    (outside, "TRANSFER_WITHIN", 14 * DAY),
    (rules, "CENTS", 100),
    (tally, "MOST_AT_ONCE", 10_000),
]


@for_each(("module", "name", "value"), FIGURES)
def test_a_figure_is_what_is_written(module: Any, name: str, value: Any) -> None:
    assert getattr(module, name) == value


def test_the_rules_that_hold_where_nobody_wrote_any() -> None:
    assert asdict(MatchRules()) == {
        "tolerances": (),
        "date_window": None,
        "settle_margin": 7 * DAY,
        "book_margin": DAY,
        "money_margin": DAY,
        "refund_margin": 10 * DAY,
        "fees": (),
        "bank_margin": 5 * DAY,
        "bank_payers": (),
        "other_business": (),
        "rates": (),
        "methods": asdict(Methods()),
        "currency": "KES",
    }
    fee = ExpectedFee(source="shop", currency="KES")
    assert (fee.per_million, fee.fixed, fee.tolerance) == (0, 0, 1)
    assert ExpectedRate(currency="USD", into="KES", micros=1).tolerance_per_million == 0


def test_what_nobody_counts_is_nothing() -> None:
    line = ControlLine(side="book", currency="KES", bucket="by_group", count=1, sum=2)
    assert (line.fee, line.net) == (0, 0)
    read = Read(side="book", currency="KES", count=1, sum=2)
    assert (read.fee, read.net) == (0, 0)
    assert Control(as_of=Instant(1)).unsearched == 0
    payout = Payout(payout_id="p", source="s", reference="r", currency="KES", minor=1, paid_at=None)
    assert payout.lines == 1
