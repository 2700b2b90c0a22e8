"""Payment methods of the book: what comes through no provider is no break, and counts apart."""

from collections.abc import Callable
from dataclasses import replace

from reconcile.matching.books import BookStatus, Methods
from tests.reconcile.books_cases import case, causes, decided, stands
from tests.reconcile.books_truth import Case
from tests.rows import for_each


@for_each(("cell", "kinds"), [
    (None, set()),
    ("  ", set()),
    ("stripe", {"provider"}),
    ("Bank_Transfer", {"bank"}),
    ("bacs", {"bank"}),
    ("Cash on Delivery (COD)", {"outside"}),
    ("gift_card + stripe", {"tender", "provider"}),
    ("Store Credit, Gift Card", {"tender"}),
])  # fmt: skip
def test_a_cell_names_methods_as_exports_write_them(cell: str | None, kinds: set[str]) -> None:
    assert Methods().parts(cell) == kinds


def by(made: Case, method: str | None) -> Case:
    """Return the case, all of whose book lines were paid by this method."""
    made.book = [replace(line, method=method) for line in made.book]
    return made


@for_each("method", ["bank transfer", "cod", "gift card", "gift card + cash"])
@for_each("status", ["paid", "refunded"])
@for_each("known", [False, True])
def test_an_order_paid_outside_providers_is_no_break(
    method: str, status: BookStatus, known: bool
) -> None:
    made = case().untouched() if known else case()
    decisions, control = decided(by(made.books(status), method))
    assert (decisions, stands(control, "book")) == ([], ["outside_providers"])


@for_each("method", [None, "stripe", "gift card + stripe"])
def test_an_order_that_a_provider_should_have_paid_is_missed(method: str | None) -> None:
    assert causes(decided(by(case().books(), method))[0]) == ["book_paid_not_received"]


@for_each(("made", "kind"), [
    (lambda c: c.pays(minor=900), "by_tender"),
    (lambda c: c.pays(minor=900, outcome="unresolved", findings=("amount_mismatch",)), "by_tender"),
    (lambda c: c.pays(minor=1_600), "amount_differs"),
    (lambda c: c.pays(minor=900, outcome="unresolved", findings=("conflicting_amounts",)),
     "unresolved"),
])  # fmt: skip
def test_a_gift_card_pays_what_no_provider_captured_and_no_more(
    made: Callable[[Case], Case], kind: str
) -> None:
    paid = by(made(case()).books(), "gift_card + stripe").settles(gross=900)
    found = [each for each in causes(decided(paid)[0]) if each != "settled_never_notified"]
    assert kind in found
    without = by(made(case()).books(), "stripe").settles(gross=900)
    assert "by_tender" not in causes(decided(without)[0])


def test_a_gift_card_is_named_with_its_sum() -> None:
    (found,) = decided(
        by(case().pays(minor=900).books().settles(gross=900), "store credit + m-pesa")
    )[0]
    assert dict(found.facts)["tendered"] == replace(found.money, minor=600)


def test_an_order_that_a_person_found_in_the_bank_is_no_break() -> None:
    decisions, control = decided(case().books(), hands=(("bok_ORD-1_0", "bnk_a"),))
    assert (decisions, stands(control, "book")) == ([], ["outside_providers"])


def test_a_method_does_not_matter_where_a_provider_captured_the_whole_price() -> None:
    decisions, control = decided(by(case().pays().books().settles(), "bank transfer"))
    assert (decisions, stands(control, "book")) == ([], ["by_reference"])
