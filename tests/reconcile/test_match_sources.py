"""Statements that miss a refund, a reversal or a dispute, where an order was paid through two
sources. Also the payment of a disputed line."""

from dataclasses import replace

from reconcile.ledger.ledger import EntryKind
from reconcile.matching.books import StatementKind
from reconcile.matching.breaks import Break
from reconcile.matching.rules import Coverage, MatchRules
from tests.reconcile.books_cases import case, decided
from tests.reconcile.books_truth import COVERAGE, SOURCE, Case, covered
from tests.rows import for_each

TILL = "till"
BOTH = replace(COVERAGE, statements=(*COVERAGE.statements, covered(TILL)))
"""Coverage with statements of both sources."""


def paid_by_two(*backs: str, kind: EntryKind = "refunded") -> Case:
    """Return an order with 1,500 through each of two sources, settled; 500 went back on these."""
    made = case()
    till = replace(made.taken(payment="pay_till"), source=TILL)
    more = {
        SOURCE: made.taken(minor=-500, kind=kind),
        TILL: replace(made.taken(minor=-500, payment="pay_till", kind=kind), source=TILL),
    }
    made.pays(more=(till, *[more[source] for source in backs]), outcome="partially_refunded")
    made.settles().settles(payment="pay_till")
    made.lines = [
        replace(each, source=source)
        for each, source in zip(made.lines, (SOURCE, TILL), strict=True)
    ]
    return made


def reported(made: Case, coverage: Coverage = BOTH) -> list[tuple[str, str | None]]:
    """Return the breaks about a statement, and their payments."""
    found = [each for each in decided(made, coverage=coverage)[0] if isinstance(each, Break)]
    return sorted([(e.cause, e.payment) for e in found if e.left], key=str)


@for_each(("kind", "row"), [
    ("refunded", "refund"), ("reversed", "refund"), ("dispute_lost", "dispute"),
])  # fmt: skip
@for_each("lines", [(-500,), (-300, -200)])
def test_a_line_that_names_the_order_alone_is_of_its_own_source(
    kind: EntryKind, row: StatementKind, lines: tuple[int, ...]
) -> None:
    for backs, missing in (((SOURCE, TILL), [("refund_not_settled", case().payment)]),
                           ((TILL,), [])):  # fmt: skip
        made = paid_by_two(*backs, kind=kind)
        for gross in lines:
            made.settles(kind=row, gross=gross, fee=0)
            made.lines[-1] = replace(made.lines[-1], payment=None, source=TILL)
        assert reported(made) == missing
    made = paid_by_two(SOURCE, kind=kind)
    made.settles(kind=row, gross=-500, fee=0)
    made.lines[-1] = replace(made.lines[-1], payment=None, source=TILL)
    assert reported(made) == [
        ("refund_not_settled", case().payment),
        ("settled_never_notified", None),
    ]


@for_each(("payment", "source", "known"), [
    (case().payment, SOURCE, True), (case().payment, "", True), (None, SOURCE, True),
    ("pay_else", SOURCE, False), (case().payment, TILL, False), (None, TILL, False),
])  # fmt: skip
def test_an_open_dispute_is_of_a_payment_of_its_order(
    payment: str | None, source: str, known: bool
) -> None:
    made = case().pays(outcome="disputed", findings=("dispute_open",)).books().settles()
    made.settles(kind="dispute", gross=-1_500, fee=0)
    made.lines[-1] = replace(made.lines[-1], payment=payment, source=source)
    missed: list[tuple[str, str | None]] = [("settled_never_notified", payment)]
    assert reported(made) == ([] if known else missed)


@for_each(("source", "coverage"), [("", BOTH), (TILL, COVERAGE), (SOURCE, BOTH)])
def test_who_may_share_a_statement_shares_its_refunds(source: str, coverage: Coverage) -> None:
    made = paid_by_two(TILL if source == TILL else SOURCE)
    made.settles(kind="refund", gross=-500, fee=0)
    made.lines[-1] = replace(made.lines[-1], payment=None, source=source)
    assert reported(made, coverage) == []


def test_parts_of_two_sources_are_not_added_up() -> None:
    """300 of one source and 200 of another are not the 500 of one."""
    made = paid_by_two(TILL)
    for gross, source in ((-300, TILL), (-200, SOURCE)):
        made.settles(kind="refund", gross=gross, fee=0)
        made.lines[-1] = replace(made.lines[-1], payment=None, source=source)
    assert reported(made) == [
        ("refund_amount_differs", "pay_till"),
        ("settled_never_notified", None),
    ]


@for_each(("captured", "lines", "missed"), [
    # each is settled by its own source's line, also of one amount
    ((1_500, 1_500), ((1_500, SOURCE), (1_500, TILL)), []),
    ((1_500, 1_500), ((1_500, TILL), (1_500, SOURCE)), []),
    ((1_500, 1_500), ((1_500, TILL),), [("not_settled", 1_500, SOURCE)]),
    ((1_500, 1_500), ((1_500, SOURCE),), [("not_settled", 1_500, TILL)]),
    # of two that fit equally nobody knows which it is
    ((1_500, 1_500), ((1_500, TILL), (1_500, TILL)),
     [("ambiguous", 1_500, TILL), ("not_settled", 1_500, SOURCE)]),
    ((1_500, 1_500), ((1_500, ""), (1_500, TILL)),
     [("ambiguous", 1_500, SOURCE), ("ambiguous", 1_500, TILL)]),
])  # fmt: skip
@for_each(("payment", "order"), [(None, True), ("pay_1", True), ("pay_1", False)])
def test_a_payment_is_settled_by_a_line_of_its_own_source(
    captured: tuple[int, int],
    lines: tuple[tuple[int, str], ...],
    missed: list[tuple[str, int, str]],
    payment: str | None,
    order: bool,
) -> None:
    assert missed_of(captured, lines, payment=payment, order=order) == missed


def test_a_line_of_the_amount_of_another_source_is_none_of_that() -> None:
    """The till's statement has 1,500 that came through the other source."""
    assert missed_of((1_500, 1_000), ((1_500, TILL), (1_000, TILL)), payment=None) == [
        ("not_settled", 1_500, SOURCE),
        ("settled_never_notified", 1_500, "stm_ORD-1_0"),
    ]


def missed_of(
    captured: tuple[int, int],
    lines: tuple[tuple[int, str], ...],
    *,
    payment: str | None,
    order: bool = True,
) -> list[tuple[str, int, str | None]]:
    """Return the reports of an order paid through both sources, with these lines."""
    made = case(minor=captured[0])
    till = replace(made.taken(minor=captured[1], payment=payment or "pay_till"), source=TILL)
    made.pays(payment=payment, more=(till,)).books(minor=sum(captured))
    for gross, source in lines:
        made.settles(gross=gross, fee=0)
        named = made.lines[-1].order if order else None
        made.lines[-1] = replace(made.lines[-1], payment=payment, order=named, source=source)
    found = decided(made, rules=MatchRules(), coverage=BOTH)[0]
    breaks = [(e.cause, e.money.minor, e.subject) for e in found if isinstance(e, Break)]
    return sorted(breaks, key=str)
