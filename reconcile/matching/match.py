"""Match ledgers, order book and statements, and report agreement and differences.

The streams of rows come in key order, so that memory does not grow with them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from typing import Final, Literal

from reconcile.instants import Instant
from reconcile.matching.breaks import Break, Candidate
from reconcile.matching.candidates import Index, Searchable, entry_of, nearest_of
from reconcile.matching.control import Control
from reconcile.matching.decide import MATCH_KINDS, Decision, Match, MatchKind, Pair, decide
from reconcile.matching.fallback import WAYS, Rest
from reconcile.matching.funds import Capture, Left, funds_of
from reconcile.matching.group import Deciding
from reconcile.matching.rows import BookRow, StatementRow, TakingRow, claims, lines_of
from reconcile.matching.rules import Coverage, HandMatch, MatchRules, Terms
from reconcile.matching.suspense import NO_SUSPENSE, UNALLOCATED, Suspended, Suspense
from reconcile.matching.tally import Group, KeepingTally, Plain, Tally, Unsettled, merge
from reconcile.money import Money


def _by_each_way(rest: Rest, deciding: Deciding) -> Iterator[Decision]:
    for way in WAYS:
        way(rest, deciding)
        rest.put_back(deciding.left)
        yield from deciding.tally.take_decisions()


NO_RECIPIENTS: Final[Mapping[str, frozenset[str]]] = {}


class _Unmatched:
    def __init__(
        self,
        rest: Rest,
        deciding: Deciding,
        *,
        beside: Iterable[Searchable],
        unpaid: list[Searchable],
        recipients: Mapping[str, frozenset[str]],
    ) -> None:
        self._recipients = recipients
        self._rest, self._deciding = rest, deciding
        self._window = deciding.terms.rules.date_window
        self._booked: dict[str, tuple[BookRow, ...]] = {
            rows[0].key: rows for rows in rest.book.values()
        }
        self._beside = Index(beside)
        waiting = deciding.terms.suspense.of_period()
        self._waiting = Index([one for each in waiting for one in _of_suspended(each)])
        self._unpaid = unpaid
        self._orders = [_of_order(row) for row in rest.orders.values()]
        self._settled = {row.key for row in rest.lines.values() if row.key}

    def decide(self) -> Iterator[Decision]:
        for step in (
            self._end_orders,
            self._end_book,
            self._end_lines,
            self._end_captures,
            self._end_refunds,
        ):
            for _ in step():
                yield from self._deciding.tally.take_decisions()

    # Each index is built at its first use, with all rows: none was removed before that.

    @cached_property
    def _books(self) -> Index:
        return Index([_of_book(rows) for rows in self._rest.book.values()])

    @cached_property
    def _open_books(self) -> Index:
        return Index([_of_book(rows) for rows in self._rest.book.values()])

    @cached_property
    def _moneys(self) -> Index:
        return Index(self._orders)

    @cached_property
    def _lines(self) -> Index:
        return Index([_of_line(row) for row in self._rest.lines.values()])

    @cached_property
    def _captures(self) -> Index:
        return Index([_of_capture(each) for each in self._rest.captures.values()])

    def _end_orders(self) -> Iterator[None]:
        for row in list(self._rest.orders.values()):
            funds = funds_of([row])
            rows = self._booked.pop(row.key, None)
            if rows is not None:
                lines = lines_of(rows)
                verdict = decide(Pair(funds, lines, self._deciding.terms))
                self._deciding.place(verdict, funds=funds, lines=lines)
                del self._rest.book[rows[0].line_id]
            else:
                near = self._near(_of_order(row), self._books)
                self._deciding.end_order(funds, candidates=near)
            yield

    def _end_book(self) -> Iterator[None]:
        tally = self._deciding.tally
        for rows in self._rest.book.values():
            if not claims(rows[0]):
                tally.place_book(rows, "nothing_due")
            elif rows[0].key in self._settled:
                # The break of the statement line reports this money: one difference, one break.
                tally.place_book(rows, "settled_never_notified")
            else:
                wanted = _of_book(rows)
                plain = (self._moneys, self._waiting)
                near = self._near(wanted, *plain, charged=(self._lines, self._beside))
                if self._deciding.end_book(lines_of(rows), candidates=near):
                    self._unpaid.append(wanted)
            yield

    def _end_lines(self) -> Iterator[None]:
        for row in self._rest.lines.values():
            # For an order in the book, its own line is not worth suggesting.
            searched = row.kind == "payment" and row.key not in self._booked
            books = (self._open_books,) if searched else ()
            near = self._near(_of_line(row), charged=(self._captures, *books))
            self._deciding.end_line(row, candidates=near)
            yield

    def _end_captures(self) -> Iterator[None]:
        for capture in self._rest.captures.values():
            near = self._near(_of_capture(capture), charged=(self._lines,))
            self._deciding.end_capture(capture, candidates=near)
            yield

    def _end_refunds(self) -> Iterator[None]:
        nobody = frozenset[str]()
        paid_out = Index(
            [
                replace(
                    _of_line(row, sign=-1),
                    people=self._recipients.get(row.payment or "", nobody),
                )
                for row in self._rest.paid_out.values()
            ]
        )
        for due in self._rest.refunds:
            found = due.found
            wanted = entry_of(
                found.identity,
                names=[found.order],
                minor=found.money.minor,
                currency=found.money.currency,
                at=max([e.refunded_at for e in due.book if e.refunded_at], default=found.since),
            )
            wanted = replace(wanted, people=frozenset(wanted.keys))
            near = self._near(wanted, paid_out)
            self._deciding.end_refund(due, candidates=near)
            yield
        self._deciding.tally.place_lines(self._rest.paid_out.values(), "other_business")

    def _near(
        self, wanted: Searchable, *plain: Index, charged: tuple[Index, ...] = ()
    ) -> tuple[Candidate, ...]:
        return nearest_of(wanted, plain=plain, charged=charged, window=self._window)


def _of_order(row: TakingRow) -> Searchable:
    funds = funds_of([row])
    return entry_of(
        row.order, names=[row.order], minor=funds.worth, currency=funds.currency, at=funds.at
    )


def _of_book(rows: tuple[BookRow, ...]) -> Searchable:
    lines = lines_of(rows)
    return entry_of(
        rows[0].line_id,
        names=[lines.reference],
        minor=lines.charge,
        currency=lines.currency,
        at=lines.placed_at,
    )


def _of_suspended(payment: Suspended) -> Iterator[Searchable]:
    if payment.bucket == "payment_unallocated":
        for currency, minor in payment.held().items():
            yield entry_of(
                f"{UNALLOCATED}{payment.source}:{payment.payment}",
                names=[payment.payment],
                minor=minor,
                currency=currency,
                at=min([each.at for each in payment.taken]),
            )


def _of_line(row: StatementRow, *, sign: int = 1) -> Searchable:
    return entry_of(
        row.line_id,
        names=[row.payment, row.order],
        minor=sign * row.gross,
        currency=row.currency,
        at=row.settled_at,
    )


def _of_capture(capture: Capture) -> Searchable:
    return entry_of(
        capture.order,
        names=[capture.payment, capture.order],
        minor=capture.minor,
        currency=capture.currency,
        at=capture.at,
    )


__all__ = [
    "MATCH_KINDS",
    "Decision",
    "Match",
    "MatchKind",
    "Matching",
    "MatchingPart",
    "OtherPeriods",
]


@dataclass(frozen=True, slots=True)
class MatchingPart:
    """Counts and unmatched rows of one range of keys, in a form that can be pickled."""

    tally: Tally
    left: Left


class Matching:
    """One matching of ledgers, order book and statements, under one set of rules and as of one
    instant."""

    def __init__(
        self,
        *,
        rules: MatchRules,
        as_of: Instant,
        coverage: Coverage,
        hands: Iterable[HandMatch] = (),
        suspense: Suspense = NO_SUSPENSE,
        keeping: KeepingTally | None = None,
        recipients: Mapping[str, frozenset[str]] = NO_RECIPIENTS,
    ) -> None:
        """Begin a matching.

        hands       matches that people made
        suspense    unallocated payments, matched with nothing else
        keeping     tally that counts the rows; None for a new one
        recipients  keys of orders that a disbursement can refund, by payment
        """
        self._recipients = recipients
        terms = Terms(rules=rules, as_of=as_of, coverage=coverage, hands=hands, suspense=suspense)
        self._terms, self._left = terms, Left()
        self._tally = keeping or Tally(rules.currency)
        self._deciding = Deciding(terms, self._tally, self._left)
        self.unpaid: list[Searchable] = []
        """Book lines that `rest` reported as unpaid."""

    def decide(
        self,
        *,
        takings: Iterable[TakingRow],
        book: Iterable[BookRow],
        statements: Iterable[StatementRow],
    ) -> Iterator[Decision]:
        """Match all rows in this process, and yield the matches and breaks."""
        yield from self.by_key(takings=takings, book=book, statements=statements)
        yield from self.rest()

    def by_key(
        self,
        *,
        takings: Iterable[TakingRow],
        book: Iterable[BookRow],
        statements: Iterable[StatementRow],
    ) -> Iterator[Decision]:
        """Match rows with equal keys, and yield the matches and breaks.

        Raises ValueError for a stream that is not sorted by key.
        """
        tally, deciding = self._tally, self._deciding
        plain = (
            None
            if isinstance(tally, KeepingTally)
            else Plain(
                agreed=tally.plain,
                settled=tally.settled,
                fee_fits=self._terms.fee_fits if self._terms.any_fees else None,
                unsettled=deciding.plainly_unsettled,
            )
        )
        groups = merge(
            tally.takings(takings), tally.book(book), tally.statements(statements), plain=plain
        )
        for group in groups:
            deciding.group(group)
            yield from tally.take_decisions()
        yield from tally.take_decisions()

    def part(self) -> MatchingPart:
        """Return the counts and unmatched rows for another matching."""
        return MatchingPart(self._tally, self._left)

    def absorb(self, part: MatchingPart) -> None:
        """Add another matching's counts and unmatched rows."""
        self._tally.absorb(part.tally)
        self._deciding.absorb(part.left)

    def rest(self, *, beside: Iterable[Searchable] = ()) -> Iterator[Decision]:
        """Match the remaining rows, and yield a break for each row left.

        beside  unmatched bank lines, which these rows may match as well
        """
        yield from self._tally.take_decisions()
        rest = Rest(self._left)
        self._deciding.end_suspense(self._left.suspended)
        yield from _by_each_way(rest, self._deciding)
        unmatched = _Unmatched(
            rest,
            self._deciding,
            beside=beside,
            unpaid=self.unpaid,
            recipients=self._recipients,
        )
        yield from unmatched.decide()

    def control(self) -> Control:
        """Return the totals of all decisions so far. The totals are complete after `rest`."""
        return self._tally.control(self._terms.as_of)

    def unsettled(self) -> Iterator[Unsettled]:
        """Yield the sums of captures that no line settled."""
        for (source, currency, days), sums in sorted(self._tally.unsettled.items()):
            yield Unsettled(source, currency, days, number=sums[0], minor=sums[1])


class OtherPeriods:
    """Finder of lines that settle nothing, outside a report's period."""

    def __init__(self, terms: Terms) -> None:
        self._tally, self._left = Tally(terms.rules.currency), Left()
        self._deciding = Deciding(terms, self._tally, self._left)
        self._known: set[str] = set()
        self._never_notified: set[str] = set()

    def order(self, group: Group) -> None:
        """Add an order of another period, or a line that belongs to no order."""
        before = len(self._left.lines)
        self._deciding.group(group)
        if group.takings:
            self._known |= {row.line_id for row in self._left.lines[before:]}
        for decision in self._tally.take_decisions():
            if isinstance(decision, Break) and decision.cause == "settled_never_notified":
                self._never_notified.update(decision.cites if group.takings else ())

    def never_notified(self) -> set[str]:
        """Return the ids of lines that belong to an order but settle nothing.

        Call this after all orders were added.
        """
        rest = Rest(self._left)
        for _ in _by_each_way(rest, self._deciding):
            pass  # their own period reports it
        return self._never_notified | (self._known & rest.lines.keys())


Effect = Literal["newly_matched", "no_longer_matched", "new_break", "gone_break", "changed"]
"""Kinds of differences between two matchings.

`changed` means that only the content differs.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference between two matchings. Either `before` or `after` may be None."""

    effect: Effect
    before: Decision | None
    after: Decision | None

    @property
    def identity(self) -> str:
        return self._decision.identity

    @property
    def money(self) -> Money:
        return self._decision.money

    @property
    def _decision(self) -> Decision:
        decision = self.before if self.after is None else self.after
        assert decision is not None
        return decision


def compare(before: Iterable[Decision], after: Iterable[Decision]) -> Iterator[Change]:
    """Compare two matchings, and yield the changes."""
    olds: dict[str, Decision] = {}
    news: dict[str, Decision] = {}
    for old, new in zip_longest(before, after):
        for decision, own, others in ((old, olds, news), (new, news, olds)):
            if decision is None:
                continue
            other = others.pop(decision.identity, None)
            if other is None:
                own[decision.identity] = decision
            elif other != decision:
                first, second = (decision, other) if own is olds else (other, decision)
                yield Change(effect="changed", before=first, after=second)
    effect: Effect
    for _, decision in sorted(olds.items()):
        effect = "no_longer_matched" if isinstance(decision, Match) else "gone_break"
        yield Change(effect=effect, before=decision, after=None)
    for _, decision in sorted(news.items()):
        effect = "newly_matched" if isinstance(decision, Match) else "new_break"
        yield Change(effect=effect, before=None, after=decision)
