"""Coverage of files: spans. Nothing outside of them is missing or agreed."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from reconcile.instants import DAY, Instant
from reconcile.matching.breaks import Break, break_sentence
from reconcile.matching.rules import (
    Coverage,
    Covered,
    Span,
    common_spans,
    joined_spans,
    waits_in,
)
from reconcile.reporting.tally import coverage_rows
from tests.reconcile.books_cases import case, causes, decided, stands
from tests.reconcile.books_strategies import World, worlds
from tests.reconcile.books_truth import AS_OF, COVERAGE, RULES, SOURCE, START, covered
from tests.reconcile.test_match_laws import EXAMPLES, search
from tests.rows import for_each

TICKS = st.integers(0, 12)


@st.composite
def spans(draw: st.DrawFn) -> tuple[Span, ...]:
    """Draw stretches of a few ticks, in any order; some are empty, some touch or overlap."""
    ends = draw(st.lists(st.tuples(TICKS, TICKS), max_size=4))
    return tuple([Span(since=Instant(one), until=Instant(other)) for one, other in ends])


def within(some: tuple[Span, ...]) -> set[int]:
    return {at for span in some for at in range(span.since, span.until)}


@given(spans(), spans(), spans())
def test_spans_are_sets_of_instants(
    one: tuple[Span, ...], other: tuple[Span, ...], third: tuple[Span, ...]
) -> None:
    joined = joined_spans((*one, *other))
    assert within(joined) == within(one) | within(other)
    assert all(a.until < b.since for a, b in pairwise(joined))
    every = [joined_spans(each) for each in (one, other, third)]
    assert within(common_spans(every)) == within(one) & within(other) & within(third)
    assert common_spans([]) == ()


@given(spans(), TICKS, TICKS, TICKS)
def test_what_must_be_in_a_file_lies_with_its_margin_in_one_span(
    some: tuple[Span, ...], at: int, margin: int, as_of: int
) -> None:
    known = joined_spans(some)
    waits = waits_in(known, Instant(at), due=Instant(at + margin), as_of=Instant(as_of))
    whole = all(each in within(known) for each in range(at, at + max(margin, 1)))
    assert (waits is None) == (whole and at + margin <= as_of)
    if waits == "not_covered":
        assert known == () or at < known[-1].until


STRETCHES = ((0, 95),), ((0, 3),), ((-4, 6), (9, 95)), ((1, 40), (88, 95)), ((6, 89),), ()
"""Days of coverage around the dates of the generated worlds, with gaps."""


def gaps() -> st.SearchStrategy[tuple[Span, ...]]:
    return st.sampled_from(
        [
            tuple([Span(since=Instant(START + a * DAY), until=Instant(START + b * DAY))
                   for a, b in stretches])
            for stretches in STRETCHES
        ]
    )  # fmt: skip


def covers(some: tuple[Span, ...], at: Instant, due: Instant) -> bool:
    return any(span.since <= at < span.until and due <= span.until for span in some)


@settings(search, max_examples=3 * EXAMPLES)
@given(worlds(), gaps(), gaps())
def test_what_no_file_covers_is_neither_missing_nor_agreed(
    world: World, statements: tuple[Span, ...], books: tuple[Span, ...]
) -> None:
    """Whatever the files cover, and whatever lies in their gaps."""
    coverage = Coverage(
        books=(Covered(name="book", spans=books),),
        statements=tuple([Covered(name=each, spans=statements) for each in (SOURCE, "other")]),
    )
    found, control = replace(world, coverage=coverage).decided()
    opened = {row.order: row.opened_at for row in world.takings}
    for each in found:
        if not isinstance(each, Break):
            continue
        if each.cause in ("not_settled", "refund_not_settled"):
            due = Instant(each.since + RULES.settle_margin)
            assert covers(statements, each.since, due), each
        elif each.cause == "paid_not_in_book":
            assert any(covers(books, at, at) for at in opened.values()), each
    assert control.holds


@search
@given(worlds())
def test_without_files_nothing_is_missing(world: World) -> None:
    found, _ = replace(world, coverage=Coverage()).decided()
    missing = {"not_settled", "refund_not_settled", "paid_not_in_book"}
    assert not missing & {each.cause for each in found if isinstance(each, Break)}


@for_each(
    ("others", "expected"),
    [
        ((), ["paid_not_in_book"]),
        ((covered("members"),), ["paid_not_in_book"]),
        ((Covered(name="members"),), []),
        ((covered("members", AS_OF - DAY),), []),
    ],
)
def test_money_is_missing_in_the_books_only_where_each_of_them_covers_it(
    others: tuple[Covered, ...], expected: list[str]
) -> None:
    coverage = replace(COVERAGE, books=(*COVERAGE.books, *others))
    assert causes(decided(case().pays().settles(), coverage=coverage)[0]) == expected


LOST = Coverage(lost=(Span(since=START, until=Instant(START + DAY)),))
"""The first day, in which webhooks may be lost."""


@for_each(
    ("placed", "missing"),
    [(-DAY, False), (0, False), (DAY - 1, False), (DAY, True), (-DAY - 1, True), (None, False)],
)
def test_money_that_an_accepted_gap_may_have_lost_is_not_missing(
    placed: int | None, missing: bool
) -> None:
    """It may have come from the placing of the order in the book until the margin is over."""
    made = case(at=Instant(START + (placed or 0))).books()
    if placed is None:
        made.book = [replace(each, placed_at=None) for each in made.book]
    assert causes(decided(made, coverage=Coverage())[0]) == ["book_paid_not_received"]
    found, control = decided(made, coverage=LOST)
    assert causes(found) == (["book_paid_not_received"] if missing else [])
    assert stands(control, "book") == (["book_paid_not_received"] if missing else ["not_covered"])


@for_each(("days", "missing"), [(0, False), (1, True)])
def test_a_refund_that_an_accepted_gap_may_have_lost_is_not_missing(
    days: int, missing: bool
) -> None:
    made = case(at=Instant(START + days * DAY)).pays().books("refunded")
    assert causes(decided(made, coverage=Coverage())[0]) == ["refund_not_received"]
    expected = ["refund_not_received"] if missing else []
    assert causes(decided(made, coverage=LOST)[0]) == expected


def test_a_settled_payment_without_webhook_says_what_may_be_lost() -> None:
    (plain,), _ = decided(case().settles(), coverage=Coverage())
    (found,), _ = decided(case().settles(), coverage=LOST)
    assert isinstance(plain, Break)
    assert isinstance(found, Break)
    assert found.identity == plain.identity
    assert break_sentence(found) == (
        f"{break_sentence(plain)} Data received from 2026-10-01T00:00:00Z to 2026-10-02T00:00:00Z "
        "may be lost."
    )


OCTOBER, NOVEMBER = Instant(0), Instant(31 * DAY)


def test_a_report_says_of_each_name_which_days_of_the_period_it_covers() -> None:
    """A source without a statement has a row, and a source with wallets one a wallet."""
    half = Instant(15 * DAY)
    coverage = Coverage(
        statements=(covered("shop", -DAY, 60 * DAY), covered("till", 0, half)),
        wallets=(replace(covered("till", 0, half), wallet="Utility", declared_by=("Ann", "Ben")),),
        bank=(Covered(name="main", spans=(Span(since=half, until=NOVEMBER),)),),
    )
    rows = coverage_rows(
        coverage, captures={"shop": 3, "cash": 2, "till": 1}, start=OCTOBER, end=NOVEMBER
    )
    assert [
        (row.kind, row.name, row.wallet, row.since, row.until, row.whole, row.payments)
        for row in rows
    ] == [
        ("statement", "cash", None, None, None, False, 2),
        ("statement", "shop", None, OCTOBER, NOVEMBER, True, 3),
        ("statement", "till", "Utility", OCTOBER, half, False, 1),
        ("bank", "main", None, half, NOVEMBER, False, 0),
    ]
    assert [row.declared_by for row in rows] == ["", "", "Ann, Ben", ""]
