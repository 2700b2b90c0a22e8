"""Details of ledgers and matchings that no table of scenarios shows: names and order of facts,
amounts of nothing, and the words by which money going back is known."""

from reconcile.ledger.events import Delivery, speaks_of_money_going_back
from reconcile.ledger.explain import facts_document
from reconcile.ledger.fold import fold
from reconcile.ledger.ledger import Facts, Ledger
from reconcile.ledger.records import Record
from reconcile.matching.breaks import Break
from reconcile.matching.causes import BreakCause
from reconcile.matching.rules import HandMatch, hand_match
from reconcile.money import Money
from tests.reconcile.books_cases import case, decided
from tests.reconcile.build import POLICY, delivery, event, history, record, seconds
from tests.reconcile.test_match_rest import WINDOW
from tests.rows import for_each


def kes(minor: int) -> Money:
    return Money(minor=minor, currency="KES")


PLACED = record("r1", "order_placed", 0, money=kes(1_500))


def paid(name: str, at: int, minor: int | None, payment: str | None = "pay_1") -> Delivery:
    money = None if minor is None else kes(minor)
    return delivery(f"d_{name}", at, event(name, "succeeded", at, payment=payment, money=money))


def disputed(name: str, claim: str, at: int, minor: int | None) -> Delivery:
    money = None if minor is None else kes(minor)
    said = event(name, claim, at, payment="pay_1", movement="dp_1", money=money)  # type: ignore[arg-type]
    return delivery(f"d_{name}", at, said)


def folded(*members: Delivery | Record) -> Ledger:
    return fold(history(*members), policy=POLICY, as_of=seconds(100))


def facts(ledger: Ledger, code: str) -> dict[str, object]:
    (found,) = [each for each in ledger.reasons if each.code == code]
    return dict(found.facts)


# --- the ledger -----------------------------------------------------------------------------------


def test_amounts_that_conflict_are_counted_from_one_the_least_first() -> None:
    counted = facts(folded(PLACED, paid("e1", 5, 1_500), paid("e2", 6, 1_400)), "amounts_conflict")
    assert [(name, counted[name]) for name in counted if name.startswith("amount_")] == [
        ("amount_1", kes(1_400)),
        ("amount_2", kes(1_500)),
    ]
    prices = [
        delivery(
            f"d{n}", n, event(f"e{n}", "succeeded", n, payment=f"pay_{n}", money=kes(9),
                              order_money=kes(minor))
        )
        for n, minor in ((5, 1_500), (6, 1_400))
    ]  # fmt: skip
    assert facts(folded(*prices), "order_amounts_conflict") == {
        "amount_1": kes(1_400),
        "amount_2": kes(1_500),
    }


def test_a_dispute_that_gave_all_back_is_no_entry() -> None:
    lost = (disputed("e2", "disputed", 6, 400), disputed("e3", "dispute_lost", 7, 400))
    whole = folded(PLACED, paid("e1", 5, 1_500), *lost, disputed("e4", "dispute_won", 8, 400))
    assert [each.kind for each in whole.entries] == ["captured"]
    part = folded(PLACED, paid("e1", 5, 1_500), *lost, disputed("e4", "dispute_won", 8, 399))
    assert [(each.kind, each.money) for each in part.entries][1:] == [("dispute_lost", kes(-1))]


def test_what_was_won_back_of_a_payment_in_doubt_is_not_taken_off() -> None:
    others = (PLACED, paid("e1", 5, 1_500), paid("e2", 5, 1_400), paid("e9", 9, 1_500, "pay_2"))
    lost = (disputed("e3", "disputed", 6, 1_450), disputed("e4", "dispute_lost", 7, 1_450))
    for given in (None, 1_450):
        won = folded(*others, *lost, disputed("e5", "dispute_won", 8, given))
        assert (won.outcome, won.fulfillable) == ("succeeded", True)
    assert not folded(*others, *lost).fulfillable
    assert not folded(*others, *lost, disputed("e5", "dispute_won", 8, 9)).fulfillable


def test_what_a_part_loss_of_a_payment_in_doubt_took_is_taken_off() -> None:
    """Beyond the smallest amount that is stated for the payment."""
    others = (PLACED, paid("e1", 5, 500), paid("e2", 5, 1_400), paid("e9", 9, 1_600, "pay_2"))
    whole = (disputed("e3", "disputed", 6, 1_400), disputed("e4", "dispute_lost", 7, 700))
    assert not folded(*others, *whole).fulfillable
    less = (disputed("e3", "disputed", 6, 1_400), disputed("e4", "dispute_lost", 7, 600))
    assert folded(*others, *less).fulfillable
    opened, lost = (
        {"payment": "pay_1", "movement": "dp_1", "money": Money(minor=minor, currency="USD")}
        for minor in (1_400, 700)
    )
    other = (
        delivery("d_e3", 6, event("e3", "disputed", 6, **opened)),
        delivery("d_e4", 7, event("e4", "dispute_lost", 7, **lost)),
    )
    assert folded(*others, *other).fulfillable


def test_facts_of_one_name_are_written_as_a_list() -> None:
    values = [Money(minor=minor, currency="KES") for minor in (100, 250, 300)]
    given: Facts = (("at", 3), ("opened_at", seconds(1)), *(("captured", each) for each in values))
    written = [{"amount": amount, "currency": "KES"} for amount in ("1.00", "2.50", "3.00")]
    assert facts_document(given) == {
        "at": 3,
        "opened_at": "2026-11-20T10:00:01Z",
        "captured": written,
    }
    assert facts_document(given[:3])["captured"] == written[0]


@for_each(("whole", "code", "counts"), [
    (True, "paid_twice", {"times": 2, "expected": kes(1_500), "owed": kes(1_500)}),
    (False, "overpaid", {"expected": kes(1_500), "surplus": kes(100)}),
])  # fmt: skip
def test_a_surplus_neither_counts_nor_cites_a_payment_in_doubt(
    whole: bool, code: str, counts: dict[str, object]
) -> None:
    undated = event("e4", "canceled", None, payment="pay_3")
    ledger = folded(
        PLACED,
        paid("e1", 5, 1_500),
        paid("e2", 6, 1_500 if whole else 100, "pay_2"),
        paid("e3", 7, 1_500, "pay_3"),
        delivery("d_e4", 8, undated),
    )
    (found,) = [each for each in ledger.findings if each.code in ("paid_twice", "overpaid")]
    assert (found.code, dict(found.facts)) == (code, counts)
    assert sorted(found.cites) == ["e1", "e2"]


def test_a_total_of_payments_of_which_one_states_no_amount_is_another_payment() -> None:
    three = (paid("e1", 5, 700), paid("e2", 6, 800, "pay_2"), paid("e3", 7, None, "pay_3"))
    total = paid("e4", 8, 1_500, None)
    named = [each.reference for each in folded(PLACED, *three, total).attempts]
    assert named == ["ORD-1", "pay_1", "pay_2", "pay_3"]
    named = [each.reference for each in folded(PLACED, *three[:2], total).attempts]
    assert named == ["pay_1", "pay_2"]


@for_each(
    "kind",
    [
        "refund", "payment.refunds", "refunded", "REFUNDING", "charge.refundable", "reverse",
        "payment_reversed", "reversing", "reversal", "voided", "chargebacks", "disputed",
        "inquiries", "clawed_back", "paymentReturned",
    ],
)  # fmt: skip
def test_words_of_money_going_back_are_known_in_their_forms(kind: str) -> None:
    assert speaks_of_money_going_back(kind)


@for_each("kind", ["refunnel", "payment.captured", "reverso", "avoid", "refundd"])
def test_words_that_only_look_like_them_are_not(kind: str) -> None:
    assert not speaks_of_money_going_back(kind)


# --- matching -------------------------------------------------------------------------------------


def test_three_lines_that_fit_are_reported_however_many_there_are() -> None:
    lines = [case(name).books() for name in ("XD", "XB", "XC", "XA")]
    (found,) = decided(case("ORD-1").pays().settles(), *lines, rules=WINDOW)[0]
    assert isinstance(found, Break)
    assert [each.reference for each in found.candidates] == ["XA", "XB", "XC"]
    assert found.cites[1:] == tuple([each.line for each in found.candidates])
    assert dict(found.facts)["fits"] == 3


@for_each(
    ("cause", "order", "subject", "one"),
    [
        ("not_settled", "ORD-1", "shop", "ORD-1"),
        ("amount_differs", "ORD-1", "stm_1", "stm_1"),
        ("amount_differs", "ORD-1", None, "ORD-1"),
        ("settled_never_notified", None, "stm_1", "stm_1"),
    ],
)
def test_who_gives_a_line_to_a_break_means_its_own_line_or_its_order(
    cause: BreakCause, order: str | None, subject: str | None, one: str
) -> None:
    found = hand_match(cause, order=order, subject=subject, given="stm_2")
    assert found == HandMatch(one=one, other="stm_2")
