"""Payments that a statement settles in another currency: matched, reported and posted."""

from collections import Counter
from dataclasses import replace
from typing import Any

from reconcile.instants import DAY, EARLIEST, Instant
from reconcile.ledger.ledger import EntryKind
from reconcile.matching.books import StatementKind
from reconcile.matching.breaks import Break, at_risk, break_sentence, next_step
from reconcile.matching.exchange import exchanges, exchanges_back, expected_of, implied_rate
from reconcile.matching.funds import Capture, Return
from reconcile.matching.match import Match
from reconcile.matching.rows import StatementRow
from reconcile.matching.rules import ExpectedRate, MatchRules
from reconcile.money import Money
from reconcile.reporting.inputs import merged, settled
from reconcile.reporting.journal import transactions
from reconcile.reporting.report import Scope
from reconcile.reporting.tally import PeriodTally
from tests.reconcile.books_cases import AT, case, causes, decided
from tests.reconcile.books_truth import AS_OF, RULES, Case, in_key_order, statement_row
from tests.rows import for_each

AT_28 = replace(
    RULES,
    rates=(
        ExpectedRate(currency="KES", into="UGX", micros=28_000_000, tolerance_per_million=10_000),
    ),
)
"""28 Ugandan shillings for a Kenyan one, of which one per cent may be missing."""


def abroad(gross: int = 41_900, fee: int = 0) -> Case:
    """Return 1,500.00 KES that the statement settles in Ugandan shillings."""
    return case(minor=150_000, at=AT).pays().books().settles(gross=gross, currency="UGX", fee=fee)


def test_the_rate_is_what_the_statement_implies() -> None:
    (found,) = decided(abroad())[0]
    assert isinstance(found, Match)
    assert (found.kind, dict(found.facts)["rate"]) == ("by_exchange", "27.933333")
    assert decided(abroad())[1].holds


@for_each(("gross", "within"), [(42_000, True), (41_580, True), (41_579, False)])
def test_a_rule_says_how_far_from_its_rate_is_tolerated(gross: int, within: bool) -> None:
    (found,) = decided(abroad(gross), rules=AT_28)[0]
    assert isinstance(found, Match) == within


def test_what_is_beyond_it_is_reported_with_rate_and_difference() -> None:
    (found,) = decided(abroad(40_000), rules=AT_28)[0]
    assert isinstance(found, Break)
    assert (found.cause, str(found.money)) == ("amount_differs", "UGX 2,000")
    assert [str(each) for each in found.left or ()] == ["UGX 2,000"]
    assert break_sentence(found) == (
        "KES 1,500.00 was captured, but the statement settles UGX 40,000 for it, at a rate of "
        "26.666667; at the rate in the rules it would be UGX 42,000, UGX 2,000 apart."
    )
    assert next_step(found) == (
        "Ask the provider for its exchange rate and its charges, or correct the rate in the "
        "rules. Then accept the difference."
    )


@for_each(
    "made",
    [
        abroad(1_500),  # the same number: somebody wrote the wrong currency
        abroad().settles(gross=5, currency="TZS", fee=0),
        abroad().settles(gross=5),
    ],
)
def test_what_is_not_clear_is_still_another_currency(made: Case) -> None:
    causes = [each.cause for each in decided(made)[0] if isinstance(each, Break)]
    assert causes == ["currency_differs"]


def seen(made: Case) -> list:  # type: ignore[type-arg]
    rows = in_key_order([statement_row(each) for each in made.lines])
    return list(merged(made.takings, rows))


def flows(made: Case, *, exchanged: list[bool]) -> dict[tuple[str, str], int]:
    """Return the money table of an order; every tie must hold.

    exchanged  whether each of its settled lines is in another currency
    """
    tally = PeriodTally(
        Scope(
            start=AT - DAY, end=AT + 10 * DAY, as_of=AS_OF, basis="captured", environment="sandbox"
        )
    )
    for each in seen(made):
        assert [one.exchanged for one in settled(each)] == exchanged
        tally.order(each)
    report = tally.report()
    assert report.ties_hold
    return {(row.flow, row.currency): row.sum for row in report.money if row.sum}


def test_the_report_shows_both_sides_of_it_and_ties() -> None:
    assert flows(abroad(41_900, fee=900), exchanged=[True]) == {
        ("captured", "KES"): 150_000,
        ("net", "KES"): 150_000,
        ("other_currency", "KES"): 150_000,
        ("fees", "UGX"): 900,
        ("net", "UGX"): -900,
        ("settled", "UGX"): 41_000,
        ("other_currency", "UGX"): -41_900,
    }


def test_the_journal_names_the_lines_as_the_break_does() -> None:
    made = abroad(20_000).settles(gross=19_000, currency="UGX", fee=0)
    (found,) = decided(made, rules=AT_28)[0]
    assert isinstance(found, Break)
    (each,) = seen(made)
    for lines in (each.lines, each.lines[::-1]):
        posted = transactions(
            replace(each, lines=lines), start=EARLIEST, end=AS_OF + DAY, rates=AT_28.rates
        )
        cited = {one.cites[:2] for one in posted if one.what == "exchanged"}
        assert cited == {found.cites[-2:]}


def test_a_line_that_the_matching_found_to_be_of_no_movement_is_no_exchange() -> None:
    (each,) = seen(abroad())
    (line,) = each.lines
    (found,) = settled(each, strange={line.line_id})
    assert (found.taken, found.exchanged) == ((), False)


# --- what goes back in another currency -----------------------------------------------------------


def returned(
    *taken: int, kind: StatementKind = "refund", back: EntryKind = "refunded", minor: int = 50_000
) -> Case:
    """Return 500.00 of 1,500.00 KES that went back, taken in Ugandan shillings by the statement."""
    made = case(minor=150_000, at=AT)
    gone = made.taken(minor=-minor, kind=back)
    made.pays(outcome="partially_refunded", more=(gone,)).books(minor=150_000 - minor).settles()
    for each in taken:
        made.settles(kind=kind, gross=each, currency="UGX", fee=0)
    return made


@for_each(
    "made",
    [
        returned(-14_000),
        returned(14_000),
        returned(-14_000, kind="dispute", back="dispute_lost"),
        returned(-14_000, back="reversed"),
    ],
)
def test_what_goes_back_is_settled_at_the_rate_that_the_statement_implies(made: Case) -> None:
    (found,) = [each for each in decided(made)[0] if isinstance(each, Match)]
    assert (found.kind, str(found.money)) == ("by_exchange", "KES 500.00")
    assert dict(found.facts)["rate"] == "28.000000"
    assert not any(isinstance(each, Break) for each in decided(made)[0])
    assert clearing(made) == {}


def test_what_is_taken_beyond_the_rate_is_reported_and_left() -> None:
    """One per cent of 14,000 is tolerated and is a loss; more is a break."""
    assert clearing(returned(-14_140), AT_28) == {}
    assert not any(isinstance(e, Break) for e in decided(returned(-14_140), rules=AT_28)[0])
    made = returned(-15_000)
    (found,) = [each for each in decided(made, rules=AT_28)[0] if isinstance(each, Break)]
    assert (found.cause, str(found.money)) == ("refund_amount_differs", "UGX 1,000")
    assert break_sentence(found) == (
        "KES 500.00 was refunded, but the statement deducts UGX 15,000 for it, at a rate of "
        "30.000000; at the rate in the rules it would be UGX 14,000, UGX 1,000 apart."
    )
    assert next_step(found).startswith("Ask the provider for its exchange rate")
    assert at_risk(found) == 1_000
    assert clearing(made, AT_28) == {each.currency: each.minor for each in found.left or ()}
    (less,) = [e for e in decided(returned(-13_000), rules=AT_28)[0] if isinstance(e, Break)]
    assert (str(less.money), at_risk(less)) == ("UGX 1,000", 0)


@for_each(
    "made",
    [
        returned(-500),  # the same number: somebody wrote the wrong currency
        returned(-7_000, -7_000),  # which of the two the refund is, nobody knows
        returned(14_000, kind="dispute", back="dispute_lost"),  # it gives back
        returned(-14_000, kind="dispute"),  # the ledger has a refund
        returned(-14_000).settles(kind="refund", gross=-50_000, fee=0),  # it is settled
    ],
)
def test_what_goes_back_otherwise_is_no_exchange(made: Case) -> None:
    kinds = [each.kind for each in decided(made)[0] if isinstance(each, Match)]
    assert "by_exchange" not in kinds
    assert any(isinstance(each, Break) for each in decided(made)[0])


@for_each("kinds", [("refunded", "reversed"), ("reversed", "refunded")])
def test_what_goes_back_in_two_ways_is_reported_as_its_first(
    kinds: tuple[EntryKind, EntryKind],
) -> None:
    made = case(minor=150_000, at=AT)
    gone = tuple([made.taken(minor=-25_000, kind=kind) for kind in kinds])
    made.pays(outcome="partially_refunded", more=gone).books(minor=100_000).settles()
    for gross in (-9_000, -6_000):
        made.settles(kind="refund", gross=gross, currency="UGX", fee=0)
    (found,) = [each for each in decided(made, rules=AT_28)[0] if isinstance(each, Break)]
    assert (found.cause, dict(found.facts)["how"]) == ("refund_amount_differs", kinds[0])
    assert found.cites == (*gone[0].cites, *gone[1].cites, "stm_ORD-1_1.1", "stm_ORD-1_2.1")
    assert (found.subject, found.since) == ("stm_ORD-1_1", AT + 2 * DAY)  # when the lines settled


def nothing_moved(kind: StatementKind) -> Case:
    """Return a capture or refund of zero, with a statement line of some money."""
    made = case(minor=150_000, at=AT)
    if kind == "payment":
        made.pays(more=(replace(made.taken(), minor=0, payment="pay_none"),)).books().settles()
        return made.settles(gross=14, payment="pay_none", currency="UGX", fee=0)
    gone = replace(made.taken(minor=-1), minor=0)
    made.pays(more=(gone,)).books(minor=150_000).settles()
    return made.settles(kind="refund", gross=-14, currency="UGX", fee=0)


@for_each(
    ("kind", "expected"),
    [
        ("payment", ["by_group", "currency_differs"]),
        ("refund", ["refund_not_settled", "settled_never_notified"]),
    ],
)
def test_nothing_is_exchanged_for_nothing(kind: StatementKind, expected: list[str]) -> None:
    made = nothing_moved(kind)
    assert causes(decided(made)[0]) == expected
    assert not [one for each in seen(made) for one in settled(each) if one.exchanged]


def clearing(made: Case, rules: MatchRules = RULES) -> dict[str, int]:
    """Return the balances of clearing by currency, without zeros."""
    sums: Counter[str] = Counter()
    for each in seen(made):
        for transaction in transactions(each, start=EARLIEST, end=AS_OF + DAY, rates=rules.rates):
            for posting in transaction.postings:
                if posting.role == "clearing":
                    sums[transaction.currency] += posting.minor
    return {currency: minor for currency, minor in sums.items() if minor}


def test_the_report_shows_what_went_back_abroad_on_both_sides_and_ties() -> None:
    assert flows(returned(-14_000), exchanged=[False, True]) == {
        ("captured", "KES"): 150_000,
        ("refunded", "KES"): 50_000,
        ("fees", "KES"): 2_250,
        ("net", "KES"): 97_750,
        ("settled", "KES"): 147_750,
        ("other_currency", "KES"): -50_000,
        ("settled", "UGX"): -14_000,
        ("other_currency", "UGX"): 14_000,
    }


def test_the_journal_posts_the_exchange_and_its_loss() -> None:
    """Clearing is empty in both currencies; 100 less came than by the rules' rate."""
    sums: Counter[tuple[str, str]] = Counter()
    for each in seen(abroad(41_900)):
        found = transactions(each, start=EARLIEST, end=AS_OF + DAY, rates=AT_28.rates)
        for transaction in found:
            assert sum(posting.minor for posting in transaction.postings) == 0
            for posting in transaction.postings:
                sums[posting.role, transaction.currency] += posting.minor
    assert {key: minor for key, minor in sums.items() if minor} == {
        ("receivable", "KES"): -150_000,
        ("exchange", "KES"): 150_000,
        ("exchange", "UGX"): -42_000,
        ("exchange_gains", "UGX"): 100,
        ("bank", "UGX"): 41_900,
    }


# --- which lines are of an exchange ---------------------------------------------------------------

CAME = Capture("k", "ORD-1", "shop", "p", 150_000, "KES", AT, ())
BACK = Return("ORD-1", "refunded", "shop", "p", 50_000, "KES", AT, ())


def stated(line_id: str = "s1", gross: int = 41_900, **more: Any) -> StatementRow:
    row = StatementRow("k", line_id, "p", None, "payment", "UGX", gross, 0, gross, AT, None, "shop")
    return row._replace(**more)


def taken(line_id: str = "s1", gross: int = -14_000, **more: Any) -> StatementRow:
    return stated(line_id, gross, **{"kind": "refund", **more})


@for_each(("captures", "lines", "exchanged"), [
    ([CAME], [stated()], ["s1"]),
    ([CAME], [stated(gross=1)], ["s1"]),
    ([CAME], [stated(source="")], ["s1"]),
    ([CAME], [stated("s2"), stated("s1")], ["s1", "s2"]),
    ([CAME, CAME._replace(payment="q", currency="UGX")], [stated()], ["s1"]),
    ([CAME, CAME._replace(payment="q")],
     [stated(), stated("s2", 150_000, payment="q", currency="KES")], ["s1"]),
    ([CAME._replace(payment="q"), CAME], [stated("s1", payment="q"), stated("s2")], ["s2", "s1"]),
    ([CAME], [stated(), taken("s2")], ["s1"]),
    ([CAME], [stated(), stated("s2", payment=None)], ["s1"]),
    # The same number in another currency is none.
    ([CAME], [stated(gross=1_499)], ["s1"]),
    ([CAME], [stated(gross=1_500)], []),
    ([CAME], [stated(gross=700), stated("s2", 800)], []),
    ([CAME], [stated(gross=150_000)], ["s1"]),
    ([CAME], [stated(gross=1_500_000, currency="KWD")], []),
    ([CAME], [stated(gross=150_000, currency="KWD")], ["s1"]),
    # Nor is what is of nothing, undated, of another source, or of several.
    ([CAME], [stated(gross=0)], []),
    ([CAME], [stated(gross=-41_900)], []),
    ([CAME], [stated(), stated("s2", 0)], []),
    ([CAME], [stated(settled_at=None)], []),
    ([CAME], [stated(), stated("s2", settled_at=None)], []),
    ([CAME], [stated(source="other")], []),
    ([CAME], [stated(), stated("s2", source="other")], []),
    ([CAME], [stated(), stated("s2", currency="TZS")], []),
    ([CAME], [stated(), stated("s2", currency="KES")], []),
    ([CAME], [stated(currency="KES")], []),
    ([CAME._replace(minor=0)], [stated()], []),
    ([CAME, CAME], [stated()], []),
    ([], [stated()], []),
])  # fmt: skip
def test_which_payments_are_settled_in_another_currency(
    captures: list[Capture], lines: list[StatementRow], exchanged: list[str]
) -> None:
    found = [line.line_id for _, some in exchanges(captures, lines) for line in some]
    assert found == exchanged


LATER = Instant(AT + 5)
RISE = BACK._replace(at=Instant(AT - 2), cites=("e1", "link"))
NEXT = BACK._replace(at=Instant(AT - 1), cites=("e2", "e1", "link"))
LAST = BACK._replace(cites=("e3", "e2", "link"))


@for_each(("returns", "lines", "exchanged"), [
    ([BACK], [taken()], ["s1"]),
    ([BACK], [taken(gross=14_000)], ["s1"]),
    ([BACK], [taken(gross=-1)], ["s1"]),
    ([BACK._replace(minor=-50_000)], [taken()], ["s1"]),
    ([BACK], [taken(source="")], ["s1"]),
    ([BACK, BACK], [taken("s2"), taken("s1")], ["s1", "s2"]),
    ([BACK, BACK._replace(kind="reversed")], [taken("s2"), taken("s1")], ["s1", "s2"]),
    ([BACK._replace(kind="dispute_lost")], [taken(kind="dispute")], ["s1"]),
    ([BACK._replace(kind="dispute_lost"), BACK], [taken(kind="dispute"), taken("s2")],
     ["s2", "s1"]),
    ([BACK._replace(payment="q"), BACK], [taken(payment="q"), taken("s2")], ["s2", "s1"]),
    ([BACK], [taken(), stated("s2")], ["s1"]),
    ([BACK], [taken(), taken("s2", payment=None)], ["s1"]),
    # What went back after the last line is not of it.
    ([BACK._replace(at=LATER)], [taken()], []),
    ([BACK._replace(at=LATER)], [taken(settled_at=LATER)], ["s1"]),
    ([BACK, BACK._replace(at=LATER)], [taken()], ["s1"]),
    ([BACK, BACK._replace(at=LATER)], [taken(), taken("s2", settled_at=LATER)], ["s1", "s2"]),
    ([BACK], [taken(settled_at=None)], []),
    ([BACK, BACK], [taken(), taken("s2", settled_at=None)], []),
    # Rises of one sum may be one line; each rests on what stated the one before.
    ([RISE, NEXT], [taken()], ["s1"]),
    ([RISE, NEXT, LAST], [taken("s2"), taken("s1")], ["s1", "s2"]),
    ([RISE, NEXT._replace(at=LATER)], [taken(settled_at=LATER)], ["s1"]),
    ([RISE, LAST], [taken()], []),
    ([RISE, NEXT._replace(kind="reversed")], [taken()], []),
    ([RISE, NEXT, BACK._replace(cites=("r1",))], [taken()], []),
    ([BACK._replace(cites=("r1", "link")), BACK._replace(cites=("r2", "link"))], [taken()], []),
    ([RISE, NEXT], [taken(), taken("s2", settled_at=None)], []),
    # As many as lines, of one source and one currency each, another number.
    ([BACK], [taken(), taken("s2")], []),
    ([BACK, BACK], [taken()], []),
    ([BACK, BACK._replace(source="other")], [taken(), taken("s2", source="")], []),
    ([BACK, BACK._replace(currency="TZS")], [taken(), taken("s2")], []),
    ([BACK, BACK], [taken(), taken("s2", currency="TZS")], []),
    ([BACK], [taken(currency="KES")], []),
    ([BACK], [taken(source="other")], []),
    ([BACK, BACK], [taken(), taken("s2", source="other")], []),
    ([BACK._replace(minor=0)], [taken()], []),
    ([BACK], [taken(gross=0)], []),
    ([BACK, BACK], [taken(), taken("s2", 0)], []),
    ([BACK], [taken(gross=-500)], []),
    ([BACK], [taken(gross=500)], []),
    ([BACK], [taken(gross=-501)], ["s1"]),
    ([BACK, BACK], [taken(gross=-700), taken("s2", -300)], []),
    ([BACK], [taken(gross=-500_000, currency="KWD")], []),
    # A dispute takes by its own sign, and is of what was lost in one.
    ([BACK._replace(kind="dispute_lost")], [taken(gross=14_000, kind="dispute")], []),
    ([BACK._replace(kind="dispute_lost")], [taken()], []),
    ([BACK], [taken(kind="dispute")], []),
    ([], [taken()], []),
])  # fmt: skip
def test_which_of_what_went_back_is_taken_in_another_currency(
    returns: list[Return], lines: list[StatementRow], exchanged: list[str]
) -> None:
    found = [line.line_id for _, some in exchanges_back(returns, lines) for line in some]
    assert found == exchanged


@for_each(("came", "arrived", "rate"), [
    (("KES", 100), ("UGX", 28), "28.000000"),
    (("KES", -300), ("UGX", 1), "0.333333"),
    (("KES", 300), ("UGX", -2), "0.666667"),
    (("UGX", 3), ("KES", 100), "0.333333"),
    (("UGX", 1), ("KWD", 1), "0.001000"),
    (("USD", 200_000_000), ("KES", 100), "0.000001"),  # half a millionth, rounded up
    (("USD", 200_000_001), ("KES", 100), "0.000000"),
    (("USD", 1), ("KES", 0), "0.000000"),
])  # fmt: skip
def test_a_rate_is_implied_to_the_millionth(
    came: tuple[str, int], arrived: tuple[str, int], rate: str
) -> None:
    one, other = (Money(minor=minor, currency=code) for code, minor in (came, arrived))
    assert implied_rate(one, other) == rate


@for_each(("tolerance", "arrived", "due", "within"), [
    (0, 42_000, 42_000, True),
    (0, 42_001, 42_000, False),
    (23, 42_000, 42_000, True),
    (23, 42_001, 42_000, False),  # less than one minor unit is tolerated
    (24, 42_001, 42_000, True),
    (24, 41_999, 42_000, True),
    (24, 42_002, 42_000, False),
    (None, 7, 7, True),
])  # fmt: skip
def test_what_is_expected_is_met_within_its_tolerance(
    tolerance: int | None, arrived: int, due: int, within: bool
) -> None:
    (rate,) = AT_28.rates
    other = replace(rate, currency="USD", micros=1)
    rates = [other] if tolerance is None else [
        other, replace(rate, into="TZS"), replace(rate, tolerance_per_million=tolerance)
    ]  # fmt: skip
    for sign in (1, -1):
        came = Money(minor=sign * 150_000, currency="KES")
        took = Money(minor=sign * arrived, currency="UGX")
        assert expected_of(came, took, rates) == (Money(minor=sign * due, currency="UGX"), within)


@for_each(("came", "arrived", "within"), [
    (999_999, 999_999, True), (999_999, 1_000_000, False), (1_000_000, 1_000_001, True),
    (1_000_000, 1_000_002, False), (-1_000_000, -1_000_001, True), (0, 0, True), (0, 1, False),
])  # fmt: skip
def test_one_in_a_million_is_one_of_a_million(came: int, arrived: int, within: bool) -> None:
    rate = ExpectedRate(currency="UGX", into="JPY", micros=1_000_000, tolerance_per_million=1)
    one, other = Money(minor=came, currency="UGX"), Money(minor=arrived, currency="JPY")
    assert expected_of(one, other, [rate]) == (Money(minor=came, currency="JPY"), within)
