"""Payments beside providers: the price, wherever it is compared, is what providers are due."""

import os
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from reconcile.instants import Instant
from reconcile.ledger.events import Delivery, Part
from reconcile.ledger.explain import ledger_document
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.plain import plain_answer
from reconcile.ledger.records import Record, Tender
from reconcile.matching.breaks import Break, at_risk, break_sentence
from reconcile.matching.ledger_lines import ledger_line_in, ledger_line_of, ledger_line_text
from reconcile.money import Money
from reconcile.transparency.evidence import history_document, ledger_of
from tests.reconcile import laws
from tests.reconcile.books_cases import case, causes, decided, stands
from tests.reconcile.books_truth import KES, Case
from tests.reconcile.build import DUE, POLICY, delivery, event, history, record, seconds
from tests.reconcile.strategies import deliveries, moments
from tests.rows import for_each

EXAMPLES = 20_000 if os.environ.get("TALLYHOOK_LONG") else 25


def card(minor: int, currency: str = "KES") -> Tender:
    return Tender(kind="gift_card", money=Money(minor=minor, currency=currency))


# --- the fold -------------------------------------------------------------------------------------


def _less(each: Record) -> Record:
    """Return the record of an order that costs what is due, without tenders."""
    return replace(each, money=each.due, tenders=())


@settings(max_examples=EXAMPLES, deadline=None, database=None, derandomize=True)
@given(
    deliveries(),
    st.lists(
        st.tuples(
            st.sampled_from((15_000, 20_000, 25_000)),
            st.lists(st.sampled_from((1, 5_000, 10_000)), max_size=2),
            st.sampled_from((0, 1, 60, 1_000)),
        ),
        min_size=1,
        max_size=3,
    ),
    moments(),
)
def test_an_order_with_tenders_is_as_one_that_costs_what_is_due(
    heard: frozenset[Delivery], placed: list[tuple[int, list[int], int]], as_of: Instant
) -> None:
    """Outcome, totals, findings, reasons and what is withheld are the same; the laws hold."""
    records = [
        record(
            f"rec_{n}",
            "order_placed",
            at,
            money=Money(minor=price, currency="KES"),
            tenders=tuple(map(card, parts)) if sum(parts) <= price else (),
        )
        for n, (price, parts, at) in enumerate(placed)
    ]
    ordered = sorted(records, key=lambda each: (each.recorded_at, each.record_id))
    # Another price of which as much is due is a new statement, which is cited.
    assume(all(one.due != other.due for one, other in pairwise(ordered)))
    given_ = History(order="ORD-1", deliveries=heard, records=frozenset(records))
    as_due = replace(given_, records=frozenset(map(_less, records)))
    with_tenders, without = (
        ledger_document(fold(each, policy=POLICY, as_of=as_of)) for each in (given_, as_due)
    )
    for found in with_tenders["findings"]:
        found["facts"].pop("tendered", None)
    for name in ("outcome", "fulfillable", "findings", "explanation", "entries", "attempts"):
        assert with_tenders[name] == without[name]
    totals: Any = dict(with_tenders["totals"])
    price, tenders = totals.pop("price", None), totals.pop("tenders", [])
    assert totals == without["totals"]
    if tenders:
        parts = [Money(minor=int(t["amount"].replace(".", "")), currency="KES") for t in tenders]
        due = int(totals["expected"]["amount"].replace(".", ""))
        assert int(price["amount"].replace(".", "")) == due + sum(each.minor for each in parts)
    laws.conservation_law(fold, given_, as_of=as_of)


def _tendered(*, captured: int) -> History:
    return history(
        record("rec_1", "order_placed", 0, money=DUE, tenders=(card(50_000),), dated=True),
        delivery(
            "d1", 5, event("e1", "succeeded", 5, payment="pay_1",
                           money=Money(minor=captured, currency="KES")),
        ),
    )  # fmt: skip


def test_a_history_with_tenders_is_read_back_as_it_was_written() -> None:
    known = _tendered(captured=100_000)
    document = history_document(known, policy=POLICY, as_of=seconds(9))
    assert document["records"][0]["tenders"] == [
        {"kind": "gift_card", "amount": "500.00", "currency": "KES"}
    ]
    assert ledger_of(document) == ledger_document(fold(known, policy=POLICY, as_of=seconds(9)))
    document["records"][0]["tenders"][0]["amount"] = "500.0"
    with pytest.raises(ValueError, match="written with its currency's decimals"):
        ledger_of(document)


def test_a_ledger_line_keeps_what_was_tendered() -> None:
    found = ledger_line_of(fold(_tendered(captured=100_000), policy=POLICY, as_of=seconds(9)))
    assert found is not None
    assert (found.tendered, found.expected) == (50_000, Money(minor=100_000, currency="KES"))
    assert ledger_line_in(ledger_line_text(found), as_of=seconds(9)) == found


def test_a_customer_hears_both_the_price_and_what_of_it_was_due() -> None:
    ledger = fold(_tendered(captured=90_000), policy=POLICY, as_of=seconds(9))
    assert plain_answer(ledger)[0] == (
        "Paid KES 900.00, but the price is KES 1,000.00 (KES 1,500.00 less KES 500.00 paid "
        "otherwise): KES 100.00 is missing."
    )


def test_an_amount_off_by_a_factor_is_told_with_what_was_tendered() -> None:
    ledger = fold(_tendered(captured=10_000_000), policy=POLICY, as_of=seconds(9))
    facts = next(dict(r.facts) for r in ledger.reasons if r.code == "amount_off_by_factor")
    assert (facts["expected"], facts["tendered"]) == (
        Money(minor=100_000, currency="KES"), Money(minor=50_000, currency="KES"),
    )  # fmt: skip
    plain = history(
        record("rec_1", "order_placed", 0, money=DUE, dated=True),
        delivery("d1", 5, event("e1", "succeeded", 5, payment="pay_1",
                                money=Money(minor=100 * DUE.minor, currency="KES"))),
    )  # fmt: skip
    ledger = fold(plain, policy=POLICY, as_of=seconds(9))
    facts = next(dict(r.facts) for r in ledger.reasons if r.code == "amount_off_by_factor")
    assert "tendered" not in facts


# --- matching -------------------------------------------------------------------------------------


def tendered(made: Case, minor: int) -> Case:
    """Give the case's orders a tender: what is due at providers is less by it."""
    made.takings = [
        replace(
            each,
            tendered=minor,
            expected=Money(minor=made.minor - minor, currency=KES),
        )
        for each in made.takings
    ]
    return made


@settings(max_examples=EXAMPLES, deadline=None, database=None, derandomize=True)
@given(st.integers(2_000, 90_000), st.integers(1, 1_900), st.booleans(), st.booleans())
def test_a_book_has_the_whole_price_or_what_was_due(
    price: int, part: int, whole: bool, refunded: bool
) -> None:
    made = case(minor=price)
    back = (made.taken(minor=part - price),) if refunded else ()
    made = tendered(made.pays(minor=price - part, more=back), part)
    made.books("refunded" if refunded else "paid", minor=price if whole else price - part)
    made.settles(gross=price - part)
    if refunded:
        made.settles(gross=part - price, kind="refund", fee=0)
    decisions, control = decided(made)
    assert [each for each in decisions if isinstance(each, Break)] == []
    assert stands(control, "book") == ["by_reference"]


@for_each(
    ("captured", "booked", "expected"),
    [
        (6_000, 9_000, []),
        (6_000, 6_000, []),
        (6_000, 8_000, [("amount_differs", 1_000, 0)]),
        (6_000, 9_500, [("amount_differs", 500, 500)]),
        (6_000, 5_500, [("amount_differs", 500, 0)]),
        (6_000, 6_400, [("amount_differs", 400, 400)]),
    ],
)
def test_the_nearer_reading_of_a_book_is_compared(
    captured: int, booked: int, expected: list[tuple[str, int, int]]
) -> None:
    """Expected are the breaks, with their money and the part of it that may be lost."""
    made = tendered(case(minor=9_000).pays(minor=captured), 3_000)
    made.books(minor=booked).settles(gross=captured)
    found = [each for each in decided(made)[0] if isinstance(each, Break)]
    assert [(each.cause, each.money.minor, at_risk(each)) for each in found] == expected


def test_a_break_says_what_was_paid_otherwise() -> None:
    made = tendered(case(minor=9_000).pays(minor=6_000), 3_000).books(minor=9_500)
    (found,) = [each for each in decided(made.settles(gross=6_000))[0] if isinstance(each, Break)]
    assert break_sentence(found) == (
        "KES 60.00 was captured, but the book says KES 95.00: KES 5.00 apart. KES 30.00 of the "
        "price was paid by other means."
    )


@pytest.mark.parametrize(
    ("part", "expected"),
    [(9_000, []), (3_000, [("book_paid_not_received", 6_000)])],
    ids=["all", "a part"],
)
def test_a_book_that_says_paid_is_right_about_what_was_paid_otherwise(
    part: int, expected: list[tuple[str, int]]
) -> None:
    made = tendered(case(minor=9_000).untouched(), part).books()
    decisions, control = decided(made)
    found = [(each.cause, each.money.minor) for each in decisions if isinstance(each, Break)]
    assert found == expected
    assert causes(decisions) == [cause for cause, _ in expected]
    assert stands(control, "book") == ([cause for cause, _ in expected] or ["nothing_due"])


# --- on top of the price --------------------------------------------------------------------------


@for_each("back", [0, 1_000, 1_150])
def test_a_book_has_the_price_and_a_statement_the_whole(back: int) -> None:
    tip = Part(kind="tip", money=Money(minor=150, currency=KES))
    made = case(minor=1_000)
    more = (made.taken(minor=-back),) if back else ()
    made.pays(minor=1_150, more=more, outcome="refunded" if back else "succeeded")
    made.takings = [replace(each, on_top=(tip,)) for each in made.takings]
    made.books("refunded" if back else "paid").settles(gross=1_150)
    if back:
        made.settles(gross=-back, kind="refund", fee=0)
    decisions, control = decided(made)
    assert [each for each in decisions if isinstance(each, Break)] == []
    assert stands(control, "book") == ["by_reference"]


def test_an_order_states_what_is_on_top_and_keeps_it_in_evidence_and_in_its_line() -> None:
    parts = (
        Part(kind="base", money=Money(minor=100_000, currency="KES")),
        Part(kind="tip", money=Money(minor=2_000, currency="KES")),
        Part(kind="fee", money=Money(minor=360, currency="KES")),
    )
    known = history(
        record("rec_1", "order_placed", 0, money=Money(minor=100_000, currency="KES")),
        delivery(
            "d1", 5, event("e1", "succeeded", 5, payment="pay_1", parts=parts,
                           money=Money(minor=102_360, currency="KES")),
        ),
    )  # fmt: skip
    ledger = fold(known, policy=POLICY, as_of=seconds(9))
    document = ledger_document(ledger)
    assert document["totals"]["on_top"] == [
        {"kind": "tip", "amount": "20.00", "currency": "KES"},
        {"kind": "fee", "amount": "3.60", "currency": "KES"},
    ]
    assert document["explanation"][0] == (
        "Paid in full: KES 1,023.60 captured, KES 23.60 of it on top of the price of KES 1,000.00 "
        "due [e1, rec_1]."
    )
    discounts = replace(POLICY, provider_discount_percent=10)
    written = history_document(known, policy=discounts, as_of=seconds(9))
    assert written["policy"]["provider_discount_percent"] == 10
    assert ledger_of(written) == document
    found = ledger_line_of(ledger)
    assert found is not None
    assert found.on_top == ledger.came_on_top
    assert ledger_line_in(ledger_line_text(found), as_of=seconds(9)) == found


@for_each(
    ("captured", "base", "sentence"),
    [
        (100_000, 90_000, (
            "Paid KES 1,000.00 (KES 100.00 of it on top), but the price is KES 1,000.00: KES "
            "100.00 is missing."
        )),
        (130_000, 110_000, "Paid KES 100.00 too much: KES 1,300.00 (KES 200.00 of it on top) for a "
                           "price of KES 1,000.00."),
    ],
)  # fmt: skip
def test_a_customer_hears_what_was_on_top(captured: int, base: int, sentence: str) -> None:
    part = Part(kind="base", money=Money(minor=base, currency="KES"))
    known = history(
        record("rec_1", "order_placed", 0, money=Money(minor=100_000, currency="KES")),
        delivery(
            "d1", 5, event("e1", "succeeded", 5, payment="pay_1", parts=(part,),
                           money=Money(minor=captured, currency="KES")),
        ),
    )  # fmt: skip
    assert plain_answer(fold(known, policy=POLICY, as_of=seconds(9)))[0] == sentence


def test_an_order_says_that_a_discount_was_not_accepted() -> None:
    part = Part(kind="discount", money=Money(minor=10_000, currency="KES"))
    known = history(
        record("rec_1", "order_placed", 0, money=Money(minor=100_000, currency="KES")),
        delivery(
            "d1", 5, event("e1", "succeeded", 5, payment="pay_1", parts=(part,),
                           money=Money(minor=90_000, currency="KES")),
        ),
    )  # fmt: skip
    refused, accepted = (
        ledger_document(
            fold(
                known,
                policy=replace(POLICY, provider_discount_percent=percent),
                as_of=seconds(9),
            )
        )
        for percent in (9, 10)
    )
    assert refused["explanation"][0] == (
        "Unresolved: KES 900.00 captured, but KES 910.00 is due; a discount of KES 10.00 at the "
        "provider does not count, as TALLYHOOK_ACCEPT_PROVIDER_DISCOUNTS does not accept it "
        "[e1, rec_1]."
    )
    assert accepted["explanation"][0] == (
        "Paid in full: KES 900.00 captured of KES 900.00 due, after a discount of KES 100.00 at "
        "the provider [e1, rec_1]."
    )
    assert accepted["totals"]["discount"] == {"amount": "100.00", "currency": "KES"}


def test_a_refunded_order_says_what_on_top_was_not_given_back() -> None:
    part = Part(kind="base", money=Money(minor=100_000, currency="KES"))
    known = history(
        record("rec_1", "order_placed", 0, money=Money(minor=100_000, currency="KES")),
        delivery(
            "d1", 5, event("e1", "succeeded", 5, payment="pay_1", parts=(part,),
                           money=Money(minor=102_360, currency="KES")),
        ),
        delivery(
            "d2", 6, event("e2", "refunded", 6, payment="pay_1", movement="re_1",
                           money=Money(minor=100_000, currency="KES")),
        ),
    )  # fmt: skip
    ledger = fold(known, policy=POLICY, as_of=seconds(9))
    assert plain_answer(ledger)[0] == (
        "Paid KES 1,023.60, and all of it but KES 23.60 on top of the price has been given back."
    )
    assert ledger_document(ledger)["explanation"][0] == (
        "Refunded: all of the KES 1,023.60 captured but KES 23.60 on top of the price has been "
        "given back [e1, e2, rec_1]."
    )
    assert ledger.held_for_price == Money(minor=0, currency="KES")


def test_of_two_payments_of_the_price_one_is_owed_back_whatever_tax_they_name() -> None:
    price = Money(minor=100_000, currency="KES")
    tax = Part(kind="tax", money=Money(minor=20_000, currency="KES"))
    paid = [
        event(f"e{n}", "succeeded", n, payment=f"pay_{n}", parts=(tax,), money=price)
        for n in (1, 2)
    ]
    known = history(
        record("rec_1", "order_placed", 0, money=price),
        *[delivery(f"d{n}", n, each) for n, each in enumerate(paid, 1)],
    )
    ledger = fold(known, policy=POLICY, as_of=seconds(9))
    assert (ledger.owed, ledger.on_top) == (price, ())
