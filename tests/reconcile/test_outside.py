"""Orders paid outside providers against bank lines: what a transfer pays, and what stays open."""

from dataclasses import replace
from typing import Any

from reconcile.instants import DAY
from reconcile.matching.bank import BankLeg
from reconcile.matching.books import BankLine, BookLine
from reconcile.matching.breaks import Break, break_sentence
from reconcile.matching.decide import Match
from reconcile.matching.period import Period
from reconcile.matching.rules import HandMatch, MatchRules
from reconcile.matching.texts import order_names
from reconcile.money import Money
from tests.reconcile.test_bank import AS_OF, COVERAGE, EDGES, IN_BANK, T, booked
from tests.rows import for_each


def order(name: str, minor: int, day: int = 10, **more: Any) -> BookLine:
    given: dict[str, Any] = {"method": "bank transfer", "status": "paid"}
    given |= {"placed_at": T + day * DAY, **more}
    money = Money(minor=minor, currency="KES")
    line_id = f"bok_{name.strip('#').lower()}.1"
    return BookLine(line_id=line_id, reference=name, kind="order", money=money, **given)


def leg(
    *both: BookLine | BankLine, hands: tuple[tuple[str, str], ...] = (), **rules: Any
) -> BankLeg:
    found = BankLeg(
        payouts=EDGES,
        lines=[*IN_BANK, *[each for each in both if isinstance(each, BankLine)]],
        orders=[each for each in both if isinstance(each, BookLine)],
        rules=MatchRules(**rules),
        as_of=AS_OF,
        coverage=COVERAGE,
        hands=[HandMatch(one=one, other=other) for one, other in hands],
    )
    assert found.control().holds
    return found


def paid(found: BankLeg) -> dict[str, tuple[list[str], str | None]]:
    """Return for each bank line of an order the orders that it pays, and how they were joined."""
    return {
        name: ([each.reference for each in transfer.orders], transfer.kind)
        for transfer in found.transfers
        for name in transfer.lines
    }


@for_each(("reference", "names"), [
    ("#10740", {"#10740", "10740"}),
    ("ORD-10740", {"ord10740", "10740"}),
    ("A-12", set()),
    ("A-123", {"a123"}),
    ("#123", {"#123"}),
    ("#1074", {"#1074", "1074"}),
    ("10740-A", {"10740a"}),
    ("A-1234567890123456789", {"a1234567890123456789"}),
    ("20261105", set()),
])  # fmt: skip
def test_a_text_names_an_order_by_its_reference_or_its_number(
    reference: str, names: set[str]
) -> None:
    assert order_names(reference) == names


@for_each(("orders", "lines", "found"), [
    ([order("#10740", 5_000)], [booked("a", 5_000, 12, text="Bestellung #10740 Danke")],
     {"bnk_a.1": (["#10740"], None)}),
    ([order("#10740", 5_000)], [booked("a", 4_000, 12, text="Bestellung #10740")], {}),
    ([order("#10740", 1)], [booked("a", 1, 12, text="10740")], {"bnk_a.1": (["#10740"], None)}),
    ([order("#10740", 0)], [booked("a", 0, 12, text="10740")], {}),
    ([order("#10740", 1)], [booked("a", 1, 12)], {"bnk_a.1": (["#10740"], "by_date_window")}),
    ([order("#10740", 0)], [booked("a", 0, 12)], {}),
    ([order("#10740", 5_000, method="gift card + bacs")],
     [booked("a", 4_000, 12, text="Bestellung 10740")], {"bnk_a.1": (["#10740"], None)}),
    ([order("#10740", 5_000, method="gift card + bacs")],
     [booked("a", 5_000, 12, text="10740")], {"bnk_a.1": (["#10740"], None)}),
    ([order("#10740", 5_000, method="gift card + bacs")],
     [booked("a", 5_001, 12, text="10740")], {}),
    ([order("#10740", 5_000), order("#10741", 700)],
     [booked("a", 5_700, 12, text="10740 und 10741")],
     {"bnk_a.1": (["#10740", "#10741"], "by_group")}),
    ([order("#10740", 5_000)],
     [booked("a", 2_000, 12, text="10740 Rate 1"), booked("b", 3_000, 30, text="10740 Rate 2")],
     {"bnk_a.1": (["#10740"], "by_group"), "bnk_b.1": (["#10740"], "by_group")}),
    ([order("#10740", 5_000, status="unpaid")], [booked("a", 5_000, 12, text="10740")], {}),
    ([order("#10740", 5_000, method="stripe")], [booked("a", 5_000, 12, text="10740")], {}),
    ([order("#10740", 5_000)], [booked("a", 5_000, 20)],
     {"bnk_a.1": (["#10740"], "by_date_window")}),
    ([order("#10740", 5_000)], [booked("a", 5_000, 25)], {}),
    ([order("#10740", 5_000, method="cash")], [booked("a", 5_000, 11)], {}),
    ([order("#10740", 5_000), order("#10741", 5_000)], [booked("a", 5_000, 11)], {}),
])  # fmt: skip
def test_a_bank_line_pays_what_it_names_else_what_alone_fits(
    orders: list[BookLine],
    lines: list[BankLine],
    found: dict[str, tuple[list[str], str | None]],
) -> None:
    assert paid(leg(*orders, *lines)) == found


def test_a_line_of_a_provider_pays_no_order_by_its_date() -> None:
    line = booked("a", 5_000, 11, counterparty="Stripe")
    assert paid(leg(order("#10740", 5_000), line, bank_payers=("Stripe",))) == {}
    assert paid(leg(order("#10740", 5_000), line, bank_payers=("Adyen",))) != {}


def test_a_text_of_the_rules_marks_other_business() -> None:
    line = booked("a", 5_000, 11, counterparty="Landlord Ltd, Nairobi")
    for texts, bucket in (((), "bank_line_unknown"), (("landlord",), "other_business")):
        found = leg(line, other_business=texts)
        assert [each.bucket for each in found.alone if each.line == line] == [bucket]


def test_a_persons_match_counts_whatever_the_method_and_a_difference_stays_a_break() -> None:
    line = booked("a", 4_970, 12)
    found = leg(order("#10740", 5_000, method=None), line, hands=(("bok_10740", "bnk_a"),))
    assert paid(found) == {"bnk_a.1": (["#10740"], "by_hand")}
    (apart,) = [each for each in found.decisions() if isinstance(each, Break)]
    assert (apart.cause, apart.money.minor) == ("amount_differs", 30)
    assert break_sentence(apart) == (
        "The bank booked KES 49.70 for the order, but the order book says KES 50.00: KES 0.30 "
        "apart."
    )
    whole = leg(order("#10740", 4_970), replace(line), hands=(("bnk_a", "bok_10740"),))
    assert not [each for each in whole.decisions() if isinstance(each, Break)]


def test_lines_and_orders_that_people_joined_are_one_transfer() -> None:
    lines = booked("a", 4_000, 12), booked("b", 1_700, 11)
    hands = (("bok_10740", "bnk_a"), ("bnk_b", "bok_10740"), ("bnk_b", "bok_10741"))
    for second, minor in ((700, 0), (701, 1)):
        found = leg(order("#10740", 5_000), order("#10741", second), *lines, hands=hands)
        (transfer,) = found.transfers
        names = ("bok_10740.1", "bok_10741.1", "bnk_a.1", "bnk_b.1")
        assert (*[each.line_id for each in transfer.orders], *transfer.lines) == names
        (decision,) = [each for each in found.decisions() if each.money.minor in (5_700, 1)]
        if not minor:
            money = Money(minor=5_700, currency="KES")
            lines_of = tuple(sorted(names))
            assert decision == Match(kind="by_hand", order="#10740", lines=lines_of, money=money)
            continue
        assert isinstance(decision, Break)
        assert (decision.order, decision.subject, decision.since) == (
            "#10740",
            "bnk_a",
            T + 11 * DAY,
        )
        assert (decision.cites, decision.money.minor) == (names, minor)


def test_a_transfer_in_another_currency_pays_no_order() -> None:
    line = booked("a", 5_000, 12, "USD")
    assert paid(leg(order("#10740", 5_000), line, hands=(("bok_10740", "bnk_a"),))) == {}


@for_each(("at", "own"), [(11, True), (12, False)])
def test_a_transfer_belongs_to_the_period_of_its_first_line(at: int, own: bool) -> None:
    lines = booked("a", 2_000, 20, text="10740"), booked("b", 3_000, 11, text="10740")
    found = leg(order("#10740", 5_000), *lines)
    period = Period(since=T + at * DAY)
    kinds = [each.kind for each in found.decisions(period) if isinstance(each, Match)]
    assert kinds == ["by_group"] * own
    placed = [one for bucket, one in found.placed(period) if bucket == "outside_providers"]
    assert placed == [*lines[::-1]] * own
