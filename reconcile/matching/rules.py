"""Rules of matching, with covered time spans and matches by people."""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Final, Literal

from reconcile.instants import DAY, TICK, Duration, Instant
from reconcile.matching.books import NOT_BY_PROVIDER, Methods
from reconcile.matching.causes import CAUSES, BreakCause
from reconcile.matching.control import Waiting
from reconcile.matching.rows import BookRow, StatementRow, TakingRow, name_of
from reconcile.matching.suspense import NO_SUSPENSE, Suspense
from reconcile.money import exponent_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """Maximum difference of two amounts of a currency that still match, in minor units."""

    currency: str
    minor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedFee:
    """Fee of a source: `per_million` of the gross plus `fixed` minor units."""

    source: str
    currency: str
    per_million: int = 0
    fixed: int = 0
    tolerance: int = 1
    """Minor units by which the fee can differ, because providers round."""
    where: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Names of details with their allowed values. An empty value allows lines without the
    detail."""

    def of(self, gross: int) -> int:
        """Return the fee for a gross amount in minor units, rounded half up."""
        return (gross * self.per_million + 500_000) // 1_000_000 + self.fixed

    def fits(self, details: str | None) -> bool:
        """Check whether the rule applies to a statement line with these details, ignoring case."""
        if not self.where:
            return True
        stated = json.loads(details) if details else {}
        return all(
            stated.get(name, "").casefold() in [each.casefold() for each in values]
            for name, values in self.where
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedRate:
    """Expected exchange rate, in millionths of a major unit.

    The tolerance is a share of the expected sum.
    """

    currency: str
    into: str
    micros: int
    tolerance_per_million: int = 0
    """Share of the expected sum by which the actual sum may differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchRules:
    """The merchant's rules of matching. Durations are microseconds."""

    tolerances: tuple[Tolerance, ...] = ()
    """Tolerated difference for each currency; 0 for any other."""
    date_window: Duration | None = None
    """Longest time between lines that are matched by amount and date. None for never."""
    settle_margin: Duration = 7 * DAY
    """Time that a capture can wait for its statement line. Most providers pay within a week."""
    book_margin: Duration = DAY
    """Time that the book can lag behind the money. Most exports are made daily."""
    money_margin: Duration = DAY
    """Time that the money can lag behind a book line that says paid."""
    refund_margin: Duration = 10 * DAY
    """Time within which a refund in the order book must have arrived."""
    fees: tuple[ExpectedFee, ...] = ()
    """Fee rules. The first that fits a line counts."""
    bank_margin: Duration = 5 * DAY
    """Time that a payout can take to reach the bank."""
    bank_payers: tuple[str, ...] = ()
    """Texts in the bank line of a payout. Empty if any credit can be a payout."""
    other_business: tuple[str, ...] = ()
    """Texts of bank lines that are no payouts."""
    rates: tuple[ExpectedRate, ...] = ()
    """Expected exchange rates by pair of currencies."""
    methods: Methods = field(default_factory=Methods)
    """Payment methods in the book whose money comes through no provider."""
    currency: str = "KES"
    """Currency of the merchant, used for zero amounts of unknown currency."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Time span from `since` to just before `until`."""

    since: Instant
    until: Instant


def joined_spans(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Merge time spans that overlap or touch, and return them sorted."""
    found: list[Span] = []
    for each in sorted(spans, key=lambda span: span.since):
        if found and each.since <= found[-1].until:
            found[-1] = Span(since=found[-1].since, until=max(found[-1].until, each.until))
        elif each.since < each.until:
            found.append(each)
    return tuple(found)


def common_spans(many: Iterable[tuple[Span, ...]]) -> tuple[Span, ...]:
    """Return the time spans that every list covers."""
    found: tuple[Span, ...] | None = None
    for spans in many:
        if found is None:
            found = joined_spans(spans)
            continue
        found = joined_spans(
            Span(since=max(one.since, other.since), until=min(one.until, other.until))
            for one in found
            for other in spans
            if max(one.since, other.since) < min(one.until, other.until)
        )
    return found or ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """Time spans that the files of one source, account or order book cover."""

    name: str
    spans: tuple[Span, ...] = ()
    """Sorted and not touching each other. May be empty."""
    wallet: str | None = None
    """The sub-account of the source. None for the whole source."""
    declared_by: tuple[str, ...] = ()
    """Person who declared the part of the spans that no file states."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Time spans that the imported files cover."""

    books: tuple[Covered, ...] = ()
    """Spans of each order book. A line is missing only where all books cover the date."""
    statements: tuple[Covered, ...] = ()
    """Spans of each source. A source without an entry has no statements."""
    wallets: tuple[Covered, ...] = ()
    """Spans of sub-accounts. A source is covered where all its sub-accounts are."""
    bank: tuple[Covered, ...] = ()
    takings: Instant | None = None
    """Time when the provider's webhooks began to arrive. None without a limit."""
    lost: tuple[Span, ...] = ()
    """Accepted gaps, in which webhooks may be lost."""


def waits_in(
    spans: tuple[Span, ...], at: Instant, *, due: Instant, as_of: Instant
) -> Literal["not_covered", "awaiting"] | None:
    """Return why files that cover these spans can lack an item of this date.

    None means that the item must be there.
    """
    if spans and at >= spans[-1].until:
        return "awaiting"
    for each in spans:
        if each.since <= at < each.until:
            if due <= min(each.until, as_of):
                return None
            return "awaiting" if due > as_of or each is spans[-1] else "not_covered"
    return "not_covered"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandMatch:
    """Match between two lines or orders that a person made."""

    one: str
    other: str


def hand_match(
    cause: BreakCause, *, order: str | None, subject: str | None, given: str
) -> HandMatch:
    """Return the match of a break with a named line."""
    return HandMatch(one=own_line(cause, order=order, subject=subject), other=name_of(given))


def own_line(cause: BreakCause, *, order: str | None, subject: str | None) -> str:
    """Return the line of a break, or else the order."""
    one = order if CAUSES[cause].of_movement else subject or order
    assert one is not None, "every break is about a line or an order"
    return one


CENTS: Final = 100
"""Number of minor units in most currencies' major unit."""

_NOBODY: Final[frozenset[str]] = frozenset()


MOST_FITTING: Final = 10_000
"""Maximum number of fee rules in the cache, a few megabytes."""


class Terms:
    """Rules, coverage, matches by hand and unallocated payments of one matching, ready for
    lookups."""

    def __init__(
        self,
        *,
        rules: MatchRules,
        as_of: Instant,
        coverage: Coverage,
        hands: Iterable[HandMatch] = (),
        suspense: Suspense = NO_SUSPENSE,
    ) -> None:
        self.suspense = suspense
        self.rules, self.as_of, self.coverage = rules, as_of, coverage
        self._tolerances = {each.currency: each.minor for each in rules.tolerances}
        self._fees: dict[tuple[str, str], list[ExpectedFee]] = defaultdict(list)
        for fee in rules.fees:
            self._fees[fee.source, fee.currency].append(fee)
        self._fitting: dict[tuple[str, str, str | None], ExpectedFee | None] = {}
        self._books = common_spans([each.spans for each in coverage.books])
        self._statements = {each.name: each.spans for each in coverage.statements}
        self._hands: dict[str, frozenset[str]] = {}
        for hand in hands:
            for one, other in ((hand.one, hand.other), (hand.other, hand.one)):
                self._hands[one] = self.partners(one) | {other}

    @property
    def any_fees(self) -> bool:
        return bool(self._fees)

    @property
    def any_hands(self) -> bool:
        return bool(self._hands)

    def partners(self, name: str) -> frozenset[str]:
        """Return the lines and orders that people matched with the named line or order."""
        return self._hands.get(name, _NOBODY)

    def outside_providers(self, rows: Iterable[BookRow]) -> bool:
        """Check whether the book says that these lines were paid entirely outside providers."""
        parts = [self.rules.methods.parts(row.method) for row in rows]
        return all(each and each <= NOT_BY_PROVIDER for each in parts)

    def partly_outside(self, rows: Iterable[BookRow]) -> bool:
        """Check whether a part was paid outside providers."""
        return any(self.rules.methods.parts(row.method) & NOT_BY_PROVIDER for row in rows)

    def within(self, difference: int, currency: str) -> bool:
        """Check whether a difference of this amount is tolerated."""
        return abs(difference) <= self._tolerances.get(currency, 0)

    def tolerance(self, currency: str) -> int:
        """Return the tolerated difference of two amounts, in minor units."""
        return self._tolerances.get(currency, 0)

    def expected_fee(
        self, gross: int, *, source: str, currency: str, details: str | None = None
    ) -> tuple[int, int] | None:
        """Return the expected fee, rounded half up, and its tolerance, if known."""
        rule = self._fee_rule((source, currency, details))
        return None if rule is None else (rule.of(gross), rule.tolerance)

    def fee_fits(self, taking: TakingRow, line: StatementRow) -> bool:
        """Check whether the line's fee is as expected, if known."""
        key = taking[4], line[5], line[15]
        rule = self._fitting[key] if key in self._fitting else self._fee_rule(key)
        if rule is None:
            return True
        due = (line[6] * rule.per_million + 500_000) // 1_000_000 + rule.fixed
        return -rule.tolerance <= line[7] - due <= rule.tolerance

    def _fee_rule(self, line: tuple[str, str, str | None]) -> ExpectedFee | None:
        if line not in self._fitting:
            if len(self._fitting) >= MOST_FITTING:
                self._fitting.clear()
            among = self._fees.get(line[:2], ())
            self._fitting[line] = next((each for each in among if each.fits(line[2])), None)
        return self._fitting[line]

    def waits_for_book(self, at: Instant, *, opened_at: Instant) -> Waiting | None:
        """Return the reason why an order book may lack this money; None if the book must contain
        it."""
        waits = waits_in(self._books, opened_at, due=at + TICK, as_of=self.as_of)
        if waits == "not_covered":
            return waits
        return "awaiting_book" if waits or self.book_lags(at) else None

    def book_lags(self, at: Instant) -> bool:
        """Check whether the order book may still lack something that happened at `at`."""
        return at + self.rules.book_margin > self.as_of

    def waits_for_money(self, placed_at: Instant | None) -> Waiting | None:
        """Return the reason why this money may be missing; None if it must be there."""
        due = None if placed_at is None else placed_at + self.rules.money_margin
        if self.lost_in(placed_at, due) is not None:
            return "not_covered"
        if placed_at is None:
            return None
        if self.coverage.takings is not None and placed_at < self.coverage.takings:
            return "not_covered"
        return "awaiting_money" if placed_at + self.rules.money_margin > self.as_of else None

    def lost_in(self, since: Instant | None, until: Instant | None) -> Span | None:
        """Return the first accepted gap that overlaps the time span.

        Both ends are included. None as an end means no limit.
        """
        return next(
            (
                span
                for span in self.coverage.lost
                if (until is None or span.since <= until) and (since is None or since < span.until)
            ),
            None,
        )

    def settles(self, line_source: str, source: str) -> bool:
        """Check whether a line may settle this source's payment."""
        return not line_source or line_source == source or source not in self._statements

    def waits_for_settlement(self, at: Instant, *, source: str) -> Waiting | None:
        """Return the reason why statements may lack this money; None if they must contain it."""
        due = at + self.rules.settle_margin
        spans = self._statements.get(source, ())
        waits = waits_in(spans, at, due=due, as_of=self.as_of)
        return "awaiting_settlement" if waits == "awaiting" else waits

    def has_statements(self, source: str) -> bool:
        return source in self._statements

    def is_covered(self, at: Instant, *, source: str) -> bool:
        """Check whether the source's statements cover an instant."""
        spans = self._statements.get(source, ())
        return any(span.since <= at < span.until for span in spans)


@cache
def _factors(currency: str) -> tuple[int, ...]:
    return tuple(sorted({int(10 ** exponent_of(currency)), CENTS} - {1}))


def factor_between(one: int, other: int, currency: str) -> int | None:
    """Return the factor by which confused units explain two amounts."""
    if one == 0 or other == 0:
        return None
    for factor in _factors(currency):
        if one == other * factor or other == one * factor:
            return factor
    return None
